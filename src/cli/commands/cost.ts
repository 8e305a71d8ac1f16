// stillwake cost and stillwake budget: what machines cost, what they would cost, and how much they may.
import { InvalidInput } from "../../errors.ts";
import { type Estimate, type EstimateLine, estimate } from "../../orchestrator/cost-estimate.ts";
import type { nouns } from "../../server/index.ts";
import { durationMs } from "../../time.ts";
import { inPath } from "../api-client.ts";
import { checkOneOf } from "../checks.ts";
import type { Call, Runner } from "../command.ts";
import { loadConfigFile } from "../config-file.ts";
import type { FlagName, Flags } from "../flags.ts";
import { inLine } from "../output/escape.ts";
import { ago, span } from "../output/moments.ts";
import { money } from "../output/money.ts";
import type { Screen } from "../output/screen.ts";
import { printTable } from "../output/table.ts";
import { pricesFrom } from "../prices-file.ts";

const groups = ["pool", "pipeline", "tenant", "day"] as const;

export const costCommand: Runner = async (call) => {
  if (call.words[0] === "estimate") return estimateCommand(call);
  const { flags, screen, door, words } = call;
  if (words[0] !== undefined) {
    throw new InvalidInput(`Unexpected "${words[0]}" after cost`, { remedy: "See stillwake cost --help" });
  }
  const query = { month: flags.month, since: flags.since, until: flags.until, by: checkOneOf(flags.by, groups, "by") };
  const report: nouns.CostReport = await (await door()).call("GET", "/v1/costs", { query });
  if (flags.json) screen.json(report);
  else printReport(screen, report);
  return 0;
};

type Line = nouns.CostReport["total"] & { name: string; total?: true };

function printReport(screen: Screen, { since, until, by, total, rows, idlePools }: nouns.CostReport): void {
  const last = new Date(Date.parse(until) - 1).toISOString().slice(0, 10);
  screen.print(screen.paint(`${since.slice(0, 10)} to ${last} (UTC)`, "dim"));
  const nobody = by === "pipeline" ? "(no job)" : by === "tenant" ? "(no tenant)" : "(none)";
  const lines: Line[] = rows.map((row) => ({ ...row, name: row.name ?? nobody }));
  if (rows.length > 0) lines.push({ ...total, name: "total", total: true });
  const bold = ({ total: all }: Line) => (all ? ("bold" as const) : undefined);
  printTable<Line>(
    screen,
    lines,
    [
      { title: by.toUpperCase(), of: ({ name }) => name, elastic: true, colour: bold },
      { title: "COST", of: ({ amount }) => money(amount), right: true, colour: bold },
      { title: "JOBS", of: ({ jobs }) => jobs, right: true },
      { title: "PER JOB", of: ({ jobs, amount }) => (jobs > 0 ? money(amount / jobs) : ""), right: true },
      { title: "MACHINES", of: ({ machines }) => machines, right: true, spare: true },
      { title: "MACHINE TIME", of: (row) => span(paid(row) * 1000), right: true },
      {
        title: "IDLE",
        of: (row) => (paid(row) > 0 ? `${Math.round((row.idleSeconds / paid(row)) * 100)}%` : ""),
        right: true,
      },
    ],
    "No machine was paid for.",
  );
  for (const { pool, machines, diskGb, perMonth } of idlePools) {
    const each = diskGb === null ? "" : ` of ${diskGb} GB`;
    screen.print(inLine(`Pool ${pool}: ${machines} stopped machines${each} cost ${money(perMonth)} a month besides.`));
  }
}

const paid = ({ busySeconds, idleSeconds }: { busySeconds: number; idleSeconds: number }) => busySeconds + idleSeconds;

async function estimateCommand({ flags, screen, config }: Call): Promise<number> {
  for (const flag of ["jobs", "minutes"] as const) {
    if (flags[flag] === undefined) {
      throw new InvalidInput(`cost estimate needs --${flag}`, { field: flag, remedy: "Write --jobs 100 --minutes 5" });
    }
  }
  const file = flags.prices ?? config.prices;
  const prices = pricesFrom(file, file === undefined ? (await loadConfigFile(flags.config)).prices : undefined);
  const given: Partial<Record<keyof Estimate, unknown>> = {
    jobs: real(flags, "jobs"),
    minutes: real(flags, "minutes"),
    perSecond: real(flags, "price"),
    provider: flags.provider,
    size: flags.size,
    cpus: real(flags, "cpus"),
    memoryMb: real(flags, "memory"),
    region: flags.region,
    slots: real(flags, "slots"),
    jobsPerMachine: real(flags, "reuse"),
    idleSeconds: flags.idleExit === undefined ? undefined : durationMs(flags.idleExit, "idle-exit") / 1000,
    warm: real(flags, "warm"),
    diskGb: real(flags, "disk"),
    freeTier: flags.free,
    prices,
  };
  const known = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const { lines, ...sums } = estimate(known as unknown as Estimate);
  if (flags.json) screen.json({ ...sums, lines });
  else {
    printTable<EstimateLine>(
      screen,
      lines,
      [
        { title: "WHAT", of: ({ what }) => what },
        { title: "IS", of: worth, right: true },
        { title: "BECAUSE", of: ({ reckoning }) => reckoning, elastic: true },
      ],
      "",
    );
  }
  return 0;
}

function worth({ value, unit }: EstimateLine): string {
  if (unit === "$") return value > 0 && value < 0.001 ? `$${value.toFixed(8)}` : money(value);
  if (unit === "$ a month") return `${money(value)} a month`;
  return `${Number(value.toFixed(3)).toLocaleString("en-US")} ${unit}`;
}

function real(
  flags: Flags,
  name: "jobs" | "minutes" | "price" | "cpus" | "memory" | "slots" | "reuse" | "warm" | ("disk" & FlagName),
): number | undefined {
  const word = flags[name];
  if (word === undefined) return undefined;
  if (/^\d{1,12}(\.\d{1,12})?$/.test(word)) return Number(word);
  throw new InvalidInput(`--${name} ${JSON.stringify(word)} is not a number`, {
    field: name,
    remedy: `Write --${name} 1.5`,
  });
}

export const budgetCommand: Runner = async ({ flags, words, screen, door }) => {
  const [act, scope, name, amount, extra] = words;
  const api = await door();
  if (act === undefined) {
    const { budgets }: { budgets: nouns.Budget[] } = await api.call("GET", "/v1/budgets");
    if (flags.json) screen.json({ budgets });
    else printBudgets(screen, budgets);
    return 0;
  }
  if (
    (act !== "set" && act !== "clear") ||
    (scope !== "pool" && scope !== "tenant") ||
    !name ||
    extra !== undefined ||
    (act === "set") !== (amount !== undefined)
  ) {
    throw new InvalidInput(`budget ${words.join(" ")} cannot be read`, {
      remedy: "Write stillwake budget set pool|tenant <name> <dollars>, or stillwake budget clear pool|tenant <name>",
    });
  }
  const path = `/v1/budgets/${scope}/${inPath(name)}`;
  const period = checkOneOf(flags.period, ["day", "month"], "period") ?? "month";
  const answer =
    act === "clear"
      ? await api.call("DELETE", path)
      : await api.call("PUT", path, { body: { amount: dollars(amount!), period } });
  if (flags.json) screen.json(answer);
  else {
    const done = act === "clear" ? "has no budget any more" : `may cost ${money(dollars(amount!))} in a ${period}`;
    screen.print(inLine(`${scope === "pool" ? "Pool" : "Tenant"} ${name} ${done}.`));
  }
  return 0;
};

function dollars(word: string): number {
  if (/^\d{1,9}(\.\d{1,6})?$/.test(word)) return Number(word);
  throw new InvalidInput(`${JSON.stringify(word)} is no amount of dollars`, {
    field: "amount",
    remedy: "Write 50 or 2.50",
  });
}

function printBudgets(screen: Screen, budgets: nouns.Budget[]): void {
  printTable(
    screen,
    budgets,
    [
      { title: "BUDGET OF", of: ({ scope, name }) => `${scope} ${name}`, elastic: true },
      { title: "PERIOD", of: ({ period }) => period },
      { title: "AMOUNT", of: ({ amount }) => money(amount), right: true },
      { title: "USED", of: ({ spent }) => money(spent), right: true },
      {
        title: "",
        of: ({ spent, amount }) => (amount > 0 ? `${Math.floor((spent / amount) * 100)}%` : ""),
        right: true,
      },
      {
        title: "STATE",
        of: ({ held }) => (held ? "used up, held" : "open"),
        colour: ({ held }) => (held ? "yellow" : "green"),
      },
      { title: "NEXT", of: ({ resetsAt }) => ago(resetsAt), right: true },
    ],
    "There are no budgets.",
  );
}
