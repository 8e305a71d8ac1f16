// Stores imported jobs and schedules in Stillwake, through the same SQL functions as every client.
import { fromDatabase } from "../../errors.ts";
import { newId } from "../../ids.ts";
import type { Client } from "./source.ts";

/** A job of the source on the scales of Stillwake. */
export interface ImportedJob {
  pipeline: string;
  /** JSON text. */
  input: string;
  runAt: string | null;
  priority: number;
  attempts: number;
  key: string | null;
  /** Makes a repeated call store the job once; null where the source and Stillwake share a transaction. */
  idempotencyKey: string | null;
}

export interface ImportPipeline {
  name: string;
  inputSchema: unknown;
}

export async function readImportPipelines(client: Client, schema: string): Promise<ImportPipeline[]> {
  return (await send<ImportPipeline>(client, `select name, input_schema as "inputSchema" from ${schema}.pipelines`))
    .rows;
}

/**
 * Stores the jobs in their order, in one statement, and returns how many of them existed already. A job whose key is
 * taken waits: an import must lose none.
 */
export async function storeJobs(client: Client, schema: string, jobs: readonly ImportedJob[]): Promise<number> {
  const groups = new Map<string, ImportedJob[]>();
  for (const job of jobs) {
    const { pipeline, runAt, priority, attempts, key } = job;
    // Apart, because jobs with a key wait for other transactions that use it.
    const group = JSON.stringify([pipeline, runAt, priority, attempts, key === null]);
    const members = groups.get(group);
    if (members) members.push(job);
    else groups.set(group, [job]);
  }
  const { rows } = await send<{ existing: number }>(
    client,
    `select (select count(*)::integer from unnest(e.stored, e.wanted) i (stored, wanted) where i.stored <> i.wanted) as existing
    from (
      select g.wanted, ${schema}.enqueue_many(g.pipeline, g.inputs, g.options, g.wanted) as stored
      from (
        select e ->> 'pipeline' as pipeline, e -> 'inputs' as inputs, e -> 'options' as options,
          array(select i::uuid from jsonb_array_elements_text(e -> 'ids') with ordinality as i (i, n) order by n) as wanted
        from jsonb_array_elements($1::text::jsonb) with ordinality as e (e, n) order by n offset 0
      ) g offset 0
    ) e`,
    [`[${[...groups.values()].map(groupText).join(",")}]`],
  );
  return rows.reduce((sum, { existing }) => sum + existing, 0);
}

/** As text: parsing the inputs here would round large numbers. */
function groupText(jobs: readonly ImportedJob[]): string {
  const { pipeline, runAt, priority, attempts, key, idempotencyKey } = jobs[0]!;
  const options = {
    priority,
    max_attempts: attempts,
    ...(runAt !== null && { run_at: runAt }),
    ...(key !== null && { keys: jobs.map((job) => job.key), on_conflict: "wait" }),
    ...(idempotencyKey !== null && { idempotency_keys: jobs.map((job) => job.idempotencyKey) }),
  };
  const head = JSON.stringify({ pipeline, options, ids: jobs.map(() => newId()) });
  return `${head.slice(0, -1)},"inputs":[${jobs.map(({ input }) => input).join(",")}]}`;
}

export interface ImportedSchedule {
  name: string;
  pipeline: string;
  cron: string;
  zone: string;
  /** JSON text. */
  input: string;
  options: { priority?: number; max_attempts?: number };
}

/** Returns why the schedule was refused, or undefined. An existing schedule with another definition is not replaced. */
export async function storeSchedule(
  client: Client,
  schema: string,
  { name, input, ...schedule }: ImportedSchedule,
): Promise<string | undefined> {
  const head = JSON.stringify(schedule);
  await client.query("savepoint schedule");
  try {
    const { rows } = await send<{ taken: boolean }>(
      client,
      `select exists (select from ${schema}.schedules s where s.name = $1 and (s.cron, s.zone, s.pipeline) is distinct from ($2, $3, $4)) as taken`,
      [name, schedule.cron, schedule.zone, schedule.pipeline],
    );
    if (rows[0]!.taken) return `schedule ${name} exists with another definition`;
    await send(client, `select ${schema}.set_schedule($1, $2::text::jsonb)`, [
      name,
      `${head.slice(0, -1)},"input":${input}}`,
    ]);
    await client.query("release savepoint schedule");
    return undefined;
  } catch (error) {
    await client.query("rollback to savepoint schedule");
    return (error as Error).message;
  }
}

async function send<Row extends object>(
  client: Client,
  text: string,
  values: unknown[] = [],
): Promise<{ rows: Row[] }> {
  try {
    return await client.query<Row & Record<string, unknown>>(text, values);
  } catch (error) {
    throw fromDatabase(error);
  }
}
