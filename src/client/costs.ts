// What machines cost, for people: by month or days, by job, and the budgets that hold pools and tenants back. Amounts are dollars unless the price table says otherwise.
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
  /** Days (UTC) instead of a month, the second not included: "2026-11-01", or a moment of it. */
  since?: string;
  until?: string;
  /** Default: pool. */
  by?: CostGroup;
  /** The part of this tenant alone. */
  tenant?: string;
}

export interface CostSum {
  /** Machines that were started; jobs, each where it ran first. */
  machines: number;
  jobs: number;
  /** Of the time that was paid for: with a job, and without one. */
  busySeconds: number;
  idleSeconds: number;
  amount: number;
}

export interface CostReport {
  since: Date;
  until: Date;
  by: CostGroup;
  total: CostSum;
  /** The dearest first. The name is null for machines without a job, or jobs without a tenant. */
  rows: (CostSum & { name: string | null })[];
  /** What pools of stopped machines cost in a month of 30 days, whether they are used or not. Not in the total. */
  idlePools: { pool: string; machines: number; diskGb: number | null; perMonth: number }[];
}

/** What a job cost on one machine. */
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
  /** Its share of the machine's time with jobs; less than it ran where others ran beside it. */
  busySeconds: number;
  /** Its share of starting up and of waiting for more. */
  idleSeconds: number;
  pricePerSecond: number;
  amount: number;
  /** The price table; null where no price was known. */
  prices: string | null;
  /** The machine runs on, and other jobs may come to share it. */
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
  /** When the next period begins. */
  resetsAt: Date;
  /** It is used up: the pool is paused, or the tenant's jobs wait. */
  held: boolean;
  updatedAt: Date;
  updatedBy: string | null;
}

const MONTH_SECONDS = 30 * 86_400;

export class Costs {
  readonly #database: Database;
  readonly #onRoom: () => Promise<void>;

  /** `onRoom`: a budget has changed, and what it held may start. */
  constructor(database: Database, onRoom: () => Promise<void> = async () => {}) {
    this.#database = database;
    this.#onRoom = onRoom;
  }

  async of({ by = "pool", tenant, ...span }: CostOptions = {}): Promise<CostReport> {
    const { since, until } = await this.#span(span);
    const ask = { since, until, tenant: tenant ?? null };
    const [rows, [total], idle] = await Promise.all([
      readCosts(this.#database, { ...ask, by }),
      readCosts(this.#database, { ...ask, by: null }),
      tenant === undefined ? readIdlePools(this.#database) : [],
    ]);
    return {
      since,
      until,
      by,
      total: total ? sumOf(total) : { machines: 0, jobs: 0, busySeconds: 0, idleSeconds: 0, amount: 0 },
      rows: rows.map((row) => ({ name: row.name, ...sumOf(row) })),
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

  /** At most so much in a day or month of the calendar (UTC); then the pool is paused, or the tenant's jobs wait, until the next. What is under way is finished. */
  async setBudget(
    scope: BudgetScope,
    name: string,
    amount: number,
    { period = "month", by }: { period?: "day" | "month"; by?: string } = {},
  ): Promise<void> {
    await setBudget(this.#database, { scope, name, amount, period, by: by ?? null });
    await this.#onRoom();
  }

  async clearBudget(scope: BudgetScope, name: string): Promise<void> {
    await setBudget(this.#database, { scope, name, amount: null, period: "month", by: null });
    await this.#onRoom();
  }

  async #span({ month, since, until }: CostOptions): Promise<{ since: Date; until: Date }> {
    if (month !== undefined) {
      if ((since ?? until) !== undefined)
        refuse("month", "month does not go with since and until", "Give one or the other");
      const [, year, number] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(month) ?? [];
      if (!year) refuse("month", `${JSON.stringify(month)} is not a month`, 'Write it as "2026-11"');
      return { since: utc(Number(year), Number(number) - 1), until: utc(Number(year), Number(number)) };
    }
    const now = await readMonth(this.#database);
    const from = since === undefined ? now.since : dayOf(since, "since");
    const to = until === undefined ? (from < now.until ? now.until : from) : dayOf(until, "until");
    if (to < from)
      refuse("until", `until ${to.toISOString()} is before since ${from.toISOString()}`, "Give a later day");
    return { since: from, until: to };
  }
}

function utc(year: number, month: number): Date {
  return new Date(Date.UTC(year, month, 1));
}

/** The beginning of its day: costs are kept by days. */
function dayOf(text: string, field: string): Date {
  const at = Date.parse(text);
  if (!/^\d{4}-\d\d-\d\d/.test(text) || Number.isNaN(at))
    refuse(field, `${field} ${JSON.stringify(text)} is not a day`, 'Write it as "2026-11-01"');
  return new Date(Math.floor(at / 86_400_000) * 86_400_000);
}

function refuse(field: string, message: string, remedy: string): never {
  throw new InvalidInput(message, { field, remedy });
}

function sumOf(row: CostRow): CostSum {
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
