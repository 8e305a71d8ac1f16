// Calls of sql/functions/jobs for workers. Every write names (job, epoch, lease), the fence of lease.sql.
import { randomUUID } from "node:crypto";
import { isLocked } from "../../errors.ts";
import type { Database } from "../database.ts";
import { fromTransaction, type Send } from "../transaction.ts";
import type { Failure, JobOrigin, JobState, WaitingFor } from "./job.ts";
import type { ArtifactRow } from "./reads.ts";

/** The fence of every write of a worker. */
export interface Lease {
  job: string;
  /** An integer as string: it may exceed 2^53. */
  epoch: string;
  lease: string;
}

export interface ClaimedJob {
  job_id: string;
  lease_id: string;
  epoch: string;
  pipeline: string;
  input: unknown;
  attempt: number;
  max_attempts: number;
  crashes: number;
  key: string | null;
  tenant: string | null;
  progress: unknown;
  version: number | null;
  trace: Record<string, string> | null;
  origin: JobOrigin | null;
  /** Where the next claim starts, in a pool with lanes. */
  cursor: string | null;
}

export type Settlement = Lease &
  (
    | { outcome: "completed"; output?: unknown; missing?: string[] }
    | { outcome: "failed"; failure: Failure; fatal?: boolean; retry_in?: string }
    | { outcome: "cancelled"; failure?: Failure }
    | { outcome: "slept"; for?: string; until?: string; waiting_for?: WaitingFor; step?: string; awaits?: string }
    | { outcome: "paused"; reason: string; resume_in?: string; breaker?: string }
    | { outcome: "released"; reason?: string }
    | { outcome: "lost"; failure: Failure }
  );

export interface ClaimRequest {
  worker: string;
  pool: string;
  pipelines: string[];
  limit: number;
  /** A Postgres interval. */
  lease: string;
  presence?: string | null;
  /** The code version per pipeline, and the oldest version whose jobs it can resume. */
  versions?: number[] | null;
  oldest?: number[] | null;
  cursor?: string | null;
  /** A fresh random uuid; default: a new one. */
  leaseId?: string;
  /** The leases of the worker, which its own claim does not recover; with a null it cannot tell an outage from dead workers. */
  held?: (string | null)[];
}

/** Settles finished jobs and claims the next ones: one round trip, one commit. */
/** `settlements`: each a Settlement in JSON. */
export async function settleAndClaim(
  database: Database,
  settlements: readonly string[],
  {
    worker,
    pool,
    pipelines,
    limit,
    lease,
    presence = null,
    versions = null,
    oldest = null,
    cursor = null,
    leaseId = randomUUID(),
    held = [],
  }: ClaimRequest,
): Promise<{ refused: string[]; claimed: ClaimedJob[] }> {
  // The lease id is chosen by the caller, so that a repeated call returns the jobs of the first call. The repeat claims nothing
  // itself: the first call may arrive long after it, when the network recovers, and must then find its lease taken.
  const json = toJsonArray(settlements);
  const rows = await database.repeat<ClaimedJob & { refused: string[] | null }>(
    `select job_id, lease_id, epoch, pipeline, input, attempt, max_attempts, crashes, key, tenant, progress, version, trace,
      origin, cursor, refused
    from ${database.schema}.settle_and_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
    {
      values: (again) => [
        json,
        worker,
        pool,
        pipelines,
        again ? 0 : limit,
        lease,
        leaseId,
        presence,
        versions,
        oldest,
        cursor,
        held,
      ],
    },
  );
  const refused = rows[0]?.refused ?? [];
  return { refused, claimed: refused.length > 0 ? rows.slice(1) : rows };
}

export async function settle(
  database: Database,
  settlements: readonly string[],
): Promise<{ job_id: string; state: JobState | "lost" }[]> {
  return database.query(`select job_id, state from ${database.schema}.settle($1)`, [toJsonArray(settlements)]);
}

function toJsonArray(elements: readonly string[]): string {
  return `[${elements.join(",")}]`;
}

export interface Verdict {
  job_id: string;
  /** "busy": its lease was locked, so it was not extended, and cannot be recovered. */
  verdict: "lost" | "cancel" | "pause" | "busy";
  reason: string | null;
}

export async function heartbeat(
  database: Database,
  leases: Lease[],
  presence: string | null,
  retryTimeoutMs: number,
): Promise<Verdict[]> {
  const values = [
    leases.map(({ job }) => job),
    leases.map(({ epoch }) => epoch),
    leases.map(({ lease }) => lease),
    presence,
  ];
  const text = `select job_id, verdict, reason from ${database.schema}.heartbeat($1, $2, $3, $4)`;
  return database.query<Verdict>(text, values, retryTimeoutMs);
}

export interface CheckpointCall extends Lease {
  step: string;
  /** JSON. */
  output: string;
  tookMs: number;
}

/** Returns results in the order of the calls. `lines`: lines of these jobs that are stored in the same transaction. */
export async function saveCheckpoints(
  database: Database,
  calls: CheckpointCall[],
  lines: LogBatch[] = [],
): Promise<("saved" | "kept" | "lost")[]> {
  // Array literals are built here: the driver would inspect every element for escaping.
  const toArray = (text: (call: CheckpointCall) => string) => `{${calls.map(text).join(",")}}`;
  // Only the exceptions are returned.
  const rows = await database.queryUntilDone<{ job_id: string; step: string; result: "kept" | "lost" }>(
    `select job_id, step, result from ${database.schema}.save_checkpoints($1, $2, $3, $4, $5, $6, p_lines => $7) where result <> 'saved'`,
    [
      toArray(({ job }) => job),
      toArray(({ epoch }) => epoch),
      toArray(({ lease }) => lease),
      toArray(({ step }) => quoted(step)),
      toArray(({ output }) => quoted(output)),
      toArray(({ tookMs }) => String(Math.round(tookMs))),
      lines.length > 0 ? JSON.stringify(lines) : null,
    ],
    lines.length > 0 ? isLocked : undefined,
  );
  const others = new Map(rows.map(({ job_id, step, result }) => [`${job_id} ${step}`, result]));
  return calls.map(({ job, step }) => (others.size === 0 ? "saved" : (others.get(`${job} ${step}`) ?? "saved")));
}

/** An element of a Postgres array literal. */
function quoted(text: string): string {
  return `"${text.replaceAll(/[\\"]/g, "\\$&")}"`;
}

/** Inside the user's transaction, as its last statement. Throws LeaseLost, or NotAllowed when the step was saved before. */
export async function saveCheckpointInTransaction(
  send: Send,
  schema: string,
  { job, epoch, lease, step, output, tookMs }: CheckpointCall,
): Promise<void> {
  try {
    await send(
      `select ${schema}.save_checkpoint($1::text::uuid, $2::text::bigint, $3::text::uuid, $4::text, $5::text::jsonb,
        $6::text::bigint)::text`,
      [job, epoch, lease, step, output, String(Math.round(tookMs))],
    );
  } catch (error) {
    throw fromTransaction(error);
  }
}

export interface SavedStep {
  step: string;
  output: unknown;
}

export async function loadCheckpoints(database: Database, { job, epoch, lease }: Lease): Promise<SavedStep[]> {
  return database.queryUntilDone<SavedStep>(
    `select step, output from ${database.schema}.load_checkpoints($1, $2, $3)`,
    [job, epoch, lease],
  );
}

export async function adopt(
  database: Database,
  { job, epoch, lease }: Lease,
  version: number,
  restart: boolean,
): Promise<void> {
  await database.queryUntilDone(`select ${database.schema}.adopt($1, $2, $3, $4, $5)`, [
    job,
    epoch,
    lease,
    version,
    restart,
  ]);
}

export interface LogBatch extends Lease {
  /** Grows with each batch of the attempt, so that a repeated one is written once. */
  batch: number;
  lines: { level: string; message: string; step?: string; data?: unknown; replayed?: number; ago_ms: number }[];
  progress?: unknown;
}

/** Returns the ids of the jobs whose lines the fence refused. With `untilDone` it waits for locked jobs. */
export async function appendLogs(database: Database, batches: LogBatch[], untilDone: boolean): Promise<string[]> {
  const text = `select job_id, last_seq from ${database.schema}.append_logs($1)`;
  const values = [JSON.stringify(batches)];
  const except = untilDone ? undefined : isLocked;
  const rows = await database.queryUntilDone<{ job_id: string; last_seq: string | null }>(text, values, except);
  return rows.filter(({ last_seq }) => last_seq === null).map(({ job_id }) => job_id);
}

export async function loadArtifacts(database: Database, { job, epoch, lease }: Lease): Promise<ArtifactRow[]> {
  return database.queryUntilDone<ArtifactRow>(
    `select name, size, sha256, content_type, key, epoch, saved_at from ${database.schema}.load_artifacts($1, $2, $3)`,
    [job, epoch, lease],
  );
}

export async function saveArtifact(
  database: Database,
  { job, epoch, lease }: Lease,
  artifact: { name: string; size: number; sha256: string; contentType: string; key: string },
): Promise<void> {
  await database.queryUntilDone(`select ${database.schema}.save_artifact($1, $2, $3, $4, $5, $6, $7, $8)`, [
    job,
    epoch,
    lease,
    artifact.name,
    artifact.size,
    artifact.sha256,
    artifact.contentType,
    artifact.key,
  ]);
}

/** The pools of these pipelines, with the names of the pipelines of each. Throws UnknownPool if `pool` does not exist. */
export async function readPipelinePools(
  database: Database,
  pipelines: string[],
  pool: string | undefined,
): Promise<Map<string, string[]>> {
  const rows = await database.read<{ pool: string; pipelines: string[] }>(
    `select pool, pipelines from ${database.schema}.pipeline_pools($1, $2)`,
    [pipelines, pool ?? null],
  );
  return new Map(rows.map((row) => [row.pool, row.pipelines]));
}

export interface DueRequest {
  pools: readonly string[];
  pipelines: string[];
  versions: number[];
  oldest: number[];
}

/** Milliseconds until something is due in these pools; negative when there is work now, null when nothing is scheduled. */
export async function nextDueInMs(
  database: Pick<Database, "read" | "schema">,
  request: DueRequest,
): Promise<number | null> {
  const [row] = await database.read<{ in_ms: string | null }>(
    `select extract(epoch from ${database.schema}.next_due($1, $2, $3, $4) - ${database.schema}.now()) * 1000 as in_ms`,
    [request.pools, request.pipelines, request.versions, request.oldest],
  );
  return row?.in_ms == null ? null : Number(row.in_ms);
}

/** Runs the due schedules of a pool. Returns milliseconds until the next one is due; null when there is none. */
export async function runDueSchedules(database: Database, pool: string): Promise<number | null> {
  const [row] = await database.query<{ in_ms: string | null }>(
    `select extract(epoch from ${database.schema}.run_due_schedules($1) - ${database.schema}.now()) * 1000 as in_ms`,
    [pool],
  );
  return row?.in_ms == null ? null : Number(row.in_ms);
}

/** `held`: leases of the caller, which a statement that was sent before a freeze of the caller must not recover after it. */
export async function recoverStale(database: Database, pool: string, held: (string | null)[]): Promise<number> {
  // Not after an outage: if it was longer than a lease, the caller's own leases look expired until it heartbeats.
  const [row] = await database.repeat<{ count: number }>(
    `select ${database.schema}.recover($1, $2, 1000, $3) as count`,
    {
      values: (again) => [again ? 0 : 100, pool, held],
    },
  );
  return row?.count ?? 0;
}

export async function recoverAbsent(
  database: Database,
  worker: string | null,
  graceMs: number,
): Promise<{ recovered: number; watched: number }> {
  // After an outage all sessions are gone, which says nothing about the workers.
  const [row] = await database.repeat<{ recovered: number; watched: number }>(
    `select recovered, watched from ${database.schema}.recover_absent($1, $2)`,
    { values: (again) => [worker, again ? "1 day" : `${graceMs} milliseconds`] },
  );
  return row ?? { recovered: 0, watched: 0 };
}

/** Statements of a worker's direct connection: list it as a listener, hold its presence lock, remove it from the list. */
export function presenceStatements(schema: string): { hold: string; renew: string; leave: string } {
  return {
    hold: `select ${schema}.hold_presence($1)`,
    renew: `select ${schema}.listen($1, $2, $3, $4)`,
    leave: `select ${schema}.unlisten($1)`,
  };
}
