// Reads of the views and overview functions: jobs and their rows, pipelines, counts.
import type { Queries } from "../database.ts";
import { readValues } from "../row.ts";
import { type Failure, type Job, type JobRow, type JobState, toJob } from "./job.ts";
import type { JobFilter } from "./jobs.ts";

const jobColumns = `id, pipeline, pool, state, waiting_for, priority, run_at, created_at, started_at, ended_at, expires_at,
  attempt, max_attempts,
  crashes, epoch, worker, key, tenant, idempotency_key, input, output, failure, cancel, pause, progress, missing, origin,
    parent_id, spawn, child_no, seq, awaited_event`;

/** Large values are omitted. A small stored size is not enough: values are stored compressed. */
const large = (column: string) => `(pg_column_size(j.${column}) > 8192 or octet_length(j.${column}::text) > 32768)`;
const briefColumns = `${jobColumns
  .split(/,\s*/)
  .map((column) =>
    /^(in|out)put$/.test(column) ? `case when not ${large(column)} then j.${column} end as ${column}` : `j.${column}`,
  )
  .join(", ")},
  array_remove(array[case when ${large("input")} then 'input' end, case when ${large("output")} then 'output' end], null) as omitted`;

export async function readJobs(database: Queries, ids: string[]): Promise<Job[]> {
  const rows = await database.read<JobRow>(
    `select ${jobColumns}, children from ${database.schema}.jobs where id = any ($1::uuid[])`,
    [ids],
  );
  return rows.map(toJob);
}

/** How many jobs one page scans at most where no index applies; fewer where their inputs are read. */
const SCAN = 20_000;
const TEXT_SCAN = 2000;
/** Ids contain the clock of the client that created them, which may differ from the database's by up to this. */
const SKEW_MS = 24 * 3600 * 1000;

/** A page, newest first, and the cursor of the next; null at the end. A short page is not necessarily the last. */
export async function listJobs(
  database: Queries,
  { text, since, until, ...equal }: JobFilter,
  { before, limit, brief }: { before: string | null; limit: number; brief: boolean },
): Promise<{ rows: Job[]; next: string | null }> {
  const values: unknown[] = [];
  const parameter = (value: unknown) => `$${values.push(value)}`;
  const where = (conditions: string[]) => (conditions.length > 0 ? `where ${conditions.join(" and ")}` : "");
  // Conditions that an index supports; the others filter the rows found by these.
  const indexed: string[] = [];
  const { key, tenant, parent, ...others } = equal;
  for (const [column, value] of Object.entries({ key, tenant, parent_id: parent })) {
    if (value !== undefined) indexed.push(`${column} = ${parameter(value)}`);
  }
  if (before) indexed.push(`id < ${parameter(before)}`);
  if (since) indexed.push(`id >= ${parameter(idAt(since.getTime() - SKEW_MS))}`);
  if (until) indexed.push(`id < ${parameter(idAt(until.getTime() + SKEW_MS))}`);
  const filters = Object.entries(others).map(([column, value]) => `${column} = ${parameter(value)}`);
  if (since) filters.push(`created_at >= ${parameter(since)}`);
  if (until) filters.push(`created_at < ${parameter(until)}`);
  if (text !== undefined) filters.push(matches(parameter(text)));

  const scan = text === undefined ? SCAN : TEXT_SCAN;
  // The children of a job are few among all jobs: find them first, then sort.
  const fence = parent === undefined ? "" : " offset 0";
  const scanned = (columns: string) =>
    `select ${columns} from (select ${columns} from ${database.schema}.jobs ${where(indexed)}${fence}) a order by id desc`;
  const found =
    filters.length === 0
      ? scanned(jobColumns)
      : `select * from (${scanned(jobColumns)} limit ${scan}) b ${where(filters)} order by id desc`;
  // The end of the scanned range must come from the same snapshot as the rows: jobs change between two statements.
  const boundary = filters.length === 0 ? "null::uuid" : `(${scanned("id")} offset ${scan - 1} limit 1)`;
  const result = await database.read<JobRow & { boundary: string | null }>(
    // Children are counted for the page alone.
    `select w.boundary, ${brief ? briefColumns : "j.*"}, ${database.schema}.children(j.id) as children
    from (select ${boundary} as boundary) w left join lateral (${found} limit $${values.length + 1}) j on true
    order by j.id desc`,
    [...values, limit + 1],
  );
  const rows = result.filter(({ id }) => id !== null).map(({ boundary: _boundary, ...row }) => toJob(row));
  if (rows.length > limit) return { rows: rows.slice(0, limit), next: rows[limit - 1]!.id };
  return { rows, next: result[0]?.boundary ?? null };
}

/** The lowest id of a time: ids begin with milliseconds. */
function idAt(ms: number): string {
  const hex = Math.max(0, Math.min(ms, 2 ** 48 - 1))
    .toString(16)
    .padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}

function matches(text: string): string {
  const searched =
    "concat_ws(' ', id, key, idempotency_key, tenant, worker, failure ->> 'message', failure ->> 'code', input)";
  return `position(lower(${text}::text) in lower(${searched})) > 0`;
}

/** One execution of a job under one lease. */
export interface Attempt {
  epoch: string;
  /** The number it was counted as. An attempt that was released has the same number as the next one. */
  attempt: number;
  worker: string | null;
  claimedAt: Date;
  /** Null while it runs. */
  endedAt: Date | null;
  outcome: "completed" | "failed" | "cancelled" | "slept" | "paused" | "released" | "lost" | null;
  failure: Failure | null;
}

/** Oldest first. */
export async function readAttempts(database: Queries, job: string, limit: number): Promise<Attempt[]> {
  return readValues<Attempt>(
    database,
    `select epoch, attempt, worker, claimed_at, ended_at, outcome, failure from ${database.schema}.attempts where job_id = $1
      order by attempts.epoch limit $2`,
    [job, limit],
  );
}

/** A step with a checkpoint. */
export interface Step {
  name: string;
  /** The epoch of the attempt that saved it. */
  epoch: string;
  startedAt: Date | null;
  savedAt: Date;
  tookMs: number | null;
  /** With the option `outputs`. */
  output?: unknown;
  /** The output was omitted, because those before it exceed 2 MB. */
  omitted?: true;
}

export type SavedStep = Omit<Step, "tookMs">;

/** The limit of the outputs of all steps of a job, in bytes. */
const MAX_OUTPUT = 2_000_000;

export async function readSteps(
  database: Queries,
  job: string,
  { outputs, limit }: { outputs: boolean; limit: number },
): Promise<SavedStep[]> {
  return readValues<SavedStep>(
    database,
    outputs
      ? `select step as name, epoch, started_at, saved_at, case when size <= ${MAX_OUTPUT} then output end as output,
        size > ${MAX_OUTPUT} as omitted from (
        select *, case when stored <= ${MAX_OUTPUT}
          then sum(case when stored <= ${MAX_OUTPUT} then octet_length(output::text) end) over (order by saved_at, step)
          else stored end as size from (
          select *, sum(pg_column_size(output)) over (order by saved_at, step) as stored from ${database.schema}.checkpoints
          where job_id = $1 and failed is null
        ) b
      ) c order by saved_at, step limit $2`
      : `select step as name, epoch, started_at, saved_at from ${database.schema}.checkpoints
        where job_id = $1 and failed is null order by saved_at, step limit $2`,
    [job, limit],
  );
}

export interface ArtifactRow {
  name: string;
  size: string;
  sha256: string;
  content_type: string;
  key: string;
  epoch: string;
  saved_at: Date;
}

export async function listArtifacts(database: Queries, job: string): Promise<ArtifactRow[]> {
  return database.read<ArtifactRow>(
    `select name, size, sha256, content_type, key, epoch, saved_at from ${database.schema}.artifacts where job_id = $1
      order by name`,
    [job],
  );
}

export interface LogRow {
  seq: string;
  at: Date;
  /** The epoch of the attempt that wrote it. */
  epoch: string;
  level: "info" | "success" | "warning" | "error";
  step: string | null;
  message: string;
  data: unknown;
}

/** Lines after `after`, oldest first. */
export async function readLogs(database: Queries, job: string, after: string, limit: number): Promise<LogRow[]> {
  return database.read<LogRow>(
    `select seq, at, epoch, level, step, message, data from ${database.schema}.logs where job_id = $1 and seq > $2
      order by seq limit $3`,
    [job, after, limit],
  );
}

export interface PipelineInfo {
  name: string;
  pool: string;
  priority: number;
  maxAttempts: number;
  crashLimit: number;
  keyLimit: number;
  onConflict: string;
  concurrency: number | null;
  limits: string[];
  breakers: string[];
  /** Paths of the input whose values are stored sealed. */
  sealed: string[];
  /** The JSON Schema of the input; null if the contract has no schema, or one without a JSON form. */
  inputSchema: unknown;
  updatedAt: Date;
}

export async function readPipelines(database: Queries, name: string | null): Promise<PipelineInfo[]> {
  return readValues<PipelineInfo>(
    database,
    `select name, pool, priority, max_attempts, crash_limit, key_limit, on_conflict, concurrency, limits, breakers, sealed,
      input_schema, updated_at
    from ${database.schema}.pipelines where $1::text is null or name = $1 order by name limit 1000`,
    [name],
  );
}

export interface LiveCountRow {
  state: JobState;
  waiting_for: string | null;
  count: string;
  oldest: Date;
}

export async function countLive(database: Queries, max: number): Promise<LiveCountRow[]> {
  return database.read<LiveCountRow>(`select * from ${database.schema}.live_counts($1)`, [max]);
}

export interface EndedCountRow {
  bucket: number;
  begins: Date;
  pipeline: string;
  state: "completed" | "failed" | "cancelled";
  count: string;
  /** How many of them were started. */
  timed: string;
  seconds: number | null;
  longest: number | null;
}

export async function countEnded(database: Queries, span: string, buckets: number): Promise<EndedCountRow[]> {
  return database.read<EndedCountRow>(`select * from ${database.schema}.ended_counts($1, $2)`, [span, buckets]);
}
