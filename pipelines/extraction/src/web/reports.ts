// The files of an extraction. They may carry anything a stranger's repository carries, so they are only ever saved, never shown: no browser takes one for a page of ours.
import { Readable } from "node:stream";
import { Refusal } from "@stillwake/kit/web/problems";
import type pg from "pg";
import { type Stillwake, StillwakeError } from "stillwake";
import { notFound } from "./not-found.ts";

export interface ListedReport {
  name: string;
  size: number;
  sha256: string;
  /** Whether its content is still there; the engine forgets it some time after the job. */
  kept: boolean;
}

/** What passes from step to step, and is nothing for people. */
const INNER = /^found\//;

export async function listReports(pool: pg.Pool, stillwake: Stillwake, id: string): Promise<ListedReport[]> {
  const { rows } = await pool.query(
    "select name, size::float8 as size, sha256 from extraction.reports where extraction_id = $1",
    [id],
  );
  // Of an extraction that failed midway, what it made until then.
  const made = await stillwake.artifacts(id);
  const kept = made
    .filter(({ name }) => !INNER.test(name))
    .map(({ name, size, sha256 }) => ({ name, size, sha256, kept: true }));
  const known = new Set(kept.map(({ name }) => name));
  const gone = rows.filter(({ name }) => !known.has(name)).map((row) => ({ ...row, kept: false }));
  return [...kept, ...gone].sort((one, other) => one.name.localeCompare(other.name, "en"));
}

export async function sendReport(stillwake: Stillwake, id: string, name: string, request: Request): Promise<Response> {
  const found = INNER.test(name) ? undefined : (await stillwake.artifacts(id)).find((one) => one.name === name);
  if (!found) throw notFound("report");
  const fileName = `${id.slice(-8)}-${name.split("/").at(-1)}`;
  const headers = new Headers({
    "content-type": typeOf(name),
    "content-length": String(found.size),
    "content-disposition": `attachment; filename="${fileName.replaceAll(/[^\w.-]/g, "_")}"; filename*=UTF-8''${encodeURIComponent(fileName)}`,
    "content-security-policy": "sandbox; default-src 'none'",
  });
  if (request.method === "HEAD") return new Response(null, { headers });
  try {
    const content = await stillwake.download(id, name);
    return new Response(Readable.toWeb(content) as unknown as ReadableStream, { headers });
  } catch (error) {
    if (!(error instanceof StillwakeError)) throw error;
    throw new Refusal(error.retryable ? 503 : 404, error.code, "The content of this report cannot be read", {
      remedy: error.retryable ? "Try again in a moment" : "It is no longer kept: start another extraction",
    });
  }
}

function typeOf(name: string): string {
  if (name.endsWith(".html")) return "text/html; charset=utf-8";
  return /\.(json|sarif)$/.test(name) ? "application/json" : "application/octet-stream";
}
