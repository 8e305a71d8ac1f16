// Calls of sql/functions/jobs for clients. Those for workers are in worker.ts, reads of the views in reads.ts.

import { NotAllowed } from "../../errors.ts";
import { type Database, placeholders } from "../database.ts";
import { fromTransaction, OtherDatabase, type Send } from "../transaction.ts";
import type { JobState } from "./job.ts";

export interface EnqueueBatch {
  pipeline: string;
  ids: string[];
  /** The compact JSON of each input. */
  inputs: string[];
  options: Record<string, unknown>;
}

export interface JobFilter {
  pipeline?: string;
  pool?: string;
  state?: JobState;
  key?: string;
  tenant?: string;
  /** The children of this job. */
  parent?: string;
  /** Created at or after this time. */
  since?: Date;
  /** Created before this time. */
  until?: Date;
  /** Contained in its id, key, tenant, worker, input or failure, ignoring case. */
  text?: string;
}

/** Stores the batch and returns the ids: those of the batch, or of earlier jobs with the same idempotency keys. */
export async function enqueueMany(database: Database, batch: EnqueueBatch): Promise<string[]> {
  const rows = await database.repeat<{ ids: string | null }>(enqueueText(database.schema), {
    values: (again) => enqueueValues(again ? { ...batch, options: { ...batch.options, again: true } } : batch),
  });
  return parseIds(rows[0]?.ids ?? null, batch.ids);
}

/**
 * The same inside the caller's transaction, without repeats. Stores nothing and throws OtherDatabase where the database
 * of the transaction has another identity.
 */
export async function enqueueManyInTransaction(
  send: Send,
  schema: string,
  batch: EnqueueBatch,
  identity: string | undefined,
): Promise<string[]> {
  try {
    const guard = identity === undefined ? "" : ` where ${schema}.database_identity() = $5::text`;
    const values = [...enqueueValues(batch), ...(identity === undefined ? [] : [identity])];
    const rows = await send(`${enqueueText(schema)}${guard}`, values);
    if (rows.length === 0) throw new OtherDatabase();
    return parseIds(rows[0]?.ids as string | null, batch.ids);
  } catch (error) {
    throw fromTransaction(error);
  }
}

// Every parameter is text, which all drivers and query builders send alike. The result is null unless an id differs.
function enqueueText(schema: string): string {
  return `select nullif(${schema}.enqueue_many($1::text, $2::text::jsonb, $3::text::jsonb, g.ids), g.ids)::text as ids
    from (select $4::text::uuid[] as ids offset 0) g`;
}

function enqueueValues({ pipeline, ids, inputs, options }: EnqueueBatch): string[] {
  return [pipeline, `[${inputs.join(",")}]`, JSON.stringify(options), `{${ids.join(",")}}`];
}

function parseIds(text: string | null, requested: string[]): string[] {
  return text === null ? requested : text.slice(1, -1).split(",");
}

export async function registerPipeline(database: Database, name: string, settings: object): Promise<void> {
  await database.query(registerText(database.schema), [name, JSON.stringify(settings)]);
}

export async function registerPipelineInTransaction(
  send: Send,
  schema: string,
  name: string,
  settings: object,
): Promise<void> {
  try {
    await send(registerText(schema), [name, JSON.stringify(settings)]);
  } catch (error) {
    throw fromTransaction(error);
  }
}

// Prisma cannot read void, so the result is cast to text.
function registerText(schema: string): string {
  return `select ${schema}.register_pipeline($1::text, $2::text::jsonb)::text`;
}

/** cancel, retry, pause and resume of a job: each returns the current state of the job. */
export async function controlJob(
  database: Database,
  verb: "cancel" | "retry" | "pause" | "resume",
  values: unknown[],
): Promise<JobState> {
  let repeated = false;
  try {
    const rows = await database.repeat<{ state: JobState }>(
      `select ${database.schema}.${verb}(${placeholders(values)}) as state`,
      {
        values: (again) => {
          repeated = again;
          return values;
        },
      },
    );
    return rows[0]!.state;
  } catch (error) {
    // The repeat of a retry whose response was lost finds the job live again.
    if (!repeated || !(error instanceof NotAllowed)) throw error;
    const [job] = await database.read<{ state: JobState }>(`select state from ${database.schema}.jobs where id = $1`, [
      values[0],
    ]);
    if (!job) throw error;
    return job.state;
  }
}

export async function controlPool(
  database: Database,
  verb: "pause_pool" | "resume_pool",
  values: unknown[],
): Promise<void> {
  await database.query(`select ${database.schema}.${verb}(${placeholders(values)})`, values);
}

export interface Demand {
  pool: string;
  paused: boolean;
  claimable: number;
  running: number;
  oldest: Date | null;
  next_due: Date | null;
}

export async function readDemand(database: Database): Promise<Demand[]> {
  return database.read<Demand>(`select * from ${database.schema}.demand()`);
}
