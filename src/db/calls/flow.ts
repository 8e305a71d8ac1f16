// The verbs of sql/functions/{limits,breakers,lanes}.sql, for whoever calls them: jobs through their keeper, and people.

import type { Observation } from "../../contract/rate-limit-headers.ts";
import { fromDatabase } from "../../errors.ts";
import type { Database } from "../database.ts";
import type { Send } from "../transaction.ts";
import type { Lease } from "./worker.ts";

/** A limit or a breaker as it travels: what user code holds has functions too. */
export interface Need {
  kind: "limit" | "breaker";
  name: string;
  settings: Readonly<Record<string, unknown>>;
}

export async function registerNeed(database: Database, need: Need): Promise<void> {
  await database.query(registerText(database.schema, need), [need.name, JSON.stringify(need.settings)]);
}

/** Inside the caller's transaction. */
export async function registerNeedThrough(send: Send, schema: string, need: Need): Promise<void> {
  try {
    await send(registerText(schema, need), [need.name, JSON.stringify(need.settings)]);
  } catch (error) {
    throw fromDatabase(error);
  }
}

function registerText(schema: string, { kind }: Need): string {
  return `select ${schema}.register_${kind === "limit" ? "limit" : "breaker"}($1::text, $2::text::jsonb)::text`;
}

export interface LimitCall {
  /** Uses that are wanted, and how many of them at least. */
  take: number;
  least: number;
  /** Calls that were answered since. */
  done?: number;
  /** Uses that were granted and not made, and the mark they were granted under. */
  unused?: number;
  mark?: string | null;
  /** How much longer than usual the way to the caller is. */
  slackMs?: number;
  /** What the last answer said; {} when it said nothing. */
  told?: Observation;
}

export interface LimitAnswer {
  granted: number;
  /** When to come back if nothing was granted; null: when another call is answered. */
  waitMs: number | null;
  reason: string | null;
  /** What is granted is to be made within this time. */
  withinMs: number | null;
  mark: string | null;
}

/** A grant whose answer was lost counts as used: better one too few than one too many. */
export async function useLimit(
  database: Database,
  { job, epoch, lease }: Lease,
  name: string,
  { take, least, done = 0, unused = 0, mark = null, slackMs = 0, told }: LimitCall,
): Promise<LimitAnswer> {
  const words = told && {
    limit: told.limit,
    remaining: told.remaining,
    reset_ms: told.resetMs,
    refused_ms: told.refusedMs,
  };
  const rows = await database.repeat<{
    granted: number;
    wait_ms: string | null;
    reason: string | null;
    within_ms: string | null;
    mark: string | null;
  }>(
    `select granted, extract(epoch from wait_until - ${database.schema}.now()) * 1000 as wait_ms, reason, extract(epoch from within) * 1000 as within_ms, mark::text
    from ${database.schema}.use_limit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
    {
      values: (again) => {
        const json = words ? JSON.stringify(words) : null;
        const slack = `${Math.round(slackMs)} milliseconds`;
        return [name, job, epoch, lease, take, least, again ? 0 : done, again ? 0 : unused, json, slack, mark];
      },
    },
  );
  const [row] = rows;
  return {
    granted: row?.granted ?? 0,
    waitMs: row?.wait_ms == null ? null : Math.max(0, Number(row.wait_ms)),
    reason: row?.reason ?? null,
    withinMs: row?.within_ms == null ? null : Number(row.within_ms),
    mark: row?.mark ?? null,
  };
}

/** The breaker is open. */
export interface BreakerVerdict {
  /** Null: until somebody closes it. */
  resumeInMs: number | null;
  reason: string;
}

export function askBreaker(
  database: Database,
  { job, epoch, lease }: Lease,
  name: string,
): Promise<BreakerVerdict | null> {
  return verdict(database, "ask_breaker($1, $2, $3, $4)", [name, job, epoch, lease]);
}

export function tellBreaker(
  database: Database,
  { job, lease }: Lease,
  name: string,
  succeeded: boolean,
  reason: string | null,
): Promise<BreakerVerdict | null> {
  return verdict(database, "tell_breaker($1, $2, $3, $4, $5)", [name, job, lease, succeeded, reason]);
}

async function verdict(database: Database, call: string, values: unknown[]): Promise<BreakerVerdict | null> {
  const rows = await database.query<{ open: boolean; in_ms: string | null; reason: string | null }>(
    `select resume_at is not null as open, reason, case when resume_at < 'infinity' then extract(epoch from resume_at - ${database.schema}.now()) * 1000 end as in_ms
    from ${database.schema}.${call}`,
    values,
  );
  const [row] = rows;
  if (!row?.open) return null;
  return { resumeInMs: row.in_ms === null ? null : Math.max(0, Number(row.in_ms)), reason: row.reason ?? "" };
}

export interface LimitRow {
  name: string;
  max: number | null;
  period_ms: string | null;
  concurrency: number | null;
  learn: boolean;
  reported_max: number | null;
  remaining: number | null;
  reset_at: Date | null;
  blocked_until: Date | null;
  free: number;
  until: Date | null;
  reason: string | null;
}

export async function readLimits(database: Database): Promise<LimitRow[]> {
  return database.query<LimitRow>(
    `select name, max, period_ms, concurrency, learn, reported_max, remaining, reset_at, blocked_until, free, until, reason
    from ${database.schema}.limit_budgets() order by name`,
  );
}

export interface BreakerRow {
  name: string;
  threshold: number;
  failures: number;
  opened_at: Date | null;
  resume_at: Date | number | null;
  probes: number;
  reason: string | null;
  opened_by: string | null;
}

export async function readBreakers(database: Database): Promise<BreakerRow[]> {
  return database.query<BreakerRow>(
    `select name, threshold, failures, opened_at, resume_at, probes, reason, opened_by from ${database.schema}.breakers order by name`,
  );
}

export async function controlFlow(
  database: Database,
  verb: "open_breaker" | "close_breaker" | "reset_limit" | "set_weight" | "cap_pool",
  values: unknown[],
): Promise<void> {
  const places = values.map((_, index) => `$${index + 1}`).join(", ");
  await database.query(`select ${database.schema}.${verb}(${places})`, values);
}
