// The keeper's part of artifacts: verifies the file that an untrusted runner produced and puts it into the store under
// a key that no other attempt uses. The caller writes the database row afterwards, so a row implies a complete object.
import { randomUUID } from "node:crypto";
import fs from "node:fs/promises";
import path from "node:path";
import { Readable } from "node:stream";
import { explainDiskError, openRegular } from "../../artifacts/disk.ts";
import { checkArtifactName, isInside } from "../../artifacts/names.ts";
import type { ArtifactStore } from "../../artifacts/store.ts";
import { artifactChanged, verifyContent } from "../../artifacts/verify-content.ts";
import type { ArtifactRow } from "../../db/calls/reads.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { checkId } from "../../ids.ts";

export interface StoredArtifact {
  name: string;
  size: number;
  sha256: string;
  key: string;
  contentType: string;
}

export interface StoreArtifactOptions {
  store: ArtifactStore;
  job: string;
  epoch: bigint | number | string;
  name: string;
  /** As reported by the runner. */
  path: string;
  scratch: string;
  /** As reported by the runner. */
  expected: { size: number; sha256: string };
  signal?: AbortSignal;
}

export async function storeArtifact(options: StoreArtifactOptions): Promise<StoredArtifact> {
  const { store, job, epoch, expected, signal } = options;
  const name = checkArtifactName(options.name);
  const contentType = contentTypeOf(name);
  const { size, sha256 } = expected;
  if (!/^[0-9a-f]{64}$/.test(sha256) || !Number.isSafeInteger(size) || size < 0) throw artifactChanged(name);
  if (size === 0) throw new StillwakeError("EMPTY_ARTIFACT", `The artifact ${name} is empty`, { retryable: true });
  const key = artifactKey(job, epoch, sha256);
  const handle = await openInside(options.scratch, options.path, name);
  try {
    if ((await handle.stat()).size !== size) throw artifactChanged(name);
    await store.put(key, { name, handle, size, sha256, contentType }, signal);
  } finally {
    await handle.close();
  }
  return { name, size, sha256, key, contentType };
}

/** Whether the store has the object with this size and hash, so that its step can be skipped. */
export async function artifactExists(
  store: ArtifactStore,
  { key, size, sha256 }: { key: string; size: number; sha256: string },
): Promise<boolean> {
  const stored = await store.stat(key);
  return stored?.size === size && stored.sha256 === sha256;
}

export interface FetchArtifactOptions {
  store: ArtifactStore;
  row: ArtifactRow;
  scratch: string;
  /** The owner of the copy, if another user. */
  runAs: { uid: number; gid: number } | undefined;
  signal: AbortSignal;
}

/** Copies an artifact into the scratch directory and returns its path. A copy that does not match its row is removed. */
export async function fetchArtifact({ store, row, scratch, runAs, signal }: FetchArtifactOptions): Promise<string> {
  const content = await store.get(row.key, signal).catch((error) => {
    throw error.code === "ARTIFACT_MISSING" ? missingObject(row.name) : error;
  });
  // User code controls the directory but not its parents: a new name directly in it cannot point elsewhere.
  const file = path.join(scratch, `artifacts.fetched-${randomUUID()}`);
  try {
    const copy = await fs.open(file, "wx", 0o400);
    try {
      for await (const block of verifyContent(content, row.name, row)) await copy.writeFile(block);
      if (runAs) await copy.chown(runAs.uid, runAs.gid);
    } finally {
      await copy.close();
    }
    return file;
  } catch (error) {
    await fs.rm(file, { force: true });
    throw toStoreError(explainDiskError(error, row.name), row.name);
  } finally {
    // An unread stream would keep its connection or file open.
    if (content instanceof Readable) content.destroy();
    else await content.cancel().catch(() => {});
  }
}

export function artifactNotFound(name: string, rows: readonly ArtifactRow[]): StillwakeError {
  const names = rows.slice(0, 20).map((row) => row.name);
  const more = rows.length > names.length ? ` and ${rows.length - names.length} more` : "";
  return new StillwakeError("ARTIFACT_MISSING", `The job has no artifact ${JSON.stringify(name.slice(0, 300))}`, {
    field: "name",
    remedy:
      names.length > 0 ? `It has ${names.join(", ")}${more}` : "It has none yet; produce it with job.artifact first",
  });
}

/** `<week>/<job>/<epoch>/<sha256>`: every attempt has its own keys, and retention deletes by week. */
export function artifactKey(job: string, epoch: bigint | number | string, sha256: string): string {
  return `${artifactWeek(job)}/${job.toLowerCase()}/${BigInt(epoch)}/${sha256}`;
}

/** The Monday, in UTC, of the week in which the job's id was created. */
export function artifactWeek(job: string): string {
  const hex = checkId(job, "job").replaceAll("-", "");
  if (hex[12] !== "7") {
    throw new InvalidInput(`The job id ${job} contains no timestamp`, {
      field: "job",
      remedy: "Use ids of UUID version 7, as enqueue creates them",
    });
  }
  const day = new Date(Number.parseInt(hex.slice(0, 12), 16));
  day.setUTCDate(day.getUTCDate() - ((day.getUTCDay() + 6) % 7));
  return day.toISOString().slice(0, 10);
}

async function openInside(scratch: string, reportedPath: string, name: string): Promise<fs.FileHandle> {
  const top = await fs.realpath(scratch);
  const file = path.resolve(top, reportedPath);
  const handle = await openRegular(file).catch((error) => {
    throw error.code === "ENOENT" || error.code === "ENOTDIR" ? artifactChanged(name, error) : error;
  });
  if (!handle) throw outsideScratch(name);
  try {
    // Compare the open file with the one at the resolved path, which user code may have replaced in between. A file
    // with a second hard link could be a file outside.
    const real = await fs.realpath(file).catch(() => "");
    const opened = await handle.stat();
    const found = isInside(top, real) ? await fs.lstat(real) : undefined;
    if (found?.ino !== opened.ino || found.dev !== opened.dev || opened.nlink !== 1) throw outsideScratch(name);
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function missingObject(name: string): StillwakeError {
  return new StillwakeError("ARTIFACT_MISSING", `The artifact store no longer has ${name}`, {
    remedy: "Check that all workers use the same store, or retry the job from the start to produce it again",
  });
}

/** An error that is neither a StillwakeError nor a disk error is a broken connection. */
function toStoreError(error: unknown, name: string): unknown {
  if (error instanceof StillwakeError || typeof (error as NodeJS.ErrnoException).errno === "number") return error;
  return new StillwakeError("STORE_UNAVAILABLE", `The artifact store closed the connection while sending ${name}`, {
    cause: error,
    retryable: true,
    remedy: "Check whether the provider has an outage",
  });
}

function outsideScratch(name: string): StillwakeError {
  return new StillwakeError("OUTSIDE_SCRATCH", `${name} is not a regular file in the job's scratch directory`, {
    remedy: "Write artifacts as regular files without symbolic or hard links",
  });
}

const contentTypes: Record<string, string> = {
  csv: "text/csv; charset=utf-8",
  gif: "image/gif",
  gz: "application/gzip",
  html: "text/html; charset=utf-8",
  jpeg: "image/jpeg",
  jpg: "image/jpeg",
  json: "application/json",
  log: "text/plain; charset=utf-8",
  m4a: "audio/mp4",
  md: "text/markdown; charset=utf-8",
  mp3: "audio/mpeg",
  mp4: "video/mp4",
  ndjson: "application/x-ndjson",
  pdf: "application/pdf",
  png: "image/png",
  sarif: "application/sarif+json",
  srt: "application/x-subrip",
  svg: "image/svg+xml",
  tar: "application/x-tar",
  tgz: "application/gzip",
  txt: "text/plain; charset=utf-8",
  vtt: "text/vtt; charset=utf-8",
  wav: "audio/wav",
  webm: "video/webm",
  webp: "image/webp",
  xml: "application/xml",
  zip: "application/zip",
};

function contentTypeOf(name: string): string {
  return contentTypes[path.extname(name).slice(1).toLowerCase()] ?? "application/octet-stream";
}
