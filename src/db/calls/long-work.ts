// The verbs of sql/functions/{children,events,places}.sql: what outlives an attempt. Jobs call them through their keeper; signal() is for everybody.
import { randomUUID } from "node:crypto";
import { fromDatabase } from "../../errors.ts";
import type { Database } from "../database.ts";
import type { Send } from "../transaction.ts";
import type { Failure, JobState } from "./jobs.ts";
import type { Lease } from "./worker.ts";

export type OnError = "fail" | "collect" | "ignore";

/** Some of the children of a spawn, in order. */
export interface SpawnBatch {
  spawn: string;
  pipeline: string;
  ids: string[];
  /** A JSON array. */
  inputs: string;
  options: Record<string, unknown>;
  /** The number of the first one, and how many there are in all. */
  from: number;
  total: number;
  onError: OnError;
}

/** Answers how many children are stored by now, or -1 when the parent is being cancelled. What is stored already is not stored again. */
export async function spawn(database: Database, { job, epoch, lease }: Lease, batch: SpawnBatch): Promise<number> {
  const { spawn: name, pipeline, ids, inputs, options, from, total, onError } = batch;
  const [row] = await database.insist<{ spawned: number }>(
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
  /** The parent was asked to stop, and so were its children. */
  cancelling: boolean;
}

export async function spawnState(
  database: Database,
  { job, epoch, lease }: Lease,
  name: string,
): Promise<SpawnState | undefined> {
  const [row] = await database.insist<SpawnState>(
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
  return database.insist<ChildRow>(
    `select child_no, id, state, output, failure from ${database.schema}.load_children($1, $2, $3, $4, $5, $6, $7)`,
    [job, epoch, lease, name, after, limit, failed],
  );
}

export interface SignalAnswer {
  answer: "kept" | "there" | "waiting" | "timeout";
  id: string | null;
  data: unknown;
  /** ISO 8601. */
  until: string | null;
}

export async function lookForSignal(
  database: Database,
  { job, epoch, lease }: Lease,
  { event, step, timeoutMs }: { event: string; step: string; timeoutMs: number | null },
): Promise<SignalAnswer> {
  const [row] = await database.insist<SignalAnswer & { until: Date | null }>(
    `select answer, id, data, until from ${database.schema}.look_for_signal($1, $2, $3, $4, $5, $6)`,
    [job, epoch, lease, event, step, timeoutMs === null ? null : `${timeoutMs} milliseconds`],
  );
  return { ...row!, until: (row!.until as Date | null)?.toISOString() ?? null };
}

export async function takeSignal(
  database: Database,
  { job, epoch, lease }: Lease,
  { step, id, output, accepted }: { step: string; id: string; output: string; accepted: boolean },
): Promise<"taken" | "refused" | "gone" | "kept"> {
  const [row] = await database.insist<{ result: "taken" | "refused" | "gone" | "kept" }>(
    `select ${database.schema}.take_signal($1, $2, $3, $4, $5, $6, $7) as result`,
    [job, epoch, lease, step, id, output, accepted],
  );
  return row!.result;
}

/** Says something to a job. Answers the state it is in. */
export async function signal(
  database: Database,
  { job, event, data, by }: { job: string; event: string; data: string; by: string | null },
): Promise<JobState> {
  const id = randomUUID();
  const [row] = await database.repeat<{ state: JobState }>(
    `select ${database.schema}.signal($1, $2, $3, $4, $5) as state`,
    { values: () => [job, event, data, by, id] },
  );
  return row!.state;
}

/** Items of a list that are done, and what finds the last of them again. */
export interface PlaceCall {
  step: string;
  from: number;
  to: number;
  /** JSON. */
  last: string | null;
  over: boolean;
}

const PLACE =
  "save_place($1::text::uuid, $2::text::bigint, $3::text::uuid, $4::text, $5::text::bigint, $6::text::bigint, $7::text::jsonb, $8::text::boolean)";

function placeValues({ job, epoch, lease }: Lease, { step, from, to, last, over }: PlaceCall): (string | null)[] {
  return [job, epoch, lease, step, String(from), String(to), last, String(over)];
}

export async function savePlace(database: Database, lease: Lease, call: PlaceCall): Promise<"saved" | "kept"> {
  const [row] = await database.insist<{ result: "saved" | "kept" }>(
    `select ${database.schema}.${PLACE} as result`,
    placeValues(lease, call),
  );
  return row!.result;
}

/** Inside the user's own transaction, as its last statement. */
export async function savePlaceThrough(
  send: Send,
  schema: string,
  lease: Lease,
  call: PlaceCall,
): Promise<"saved" | "kept"> {
  try {
    const [row] = await send(`select ${schema}.${PLACE} as result`, placeValues(lease, call));
    return row!.result as "saved" | "kept";
  } catch (error) {
    throw fromDatabase(error);
  }
}
