// Calls of sql/functions/machines/cost.sql: costs, the cost of a job, and budgets.
import type { Database } from "../database.ts";

export type CostGroup = "pool" | "pipeline" | "tenant" | "day";

export interface CostRow {
  name: string | null;
  machines: string;
  jobs: string;
  busy_seconds: string;
  idle_seconds: string;
  amount: string;
}

export async function readCosts(
  database: Database,
  { since, until, by, tenant }: { since: Date; until: Date; by: CostGroup | null; tenant: string | null },
): Promise<CostRow[]> {
  return database.query<CostRow>(
    `select name, machines, jobs, busy_seconds, idle_seconds, amount from ${database.schema}.costs($1, $2, $3, $4)`,
    [since, until, by, tenant],
  );
}

/** The start of this month and of the next (UTC), by the database's clock. */
export async function readMonth(database: Database): Promise<{ since: Date; until: Date }> {
  const [row] = await database.query<{ since: Date; until: Date }>(
    `select m at time zone 'UTC' as since, (m + interval '1 month') at time zone 'UTC' as until
    from date_trunc('month', ${database.schema}.now() at time zone 'UTC') m`,
  );
  return row!;
}

export interface JobCostRow {
  machine: string;
  pool: string;
  provider: string;
  size: string | null;
  region: string | null;
  epoch: string;
  claimed_at: Date;
  worked_seconds: string;
  busy_seconds: string;
  idle_seconds: string;
  price: string;
  amount: string;
  prices: string | null;
  provisional: boolean;
}

export async function readJobCost(database: Database, job: string): Promise<JobCostRow[]> {
  return database.query<JobCostRow>(
    `select machine, pool, provider, size, region, epoch, claimed_at, worked_seconds, busy_seconds, idle_seconds, price, amount,
      prices, provisional
    from ${database.schema}.job_cost($1)`,
    [job],
  );
}

/** Pools that keep stopped machines, with the cost of one per second. */
export async function readIdlePools(
  database: Database,
): Promise<{ pool: string; machines: number; disk: string | null; idle_price: string }[]> {
  return database.query(
    `select name as pool, (machines ->> 'warm')::integer as machines, machines ->> 'disk' as disk,
      machines ->> 'idle_price' as idle_price
    from ${database.schema}.pools where (machines ->> 'warm')::integer > 0 and machines ->> 'idle_price' is not null order by name`,
  );
}

export type BudgetScope = "pool" | "tenant";

export interface BudgetRow {
  scope: BudgetScope;
  name: string;
  amount: string;
  period: "day" | "month";
  spent: string;
  resets_at: Date;
  held: boolean;
  updated_at: Date;
  updated_by: string | null;
}

export async function readBudgets(
  database: Database,
  scope: string | null = null,
  name: string | null = null,
): Promise<BudgetRow[]> {
  return database.query<BudgetRow>(
    `select scope, name, amount, period, spent, resets_at, held, updated_at, updated_by
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
