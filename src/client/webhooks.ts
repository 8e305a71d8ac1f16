// What people do about webhooks: say where they go, see every try, send one again.

import * as verbs from "../db/calls/webhooks.ts";
import type { Database } from "../db/database.ts";
import { InvalidInput } from "../errors.ts";
import { checkId } from "../ids.ts";
import { checkLabel } from "../payload.ts";
import { type Duration, toInterval } from "../time.ts";
import { checkLimit } from "./pagination.ts";

export type EndState = "completed" | "failed" | "cancelled";

export interface EndpointOptions {
  /** Where to. Null: each job names its own. */
  url?: string | null;
  /** whsec_ and 24 to 64 bytes in base64. One is made when none is given; another than before rotates. */
  secret?: string;
  /** Sent with every webhook; not those that sign it or make it a request. */
  headers?: Readonly<Record<string, string>>;
  /** "thin": ids and states. "full": output and failure too. Or a template: texts such as "$id", "$state", "$output.url" are replaced. */
  body?: "thin" | "full" | Readonly<Record<string, unknown>> | readonly unknown[];
  /** Which ends it is told of. Default: all. */
  on?: readonly EndState[];
  /** Pipelines whose jobs it is told of without being named by them. */
  pipelines?: readonly string[];
}

export interface Endpoint {
  name: string;
  url: string | null;
  /** The names of its headers. */
  headers: string[];
  body: EndpointOptions["body"];
  on: EndState[];
  pipelines: string[];
  /** How many secrets sign: two while one takes the place of the one before. */
  secrets: number;
  /** Webhooks are held back since then. */
  disabledAt: Date | null;
  disabledReason: string | null;
  /** Tries in a row that failed, in its worst lane. */
  failures: number;
  createdAt: Date;
}

/** One try at a webhook. */
export interface Delivery {
  /** A number that is missing is a try whose sender died before it could tell. */
  n: string;
  sender: string;
  startedAt: Date;
  tookMs: number;
  status: number | null;
  /** Why it failed: TIMEOUT, BLOCKED_ADDRESS, STATUS, … */
  error: string | null;
  /** The beginning of the answer. */
  response: string | null;
}

export interface Webhook {
  id: string;
  endpoint: string;
  url: string;
  jobId: string;
  event: string;
  state: verbs.WebhookState;
  /** Tries so far, of ten. */
  attempts: number;
  body: string;
  createdAt: Date;
  /** When it is tried next; null when it is not, or its endpoint is disabled. */
  nextAt: Date | null;
  endedAt: Date | null;
  deliveries: Delivery[];
}

const known = ["url", "secret", "headers", "body", "on", "pipelines"];

export class Webhooks {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Makes an endpoint or changes it. Answers the secret of a new one, this once; null when it was there. */
  async set(name: string, options: EndpointOptions = {}): Promise<{ secret: string | null }> {
    const given = Object.entries(options).filter(([, value]) => value !== undefined);
    const unknown = given.find(([field]) => !known.includes(field));
    if (unknown) {
      throw new InvalidInput(`Unknown option "${unknown[0]}"`, {
        field: unknown[0],
        remedy: `Known options: ${known.join(", ")}`,
      });
    }
    const settings = Object.fromEntries(given);
    // Made here: a call that is repeated after its answer was lost must not make a second one.
    return { secret: await verbs.setEndpoint(this.#database, name, settings, newSecret()) };
  }

  /** A new secret. The one before signs beside it for a time, "24h" unless told, so that receivers can change over. */
  async rotate(name: string, options: { secret?: string; keep?: Duration } = {}): Promise<{ secret: string }> {
    const secret = options.secret ?? newSecret();
    await verbs.rotateSecret(this.#database, name, secret, toInterval(options.keep ?? "24h", "keep"));
    return { secret };
  }

  /** Holds its webhooks back. */
  async disable(name: string, options: { reason?: string } = {}): Promise<void> {
    await verbs.controlEndpoint(this.#database, "disable_endpoint", [name, options.reason ?? null]);
  }

  /** Sends what was held back. */
  async enable(name: string): Promise<void> {
    await verbs.controlEndpoint(this.#database, "enable_endpoint", [name]);
  }

  async endpoints(): Promise<Endpoint[]> {
    const rows = await verbs.readEndpoints(this.#database);
    return rows.map((row) => ({
      name: row.name,
      url: row.url,
      headers: row.headers,
      body: row.body as EndpointOptions["body"],
      on: row.states as EndState[],
      pipelines: row.pipelines,
      secrets: row.secrets,
      disabledAt: row.disabled_at,
      disabledReason: row.disabled_reason,
      failures: row.failures,
      createdAt: row.created_at,
    }));
  }

  /** Newest first, each with every try. Read on with the id of the last as `before`. */
  async list(
    options: verbs.WebhookFilter & { limit?: number | undefined; before?: string | undefined } = {},
  ): Promise<Webhook[]> {
    const { limit = 50, before, ...filter } = options;
    const rows = await verbs.listWebhooks(this.#database, checkFilter(filter), before ?? null, checkLimit(limit, 200));
    return rows.map(toWebhook);
  }

  /** One of them; undefined when there is none of that id. */
  async get(id: string): Promise<Webhook | undefined> {
    const [row] = await verbs.listWebhooks(this.#database, { id: checkLabel(id, "id") }, null, 1);
    return row && toWebhook(row);
  }

  /** Sends one again, whatever became of it: under the same id, with all its tries. */
  async resend(id: string): Promise<void> {
    await verbs.resendWebhook(this.#database, checkLabel(id, "id"));
  }
}

function toWebhook(row: verbs.WebhookRow): Webhook {
  return {
    id: row.id,
    endpoint: row.endpoint,
    url: row.url,
    jobId: row.job_id,
    event: row.event,
    state: row.state,
    attempts: row.attempts,
    body: row.body,
    createdAt: row.created_at,
    // The driver reads infinity as a number.
    nextAt: row.state === "pending" && row.next_at instanceof Date ? row.next_at : null,
    endedAt: row.ended_at,
    deliveries: row.deliveries.map(({ started_at, took_ms, ...delivery }) => ({
      ...delivery,
      startedAt: new Date(started_at),
      tookMs: took_ms,
    })),
  };
}

function newSecret(): string {
  return `whsec_${btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32))))}`;
}

function checkFilter(filter: Omit<verbs.WebhookFilter, "id">): verbs.WebhookFilter {
  const given = Object.entries(filter).filter(([, value]) => value !== undefined);
  for (const [field, value] of given) {
    if (field === "job") checkId(value, "job");
    else if (field === "endpoint") checkLabel(value, field);
    else if (field !== "state" || !["pending", "delivered", "failed"].includes(value)) {
      throw new InvalidInput(`Webhooks cannot be looked for by ${field} ${JSON.stringify(value)}`, {
        field,
        remedy: "Filters: job, endpoint, state (pending, delivered, failed)",
      });
    }
  }
  return Object.fromEntries(given);
}
