// Calls of sql/functions/machines/cost.sql: costs, the cost of a job, and budgets.
import type { Database } from "../database.ts";
import { readValues } from "../row.ts";

export type CostGroup = "pool" | "pipeline" | "tenant" | "day";

export interface CostSum {
  /** Started machines. */
  machines: number;
  /** Each job is counted where it ran first. */
  jobs: number;
  /** Paid time with a job, and without one. */
  busySeconds: number;
  idleSeconds: number;
  amount: number;
}

export interface CostRow extends CostSum {
  /** Null for machines without a job, or jobs without a tenant. */
  name: string | null;
}

export async function readCosts(
  database: Database,
  { since, until, by, tenant }: { since: Date; until: Date; by: CostGroup | null; tenant: string | null },
): Promise<CostRow[]> {
  return readValues<CostRow>(
    database,
    `select name, machines::float8, jobs::float8, busy_seconds::float8, idle_seconds::float8, amount::float8
    from ${database.schema}.costs($1, $2, $3, $4)`,
    [since, until, by, tenant],
  );
}

/** The start of this month and of the next (UTC), by the database's clock. */
export async function readMonth(database: Database): Promise<{ since: Date; until: Date }> {
  const [row] = await database.read<{ since: Date; until: Date }>(
    `select m at time zone 'UTC' as since, (m + interval '1 month') at time zone 'UTC' as until
    from date_trunc('month', ${database.schema}.now() at time zone 'UTC') m`,
  );
  return row!;
}

/** The cost of a job on one machine. */
export interface JobCostPart {
  machine: string;
  pool: string;
  provider: string;
  size: string | null;
  region: string | null;
  epoch: string;
  claimedAt: Date;
  /** How long it ran there. */
  workedSeconds: number;
  /** Its share of the machine's busy time; less than workedSeconds where other jobs ran at the same time. */
  busySeconds: number;
  /** Its share of the machine's start-up and idle time. */
  idleSeconds: number;
  pricePerSecond: number;
  amount: number;
  /** The price table; null if no price was known. */
  prices: string | null;
  /** The machine still runs, so that later jobs may share its cost. */
  provisional: boolean;
}

export async function readJobCost(database: Database, job: string): Promise<JobCostPart[]> {
  return readValues<JobCostPart>(
    database,
    `select machine, pool, provider, size, region, epoch, claimed_at, worked_seconds::float8, busy_seconds::float8,
      idle_seconds::float8, price::float8 as price_per_second, amount::float8, prices, provisional
    from ${database.schema}.job_cost($1)`,
    [job],
  );
}

export interface IdlePool {
  pool: string;
  machines: number;
  diskGb: number | null;
  /** The cost of one stopped machine. */
  perSecond: number;
}

/** Pools that keep stopped machines. */
export async function readIdlePools(database: Database): Promise<IdlePool[]> {
  return readValues<IdlePool>(
    database,
    `select name as pool, (machines ->> 'warm')::integer as machines, (machines ->> 'disk')::float8 as disk_gb,
      (machines ->> 'idle_price')::float8 as per_second
    from ${database.schema}.pools where (machines ->> 'warm')::integer > 0 and machines ->> 'idle_price' is not null order by name`,
  );
}

export type BudgetScope = "pool" | "tenant";

export interface Budget {
  scope: BudgetScope;
  name: string;
  amount: number;
  period: "day" | "month";
  spent: number;
  /** When the next period starts. */
  resetsAt: Date;
  /** It is exhausted: the pool is paused, or the tenant's jobs wait. */
  held: boolean;
  updatedAt: Date;
  updatedBy: string | null;
}

export async function readBudgets(
  database: Database,
  scope: string | null = null,
  name: string | null = null,
): Promise<Budget[]> {
  return readValues<Budget>(
    database,
    `select scope, name, amount::float8, period, spent::float8, resets_at, held, updated_at, updated_by
      from ${database.schema}.budget_state($1, $2)`,
    [scope, name],
  );
}

export async function setBudget(
  database: Database,
  {
    scope,
    name,
    amount,
    period,
    by,
  }: { scope: string; name: string; amount: number | null; period: string; by: string | null },
): Promise<void> {
  await database.query(`select ${database.schema}.set_budget($1, $2, $3, $4, $5)`, [scope, name, amount, period, by]);
}
