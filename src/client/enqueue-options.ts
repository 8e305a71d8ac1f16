// What can be said about a job when it is enqueued. Judged here, before the call shares a statement with others: what the database would
// refuse must not take its neighbours along.

import { conflicts, type OnConflict, type Pipeline, type PipelineOptions } from "../contract/pipeline.ts";
import type { Transaction } from "../db/transaction.ts";
import { InvalidInput } from "../errors.ts";
import { checkLabel, unstorable } from "../payload.ts";
import { type Duration, toInterval } from "../time.ts";

export interface EnqueueOptions {
  /** Start not before this long from now. */
  delay?: Duration;
  /** Start not before this moment. */
  runAt?: Date;
  /** End the job as failed (EXPIRED) if no worker has started it by then. */
  expiresIn?: Duration;
  expiresAt?: Date;
  /** Higher runs first, -1000 to 1000. */
  priority?: number;
  pool?: string;
  attempts?: number;
  /** At most so many active jobs of the pipeline have one key, one unless the contract says more. Default: what the contract makes of the input. */
  key?: string;
  /** What becomes of a job whose key is taken. Default: what the contract says. */
  onConflict?: OnConflict;
  /** Whose job it is. Tenants take turns. Default: what the contract makes of the input. */
  tenant?: string;
  /**
   * The tenant that the call is made for: a job of somebody else is neither joined, replaced nor answered, whatever the keys say. KEY_TAKEN instead,
   * and nothing of the call has happened.
   */
  boundTo?: string;
  /** A second call with the same key and pipeline answers the first call's job. */
  idempotencyKey?: string;
  /** Who is told when the job ends: a URL, or an endpoint of `sw.webhooks`, with or without a URL of the job's own. */
  webhook?: string | { endpoint?: string; url?: string };
  /** Enqueue inside your own transaction: pg, postgres.js, Drizzle, Kysely, Prisma or Knex. */
  tx?: Transaction;
}

export interface EnqueueManyOptions extends Omit<EnqueueOptions, "idempotencyKey"> {
  /** One per input, null for none. */
  idempotencyKeys?: readonly (string | null)[];
}

/** What is said of one job of a statement, and not of all. */
export interface Labels {
  key: string | null;
  tenant: string | null;
}

/** From the options, or from what the contract makes of the input. */
export function labelsOf(
  pipeline: Pipeline | string,
  input: unknown,
  { key, tenant }: Pick<EnqueueOptions, "key" | "tenant">,
  at: string,
): Labels {
  const contract = typeof pipeline === "string" ? {} : pipeline.options;
  const of = (given: string | undefined, make: PipelineOptions<unknown, unknown>["key"], field: string) => {
    const value = given ?? make?.(input) ?? null;
    return value === null ? null : checkLabel(value, given === undefined ? `${field} of ${at}` : field);
  };
  return { key: of(key, contract.key, "key"), tenant: of(tenant, contract.tenant, "tenant") };
}

type Write = (sql: Record<string, unknown>, value: unknown) => void;

const shared: Record<string, Write> = {
  delay: (sql, value) => (sql.delay = toInterval(value as Duration, "delay")),
  runAt: (sql, value) => (sql.run_at = isoTime(value, "runAt")),
  expiresIn: (sql, value) => (sql.expires_in = toInterval(value as Duration, "expiresIn")),
  expiresAt: (sql, value) => (sql.expires_at = isoTime(value, "expiresAt")),
  priority: (sql, value) => (sql.priority = wholeNumber(value, "priority", -1000, 1000)),
  pool: (sql, value) => (sql.pool = checkLabel(value, "pool")),
  attempts: (sql, value) => (sql.max_attempts = wholeNumber(value, "attempts", 1, 1000)),
  key: () => {},
  onConflict: (sql, value) => (sql.on_conflict = conflict(value)),
  tenant: () => {},
  webhook: (sql, value) => (sql.webhook = webhook(value)),
  boundTo: (sql, value) => (sql.bound_to = checkLabel(value, "boundTo")),
};
const forOne: Record<string, Write> = { ...shared, idempotencyKey: () => {}, tx: () => {} };
const forMany: Record<string, Write> = { ...shared, idempotencyKeys: () => {}, tx: () => {} };

/** The options as `stillwake.enqueue_many` takes them, without the keys. */
export function sqlOptions(options: EnqueueOptions | EnqueueManyOptions, many = false): Record<string, unknown> {
  if (typeof options !== "object" || options === null) {
    throw new InvalidInput("options is not an object", { field: "options", remedy: "Pass options by name, or none" });
  }
  const writers = many ? forMany : forOne;
  const sql: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue;
    if (!Object.hasOwn(writers, name)) {
      throw new InvalidInput(`Unknown option "${name}"`, {
        field: name,
        remedy: `Known options: ${Object.keys(writers).join(", ")}`,
      });
    }
    writers[name]!(sql, value);
  }
  return sql;
}

/** Whether it may be connected to is decided when it is. */
function webhook(value: unknown): unknown {
  const { endpoint, url, ...rest } = (typeof value === "object" && value !== null ? value : { url: value }) as Record<
    string,
    unknown
  >;
  const [unknown] = Object.keys(rest);
  const bad =
    unknown !== undefined ||
    (endpoint === undefined && url === undefined) ||
    (endpoint !== undefined && (typeof endpoint !== "string" || !/^[a-z0-9][a-z0-9_.:-]{0,99}$/.test(endpoint))) ||
    (url !== undefined && !isReceiver(url));
  if (!bad) return endpoint === undefined ? url : { endpoint, ...(url !== undefined && { url }) };
  throw new InvalidInput("webhook is neither the URL of a receiver nor an endpoint", {
    field: unknown === undefined ? "webhook" : `webhook.${unknown}`,
    remedy: 'Write "https://host/path", without a user and password, or { endpoint: "name", url: "https://…" }',
  });
}

function isReceiver(url: unknown): boolean {
  if (typeof url !== "string" || Buffer.byteLength(url) > 2000 || !/^https?:\/\/[^\s/?#@\\]+([/?#]\S*)?$/i.test(url))
    return false;
  return URL.canParse(url) && unstorable(url) === undefined;
}

function conflict(value: unknown): OnConflict {
  if (conflicts.includes(value as OnConflict)) return value as OnConflict;
  throw new InvalidInput(`onConflict cannot be ${JSON.stringify(value)}`, {
    field: "onConflict",
    remedy: `Use one of ${conflicts.join(", ")}`,
  });
}

function wholeNumber(value: unknown, field: string, least: number, most: number): number {
  if (Number.isInteger(value) && (value as number) >= least && (value as number) <= most) return value as number;
  throw new InvalidInput(`${field} must be a whole number from ${least} to ${most}, not ${String(value)}`, {
    field,
    remedy: "Choose a value within that range",
  });
}

function isoTime(value: unknown, field: string): string {
  if (value instanceof Date && !Number.isNaN(value.getTime())) return value.toISOString();
  throw new InvalidInput(`${field} is not a valid Date`, {
    field,
    remedy: "Pass a Date such as new Date(Date.now() + 60_000)",
  });
}
