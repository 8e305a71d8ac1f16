// `sw.costs`: machine costs by month, by day and by job, and budgets of pools and tenants. Amounts are in dollars
// unless the price table has another currency.
import * as calls from "../db/calls/costs.ts";
import type { Database } from "../db/database.ts";
import { InvalidInput } from "../errors.ts";
import { checkId } from "../ids.ts";

export type { Budget, CostSum, JobCostPart } from "../db/calls/costs.ts";

export interface CostOptions {
  /** Such as "2026-11". Default: this month. */
  month?: string;
  /** Days (UTC) instead of a month, `until` excluded: "2026-11-01", or a timestamp of that day. */
  since?: string;
  until?: string;
  /** Default: pool. */
  by?: calls.CostGroup;
  /** Only the share of this tenant. */
  tenant?: string;
}

export interface CostReport {
  since: Date;
  until: Date;
  by: calls.CostGroup;
  total: calls.CostSum;
  /** Sorted by amount, highest first. */
  rows: calls.CostRow[];
  /** The cost of stopped machines per month of 30 days. Not included in the total. */
  idlePools: { pool: string; machines: number; diskGb: number | null; perMonth: number }[];
}

export interface JobCost {
  amount: number;
  provisional: boolean;
  parts: calls.JobCostPart[];
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
      calls.readCosts(this.#database, { ...filter, by }),
      calls.readCosts(this.#database, { ...filter, by: null }),
      tenant === undefined ? calls.readIdlePools(this.#database) : [],
    ]);
    return {
      since,
      until,
      by,
      total: total ? sumOf(total) : { machines: 0, jobs: 0, busySeconds: 0, idleSeconds: 0, amount: 0 },
      rows,
      idlePools: idle.map(({ pool, machines, diskGb, perSecond }) => {
        return { pool, machines, diskGb, perMonth: machines * perSecond * MONTH_SECONDS };
      }),
    };
  }

  async ofJob(id: string): Promise<JobCost> {
    const parts = await calls.readJobCost(this.#database, checkId(id));
    return {
      amount: parts.reduce((sum, part) => sum + part.amount, 0),
      provisional: parts.some(({ provisional }) => provisional),
      parts,
    };
  }

  async budgets(): Promise<calls.Budget[]> {
    return calls.readBudgets(this.#database);
  }

  async budget(scope: calls.BudgetScope, name: string): Promise<calls.Budget | undefined> {
    const [budget] = await calls.readBudgets(this.#database, scope, name);
    return budget;
  }

  /**
   * Sets the maximum cost per calendar day or month (UTC). When it is exhausted the pool is paused, or the tenant's
   * jobs wait, until the next period. Running jobs finish.
   */
  async setBudget(
    scope: calls.BudgetScope,
    name: string,
    amount: number,
    { period = "month", by }: { period?: "day" | "month"; by?: string } = {},
  ): Promise<void> {
    await calls.setBudget(this.#database, { scope, name, amount, period, by: by ?? null });
    await this.#onBudgetChange();
  }

  async clearBudget(scope: calls.BudgetScope, name: string): Promise<void> {
    await calls.setBudget(this.#database, { scope, name, amount: null, period: "month", by: null });
    await this.#onBudgetChange();
  }

  async #span({ month, since, until }: CostOptions): Promise<{ since: Date; until: Date }> {
    if (month !== undefined) {
      if ((since ?? until) !== undefined)
        reject("month", "month cannot be combined with since and until", "Pass one or the other");
      const [, year, number] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(month) ?? [];
      if (!year) reject("month", `${JSON.stringify(month)} is not a month`, 'Write it as "2026-11"');
      checkYear(Number(year), "month");
      return { since: utc(Number(year), Number(number) - 1), until: utc(Number(year), Number(number)) };
    }
    const now = await calls.readMonth(this.#database);
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
  const day = new Date(Math.floor(at / 86_400_000) * 86_400_000);
  checkYear(day.getUTCFullYear(), field);
  return day;
}

/** A year of the Gregorian calendar whose end still has four digits, as the timestamps of the API have. */
function checkYear(year: number, field: string): void {
  if (year < 1970 || year > 9998) reject(field, `${field} is in the year ${year}`, "Use a year from 1970 to 9998");
}

function reject(field: string, message: string, remedy: string): never {
  throw new InvalidInput(message, { field, remedy });
}

function sumOf({ name: _none, ...sum }: calls.CostRow): calls.CostSum {
  return sum;
}
