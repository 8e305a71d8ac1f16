// Helpers for tests of artifact stores: temporary paths, and storing content with correct or wrong metadata.
import { createHash } from "node:crypto";
import fs from "node:fs";
import fsp from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import { afterAll } from "vitest";
import type { ArtifactStore, Credentials } from "../../../src/artifacts/open-store.ts";
import { s3Store } from "../../../src/artifacts/s3-store.ts";
import type { S3Server } from "./s3-server.ts";

export const sha256 = (data: string | Buffer) => createHash("sha256").update(data).digest("hex");

export const readText = async (store: ArtifactStore, key: string) => (await buffer(await store.get(key))).toString();

/** Returns paths that do not exist yet; they are removed after the test file. */
export function tempDirectories(): () => string {
  const home = fs.mkdtempSync(path.join(fs.realpathSync(os.tmpdir()), "stillwake-stores-"));
  let numbers = 0;
  afterAll(() => fs.rmSync(home, { recursive: true, force: true }));
  return () => path.join(home, String(++numbers));
}

/** A store on the server that records its pauses instead of waiting. */
export function s3StoreOn(server: S3Server, pauses: number[] = [], change: Partial<Credentials> = {}): ArtifactStore {
  const settings = {
    bucket: server.bucket,
    prefix: "pre/",
    endpoint: new URL(server.endpoint),
    region: "eu-west-7",
    style: "path" as const,
  };
  const pause = async (ms: number) => void pauses.push(ms);
  return s3Store({ ...settings, pause }, { ...server.credentials, ...change });
}

/** Stores content from a file, optionally with metadata that does not match. */
export async function put(
  store: ArtifactStore,
  key: string,
  content: string | Buffer,
  claim: string | Buffer = content,
  signal?: AbortSignal,
): Promise<void> {
  const file = path.join(os.tmpdir(), `stillwake-put-${process.pid}-${Math.random()}`);
  const handle = await fsp.open(file, "wx+");
  try {
    await fsp.rm(file);
    await handle.writeFile(content);
    const size = Buffer.byteLength(claim);
    await store.put(key, { name: "r.txt", handle, size, sha256: sha256(claim), contentType: "text/plain" }, signal);
  } finally {
    await handle.close();
  }
}
