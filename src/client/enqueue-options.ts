// The options of enqueue() and enqueueMany(). They are checked here, before the call shares a statement with others: an
// option that the database rejects would fail the whole statement.
import { type LabelFunction, labelPaths, readLabel } from "../contract/labels.ts";
import { conflicts, type OnConflict, type Pipeline, type PipelineOptions } from "../contract/pipeline.ts";
import type { Transaction } from "../db/transaction.ts";
import { InvalidInput } from "../errors.ts";
import { checkLabel, findUnstorable } from "../payload.ts";
import { type Duration, toInterval } from "../time.ts";
import { checkInteger, rejectUnknownOptions, withoutUndefined } from "../validate.ts";

export interface EnqueueOptions {
  /** Start after this delay at the earliest. */
  delay?: Duration;
  /** Start at this time at the earliest. */
  runAt?: Date;
  /** Fail the job (EXPIRED) if no worker has started it by then. */
  expiresIn?: Duration;
  expiresAt?: Date;
  /** Higher runs first, -1000 to 1000. */
  priority?: number;
  pool?: string;
  attempts?: number;
  /** At most `keyLimit` active jobs of the pipeline and tenant have the same key. Default: the contract's key of the input. */
  key?: string;
  /** What happens if the key is taken. Default: the contract's. */
  onConflict?: OnConflict;
  /** The tenant of the job. Tenants take turns. Default: the contract's tenant of the input. */
  tenant?: string;
  /** The tenant the call is made for: the jobs belong to it, and `webhook` can name endpoints of this tenant only. */
  boundTo?: string;
  /** A second call with the same key, pipeline and tenant returns the first call's job. */
  idempotencyKey?: string;
  /** Receives a webhook when the job ends: a URL, or an endpoint of `sw.webhooks`, optionally with a URL. */
  webhook?: string | { endpoint?: string; url?: string };
  /** Enqueue in your transaction: pg, postgres.js, Drizzle, Kysely, Prisma or Knex. */
  tx?: Transaction;
}

export interface EnqueueManyOptions extends Omit<EnqueueOptions, "idempotencyKey"> {
  /** One per input, null for none. */
  idempotencyKeys?: readonly (string | null)[];
}

/** Options that differ between the jobs of a statement. */
export interface Labels {
  key: string | null;
  tenant: string | null;
}

/** Key and tenant from the options, or else computed from the input by the contract. */
export function resolveLabels(
  pipeline: Pipeline | string,
  input: unknown,
  { key, tenant }: Pick<EnqueueOptions, "key" | "tenant">,
  at: string,
): Labels {
  const contract = typeof pipeline === "string" ? {} : pipeline.options;
  const resolve = (
    field: "key" | "tenant",
    option: string | undefined,
    label: PipelineOptions<unknown, unknown>["key"],
  ) => {
    const paths = labelPaths(label);
    const computed = () => (paths ? readLabel(paths, input, field, at) : (label as LabelFunction<unknown>)?.(input));
    const value = option ?? computed() ?? null;
    return value === null ? null : checkLabel(value, option === undefined ? `${field} of ${at}` : field);
  };
  return { key: resolve("key", key, contract.key), tenant: resolve("tenant", tenant, contract.tenant) };
}

type Write = (sql: Record<string, unknown>, value: unknown) => void;

const sharedWriters: Record<string, Write> = {
  delay: (sql, value) => (sql.delay = toInterval(value as Duration, "delay")),
  runAt: (sql, value) => (sql.run_at = isoTime(value, "runAt")),
  expiresIn: (sql, value) => (sql.expires_in = toInterval(value as Duration, "expiresIn")),
  expiresAt: (sql, value) => (sql.expires_at = isoTime(value, "expiresAt")),
  priority: (sql, value) => (sql.priority = checkInteger(value, "priority", -1000, 1000)),
  pool: (sql, value) => (sql.pool = checkLabel(value, "pool")),
  attempts: (sql, value) => (sql.max_attempts = checkInteger(value, "attempts", 1, 1000)),
  key: () => {},
  onConflict: (sql, value) => (sql.on_conflict = checkConflict(value)),
  tenant: () => {},
  webhook: (sql, value) => (sql.webhook = checkWebhook(value)),
  boundTo: (sql, value) => (sql.bound_to = checkLabel(value, "boundTo")),
};
const enqueueWriters: Record<string, Write> = { ...sharedWriters, idempotencyKey: () => {}, tx: () => {} };
const enqueueManyWriters: Record<string, Write> = { ...sharedWriters, idempotencyKeys: () => {}, tx: () => {} };

/** The options as `stillwake.enqueue_many` takes them, except keys, tenants and idempotency keys. */
export function toSqlOptions(options: EnqueueOptions | EnqueueManyOptions, many = false): Record<string, unknown> {
  if (typeof options !== "object" || options === null) {
    throw new InvalidInput("options is not an object", { field: "options", remedy: "Pass options by name, or none" });
  }
  const writers = many ? enqueueManyWriters : enqueueWriters;
  const defined = withoutUndefined(options);
  rejectUnknownOptions(defined, Object.keys(writers));
  const sql: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(defined)) writers[name]!(sql, value);
  return sql;
}

/** Whether the address may be connected to is checked when the webhook is sent. */
function checkWebhook(value: unknown): unknown {
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
  throw new InvalidInput("webhook is neither a URL nor an endpoint", {
    field: unknown === undefined ? "webhook" : `webhook.${unknown}`,
    remedy: 'Write "https://host/path", without a user and password, or { endpoint: "name", url: "https://…" }',
  });
}

function isReceiver(url: unknown): boolean {
  if (typeof url !== "string" || Buffer.byteLength(url) > 2000 || !/^https?:\/\/[^\s/?#@\\]+([/?#]\S*)?$/i.test(url))
    return false;
  return URL.canParse(url) && findUnstorable(url) === undefined;
}

function checkConflict(value: unknown): OnConflict {
  if (conflicts.includes(value as OnConflict)) return value as OnConflict;
  throw new InvalidInput(`onConflict cannot be ${JSON.stringify(value)}`, {
    field: "onConflict",
    remedy: `Use one of ${conflicts.join(", ")}`,
  });
}

function isoTime(value: unknown, field: string): string {
  if (value instanceof Date && !Number.isNaN(value.getTime())) return value.toISOString();
  throw new InvalidInput(`${field} is not a valid Date`, {
    field,
    remedy: "Pass a Date such as new Date(Date.now() + 60_000)",
  });
}
