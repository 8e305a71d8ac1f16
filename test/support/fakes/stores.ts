// What the tests of the stores have in common: places for files, and putting something into a store, truthfully or not.
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

export const textIn = async (store: ArtifactStore, key: string) => (await buffer(await store.get(key))).toString();

/** Names for files and directories that do not exist yet. They go when the test file has ended. */
export function freshPlaces(): () => string {
  const home = fs.mkdtempSync(path.join(fs.realpathSync(os.tmpdir()), "stillwake-stores-"));
  let numbers = 0;
  afterAll(() => fs.rmSync(home, { recursive: true, force: true }));
  return () => path.join(home, String(++numbers));
}

/** A store on the server that does not really pause, but tells for how long it would have. */
export function bucketOn(server: S3Server, pauses: number[] = [], change: Partial<Credentials> = {}): ArtifactStore {
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

/** Stores content by way of a file, or claims that the file holds something else. */
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
