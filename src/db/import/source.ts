// What an import reads from another job queue, and how a queue in Postgres is read: in a transaction, under row locks.
import type pg from "pg";
import { InvalidInput, StillwakeError } from "../../errors.ts";

/** A queue of the source; graphile-worker calls it a task. */
export interface SourceQueue {
  name: string;
  ready: number;
  delayed: number;
  /** Jobs that a worker of the source runs. They stay there. */
  running: number;
  /** Jobs that stay for another reason: see `keptReason`. */
  kept: number;
}

/** A waiting or delayed job of the source. */
export interface SourceJob {
  id: string;
  queue: string;
  /** The name of the job within its queue (BullMQ). */
  name?: string;
  /** The JSON text of the input, as stored; null when it is longer than INPUT_TEXT_LIMIT. */
  input: string | null;
  /** An ISO 8601 time; null for a job that is ready. */
  runAt: string | null;
  /** Higher runs first. Not limited to the range of Stillwake. */
  priority: number;
  /** The attempts that are left. */
  attempts: number;
  /** Jobs with the same key run one after the other. */
  key: string | null;
}

export interface SourceSchedule {
  queue: string;
  /** Distinguishes several schedules of one queue; empty for the only one. */
  key: string;
  /** Undefined when the definition has no cron expression: see `problem`. */
  cron?: string;
  zone: string;
  /** JSON text. */
  input: string;
  priority?: number;
  attempts?: number;
  /** Why it cannot become a schedule of Stillwake. */
  problem?: string;
}

export interface ImportSource {
  readonly name: "pg-boss" | "graphile-worker" | "bullmq";
  /** Why jobs stay that are counted as `kept`. */
  readonly keptReason: string;
  /** Facts that the user must act on. */
  notes(): Promise<string[]>;
  queues(): Promise<SourceQueue[]>;
  schedules(): Promise<SourceSchedule[]>;
  /** Starts to read: the ready jobs in the order in which they would run, then the delayed ones by time. */
  open(options: OpenOptions): Promise<void>;
  /** The next jobs, at most `count`; none when all were read. */
  next(count: number): Promise<SourceJob[]>;
  /** Called before Stillwake stores these jobs. */
  storing?(jobs: readonly SourceJob[]): void;
  /** Removes jobs that Stillwake has stored. */
  remove(jobs: readonly SourceJob[]): Promise<void>;
  removeSchedule(schedule: SourceSchedule): Promise<void>;
  close?(): Promise<void>;
}

interface OpenOptions {
  /** Reads without locks. */
  dryRun: boolean;
  limit?: number | undefined;
  /** Ids of jobs to skip. */
  skip?: readonly string[];
}

/** Longer inputs are not transferred: they exceed the limit of Stillwake in any notation. */
const INPUT_TEXT_LIMIT = 1_000_000;

export type Client = Pick<pg.Client, "query">;

/** The text of a JSON value, unless it is too long. */
export function inputText(expression: string): string {
  return `case when octet_length(${expression}) <= ${INPUT_TEXT_LIMIT} then ${expression} end`;
}

/** An ISO 8601 time with the precision of Postgres; null when it has passed. */
export function futureTime(column: string): string {
  return `case when ${column} > now() then to_json(${column}) #>> '{}' end`;
}

/**
 * One cursor per transaction: the server sorts once, and rows are locked when they are fetched. `skip locked` passes
 * over rows that a worker of the source is claiming; a row that was claimed meanwhile is checked again and left out.
 */
export async function declareCursor(client: Client, select: string, values: unknown[], lock: string): Promise<void> {
  await client.query("close all");
  await client.query(`declare stillwake_import no scroll cursor for ${select} ${lock}`, values);
}

export async function fetchRows<Row extends pg.QueryResultRow>(client: Client, count: number): Promise<Row[]> {
  return (await client.query<Row>(`fetch ${count} from stillwake_import`)).rows;
}

/** The columns of a table; throws when the current role cannot read all of its rows. */
export async function readColumns(
  client: Client,
  source: string,
  schema: string,
  table: string,
  supported: string,
): Promise<Set<string>> {
  const { rows } = await client.query<{ name: string; hidden: boolean; readable: boolean }>(
    `select a.attname::text as name, row_security_active(c.oid) as hidden, has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'delete') as readable
    from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid
    where n.nspname = $1 and c.relname = $2 and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped`,
    [schema, table],
  );
  if (rows.length === 0) throw unsupported(source, `${schema}.${table}`, supported);
  if (rows[0]!.hidden || !rows[0]!.readable) {
    throw new StillwakeError("NOT_ALLOWED", `This role may not read and delete all rows of ${schema}.${table}`, {
      remedy: `Connect as the owner of the tables of ${source}`,
    });
  }
  return new Set(rows.map(({ name }) => name));
}

export function unsupported(source: string, table: string, supported: string): InvalidInput {
  return new InvalidInput(`There is no table ${table} of ${supported} in this database`, {
    field: "source-schema",
    remedy: `Pass --source-schema, or --from <url> if ${source} is in another database; update ${source} first if it is older`,
  });
}
