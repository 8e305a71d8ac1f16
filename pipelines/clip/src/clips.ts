// The records of clips. A record and its job are stored in one transaction; the same request gets the clip that exists.
import { createHash } from "node:crypto";
import { containsPattern, type Paged, type PageRequest, queryPage } from "@stillwake/kit/web/paging";
import { notFound, Refusal } from "@stillwake/kit/web/problems";
import type pg from "pg";
import { type Actor, type Job, type Stillwake, StillwakeError } from "stillwake";
import { clip } from "./contract.ts";
import { isRetryable } from "./failures.ts";
import type { Clip, ClipFailure, NewClip, State, Upload } from "./model.ts";
import { ARTIFACTS } from "./stages/finalize.ts";
import { readUpload } from "./uploads.ts";

const COLUMNS = `c.id, c.title, c.state, c.stage, c.source, c.start_at as start, c.end_at as end, c.captions, c.format, c.cut, c.failure,
  c.warnings, c.result, c.attempts, c.created_at as "createdAt", c.started_at as "startedAt", c.ended_at as "endedAt"`;

type Source = { url: string; name: string } | { upload: string; name: string };

interface Row extends Omit<Clip, "source" | "failure" | "progress" | "files" | "job"> {
  source: Source;
  failure: { code: string; cause: string | null; sentence: string } | null;
}

export interface RequestOptions {
  stillwake: Stillwake;
  maxSeconds: number;
  maxAttempts?: number | undefined;
}

/** In a transaction, which the caller commits before it pokes. */
export async function requestClip(
  tx: pg.PoolClient,
  request: NewClip,
  { stillwake, maxSeconds, maxAttempts }: RequestOptions,
): Promise<{ id: string; existing: boolean }> {
  const { start, end, captions, format, cut, fresh } = request;
  if (end - start > maxSeconds) {
    throw new Refusal(400, "INVALID_INPUT", `end: must be at most ${maxSeconds} seconds after start`, {
      field: "end",
      remedy: "Choose a shorter range",
    });
  }
  const upload = "upload" in request.source ? await readUpload(tx, request.source.upload) : undefined;
  const hash = hashOf(request, upload);
  // Concurrent equal requests wait for each other.
  await tx.query("select pg_advisory_xact_lock(hashtextextended($1, 0))", [`clip ${hash}`]);
  const known = await tx.query(
    // The files of a clip are deleted with its job.
    `select c.id from clip.clips c where c.request = $1 and c.state in ('queued', 'running', 'ready')
       and exists (select from stillwake.jobs j where j.id = c.id)
     order by c.created_at desc limit 1`,
    [hash],
  );
  if (known.rows[0] && !fresh) return { id: known.rows[0].id, existing: true };
  const source: Source = upload
    ? { upload: upload.id, name: upload.name }
    : { url: (request.source as { url: string }).url, name: nameOf((request.source as { url: string }).url) };
  if (upload) await tx.query("update clip.uploads set used_at = now() where id = $1", [upload.id]);
  const input = {
    source: upload
      ? { upload: upload.id, size: upload.size, sha256: upload.sha256 }
      : { url: (source as { url: string }).url },
    ...{ start, end, captions, format, cut },
  };
  const { id } = await stillwake.enqueue(clip, input, { tx, ...(maxAttempts && { attempts: maxAttempts }) });
  await tx.query(
    `insert into clip.clips (id, request, title, source, start_at, end_at, captions, format, cut)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [id, hash, request.title ?? source.name, JSON.stringify(source), start, end, captions, format, cut],
  );
  return { id, existing: false };
}

/** An upload is identified by its content. */
function hashOf({ source, start, end, captions, format, cut }: NewClip, upload: Upload | undefined): string {
  const from = upload ? `sha256:${upload.sha256}` : (source as { url: string }).url;
  return createHash("sha256")
    .update(JSON.stringify([from, start, end, captions, format, cut]))
    .digest("hex");
}

/** The last part of the path, or the host: for display only. */
function nameOf(url: string): string {
  const { pathname, hostname } = new URL(url);
  let name = pathname.split("/").filter(Boolean).at(-1) ?? "";
  try {
    name = decodeURIComponent(name);
  } catch {
    // Shown as it is.
  }
  return (
    name
      .replaceAll(/[\p{Cc}\p{Cs}]/gu, " ")
      .trim()
      .slice(0, 200) || hostname
  );
}

export async function recordOutcomes(pool: pg.Pool): Promise<void> {
  await pool.query("select clip.record_outcomes()");
}

export async function listClips(
  pool: pg.Pool,
  stillwake: Stillwake,
  { state, q, ...page }: PageRequest & { state?: State | undefined; q?: string | undefined },
): Promise<Paged<Clip>> {
  const filters: [string, unknown][] = [];
  if (state !== undefined) filters.push(["c.state = ?", state]);
  if (q !== undefined) filters.push(["c.title ilike ?", containsPattern(q)]);
  const { rows, ...rest } = await queryPage<Row & pg.QueryResultRow>(pool, {
    page,
    select: COLUMNS,
    from: "clip.clips c",
    where: ["true", ...filters.map(([condition]) => condition)],
    values: filters.map(([, value]) => value),
    order: [
      ["c.created_at", "desc", "timestamptz"],
      ["c.id", "desc", "uuid"],
    ],
  });
  return { rows: await Promise.all(rows.map((row) => toClip(stillwake, row))), ...rest };
}

export async function readClip(pool: pg.Pool, stillwake: Stillwake, id: string): Promise<Clip> {
  return toClip(stillwake, await readRow(pool, id));
}

async function readRow(pool: pg.Pool, id: string): Promise<Row> {
  const { rows } = await pool.query(`select ${COLUMNS} from clip.clips c where c.id = $1`, [id]);
  if (rows.length === 0) throw notFound("clip");
  return rows[0];
}

async function toClip(stillwake: Stillwake, { source, failure, ...row }: Row): Promise<Clip> {
  const job = await readJob(stillwake, row.id);
  const active = job !== undefined && job.endedAt === null;
  const stored = job ? (await stillwake.artifacts(row.id)).map(({ name }) => name) : [];
  return {
    ...row,
    // A job that waits for its next attempt is queued again.
    state: active && row.state !== "ready" ? (job.state === "running" ? "running" : "queued") : row.state,
    progress: active && job.progress ? progressOf(job) : null,
    source: "url" in source ? { kind: "url", ...source } : { kind: "upload", ...source },
    failure: failure && toFailure(failure, row.stage),
    files: {
      file: fileOf(row, stored) !== undefined,
      captions: stored.includes(ARTIFACTS.vtt),
      thumbnail: stored.includes(ARTIFACTS.thumbnail),
    },
    job: job ? row.id : null,
    attempts: job?.attempt ?? row.attempts,
  };
}

function toFailure({ code, cause, sentence }: NonNullable<Row["failure"]>, stage: Clip["stage"]): ClipFailure {
  return { code, sentence, stage, retryable: code === "RETRIES_EXHAUSTED" || isRetryable(cause ?? code) };
}

function progressOf({ progress }: Job): Clip["progress"] {
  const { fraction, done, total, sentence } = progress ?? {};
  const share = fraction ?? (done !== undefined && total ? done / total : null);
  return { fraction: share, sentence: sentence ?? null };
}

/** The artifact that is the clip: with burned captions, or as it was cut. */
export function fileOf({ format }: Pick<Clip, "format">, stored: readonly string[]): string | undefined {
  return [ARTIFACTS.final(format), ARTIFACTS.cut(format)].find((name) => stored.includes(name));
}

/** Undefined: Stillwake has deleted it. */
async function readJob(stillwake: Stillwake, id: string): Promise<Job | undefined> {
  return stillwake.get(id).catch((error) => {
    if (error instanceof StillwakeError && error.code === "JOB_NOT_FOUND") return undefined;
    throw error;
  });
}

export async function cancelClip(pool: pg.Pool, stillwake: Stillwake, id: string, actor: Actor): Promise<Clip> {
  await readRow(pool, id);
  if (await readJob(stillwake, id)) await stillwake.cancel(id, actor);
  await recordOutcomes(pool);
  return readClip(pool, stillwake, id);
}

/** Runs a failed or cancelled clip again, from its last finished stage. */
export async function retryClip(pool: pg.Pool, stillwake: Stillwake, id: string, actor: Actor): Promise<Clip> {
  const { state } = await readClip(pool, stillwake, id);
  if (state === "queued" || state === "running") {
    throw new Refusal(409, "NOT_ENDED", "The clip is still in progress", { remedy: "Wait for its end, or cancel it" });
  }
  if (state === "ready") {
    throw new Refusal(409, "READY", "The clip is ready", { remedy: "Request it with fresh: true to make it again" });
  }
  if (!(await readJob(stillwake, id))) throw notFound("job of this clip");
  await stillwake.retry(id, { ...(actor.by && { by: actor.by }) });
  // After the job: record_outcomes() would record its old end again. If the job has begun a stage meanwhile, that has reset the row.
  await pool.query(
    `update clip.clips set state = 'queued', stage = null, failure = null, ended_at = null, recorded_at = null
     where id = $1 and recorded_at is not null`,
    [id],
  );
  // The retry may fetch and store its source again.
  await pool.query("update clip.clips set source_deleted = false where id = $1 and source_deleted", [id]);
  return readClip(pool, stillwake, id);
}
