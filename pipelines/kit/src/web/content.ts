// Sends a stored file, whole or a range of it, as players request it to seek. The store has no ranges, so the part before is read
// and skipped.
import { Readable } from "node:stream";
import { Refusal } from "./problems.ts";

export interface Content {
  size: number;
  contentType: string;
  /** Of the bytes, for the ETag. */
  sha256: string;
  open(): Promise<Readable | AsyncIterable<Uint8Array>>;
  /** Offered as a download under this name. */
  download?: string | undefined;
}

export async function sendContent(request: Request, content: Content): Promise<Response> {
  const { size, contentType, sha256, download } = content;
  const etag = `"${sha256}"`;
  const headers = new Headers({
    "content-type": contentType,
    "accept-ranges": "bytes",
    etag,
    "cache-control": "private, no-cache",
    "content-security-policy": "sandbox; default-src 'none'; media-src 'self'; img-src 'self'",
  });
  if (download !== undefined) headers.set("content-disposition", attachment(download));
  if (request.headers.get("if-none-match") === etag) return new Response(null, { status: 304, headers });
  const ifRange = request.headers.get("if-range");
  const range = ifRange === null || ifRange === etag ? rangeOf(request.headers.get("range"), size) : undefined;
  if (range === "unsatisfiable") {
    throw new Refusal(416, "RANGE_NOT_SATISFIABLE", `The file has ${size} bytes`, { field: "range" });
  }
  const { first, last } = range ?? { first: 0, last: size - 1 };
  headers.set("content-length", String(last - first + 1));
  if (range) headers.set("content-range", `bytes ${first}-${last}/${size}`);
  const status = range ? 206 : 200;
  if (request.method === "HEAD") return new Response(null, { status, headers });
  const part = Readable.from(slice(await content.open(), first, last), { objectMode: false });
  return new Response(Readable.toWeb(part) as unknown as ReadableStream, { status, headers });
}

export function attachment(fileName: string): string {
  const plain = fileName.replaceAll(/[^\w.-]/g, "_");
  return `attachment; filename="${plain}"; filename*=UTF-8''${encodeURIComponent(fileName.replaceAll(/\p{Cs}/gu, "_"))}`;
}

/** Undefined: the whole file. Several ranges and other units are ignored, as the standard allows. */
function rangeOf(header: string | null, size: number): { first: number; last: number } | "unsatisfiable" | undefined {
  const [, from = "", to = ""] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header?.trim() ?? "") ?? [];
  if (from === "" && to === "") return undefined;
  const first = from === "" ? Math.max(size - Number(to), 0) : Number(from);
  const last = from === "" || to === "" ? size - 1 : Math.min(Number(to), size - 1);
  if (first >= size || (from === "" && Number(to) === 0)) return "unsatisfiable";
  return first > last ? undefined : { first, last };
}

async function* slice(content: AsyncIterable<Uint8Array>, first: number, last: number): AsyncGenerator<Uint8Array> {
  let at = 0;
  for await (const chunk of content) {
    const from = Math.max(first - at, 0);
    const to = Math.min(last + 1 - at, chunk.length);
    at += chunk.length;
    if (from < to) yield chunk.subarray(from, to);
    // Leaving the loop closes the stream of the store.
    if (at > last) return;
  }
}
