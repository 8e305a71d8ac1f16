// The verbs of sql/functions that a worker calls. Every write names its lease (job, epoch, lease id), the fence of sql/functions/jobs/lease.sql.
import { randomUUID } from "node:crypto";
import { fromDatabase } from "../../errors.ts";
import type { Database } from "../database.ts";
import type { Send } from "../transaction.ts";
import type { Failure, JobOrigin, JobState, WaitingFor } from "./jobs.ts";
import type { ArtifactRow } from "./reads.ts";

/** What a worker holds: the fence of every write it makes. */
export interface Lease {
  job: string;
  /** A whole number as text: it may pass 2^53. */
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
  /** Where the next claim begins, in a pool whose jobs take turns. */
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
  /** As Postgres reads an interval. */
  lease: string;
  presence?: string | null;
  /** The version of the code per pipeline, and the oldest whose jobs it goes on with. */
  versions?: number[] | null;
  oldest?: number[] | null;
  cursor?: string | null;
}

/** Settles what is finished and claims what is next: one round trip, one commit. */
export async function settleAndClaim(
  database: Database,
  settlements: Settlement[],
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
  }: ClaimRequest,
): Promise<{ refused: string[]; claimed: ClaimedJob[] }> {
  // The lease is named here, so that a repeated call is answered the jobs of the first instead of leasing others to nobody. It asks for no
  // jobs itself: the first may arrive long after, when a network comes back to life, and must find its lease taken.
  const given = JSON.stringify(settlements);
  const id = randomUUID();
  const rows = await database.repeat<ClaimedJob & { refused: string[] | null }>(
    `select job_id, lease_id, epoch, pipeline, input, attempt, max_attempts, crashes, key, tenant, progress, version, trace, origin, cursor, refused
    from ${database.schema}.settle_and_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
    {
      values: (again) => [
        given,
        worker,
        pool,
        pipelines,
        again ? 0 : limit,
        lease,
        id,
        presence,
        versions,
        oldest,
        cursor,
      ],
    },
  );
  const refused = rows[0]?.refused ?? [];
  return { refused, claimed: refused.length > 0 ? rows.slice(1) : rows };
}

export async function settle(
  database: Database,
  settlements: Settlement[],
): Promise<{ job_id: string; state: JobState | "lost" }[]> {
  return database.query(`select job_id, state from ${database.schema}.settle($1)`, [JSON.stringify(settlements)]);
}

export interface Verdict {
  job_id: string;
  /** "busy": its lease was locked and so neither prolonged nor to be recovered. */
  verdict: "lost" | "cancel" | "pause" | "busy";
  reason: string | null;
}

export async function heartbeat(
  database: Database,
  leases: Lease[],
  presence: string | null,
  patienceMs: number,
): Promise<Verdict[]> {
  const values = [
    leases.map(({ job }) => job),
    leases.map(({ epoch }) => epoch),
    leases.map(({ lease }) => lease),
    presence,
  ];
  const text = `select job_id, verdict, reason from ${database.schema}.heartbeat($1, $2, $3, $4)`;
  return database.query<Verdict>(text, values, patienceMs);
}

export interface CheckpointCall extends Lease {
  step: string;
  /** JSON. */
  output: string;
  tookMs: number;
}

/** Answers in the order of the calls. */
export async function saveCheckpoints(
  database: Database,
  calls: CheckpointCall[],
): Promise<("saved" | "kept" | "lost")[]> {
  // The arrays are written by hand: the driver would look at every element for what it may have to escape.
  const of = (text: (call: CheckpointCall) => string) => `{${calls.map(text).join(",")}}`;
  // Only what was not simply saved travels back.
  const rows = await database.insist<{ job_id: string; step: string; result: "kept" | "lost" }>(
    `select job_id, step, result from ${database.schema}.save_checkpoints($1, $2, $3, $4, $5, $6) where result <> 'saved'`,
    [
      of(({ job }) => job),
      of(({ epoch }) => epoch),
      of(({ lease }) => lease),
      of(({ step }) => quoted(step)),
      of(({ output }) => quoted(output)),
      of(({ tookMs }) => String(Math.round(tookMs))),
    ],
  );
  const others = new Map(rows.map(({ job_id, step, result }) => [`${job_id} ${step}`, result]));
  return calls.map(({ job, step }) => (others.size === 0 ? "saved" : (others.get(`${job} ${step}`) ?? "saved")));
}

/** An element of an array in the text form of Postgres. */
function quoted(text: string): string {
  return `"${text.replaceAll(/[\\"]/g, "\\$&")}"`;
}

/** Inside the user's own transaction, as its last statement. Throws LeaseLost, or NotAllowed when the step was kept before. */
export async function saveCheckpointThrough(
  send: Send,
  schema: string,
  { job, epoch, lease, step, output, tookMs }: CheckpointCall,
): Promise<void> {
  try {
    await send(
      `select ${schema}.save_checkpoint($1::text::uuid, $2::text::bigint, $3::text::uuid, $4::text, $5::text::jsonb, $6::text::bigint)::text`,
      [job, epoch, lease, step, output, String(Math.round(tookMs))],
    );
  } catch (error) {
    throw fromDatabase(error);
  }
}

export interface KeptStep {
  step: string;
  output: unknown;
}

export async function loadCheckpoints(database: Database, { job, epoch, lease }: Lease): Promise<KeptStep[]> {
  return database.insist<KeptStep>(`select step, output from ${database.schema}.load_checkpoints($1, $2, $3)`, [
    job,
    epoch,
    lease,
  ]);
}

export async function adopt(
  database: Database,
  { job, epoch, lease }: Lease,
  version: number,
  restart: boolean,
): Promise<void> {
  await database.insist(`select ${database.schema}.adopt($1, $2, $3, $4, $5)`, [job, epoch, lease, version, restart]);
}

export interface LogBatch extends Lease {
  /** Grows with each batch of the attempt, so that one sent twice is written once. */
  batch: number;
  lines: { level: string; message: string; step?: string; data?: unknown; ago_ms: number }[];
  progress?: unknown;
}

/** Answers the ids of the jobs whose lines the fence refused. */
export async function appendLogs(database: Database, batches: LogBatch[]): Promise<string[]> {
  const rows = await database.insist<{ job_id: string; last_seq: string | null }>(
    `select job_id, last_seq from ${database.schema}.append_logs($1)`,
    [JSON.stringify(batches)],
  );
  return rows.filter(({ last_seq }) => last_seq === null).map(({ job_id }) => job_id);
}

export async function loadArtifacts(database: Database, { job, epoch, lease }: Lease): Promise<ArtifactRow[]> {
  return database.insist<ArtifactRow>(
    `select name, size, sha256, content_type, key, epoch, saved_at from ${database.schema}.load_artifacts($1, $2, $3)`,
    [job, epoch, lease],
  );
}

export async function saveArtifact(
  database: Database,
  { job, epoch, lease }: Lease,
  artifact: { name: string; size: number; sha256: string; contentType: string; key: string },
): Promise<void> {
  await database.insist(`select ${database.schema}.save_artifact($1, $2, $3, $4, $5, $6, $7, $8)`, [
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

export interface DueQuestion {
  pool: string;
  pipelines: string[];
  versions: number[];
  oldest: number[];
}

/** Milliseconds until something happens in this pool; negative when there is work now, null when there is nothing at all. */
export async function dueIn(
  database: Pick<Database, "query" | "schema">,
  question: DueQuestion,
): Promise<number | null> {
  const [row] = await database.query<{ in_ms: string | null }>(
    `select extract(epoch from ${database.schema}.next_due(array[$1], $2, $3, $4) - ${database.schema}.now()) * 1000 as in_ms`,
    [question.pool, question.pipelines, question.versions, question.oldest],
  );
  return row?.in_ms == null ? null : Number(row.in_ms);
}

/** Sees to the schedules of a pool that are due. Milliseconds until the next one is; null when there is none. */
export async function tendSchedules(database: Database, pool: string): Promise<number | null> {
  const [row] = await database.query<{ in_ms: string | null }>(
    `select extract(epoch from ${database.schema}.tend_schedules($1) - ${database.schema}.now()) * 1000 as in_ms`,
    [pool],
  );
  return row?.in_ms == null ? null : Number(row.in_ms);
}

export async function recoverStale(database: Database, pool: string): Promise<number> {
  // Not after an outage: one that was longer than a lease has made the caller's own leases look like those of the dead, until it heartbeats.
  const [row] = await database.repeat<{ count: number }>(`select ${database.schema}.recover($1, $2, 1000) as count`, {
    values: (again) => [again ? 0 : 100, pool],
  });
  return row?.count ?? 0;
}

export async function recoverAbsent(
  database: Database,
  worker: string,
  graceMs: number,
): Promise<{ recovered: number; watched: number }> {
  // After an outage the sessions of all are gone, and nobody is found dead by that.
  const [row] = await database.repeat<{ recovered: number; watched: number }>(
    `select recovered, watched from ${database.schema}.recover_absent($1, $2)`,
    { values: (again) => [worker, again ? "1 day" : `${graceMs} milliseconds`] },
  );
  return row ?? { recovered: 0, watched: 0 };
}

/** What a direct connection says first: it wants hints, and its session is the sign that the worker lives. */
export function directStatements(schema: string): { listen: string; present: string; renew: string; leave: string } {
  return {
    listen: `listen "${schema}.hint"`,
    present: `select ${schema}.be_present($1)`,
    renew: `select ${schema}.listen($1, $2, $3)`,
    leave: `select ${schema}.unlisten($1)`,
  };
}
