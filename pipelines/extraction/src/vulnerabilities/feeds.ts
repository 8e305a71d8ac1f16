// Reads a feed that changes once a day: downloaded if the cached copy is older than that, and read from the old copy if the
// download fails. A copy is one file, created by a rename: a line with ETag and Last-Modified, then the body.
import { createHash, randomUUID } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { createGunzip } from "node:zlib";
import type { StepHandle } from "stillwake/worker";
import { fieldsOf, shortLine, textOf } from "../untrusted.ts";

export interface Feed<Read> {
  /** Display name: "EPSS". */
  label: string;
  /** A URL or a file. */
  source: string;
  /** Throws if the body is invalid; an invalid body is never cached. */
  readBody(body: AsyncIterable<Uint8Array>): Promise<Read>;
}

const FRESH_MS = 24 * 3600 * 1000;
const TIMEOUT_MS = 60_000;
const REDIRECTS = 5;
const PARTIAL = ".partial";
const KEEPS_OLD = ": the stored data is kept";
const LIMITS = { fetchFeed: 100 * 2 ** 20, body: 500 * 2 ** 20, head: 4096 };

/** Logs a warning and returns undefined if neither the feed nor an old copy can be read. */
export async function readFeed<Read>(step: StepHandle, feed: Feed<Read>, cache: string): Promise<Read | undefined> {
  const { label, source } = feed;
  if (!/^https?:\/\//i.test(source)) {
    const file = source.startsWith("file:") ? fileURLToPath(source) : source;
    return read(feed, file, 0).catch((error: unknown) => {
      step.log.warning(`${label} cannot be read (${reasonOf(error)})${KEEPS_OLD}`);
      return undefined;
    });
  }
  const folder = await cacheFolder(step, cache);
  const name = createHash("sha256").update(source).digest("hex").slice(0, 16);
  const file = path.join(folder, `${label.toLowerCase()}-${name}`);
  const copy = await readCopy(file);
  if (copy && Math.abs(Date.now() - copy.checkedAt) < FRESH_MS) {
    const kept = await read(feed, file, copy.offset).catch(() => undefined);
    if (kept !== undefined) return kept;
  }
  try {
    return await fetched(step, feed, file, copy);
  } catch (error) {
    step.signal.throwIfAborted();
    const old = copy && (await read(feed, file, copy.offset).catch(() => undefined));
    const day = copy && new Date(copy.checkedAt).toISOString().slice(0, 10);
    const instead = old === undefined ? KEEPS_OLD : `: using the copy from ${day}`;
    step.log.warning(`${label} could not be downloaded (${reasonOf(error)})${instead}`);
    return old;
  }
}

/** The lines of a text, each truncated to `maxLength`. */
export async function* readLines(body: AsyncIterable<Uint8Array>, maxLength: number): AsyncIterable<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop()!.slice(0, maxLength);
    for (const line of lines) yield line.slice(0, maxLength).trimEnd();
  }
  if (rest !== "") yield rest.trimEnd();
}

/** `tooLarge`: makes the error for a body that is larger. */
export async function readWhole(
  body: AsyncIterable<Uint8Array>,
  maxBytes: number,
  tooLarge?: () => Error,
): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of limitBytes(body, maxBytes, tooLarge)) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

interface CachedCopy {
  etag: string | undefined;
  lastModified: string | undefined;
  /** Modification time of the file: when the feed last confirmed it as current. */
  checkedAt: number;
  /** Offset of the body in the file. */
  offset: number;
}

/** The scratch directory if the cache is not writable, as in a read-only image. */
async function cacheFolder(step: StepHandle, cache: string): Promise<string> {
  const folder = path.join(cache, "feeds");
  try {
    await fs.promises.mkdir(folder, { recursive: true });
    await fs.promises.access(folder, fs.constants.W_OK);
    await removeLeftovers(folder);
    return folder;
  } catch {
    return step.scratch();
  }
}

/** Partial files of processes that died during a download. */
async function removeLeftovers(folder: string): Promise<void> {
  for (const name of await fs.promises.readdir(folder)) {
    if (!name.endsWith(PARTIAL)) continue;
    const file = path.join(folder, name);
    const { mtimeMs } = await fs.promises.stat(file).catch(() => ({ mtimeMs: Date.now() }));
    if (Date.now() - mtimeMs > 3600_000) await fs.promises.rm(file, { force: true });
  }
}

async function readCopy(file: string): Promise<CachedCopy | undefined> {
  try {
    const start = await readBytes(file, 0, LIMITS.head);
    const end = start.indexOf("\n");
    const head = fieldsOf(JSON.parse(start.toString("utf8", 0, end)));
    const { mtimeMs } = await fs.promises.stat(file);
    const [etag, lastModified] = [textOf(head?.etag, 500), textOf(head?.lastModified, 100)];
    return { etag, lastModified, checkedAt: mtimeMs, offset: end + 1 };
  } catch {
    return undefined;
  }
}

async function readBytes(file: string, offset: number, length: number): Promise<Buffer> {
  const opened = await fs.promises.open(file);
  try {
    const { buffer, bytesRead } = await opened.read(Buffer.alloc(length), 0, length, offset);
    return buffer.subarray(0, bytesRead);
  } finally {
    await opened.close();
  }
}

async function fetched<Read>(
  step: StepHandle,
  feed: Feed<Read>,
  file: string,
  copy: CachedCopy | undefined,
): Promise<Read> {
  const signal = AbortSignal.any([step.signal, AbortSignal.timeout(TIMEOUT_MS)]);
  const headers: Record<string, string> = { accept: "*/*", "user-agent": "stillwake-extraction" };
  if (copy?.etag) headers["if-none-match"] = copy.etag;
  if (copy?.lastModified) headers["if-modified-since"] = copy.lastModified;
  const response = await fetchFollowing(feed.source, headers, signal);
  if (response.status === 304 && copy) {
    await response.body?.cancel();
    const kept = await read(feed, file, copy.offset).catch(() => undefined);
    if (kept === undefined) return fetched(step, feed, file, undefined);
    await fs.promises.utimes(file, new Date(), new Date());
    return kept;
  }
  if (response.status !== 200 || !response.body) {
    await response.body?.cancel();
    throw new Error(`HTTP ${response.status}`);
  }
  const head = { etag: response.headers.get("etag"), lastModified: response.headers.get("last-modified") };
  const line = `${JSON.stringify(head).slice(0, LIMITS.head - 1)}\n`;
  // Concurrent processes each rename a complete file to the same path.
  const partial = `${file}.${randomUUID()}${PARTIAL}`;
  try {
    // A Node stream would emit an unhandled error if the connection broke before the file is open.
    const body = limitBytes(response.body as unknown as AsyncIterable<Uint8Array>, LIMITS.fetchFeed);
    await fs.promises.writeFile(partial, withHead(line, body), { signal });
    const result = await read(feed, partial, Buffer.byteLength(line));
    await fs.promises.rename(partial, file);
    return result;
  } finally {
    await response.body.cancel().catch(() => {});
    await fs.promises.rm(partial, { force: true });
  }
}

/** Follows redirects manually, so that https is never downgraded. Plain http is only for loopback feeds. */
async function fetchFollowing(source: string, headers: Record<string, string>, signal: AbortSignal): Promise<Response> {
  let url = new URL(source);
  const local = isLocal(url);
  // fetch() rejects a password in the URL and quotes it in its message.
  const { origin, username, password } = url;
  const secret = Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString("base64");
  url.username = "";
  url.password = "";
  for (let hop = 0; hop <= REDIRECTS; hop += 1) {
    if (url.protocol !== "https:" && !(local && url.protocol === "http:" && isLocal(url))) {
      throw new Error(`${url.origin} is not https`);
    }
    const credentials = username && url.origin === origin ? { authorization: `Basic ${secret}` } : {};
    const response = await fetch(url, { headers: { ...headers, ...credentials }, signal, redirect: "manual" });
    const location = [301, 302, 303, 307, 308].includes(response.status) && response.headers.get("location");
    if (!location) return response;
    await response.body?.cancel();
    url = new URL(location, url);
  }
  throw new Error("too many redirects");
}

/** This machine: the only place that plain http may lead to. */
export function isLocal({ hostname }: URL): boolean {
  return hostname === "localhost" || hostname === "[::1]" || /^127(?:\.\d+){3}$/.test(hostname);
}

async function* withHead(head: string, body: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
  yield Buffer.from(head);
  yield* body;
}

/** Reads the body from the offset, decompressed if its first bytes are those of gzip. */
async function read<Read>(feed: Feed<Read>, file: string, offset: number): Promise<Read> {
  const magic = await readBytes(file, offset, 2);
  const raw = fs.createReadStream(file, { start: offset });
  const gzipped = magic[0] === 0x1f && magic[1] === 0x8b;
  const body = gzipped ? raw.pipe(createGunzip()) : raw;
  // pipe() does not forward errors; a reader that stops early leaves both streams open.
  if (gzipped) raw.on("error", (error) => body.destroy(error));
  try {
    return await feed.readBody(limitBytes(body, LIMITS.body));
  } finally {
    raw.destroy();
    body.destroy();
  }
}

async function* limitBytes(
  body: AsyncIterable<Uint8Array>,
  maxBytes: number,
  tooLarge = () => new Error(`it is larger than ${Math.round(maxBytes / 2 ** 20)} MB`),
): AsyncIterable<Uint8Array> {
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.byteLength;
    if (bytes > maxBytes) throw tooLarge();
    yield chunk;
  }
}

/** The message of fetch() is only in its cause. */
export function reasonOf(error: unknown): string {
  const { message, cause, name } = error as {
    message?: unknown;
    cause?: { message?: unknown; code?: unknown };
    name?: unknown;
  };
  if (name === "TimeoutError") return `timeout after ${TIMEOUT_MS / 1000} s`;
  return shortLine(cause?.message || cause?.code || message, 200) ?? "unknown";
}
