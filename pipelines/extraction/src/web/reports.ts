// Report files of an extraction. They contain untrusted text, so they are sent as downloads that no browser renders.
import { Readable } from "node:stream";
import { attachment } from "@stillwake/kit/web/content";
import { notFound, Refusal } from "@stillwake/kit/web/problems";
import type pg from "pg";
import { type Stillwake, StillwakeError } from "stillwake";

export interface ListedReport {
  name: string;
  size: number;
  sha256: string;
  /** Whether the content is still stored; it is deleted with the job. */
  kept: boolean;
}

/** Artifacts that only pass results between steps. */
const INTERNAL = /^found\//;

export async function listReports(pool: pg.Pool, stillwake: Stillwake, id: string): Promise<ListedReport[]> {
  const { rows } = await pool.query(
    "select name, size::float8 as size, sha256 from extraction.reports where extraction_id = $1",
    [id],
  );
  // Includes the artifacts of an extraction that failed midway.
  const artifacts = await stillwake.artifacts(id);
  const kept = artifacts
    .filter(({ name }) => !INTERNAL.test(name))
    .map(({ name, size, sha256 }) => ({ name, size, sha256, kept: true }));
  const names = new Set(kept.map(({ name }) => name));
  const gone = rows.filter(({ name }) => !names.has(name)).map((row) => ({ ...row, kept: false }));
  return [...kept, ...gone].sort((a, b) => a.name.localeCompare(b.name, "en"));
}

export async function sendReport(stillwake: Stillwake, id: string, name: string, request: Request): Promise<Response> {
  const found = INTERNAL.test(name)
    ? undefined
    : (await stillwake.artifacts(id)).find((artifact) => artifact.name === name);
  if (!found) throw notFound("report");
  const fileName = `${id.slice(-8)}-${name.split("/").at(-1)}`;
  const headers = new Headers({
    "content-type": typeOf(name),
    "content-length": String(found.size),
    "content-disposition": attachment(fileName),
    "content-security-policy": "sandbox; default-src 'none'",
  });
  if (request.method === "HEAD") return new Response(null, { headers });
  try {
    const content = await stillwake.download(id, name);
    return new Response(Readable.toWeb(content) as unknown as ReadableStream, { headers });
  } catch (error) {
    if (!(error instanceof StillwakeError)) throw error;
    throw new Refusal(error.retryable ? 503 : 404, error.code, "The report cannot be read", {
      remedy: error.retryable ? "Try again in a moment" : "It was deleted: start another extraction",
    });
  }
}

function typeOf(name: string): string {
  if (name.endsWith(".html")) return "text/html; charset=utf-8";
  return /\.(json|sarif)$/.test(name) ? "application/json" : "application/octet-stream";
}
