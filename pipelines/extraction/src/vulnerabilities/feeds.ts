// A feed that changes once a day: fetched when our copy is older than that, kept in the cache for the next job, and read from the old copy when nobody
// answers. A copy is one file, moved into its place whole: first a line with what to ask for news by, then the body.
import { createHash, randomUUID } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { createGunzip } from "node:zlib";
import type { StepHandle } from "stillwake/worker";
import { fieldsOf, sentenceOf, textOf } from "../untrusted.ts";

export interface Feed<Read> {
  /** As people call it: "EPSS". */
  label: string;
  /** A URL or a file. */
  source: string;
  /** Throws when the body is not what it should be: such a body is never kept. */
  read(body: AsyncIterable<Uint8Array>): Promise<Read>;
}

const FRESH_MS = 24 * 3600 * 1000;
const ANSWER_MS = 60_000;
const REDIRECTS = 5;
const PARTIAL = ".partial";
const STAYS = ": what it said before stays";
const LIMITS = { fetched: 100 * 2 ** 20, body: 500 * 2 ** 20, head: 4096 };

/** What the feed says, or undefined when neither it nor an old copy can be read: that has been warned of. */
export async function readFeed<Read>(step: StepHandle, feed: Feed<Read>, cache: string): Promise<Read | undefined> {
  const { label, source } = feed;
  if (!/^https?:\/\//i.test(source)) {
    const file = source.startsWith("file:") ? fileURLToPath(source) : source;
    return read(feed, file, 0).catch((error: unknown) => {
      step.log.warn(`${label} cannot be read (${reasonOf(error)})${STAYS}`);
      return undefined;
    });
  }
  const folder = await placeFor(step, cache);
  const name = createHash("sha256").update(source).digest("hex").slice(0, 16);
  const file = path.join(folder, `${label.toLowerCase()}-${name}`);
  const copy = await copyIn(file);
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
    const instead = old === undefined ? STAYS : `: the copy of ${day} is used`;
    step.log.warn(`${label} does not answer (${reasonOf(error)})${instead}`);
    return old;
  }
}

/** The lines of a text, each cut at `longest`. */
export async function* linesOf(body: AsyncIterable<Uint8Array>, longest: number): AsyncIterable<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop()!.slice(0, longest);
    for (const line of lines) yield line.slice(0, longest).trimEnd();
  }
  if (rest !== "") yield rest.trimEnd();
}

/** All of it, for bodies that must be read as one. */
export async function wholeOf(body: AsyncIterable<Uint8Array>, most: number): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of capped(body, most)) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

interface Copy {
  etag: string | undefined;
  lastModified: string | undefined;
  /** The file's time: when the feed last said that this is its newest. */
  checkedAt: number;
  /** Where the body begins. */
  offset: number;
}

/** A cache that cannot be written to, as in a read-only image, costs a download for each job and nothing else. */
async function placeFor(step: StepHandle, cache: string): Promise<string> {
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

/** Of processes that died while they fetched. */
async function removeLeftovers(folder: string): Promise<void> {
  for (const name of await fs.promises.readdir(folder)) {
    if (!name.endsWith(PARTIAL)) continue;
    const file = path.join(folder, name);
    const { mtimeMs } = await fs.promises.stat(file).catch(() => ({ mtimeMs: Date.now() }));
    if (Date.now() - mtimeMs > 3600_000) await fs.promises.rm(file, { force: true });
  }
}

async function copyIn(file: string): Promise<Copy | undefined> {
  try {
    const start = await beginningOf(file, 0, LIMITS.head);
    const end = start.indexOf("\n");
    const head = fieldsOf(JSON.parse(start.toString("utf8", 0, end)));
    const { mtimeMs } = await fs.promises.stat(file);
    const [etag, lastModified] = [textOf(head?.etag, 500), textOf(head?.lastModified, 100)];
    return { etag, lastModified, checkedAt: mtimeMs, offset: end + 1 };
  } catch {
    return undefined;
  }
}

async function beginningOf(file: string, offset: number, most: number): Promise<Buffer> {
  const opened = await fs.promises.open(file);
  try {
    const { buffer, bytesRead } = await opened.read(Buffer.alloc(most), 0, most, offset);
    return buffer.subarray(0, bytesRead);
  } finally {
    await opened.close();
  }
}

async function fetched<Read>(step: StepHandle, feed: Feed<Read>, file: string, copy: Copy | undefined): Promise<Read> {
  const signal = AbortSignal.any([step.signal, AbortSignal.timeout(ANSWER_MS)]);
  const headers: Record<string, string> = { accept: "*/*", "user-agent": "stillwake-extraction" };
  if (copy?.etag) headers["if-none-match"] = copy.etag;
  if (copy?.lastModified) headers["if-modified-since"] = copy.lastModified;
  const answer = await ask(feed.source, headers, signal);
  if (answer.status === 304 && copy) {
    await answer.body?.cancel();
    const kept = await read(feed, file, copy.offset).catch(() => undefined);
    if (kept === undefined) return fetched(step, feed, file, undefined);
    await fs.promises.utimes(file, new Date(), new Date());
    return kept;
  }
  if (answer.status !== 200 || !answer.body) {
    await answer.body?.cancel();
    throw new Error(`it answered ${answer.status}`);
  }
  const head = { etag: answer.headers.get("etag"), lastModified: answer.headers.get("last-modified") };
  const line = `${JSON.stringify(head).slice(0, LIMITS.head - 1)}\n`;
  // Two processes may fetch at once: each moves a whole file into the same place.
  const partial = `${file}.${randomUUID()}${PARTIAL}`;
  try {
    // Read as the stream of the web that it is: one of Node's would throw at nobody when the connection breaks before the file is open.
    const body = capped(answer.body as unknown as AsyncIterable<Uint8Array>, LIMITS.fetched);
    await fs.promises.writeFile(partial, withHead(line, body), { signal });
    const result = await read(feed, partial, Buffer.byteLength(line));
    await fs.promises.rename(partial, file);
    return result;
  } finally {
    await answer.body.cancel().catch(() => {});
    await fs.promises.rm(partial, { force: true });
  }
}

/** Redirects are followed by hand, so that https never becomes http on the way. Plain http is for a feed on this very machine. */
async function ask(source: string, headers: Record<string, string>, signal: AbortSignal): Promise<Response> {
  let url = new URL(source);
  const local = isLocal(url);
  // fetch() refuses a password in the address, and repeats it in its message.
  const { origin, username, password } = url;
  const secret = Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString("base64");
  url.username = "";
  url.password = "";
  for (let hop = 0; hop <= REDIRECTS; hop += 1) {
    if (url.protocol !== "https:" && !(local && url.protocol === "http:" && isLocal(url))) {
      throw new Error(`${url.origin} is not https`);
    }
    const known = username && url.origin === origin ? { authorization: `Basic ${secret}` } : {};
    const answer = await fetch(url, { headers: { ...headers, ...known }, signal, redirect: "manual" });
    const location = [301, 302, 303, 307, 308].includes(answer.status) && answer.headers.get("location");
    if (!location) return answer;
    await answer.body?.cancel();
    url = new URL(location, url);
  }
  throw new Error("it redirects without end");
}

function isLocal({ hostname }: URL): boolean {
  return hostname === "localhost" || hostname === "[::1]" || /^127(?:\.\d+){3}$/.test(hostname);
}

async function* withHead(head: string, body: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
  yield Buffer.from(head);
  yield* body;
}

/** The body of a file from there on, unpacked where it is gzip: told by its first bytes, as names and headers lie. */
async function read<Read>(feed: Feed<Read>, file: string, offset: number): Promise<Read> {
  const magic = await beginningOf(file, offset, 2);
  const raw = fs.createReadStream(file, { start: offset });
  const packed = magic[0] === 0x1f && magic[1] === 0x8b;
  const body = packed ? raw.pipe(createGunzip()) : raw;
  // pipe() does not pass errors on, and a reader that stops early leaves both open.
  if (packed) raw.on("error", (error) => body.destroy(error));
  try {
    return await feed.read(capped(body, LIMITS.body));
  } finally {
    raw.destroy();
    body.destroy();
  }
}

async function* capped(body: AsyncIterable<Uint8Array>, most: number): AsyncIterable<Uint8Array> {
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.byteLength;
    if (bytes > most) throw new Error(`it is larger than ${Math.round(most / 2 ** 20)} MB`);
    yield chunk;
  }
}

/** fetch() hides the reason in the cause. */
function reasonOf(error: unknown): string {
  const { message, cause, name } = error as {
    message?: unknown;
    cause?: { message?: unknown; code?: unknown };
    name?: unknown;
  };
  if (name === "TimeoutError") return `no answer within ${ANSWER_MS / 1000} s`;
  return sentenceOf(cause?.message || cause?.code || message, 200) ?? "unknown";
}
