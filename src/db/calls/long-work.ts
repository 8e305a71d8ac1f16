// Calls of sql/functions/flow/{children,events}.sql and of save_position(): jobs make them through their keeper, except
// signal(), which any client calls.
import { randomUUID } from "node:crypto";
import type { Database } from "../database.ts";
import { fromRow, type RowOf } from "../row.ts";
import { fromTransaction, type Send } from "../transaction.ts";
import type { Failure, JobState } from "./job.ts";
import type { Lease, LogBatch } from "./worker.ts";

export type OnError = "fail" | "collect" | "ignore";

/** A batch of children of a spawn, in order. */
export interface SpawnBatch {
  spawn: string;
  pipeline: string;
  ids: string[];
  /** A JSON array. */
  inputs: string;
  options: Record<string, unknown>;
  /** The number of the first child of the batch, and the total of the spawn. */
  from: number;
  total: number;
  onError: OnError;
}

/** Returns how many children are stored by now, or -1 when the parent is being cancelled. Stored children are skipped. */
export async function spawn(database: Database, { job, epoch, lease }: Lease, batch: SpawnBatch): Promise<number> {
  const { spawn: name, pipeline, ids, inputs, options, from, total, onError } = batch;
  const [row] = await database.queryUntilDone<{ spawned: number }>(
    `select ${database.schema}.spawn($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) as spawned`,
    [job, epoch, lease, name, pipeline, inputs, JSON.stringify(options), ids, from, total, onError],
  );
  return row!.spawned;
}

export interface ChildCounts {
  total: number;
  completed: number;
  failed: number;
  cancelled: number;
}

export interface SpawnState extends ChildCounts {
  /** There is nothing left to wait for. */
  over: boolean;
  /** The parent is being cancelled, and so are its children. */
  cancelling: boolean;
}

export async function spawnState(
  database: Database,
  { job, epoch, lease }: Lease,
  name: string,
): Promise<SpawnState | undefined> {
  const [row] = await database.queryUntilDone<SpawnState>(
    `select over, cancelling, total, completed, failed, cancelled from ${database.schema}.spawn_state($1, $2, $3, $4)`,
    [job, epoch, lease, name],
  );
  return row;
}

export interface ChildRow {
  child_no: number;
  id: string;
  state: Extract<JobState, "completed" | "failed" | "cancelled">;
  output: unknown;
  failure: Failure | null;
}

export async function loadChildren(
  database: Database,
  { job, epoch, lease }: Lease,
  { spawn: name, after, limit, failed = false }: { spawn: string; after: number; limit: number; failed?: boolean },
): Promise<ChildRow[]> {
  return database.queryUntilDone<ChildRow>(
    `select child_no, id, state, output, failure from ${database.schema}.load_children($1, $2, $3, $4, $5, $6, $7)`,
    [job, epoch, lease, name, after, limit, failed],
  );
}

export interface SignalResult {
  answer: "kept" | "there" | "waiting" | "timeout";
  id: string | null;
  data: unknown;
  /** ISO 8601. */
  until: string | null;
}

export async function findSignal(
  database: Database,
  { job, epoch, lease }: Lease,
  { event, step, timeoutMs }: { event: string; step: string; timeoutMs: number | null },
): Promise<SignalResult> {
  const [row] = await database.queryUntilDone<SignalResult & { until: Date | null }>(
    `select answer, id, data, until from ${database.schema}.find_signal($1, $2, $3, $4, $5, $6)`,
    [job, epoch, lease, event, step, timeoutMs === null ? null : `${timeoutMs} milliseconds`],
  );
  return { ...row!, until: (row!.until as Date | null)?.toISOString() ?? null };
}

export async function takeSignal(
  database: Database,
  { job, epoch, lease }: Lease,
  { step, id, output, accepted }: { step: string; id: string; output: string; accepted: boolean },
): Promise<"taken" | "refused" | "gone" | "kept"> {
  const [row] = await database.queryUntilDone<{ result: "taken" | "refused" | "gone" | "kept" }>(
    `select ${database.schema}.take_signal($1, $2, $3, $4, $5, $6, $7) as result`,
    [job, epoch, lease, step, id, output, accepted],
  );
  return row!.result;
}

/** What a signal met. */
export interface Signalled {
  state: JobState;
  /** The event that the job waited for when the signal arrived. A signal with another name is kept. */
  awaitedEvent: string | null;
}

/** Sends a signal to a job. */
export async function signal(
  database: Database,
  { job, event, data, by }: { job: string; event: string; data: string; by: string | null },
): Promise<Signalled> {
  const id = randomUUID();
  // The subquery sees the job as it was before the signal.
  const [row] = await database.repeat<RowOf<Signalled>>(
    `select ${database.schema}.signal($1, $2, $3, $4, $5) as state,
      (select j.awaited_event from ${database.schema}.jobs j where j.id = $1) as awaited_event`,
    { values: () => [job, event, data, by, id] },
  );
  return fromRow<Signalled>(row!);
}

/** A range of finished items of a list, the cursor of the last one, and the value that includes their result. */
export interface PositionCall {
  step: string;
  from: number;
  to: number;
  /** JSON. */
  last: string | null;
  over: boolean;
  /** JSON; null for no change. */
  value: string | null;
}

const SAVE_POSITION =
  "save_position($1::text::uuid, $2::text::bigint, $3::text::uuid, $4::text, $5::text::bigint, $6::text::bigint, " +
  "$7::text::jsonb, $8::text::boolean, $9::text::jsonb)";

function positionValues({ job, epoch, lease }: Lease, call: PositionCall): (string | null)[] {
  const { step, from, to, last, over, value } = call;
  return [job, epoch, lease, step, String(from), String(to), last, String(over), value];
}

/** `lines`: lines of the job that are stored in the same transaction. */
export async function savePosition(
  database: Database,
  lease: Lease,
  call: PositionCall,
  lines?: LogBatch,
): Promise<"saved" | "kept"> {
  const values = positionValues(lease, call);
  const { schema } = database;
  // The row of FROM is computed before the position that is selected from it.
  const from = lines ? ` from (select count(*) from ${schema}.append_logs($${values.length + 1})) l` : "";
  const [row] = await database.queryUntilDone<{ result: "saved" | "kept" }>(
    `select ${schema}.${SAVE_POSITION} as result${from}`,
    lines ? [...values, JSON.stringify([lines])] : values,
  );
  return row!.result;
}

/** Inside the user's transaction, as its last statement. */
export async function savePositionInTransaction(
  send: Send,
  schema: string,
  lease: Lease,
  call: PositionCall,
): Promise<"saved" | "kept"> {
  try {
    const [row] = await send(`select ${schema}.${SAVE_POSITION} as result`, positionValues(lease, call));
    return row!.result as "saved" | "kept";
  } catch (error) {
    throw fromTransaction(error);
  }
}
