// Calls of sql/functions/live/webhooks.sql, for senders and for operators.
import { type Database, placeholders } from "../database.ts";
import { readValues } from "../row.ts";

/** A claimed webhook. */
export interface ClaimedWebhook {
  id: string;
  epoch: string;
  attempt: number;
  endpoint: string;
  url: string;
  lane: string;
  /** The last deliveries of its lane failed. */
  failing: boolean;
  body: string;
  headers: Record<string, string>;
  /** Newest first. */
  secrets: string[];
  /** The time of the claim by the database's clock, in seconds since 1970. */
  now: number;
}

export interface WebhookClaim {
  sender: string;
  limit: number;
  /** At most this many of them from failing lanes. */
  failing: number;
  spanMs: number;
  /** The lane to start after. */
  after: string;
}

/** A claim whose response was lost ends with its span. */
export async function claimWebhooks(database: Database, claim: WebhookClaim): Promise<ClaimedWebhook[]> {
  const { sender, limit, failing, spanMs, after } = claim;
  const rows = await database.query<Omit<ClaimedWebhook, "now"> & { now: string }>(
    `select id, epoch, attempt, endpoint, url, lane, failing, body, headers, secrets, extract(epoch from ${database.schema}.now()) as now
    from ${database.schema}.claim_webhooks($1, $2, $3, $4, $5)`,
    [sender, limit, `${spanMs} milliseconds`, failing, after],
  );
  return rows.map((row) => ({ ...row, now: Number(row.now) }));
}

/** The result of one delivery. */
export interface WebhookResult {
  id: string;
  epoch: string;
  sender: string;
  status?: number;
  error?: string;
  response?: string;
  took_ms?: number;
  retry_after?: number;
  released?: true;
}

export type WebhookState = "pending" | "delivered" | "failed";

export async function settleWebhooks(
  database: Database,
  records: WebhookResult[],
): Promise<{ id: string; state: WebhookState | "lost" }[]> {
  return database.query(`select id, state from ${database.schema}.settle_webhooks($1::text::jsonb)`, [
    JSON.stringify(records),
  ]);
}

/** Milliseconds until the next is due, by the database's clock; null when none is pending. */
export async function webhooksDueInMs(database: Database): Promise<number | null> {
  const rows = await database.query<{ in_ms: string | null }>(
    `select extract(epoch from ${database.schema}.webhooks_due() - ${database.schema}.now()) * 1000 as in_ms`,
  );
  return rows[0]?.in_ms == null ? null : Number(rows[0].in_ms);
}

export async function setEndpoint(
  database: Database,
  name: string,
  settings: Record<string, unknown>,
  made: string,
): Promise<string | null> {
  const rows = await database.query<{ secret: string | null }>(
    `select ${database.schema}.set_endpoint($1, $2::text::jsonb, $3) as secret`,
    [name, JSON.stringify(settings), made],
  );
  return rows[0]!.secret;
}

export async function rotateSecret(database: Database, name: string, secret: string, keep: string): Promise<void> {
  await database.query(`select ${database.schema}.rotate_secret($1, $2, $3)`, [name, secret, keep]);
}

export async function controlEndpoint(
  database: Database,
  verb: "disable_endpoint" | "enable_endpoint",
  values: unknown[],
): Promise<void> {
  await database.query(`select ${database.schema}.${verb}(${placeholders(values)})`, values);
}

export async function resendWebhook(database: Database, id: string): Promise<void> {
  await database.query(`select ${database.schema}.resend_webhook($1)`, [id]);
}

export type FinalState = "completed" | "failed" | "cancelled";

/**
 * "thin": ids and states. "full": also output and failure. Or a template, in which strings such as "$id", "$state"
 * and "$output.url" are replaced.
 */
export type WebhookBody = "thin" | "full" | Readonly<Record<string, unknown>> | readonly unknown[];

export interface Endpoint {
  name: string;
  url: string | null;
  /** Origins that the URL of a job may have, besides that of `url`. */
  origins: string[];
  /** The names of its headers. */
  headers: string[];
  body: WebhookBody;
  on: FinalState[];
  pipelines: string[];
  /** The tenant it belongs to; null for the whole installation. */
  tenant: string | null;
  /** How many secrets sign: two during a rotation. */
  secrets: number;
  /** Since when its webhooks are held. */
  disabledAt: Date | null;
  disabledReason: string | null;
  /** Consecutive failed deliveries, in its worst lane. */
  failures: number;
  createdAt: Date;
}

export async function readEndpoints(database: Database): Promise<Endpoint[]> {
  return readValues<Endpoint>(
    database,
    `select name, url, origins, headers, body, states as on, pipelines, tenant, secrets, disabled_at, disabled_reason, failures, created_at
    from ${database.schema}.webhook_endpoints order by name`,
  );
}

export interface WebhookFilter {
  id?: string;
  job?: string;
  endpoint?: string;
  state?: WebhookState;
}

/** One attempt to deliver a webhook. */
export interface Delivery {
  /** A missing number is a delivery whose sender crashed before it recorded the result. */
  n: string;
  sender: string;
  startedAt: Date;
  tookMs: number;
  status: number | null;
  /** Why it failed: TIMEOUT, BLOCKED_ADDRESS, STATUS, … */
  error: string | null;
  /** The start of the response body. */
  response: string | null;
}

export interface Webhook {
  id: string;
  endpoint: string;
  url: string;
  jobId: string;
  event: string;
  state: WebhookState;
  /** Deliveries so far, of ten. */
  attempts: number;
  body: string;
  createdAt: Date;
  /** The next delivery; null if there is none, or the endpoint is disabled. */
  nextAt: Date | null;
  endedAt: Date | null;
  deliveries: Delivery[];
}

/** Newest first, each with its deliveries. */
export async function listWebhooks(
  database: Database,
  filter: WebhookFilter,
  before: string | null,
  limit: number,
): Promise<Webhook[]> {
  const columns = { id: "id = $1", job: "job_id = $1::uuid", endpoint: "endpoint = $1", state: "state = $1" };
  const conditions = Object.entries(filter) as [keyof WebhookFilter, string][];
  const where = conditions.map(([field], index) => `w.${columns[field].replace("$1", `$${index + 3}`)}`);
  const webhooks = await readValues<Webhook>(
    database,
    `select w.id, w.endpoint, coalesce(w.url, n.url, '') as url, w.job_id, w.event, w.state, w.attempts, w.body, w.created_at,
      case when w.state = 'pending' and n.disabled_at is null then nullif(w.next_at, 'infinity') end as next_at, w.ended_at,
      coalesce((
        select json_agg(json_build_object('n', d.n::text, 'sender', d.sender, 'startedAt', d.started_at,
          'tookMs', extract(epoch from d.took) * 1000, 'status', d.status, 'error', d.error, 'response', d.response) order by d.n)
        from ${database.schema}.deliveries d where d.webhook = w.id), '[]') as deliveries
    from ${database.schema}.webhooks w left join ${database.schema}.webhook_endpoints n on n.name = w.endpoint
    where ($1::text is null or w.id < $1)${where.map((condition) => ` and ${condition}`).join("")} order by w.id desc limit $2`,
    [before, limit, ...conditions.map(([, value]) => value)],
  );
  // The times of the deliveries are in JSON.
  for (const { deliveries } of webhooks)
    for (const delivery of deliveries) delivery.startedAt = new Date(delivery.startedAt);
  return webhooks;
}
