// Calls of sql/functions/flow/{limits,breakers,lanes}.sql: for jobs, through their keeper, and for operators.

import type { Observation } from "../../contract/rate-limit-headers.ts";
import { type Database, placeholders } from "../database.ts";
import { readValues } from "../row.ts";
import { fromTransaction, type Send } from "../transaction.ts";
import type { Lease } from "./worker.ts";

/** A limit or breaker in serializable form; the object of user code also has methods. */
export interface Dependency {
  kind: "limit" | "breaker";
  name: string;
  settings: Readonly<Record<string, unknown>>;
}

export async function registerDependency(database: Database, need: Dependency): Promise<void> {
  await database.query(registerText(database.schema, need), [need.name, JSON.stringify(need.settings)]);
}

/** Inside the caller's transaction. */
export async function registerDependencyInTransaction(send: Send, schema: string, need: Dependency): Promise<void> {
  try {
    await send(registerText(schema, need), [need.name, JSON.stringify(need.settings)]);
  } catch (error) {
    throw fromTransaction(error);
  }
}

function registerText(schema: string, { kind }: Dependency): string {
  return `select ${schema}.register_${kind === "limit" ? "limit" : "breaker"}($1::text, $2::text::jsonb)::text`;
}

export interface LimitCall {
  /** The number of uses to take, and the minimum. */
  take: number;
  minimum: number;
  /** Calls that got their response since. */
  done?: number;
  /** Granted uses that were not made, and the bin they were granted in. */
  unused?: number;
  bin?: string | null;
  /** Extra latency between keeper and caller. */
  slackMs?: number;
  /** What the last response reported; {} when nothing. */
  observation?: Observation;
}

export interface LimitGrant {
  granted: number;
  /** When to try again if nothing was granted; null: when another call gets its response. */
  waitMs: number | null;
  reason: string | null;
  /** Granted uses must be made within this time. */
  withinMs: number | null;
  bin: string | null;
}

/** A grant whose response was lost counts as used: one too few is better than one too many. */
export async function useLimit(
  database: Database,
  { job, epoch, lease }: Lease,
  name: string,
  { take, minimum, done = 0, unused = 0, bin = null, slackMs = 0, observation }: LimitCall,
): Promise<LimitGrant> {
  const observed = observation && {
    limit: observation.limit,
    remaining: observation.remaining,
    reset_ms: observation.resetMs,
    refused_ms: observation.refusedMs,
  };
  const rows = await database.repeat<{
    granted: number;
    wait_ms: string | null;
    reason: string | null;
    within_ms: string | null;
    bin: string | null;
  }>(
    `select granted, extract(epoch from wait_until - ${database.schema}.now()) * 1000 as wait_ms, reason,
      extract(epoch from within) * 1000 as within_ms, bin::text
    from ${database.schema}.use_limit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
    {
      values: (again) => {
        const json = observed ? JSON.stringify(observed) : null;
        const slack = `${Math.round(slackMs)} milliseconds`;
        return [name, job, epoch, lease, take, minimum, again ? 0 : done, again ? 0 : unused, json, slack, bin];
      },
    },
  );
  const [row] = rows;
  return {
    granted: row?.granted ?? 0,
    waitMs: row?.wait_ms == null ? null : Math.max(0, Number(row.wait_ms)),
    reason: row?.reason ?? null,
    withinMs: row?.within_ms == null ? null : Number(row.within_ms),
    bin: row?.bin ?? null,
  };
}

/** The breaker is open. */
export interface BreakerVerdict {
  /** Null: until it is closed. */
  resumeInMs: number | null;
  reason: string;
}

export function checkBreaker(
  database: Database,
  { job, epoch, lease }: Lease,
  name: string,
): Promise<BreakerVerdict | null> {
  return breakerVerdict(database, "check_breaker($1, $2, $3, $4)", [name, job, epoch, lease]);
}

export function reportBreakerResult(
  database: Database,
  { job, lease }: Lease,
  name: string,
  succeeded: boolean,
  reason: string | null,
): Promise<BreakerVerdict | null> {
  return breakerVerdict(database, "report_breaker_result($1, $2, $3, $4, $5)", [name, job, lease, succeeded, reason]);
}

async function breakerVerdict(database: Database, call: string, values: unknown[]): Promise<BreakerVerdict | null> {
  const rows = await database.query<{ open: boolean; in_ms: string | null; reason: string | null }>(
    `select resume_at is not null as open, reason,
      case when resume_at < 'infinity' then extract(epoch from resume_at - ${database.schema}.now()) * 1000 end as in_ms
    from ${database.schema}.${call}`,
    values,
  );
  const [row] = rows;
  if (!row?.open) return null;
  return { resumeInMs: row.in_ms === null ? null : Math.max(0, Number(row.in_ms)), reason: row.reason ?? "" };
}

export interface LimitState {
  name: string;
  max: number | null;
  perMs: number | null;
  concurrency: number | null;
  /** Uses that are available now. */
  free: number;
  /** When uses become available, if there are none now. */
  until: Date | null;
  reason: string | null;
  /** The quota that the service reported, for a limit with `learn`. */
  reported: { max: number | null; remaining: number; resetAt: Date } | null;
  /** The service rejected a call: no calls before this time. */
  blockedUntil: Date | null;
}

export async function readLimits(database: Database): Promise<LimitState[]> {
  const rows = await readValues<Omit<LimitState, "reported"> & ReportedQuota>(
    database,
    `select name, max, period_ms::float8 as per_ms, concurrency, free, case when free <= 0 then until end as until,
      case when free <= 0 then reason end as reason, reported_max, remaining, reset_at, blocked_until
    from ${database.schema}.limit_quotas() order by name`,
  );
  return rows.map(({ reportedMax: max, remaining, resetAt, ...row }) => {
    return { ...row, reported: resetAt && { max, remaining: remaining ?? 0, resetAt } };
  });
}

interface ReportedQuota {
  reportedMax: number | null;
  remaining: number | null;
  resetAt: Date | null;
}

export interface BreakerState {
  name: string;
  state: "closed" | "open";
  /** Consecutive failures; `threshold` of them open it. */
  failures: number;
  threshold: number;
  openedAt: Date | null;
  /** When one job may probe the dependency; null in an open breaker: only when an operator closes it. */
  resumeAt: Date | null;
  /** Failed probes since it opened. */
  probes: number;
  reason: string | null;
  openedBy: string | null;
}

export async function readBreakers(database: Database): Promise<BreakerState[]> {
  return readValues<BreakerState>(
    database,
    `select name, case when resume_at is null then 'closed' else 'open' end as state, failures, threshold, opened_at,
      nullif(resume_at, 'infinity') as resume_at, probes, reason, opened_by
    from ${database.schema}.breakers order by name`,
  );
}

export async function controlFlow(
  database: Database,
  verb: "open_breaker" | "close_breaker" | "reset_limit" | "set_weight" | "cap_pool",
  values: unknown[],
): Promise<void> {
  await database.query(`select ${database.schema}.${verb}(${placeholders(values)})`, values);
}
