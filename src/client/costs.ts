// `sw.costs`: machine costs by month, by day and by job, and budgets of pools and tenants. Amounts are in dollars
// unless the price table has another currency.
import {
  type BudgetRow,
  type BudgetScope,
  type CostGroup,
  type CostRow,
  readBudgets,
  readCosts,
  readIdlePools,
  readJobCost,
  readMonth,
  setBudget,
} from "../db/calls/costs.ts";
import type { Database } from "../db/database.ts";
import { InvalidInput } from "../errors.ts";
import { checkId } from "../ids.ts";

export interface CostOptions {
  /** Such as "2026-11". Default: this month. */
  month?: string;
  /** Days (UTC) instead of a month, `until` excluded: "2026-11-01", or a timestamp of that day. */
  since?: string;
  until?: string;
  /** Default: pool. */
  by?: CostGroup;
  /** Only the share of this tenant. */
  tenant?: string;
}

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

export interface CostReport {
  since: Date;
  until: Date;
  by: CostGroup;
  total: CostSum;
  /** Sorted by amount, highest first. The name is null for machines without a job, or jobs without a tenant. */
  rows: (CostSum & { name: string | null })[];
  /** The cost of stopped machines per month of 30 days. Not included in the total. */
  idlePools: { pool: string; machines: number; diskGb: number | null; perMonth: number }[];
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

export interface JobCost {
  amount: number;
  provisional: boolean;
  parts: JobCostPart[];
}

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

const MONTH_SECONDS = 30 * 86_400;

export class Costs {
  readonly #database: Database;
  readonly #onBudgetChange: () => Promise<void>;

  /** `onBudgetChange`: jobs that waited for the budget may start. */
  constructor(database: Database, onBudgetChange: () => Promise<void> = async () => {}) {
    this.#database = database;
    this.#onBudgetChange = onBudgetChange;
  }

  async of({ by = "pool", tenant, ...span }: CostOptions = {}): Promise<CostReport> {
    const { since, until } = await this.#span(span);
    const filter = { since, until, tenant: tenant ?? null };
    const [rows, [total], idle] = await Promise.all([
      readCosts(this.#database, { ...filter, by }),
      readCosts(this.#database, { ...filter, by: null }),
      tenant === undefined ? readIdlePools(this.#database) : [],
    ]);
    return {
      since,
      until,
      by,
      total: total ? toSum(total) : { machines: 0, jobs: 0, busySeconds: 0, idleSeconds: 0, amount: 0 },
      rows: rows.map((row) => ({ name: row.name, ...toSum(row) })),
      idlePools: idle.map(({ pool, machines, disk, idle_price }) => ({
        pool,
        machines,
        diskGb: disk === null ? null : Number(disk),
        perMonth: machines * Number(idle_price) * MONTH_SECONDS,
      })),
    };
  }

  async ofJob(id: string): Promise<JobCost> {
    const rows = await readJobCost(this.#database, checkId(id));
    const parts = rows.map((row) => ({
      machine: row.machine,
      pool: row.pool,
      provider: row.provider,
      size: row.size,
      region: row.region,
      epoch: row.epoch,
      claimedAt: row.claimed_at,
      workedSeconds: Number(row.worked_seconds),
      busySeconds: Number(row.busy_seconds),
      idleSeconds: Number(row.idle_seconds),
      pricePerSecond: Number(row.price),
      amount: Number(row.amount),
      prices: row.prices,
      provisional: row.provisional,
    }));
    return {
      amount: parts.reduce((sum, part) => sum + part.amount, 0),
      provisional: parts.some(({ provisional }) => provisional),
      parts,
    };
  }

  async budgets(): Promise<Budget[]> {
    return (await readBudgets(this.#database)).map(toBudget);
  }

  async budget(scope: BudgetScope, name: string): Promise<Budget | undefined> {
    const [row] = await readBudgets(this.#database, scope, name);
    return row && toBudget(row);
  }

  /**
   * Sets the maximum cost per calendar day or month (UTC). When it is exhausted the pool is paused, or the tenant's
   * jobs wait, until the next period. Running jobs finish.
   */
  async setBudget(
    scope: BudgetScope,
    name: string,
    amount: number,
    { period = "month", by }: { period?: "day" | "month"; by?: string } = {},
  ): Promise<void> {
    await setBudget(this.#database, { scope, name, amount, period, by: by ?? null });
    await this.#onBudgetChange();
  }

  async clearBudget(scope: BudgetScope, name: string): Promise<void> {
    await setBudget(this.#database, { scope, name, amount: null, period: "month", by: null });
    await this.#onBudgetChange();
  }

  async #span({ month, since, until }: CostOptions): Promise<{ since: Date; until: Date }> {
    if (month !== undefined) {
      if ((since ?? until) !== undefined)
        reject("month", "month cannot be combined with since and until", "Pass one or the other");
      const [, year, number] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(month) ?? [];
      if (!year) reject("month", `${JSON.stringify(month)} is not a month`, 'Write it as "2026-11"');
      return { since: utc(Number(year), Number(number) - 1), until: utc(Number(year), Number(number)) };
    }
    const now = await readMonth(this.#database);
    const from = since === undefined ? now.since : parseDay(since, "since");
    const to = until === undefined ? (from < now.until ? now.until : from) : parseDay(until, "until");
    if (to < from)
      reject("until", `until ${to.toISOString()} is before since ${from.toISOString()}`, "Use a later day");
    return { since: from, until: to };
  }
}

function utc(year: number, month: number): Date {
  return new Date(Date.UTC(year, month, 1));
}

/** The start of the day: costs are stored per day. */
function parseDay(text: string, field: string): Date {
  const at = Date.parse(text);
  if (!/^\d{4}-\d\d-\d\d/.test(text) || Number.isNaN(at))
    reject(field, `${field} ${JSON.stringify(text)} is not a day`, 'Write it as "2026-11-01"');
  return new Date(Math.floor(at / 86_400_000) * 86_400_000);
}

function reject(field: string, message: string, remedy: string): never {
  throw new InvalidInput(message, { field, remedy });
}

function toSum(row: CostRow): CostSum {
  return {
    machines: Number(row.machines),
    jobs: Number(row.jobs),
    busySeconds: Number(row.busy_seconds),
    idleSeconds: Number(row.idle_seconds),
    amount: Number(row.amount),
  };
}

function toBudget(row: BudgetRow): Budget {
  return {
    scope: row.scope,
    name: row.name,
    amount: Number(row.amount),
    period: row.period,
    spent: Number(row.spent),
    resetsAt: row.resets_at,
    held: row.held,
    updatedAt: row.updated_at,
    updatedBy: row.updated_by,
  };
}
