// The reads over the views: jobs and what hangs on them, pipelines, pools, and what the whole installation does.
import type { Queries } from "../database.ts";
import type { Failure, JobFilter, JobRow, JobState } from "./jobs.ts";
import type { MachineFacts } from "./machines.ts";

const jobColumns = `id, pipeline, pool, state, waiting_for, priority, run_at, created_at, started_at, ended_at, expires_at, attempt, max_attempts,
  crashes, epoch, worker, key, tenant, idempotency_key, input, output, failure, cancel, pause, progress, missing, origin, parent_id, spawn, child_no, seq`;

/** Large values stay where they are. What is stored small may still be large: it is kept compressed. */
const large = (column: string) => `(pg_column_size(j.${column}) > 8192 or octet_length(j.${column}::text) > 32768)`;
const briefColumns = `${jobColumns
  .split(/,\s*/)
  .map((column) =>
    /^(in|out)put$/.test(column) ? `case when not ${large(column)} then j.${column} end as ${column}` : `j.${column}`,
  )
  .join(", ")},
  array_remove(array[case when ${large("input")} then 'input' end, case when ${large("output")} then 'output' end], null) as omitted`;

export async function readJobs(database: Queries, ids: string[]): Promise<JobRow[]> {
  return database.query<JobRow>(
    `select ${jobColumns}, children from ${database.schema}.jobs where id = any ($1::uuid[])`,
    [ids],
  );
}

/** How many jobs one page looks through at most, where no index leads to those it wants; fewer where their inputs are read. */
const SCAN = 20_000;
const TEXT_SCAN = 2000;
/** Ids carry the clock of whoever made them, which may differ from the database's by so much. */
const SKEW_MS = 24 * 3600 * 1000;

/** A page, newest first, and from where to read on; null at the end. A page may be short of what was asked and yet not the last. */
export async function listJobs(
  database: Queries,
  { text, since, until, ...equal }: JobFilter,
  { before, limit, brief }: { before: string | null; limit: number; brief: boolean },
): Promise<{ rows: JobRow[]; next: string | null }> {
  const values: unknown[] = [];
  const place = (value: unknown) => `$${values.push(value)}`;
  const where = (conditions: string[]) => (conditions.length > 0 ? `where ${conditions.join(" and ")}` : "");
  // An index leads to these; the others are looked for among what is found.
  const within: string[] = [];
  const { key, tenant, parent, ...others } = equal;
  for (const [column, value] of Object.entries({ key, tenant, parent_id: parent })) {
    if (value !== undefined) within.push(`${column} = ${place(value)}`);
  }
  if (before) within.push(`id < ${place(before)}`);
  if (since) within.push(`id >= ${place(idAt(since.getTime() - SKEW_MS))}`);
  if (until) within.push(`id < ${place(idAt(until.getTime() + SKEW_MS))}`);
  const soft = Object.entries(others).map(([column, value]) => `${column} = ${place(value)}`);
  if (since) soft.push(`created_at >= ${place(since)}`);
  if (until) soft.push(`created_at < ${place(until)}`);
  if (text !== undefined) soft.push(matches(place(text)));

  const scan = text === undefined ? SCAN : TEXT_SCAN;
  // The children of a job are few among all jobs: found first, then ordered.
  const apart = parent === undefined ? "" : " offset 0";
  const looked = (columns: string) =>
    `select ${columns} from (select ${columns} from ${database.schema}.jobs ${where(within)}${apart}) a order by id desc`;
  const found =
    soft.length === 0
      ? looked(jobColumns)
      : `select * from (${looked(jobColumns)} limit ${scan}) b ${where(soft)} order by id desc`;
  // The end of what was looked through is of the same moment as what was found there: between two statements jobs come and go.
  const boundary = soft.length === 0 ? "null::uuid" : `(${looked("id")} offset ${scan - 1} limit 1)`;
  const answered = await database.query<JobRow & { boundary: string | null }>(
    // Children are counted for the page alone.
    `select w.boundary, ${brief ? briefColumns : "j.*"}, ${database.schema}.children(j.id) as children
    from (select ${boundary} as boundary) w left join lateral (${found} limit $${values.length + 1}) j on true order by j.id desc`,
    [...values, limit + 1],
  );
  const rows = answered.filter(({ id }) => id !== null);
  if (rows.length > limit) return { rows: rows.slice(0, limit), next: rows[limit - 1]!.id };
  return { rows, next: answered[0]?.boundary ?? null };
}

/** The least id of a moment: ids begin with milliseconds. */
function idAt(ms: number): string {
  const hex = Math.max(0, Math.min(ms, 2 ** 48 - 1))
    .toString(16)
    .padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}

function matches(text: string): string {
  const hay =
    "concat_ws(' ', id, key, idempotency_key, tenant, worker, failure ->> 'message', failure ->> 'code', input)";
  return `position(lower(${text}::text) in lower(${hay})) > 0`;
}

export interface AttemptRow {
  epoch: string;
  attempt: number;
  worker: string | null;
  claimed_at: Date;
  ended_at: Date | null;
  outcome: string | null;
  failure: Failure | null;
}

/** The first comes first. */
export async function readAttempts(database: Queries, job: string, limit: number): Promise<AttemptRow[]> {
  return database.query<AttemptRow>(
    `select epoch, attempt, worker, claimed_at, ended_at, outcome, failure from ${database.schema}.attempts where job_id = $1 order by attempts.epoch limit $2`,
    [job, limit],
  );
}

export interface StepRow {
  step: string;
  epoch: string;
  started_at: Date | null;
  saved_at: Date;
  output?: unknown;
  omitted?: true;
}

/** Of the results of a job's steps together, in bytes. */
const MAX_OUTPUT = 2_000_000;

export async function readSteps(
  database: Queries,
  job: string,
  { outputs, limit }: { outputs: boolean; limit: number },
): Promise<StepRow[]> {
  return database.query<StepRow>(
    outputs
      ? `select step, epoch, started_at, saved_at, case when size <= ${MAX_OUTPUT} then output end as output, size > ${MAX_OUTPUT} as omitted from (
        select *, case when stored <= ${MAX_OUTPUT} then sum(case when stored <= ${MAX_OUTPUT} then octet_length(output::text) end) over (order by saved_at, step) else stored end as size from (
          select *, sum(pg_column_size(output)) over (order by saved_at, step) as stored from ${database.schema}.checkpoints where job_id = $1
        ) b
      ) c order by saved_at, step limit $2`
      : `select step, epoch, started_at, saved_at from ${database.schema}.checkpoints where job_id = $1 order by saved_at, step limit $2`,
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
  return database.query<ArtifactRow>(
    `select name, size, sha256, content_type, key, epoch, saved_at from ${database.schema}.artifacts where job_id = $1 order by name`,
    [job],
  );
}

export interface LogRow {
  seq: string;
  at: Date;
  level: "info" | "success" | "warning" | "error";
  step: string | null;
  message: string;
  data: unknown;
}

/** Lines after `after`, oldest first. */
export async function readLogs(database: Queries, job: string, after: string, limit: number): Promise<LogRow[]> {
  return database.query<LogRow>(
    `select seq, at, level, step, message, data from ${database.schema}.logs where job_id = $1 and seq > $2 order by seq limit $3`,
    [job, after, limit],
  );
}

export interface PipelineRow {
  name: string;
  pool: string;
  priority: number;
  max_attempts: number;
  crash_limit: number;
  key_limit: number;
  on_conflict: string;
  concurrency: number | null;
  limits: string[];
  breakers: string[];
  sealed: string[];
  input_schema: unknown;
  updated_at: Date;
}

export async function readPipelines(database: Queries, name: string | null): Promise<PipelineRow[]> {
  return database.query<PipelineRow>(
    `select name, pool, priority, max_attempts, crash_limit, key_limit, on_conflict, concurrency, limits, breakers, sealed, input_schema, updated_at
    from ${database.schema}.pipelines where $1::text is null or name = $1 order by name limit 1000`,
    [name],
  );
}

export interface PoolRow {
  name: string;
  paused_at: Date | null;
  paused_by: string | null;
  pause_reason: string | null;
  concurrency: number | null;
  claimable: number;
  running: number;
  oldest: Date | null;
  next_due: Date | number | null;
  /** As the orchestrator has told. */
  machines: MachineFacts | null;
  /** Of the machines: those that there are, and of these the ones whose worker has not arrived. */
  alive: number;
  starting: number;
  wanted: number | null;
  trouble: { code: string; message: string; remedy?: string; since?: string; until?: string } | null;
  wastedStarts: number;
}

/** What is wanted is counted as the view wanted_workers does. */
export async function readPools(database: Queries): Promise<PoolRow[]> {
  return database.query<PoolRow>(
    `select p.name, p.paused_at, p.paused_by, p.pause_reason, p.concurrency, d.claimable, d.running, d.oldest, d.next_due, p.machines, coalesce(m.alive, 0) as alive, coalesce(m.starting, 0) as starting,
      case when p.machines is null then null when p.paused_at is not null then 0
        else least(ceil((d.claimable + d.running)::numeric / greatest(coalesce((p.machines ->> 'slots')::integer, 1), 1)), coalesce((p.machines ->> 'max')::integer, 1000))::integer end as wanted,
      p.trouble, p.wasted_starts
    from ${database.schema}.pools p join ${database.schema}.demand() d on d.pool = p.name
    left join (
      select pool, count(*)::integer as alive, (count(*) filter (where state = 'starting'))::integer as starting from ${database.schema}.machines() where life is not null group by pool
    ) m on m.pool = p.name
    order by p.name`,
  );
}

export interface MachineRow {
  worker: string;
  pool: string;
  running: number;
  since: Date | null;
  lease_until: Date | null;
  listening: boolean;
  state: "starting" | "up" | "idle" | "leaving" | "retiring" | "ended";
  /** Null, as all that follows, for a worker that is on no machine of ours. */
  life: string | null;
  slot: number;
  burst: boolean;
  provider: string;
  provider_id: string | null;
  region: string | null;
  size: string | null;
  slots: number;
  jobs: number;
  why: string | null;
  asked_by: string | null;
  asked_at: Date;
  started_at: Date | null;
  arrived_at: Date | null;
  idle_since: Date | null;
  ended_at: Date | null;
  ending: string | null;
  ended_well: boolean | null;
  price: number;
  prices: string | null;
}

/** And so many of those that have ended, the latest first. */
export async function readMachines(database: Queries, ended: number): Promise<MachineRow[]> {
  return database.query<MachineRow>(`select * from ${database.schema}.machines($1)`, [ended]);
}

export interface MachineCountRow {
  pool: string;
  started: string;
  ended: string;
  ill: string;
}

export async function countMachines(database: Queries, span: string): Promise<MachineCountRow[]> {
  return database.query<MachineCountRow>(`select * from ${database.schema}.machine_counts($1)`, [span]);
}

export interface LiveCountRow {
  state: JobState;
  waiting_for: string | null;
  count: string;
  oldest: Date;
}

export async function countLive(database: Queries, most: number): Promise<LiveCountRow[]> {
  return database.query<LiveCountRow>(`select * from ${database.schema}.live_counts($1)`, [most]);
}

export interface EndedCountRow {
  bucket: number;
  begins: Date;
  pipeline: string;
  state: "completed" | "failed" | "cancelled";
  count: string;
  /** Of those that were started. */
  timed: string;
  seconds: number | null;
  longest: number | null;
}

export async function countEnded(database: Queries, span: string, buckets: number): Promise<EndedCountRow[]> {
  return database.query<EndedCountRow>(`select * from ${database.schema}.ended_counts($1, $2)`, [span, buckets]);
}
