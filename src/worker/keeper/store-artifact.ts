// The keeper's half of an artifact: takes the file the runner says it has made, trusts nothing about it, and puts it into the store under a
// key that no other attempt uses. The row in the database is written by the caller afterwards, so a row implies a whole object.
import { randomUUID } from "node:crypto";
import fs from "node:fs/promises";
import path from "node:path";
import { Readable } from "node:stream";
import { fromDisk, openRegular } from "../../artifacts/disk.ts";
import { checkArtifactName, isInside } from "../../artifacts/names.ts";
import { type ArtifactStore, artifactChanged } from "../../artifacts/store.ts";
import { verified } from "../../artifacts/verify-stream.ts";
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
  /** Where the runner says it is. */
  path: string;
  scratch: string;
  /** What the runner says it is. */
  expected: { size: number; sha256: string };
  signal?: AbortSignal;
}

export async function storeArtifact(options: StoreArtifactOptions): Promise<StoredArtifact> {
  const { store, job, epoch, expected, signal } = options;
  const name = checkArtifactName(options.name);
  const contentType = contentTypeOf(name);
  const { size, sha256 } = expected;
  if (!/^[0-9a-f]{64}$/.test(sha256) || !Number.isSafeInteger(size) || size < 0) throw artifactChanged(name);
  if (size === 0) throw new StillwakeError("EMPTY_ARTIFACT", `${name} came out empty`, { retryable: true });
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

/** Whether the store has it, with the right size and hash: then its step need not be done again. */
export async function artifactIsThere(
  store: ArtifactStore,
  { key, size, sha256 }: { key: string; size: number; sha256: string },
): Promise<boolean> {
  const there = await store.stat(key);
  return there?.size === size && there.sha256 === sha256;
}

export interface FetchArtifactOptions {
  store: ArtifactStore;
  row: ArtifactRow;
  scratch: string;
  /** Whose the copy is to be, if that is another user. */
  runAs: { uid: number; gid: number } | undefined;
  signal: AbortSignal;
}

/** Copies an artifact into the scratch directory, to be read, and answers where it is. Nothing is left of what is not as its row says. */
export async function fetchArtifact({ store, row, scratch, runAs, signal }: FetchArtifactOptions): Promise<string> {
  const content = await store.get(row.key, signal).catch((error) => {
    throw error.code === "ARTIFACT_MISSING" ? lost(row.name) : error;
  });
  // The directory is user code's and the one above is not: a new name right in it cannot lead elsewhere.
  const file = path.join(scratch, `artifacts.fetched-${randomUUID()}`);
  try {
    const copy = await fs.open(file, "wx", 0o400);
    try {
      for await (const block of verified(content, row.name, row)) await copy.writeFile(block);
      if (runAs) await copy.chown(runAs.uid, runAs.gid);
    } finally {
      await copy.close();
    }
    return file;
  } catch (error) {
    await fs.rm(file, { force: true });
    throw brokenOff(fromDisk(error, row.name), row.name);
  } finally {
    // A stream of which nothing was read holds its connection or its file otherwise.
    if (content instanceof Readable) content.destroy();
    else await content.cancel().catch(() => {});
  }
}

export function noSuchArtifact(name: string, rows: readonly ArtifactRow[]): StillwakeError {
  const names = rows.slice(0, 20).map((row) => row.name);
  const more = rows.length > names.length ? ` and ${rows.length - names.length} more` : "";
  return new StillwakeError("ARTIFACT_MISSING", `The job has no artifact ${JSON.stringify(name.slice(0, 300))}`, {
    field: "name",
    remedy: names.length > 0 ? `It has ${names.join(", ")}${more}` : "It has none yet; make it with job.artifact first",
  });
}

/** `<week>/<job>/<epoch>/<sha256>`: a late attempt has a key of its own, and what is too old goes by its week. */
export function artifactKey(job: string, epoch: bigint | number | string, sha256: string): string {
  return `${artifactWeek(job)}/${job.toLowerCase()}/${BigInt(epoch)}/${sha256}`;
}

/** The Monday of the week, in UTC, in which the job's id was made. */
export function artifactWeek(job: string): string {
  const hex = checkId(job, "job").replaceAll("-", "");
  if (hex[12] !== "7") {
    throw new InvalidInput(`The job id ${job} does not tell its time`, {
      field: "job",
      remedy: "Jobs have ids of UUID version 7, as enqueue makes them",
    });
  }
  const day = new Date(Number.parseInt(hex.slice(0, 12), 16));
  day.setUTCDate(day.getUTCDate() - ((day.getUTCDay() + 6) % 7));
  return day.toISOString().slice(0, 10);
}

async function openInside(scratch: string, given: string, name: string): Promise<fs.FileHandle> {
  const top = await fs.realpath(scratch);
  const place = path.resolve(top, given);
  const handle = await openRegular(place).catch((error) => {
    throw error.code === "ENOENT" || error.code === "ENOTDIR" ? artifactChanged(name, error) : error;
  });
  if (!handle) throw outside(name);
  try {
    // The open file itself is compared with what stands at the resolved path: the way to it may have been bent meanwhile. A second name
    // could belong to a file of somebody else.
    const real = await fs.realpath(place).catch(() => "");
    const opened = await handle.stat();
    const found = isInside(top, real) ? await fs.lstat(real) : undefined;
    if (found?.ino !== opened.ino || found.dev !== opened.dev || opened.nlink !== 1) throw outside(name);
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function lost(name: string): StillwakeError {
  return new StillwakeError("ARTIFACT_MISSING", `The store has lost ${name}`, {
    remedy: "See that all workers have the same store; retry the job from the start to make it again",
  });
}

/** What is neither ours nor the disk's is a connection that broke. */
function brokenOff(error: unknown, name: string): unknown {
  if (error instanceof StillwakeError || typeof (error as NodeJS.ErrnoException).errno === "number") return error;
  return new StillwakeError("STORE_UNAVAILABLE", `The artifact store broke off in the middle of ${name}`, {
    cause: error,
    retryable: true,
    remedy: "See whether the provider has an outage",
  });
}

function outside(name: string): StillwakeError {
  return new StillwakeError("OUTSIDE_SCRATCH", `${name} is no regular file of the job's scratch directory`, {
    remedy: "Artifacts are files of their own, without links",
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
