// stillwake cost reports and estimates the cost of machines; stillwake budget limits it.
import { InvalidInput } from "../../errors.ts";
import type { Estimate, EstimateLine } from "../../orchestrator/cost-estimate.ts";
import type { api as apiTypes } from "../../server/index.ts";
import { escapeLine } from "../../text/escape.ts";
import { formatMoney } from "../../text/format.ts";
import { durationMs } from "../../time.ts";
import { checkOneOf, pathSegment } from "../arguments.ts";
import { apiFlags, type Command, type CommandContext } from "../command.ts";
import type { FlagName, Flags } from "../flags.ts";
import type { Screen } from "../output/screen.ts";
import { type Column, printTable } from "../output/table.ts";
import { formatAgo, formatDuration } from "../output/time.ts";
import { changeResource, printResources } from "../resource.ts";

const GROUPINGS = ["pool", "pipeline", "tenant", "day"] as const;

export const costCommand: Command = {
  name: "cost",
  group: "Inspect",
  summary: "show the cost of machines in a month, or estimate the cost of jobs",
  usage: ["", "estimate --jobs <n> --minutes <n> --provider <name>|--price <dollars>"],
  args: [0, 1],
  subcommands: ["estimate"],
  flags: {
    month: "<month> such as 2026-11 (default: this month)",
    since: "<day> a range instead of a month: from this day (UTC)",
    until: "<day> to the day before this one",
    by: "<group> pool, pipeline, tenant or day (default: pool)",
    jobs: "<n> estimate: the number of jobs",
    minutes: "<n> estimate: the duration of each job",
    provider: "<name> estimate: fly, cloud-run, local, or one of your price tables",
    size: "<size> estimate: such as performance-8x",
    cpus: "<n> estimate: vCPUs of a machine",
    memory: "<mb> estimate: megabytes of a machine",
    region: "<region> estimate: such as iad",
    price: "<dollars> estimate: per machine second, instead of the price tables",
    slots: "<n> estimate: concurrent jobs per machine (default: 1)",
    reuse: "<n> estimate: consecutive jobs per machine (default: 1)",
    "idle-exit": "<time> estimate: how long a machine waits for another job before it exits (default: 0s)",
    warm: "<n> estimate: stopped machines kept in reserve",
    disk: "<gb> estimate: gigabytes of each stopped machine (default: 1)",
    free: "estimate: subtract the free tier of the provider",
    prices: "<file> estimate: your price tables (default: STILLWAKE_PRICES, or those of the configuration)",
    config: "<file> estimate: instead of ./stillwake.config.{ts,mts,js,mjs}",
    ...apiFlags,
  },
  examples: [
    ["cost", "this month, by pool"],
    ["cost --month 2026-11 --by pipeline", ""],
    [
      "cost estimate --jobs 100 --minutes 5 --provider fly --size performance-8x --memory 65536 --region iad --warm 3",
      "with every step of the calculation",
    ],
    ["cost estimate --jobs 8820 --minutes 0.25 --provider cloud-run --cpus 1 --memory 512 --free", ""],
  ],
  async run(context) {
    const { flags, screen, api, args } = context;
    if (args[0] === "estimate") return printEstimate(context);
    const query = {
      month: flags.month,
      since: flags.since,
      until: flags.until,
      by: checkOneOf(flags.by, GROUPINGS, "by"),
    };
    const report: apiTypes.CostReport = await (await api()).call("GET", "/v1/costs", { query });
    if (flags.json) screen.json(report);
    else printReport(screen, report);
    return 0;
  },
};

type ReportRow = apiTypes.CostReport["total"] & { name: string; isTotal?: true };

function printReport(screen: Screen, { since, until, by, total, rows, idlePools }: apiTypes.CostReport): void {
  const lastDay = new Date(Date.parse(until) - 1).toISOString().slice(0, 10);
  screen.print(screen.paint(`${since.slice(0, 10)} to ${lastDay} (UTC)`, "dim"));
  const unnamed = by === "pipeline" ? "(no job)" : by === "tenant" ? "(no tenant)" : "(none)";
  const table: ReportRow[] = rows.map((row) => ({ ...row, name: row.name ?? unnamed }));
  if (rows.length > 0) table.push({ ...total, name: "total", isTotal: true });
  const bold = ({ isTotal }: ReportRow) => (isTotal ? ("bold" as const) : undefined);
  printTable<ReportRow>(
    screen,
    table,
    [
      { title: by.toUpperCase(), value: ({ name }) => name, elastic: true, colour: bold },
      { title: "COST", value: ({ amount }) => formatMoney(amount), right: true, colour: bold },
      { title: "JOBS", value: ({ jobs }) => jobs, right: true },
      { title: "PER JOB", value: ({ jobs, amount }) => (jobs > 0 ? formatMoney(amount / jobs) : ""), right: true },
      { title: "MACHINES", value: ({ machines }) => machines, right: true, optional: true },
      { title: "MACHINE TIME", value: (row) => formatDuration(paidSeconds(row) * 1000), right: true },
      {
        title: "IDLE",
        value: (row) => (paidSeconds(row) > 0 ? `${Math.round((row.idleSeconds / paidSeconds(row)) * 100)}%` : ""),
        right: true,
      },
    ],
    "No machine costs in this period.",
  );
  for (const { pool, machines, diskGb, perMonth } of idlePools) {
    const disk = diskGb === null ? "" : ` of ${diskGb} GB`;
    screen.print(
      escapeLine(`Pool ${pool}: ${machines} stopped machines${disk} cost another ${formatMoney(perMonth)} a month.`),
    );
  }
}

function paidSeconds({ busySeconds, idleSeconds }: { busySeconds: number; idleSeconds: number }): number {
  return busySeconds + idleSeconds;
}

async function printEstimate({ flags, screen, config }: CommandContext): Promise<number> {
  const [{ estimate }, { loadConfigFile, readPrices }] = await Promise.all([
    import("../../orchestrator/cost-estimate.ts"),
    import("../config-file.ts"),
  ]);
  for (const flag of ["jobs", "minutes"] as const) {
    if (flags[flag] === undefined) {
      throw new InvalidInput(`cost estimate needs --${flag}`, { field: flag, remedy: "Write --jobs 100 --minutes 5" });
    }
  }
  const file = flags.prices ?? config.prices;
  const prices = readPrices(file, file === undefined ? (await loadConfigFile(flags.config)).prices : undefined);
  const options: Partial<Record<keyof Estimate, unknown>> = {
    jobs: parseNumber(flags, "jobs"),
    minutes: parseNumber(flags, "minutes"),
    perSecond: parseNumber(flags, "price"),
    provider: flags.provider,
    size: flags.size,
    cpus: parseNumber(flags, "cpus"),
    memoryMb: parseNumber(flags, "memory"),
    region: flags.region,
    slots: parseNumber(flags, "slots"),
    jobsPerMachine: parseNumber(flags, "reuse"),
    idleSeconds: flags.idleExit === undefined ? undefined : durationMs(flags.idleExit, "idle-exit") / 1000,
    warm: parseNumber(flags, "warm"),
    diskGb: parseNumber(flags, "disk"),
    freeTier: flags.free,
    prices,
  };
  const defined = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  const { lines, ...sums } = estimate(defined as unknown as Estimate);
  if (flags.json) screen.json({ ...sums, lines });
  else {
    printTable<EstimateLine>(
      screen,
      lines,
      [
        { title: "ITEM", value: ({ what }) => what },
        { title: "VALUE", value: formatEstimate, right: true },
        { title: "CALCULATION", value: ({ reckoning }) => reckoning, elastic: true },
      ],
      "",
    );
  }
  return 0;
}

function formatEstimate({ value, unit }: EstimateLine): string {
  if (unit === "$") return value > 0 && value < 0.001 ? `$${value.toFixed(8)}` : formatMoney(value);
  if (unit === "$ a month") return `${formatMoney(value)} a month`;
  return `${Number(value.toFixed(3)).toLocaleString("en-US")} ${unit}`;
}

function parseNumber(
  flags: Flags,
  name: "jobs" | "minutes" | "price" | "cpus" | "memory" | "slots" | "reuse" | "warm" | ("disk" & FlagName),
): number | undefined {
  const value = flags[name];
  if (value === undefined) return undefined;
  if (/^\d{1,12}(\.\d{1,12})?$/.test(value)) return Number(value);
  throw new InvalidInput(`--${name} ${JSON.stringify(value)} is not a number`, {
    field: name,
    remedy: `Write --${name} 1.5`,
  });
}

export const budgetCommand: Command = {
  name: "budget",
  group: "Control",
  summary: "list the budgets, or set one for a pool or a tenant",
  usage: ["", "set pool|tenant <name> <dollars>", "clear pool|tenant <name>"],
  args: [0, 4],
  subcommands: ["set", "clear"],
  flags: { period: "<period> with set: day or month of the calendar, UTC (default: month)", ...apiFlags },
  examples: [
    ["budget", "the budgets and how much of each is used"],
    ["budget set pool scan 50", "the pool is paused once it has cost 50 dollars this month; running jobs finish"],
    ["budget set tenant acme 2 --period day", "its jobs wait until tomorrow; jobs of other tenants run"],
    ["budget clear pool scan", "waiting jobs resume at once"],
  ],
  async run(context) {
    const { flags, args } = context;
    const [action, scope, name, amount, extra] = args;
    if (action === undefined) return printResources(context, "budgets", budgetColumns, "There are no budgets.");
    if (
      (action !== "set" && action !== "clear") ||
      (scope !== "pool" && scope !== "tenant") ||
      !name ||
      extra !== undefined ||
      (action === "set") !== (amount !== undefined)
    ) {
      throw new InvalidInput(`budget ${args.join(" ")} is not valid`, {
        remedy: "Write stillwake budget set pool|tenant <name> <dollars>, or stillwake budget clear pool|tenant <name>",
      });
    }
    const path = `/v1/budgets/${scope}/${pathSegment(name)}`;
    const period = checkOneOf(flags.period, ["day", "month"], "period") ?? "month";
    const owner = `${scope === "pool" ? "Pool" : "Tenant"} ${name}`;
    if (action === "clear") return changeResource(context, "DELETE", path, `${owner} no longer has a budget.`);
    const body = { amount: parseDollars(amount!), period };
    const message = `${owner} has a budget of ${formatMoney(body.amount)} per ${period}.`;
    return changeResource(context, "PUT", path, message, { body });
  },
};

function parseDollars(text: string): number {
  if (/^\d{1,9}(\.\d{1,6})?$/.test(text)) return Number(text);
  throw new InvalidInput(`${JSON.stringify(text)} is not an amount of dollars`, {
    field: "amount",
    remedy: "Write 50 or 2.50",
  });
}

const budgetColumns: readonly Column<apiTypes.Budget>[] = [
  { title: "BUDGET", value: ({ scope, name }) => `${scope} ${name}`, elastic: true },
  { title: "PERIOD", value: ({ period }) => period },
  { title: "AMOUNT", value: ({ amount }) => formatMoney(amount), right: true },
  { title: "USED", value: ({ spent }) => formatMoney(spent), right: true },
  {
    title: "",
    value: ({ spent, amount }) => (amount > 0 ? `${Math.floor((spent / amount) * 100)}%` : ""),
    right: true,
  },
  {
    title: "STATE",
    value: ({ held }) => (held ? "exhausted" : "open"),
    colour: ({ held }) => (held ? "yellow" : "green"),
  },
  { title: "RESETS", value: ({ resetsAt }) => formatAgo(resetsAt), right: true },
];
