// "What would N jobs of M minutes cost?" Pure arithmetic with every product spelled out, so that a person can check it by hand: the machines' time with jobs,
// what they idle before they leave, what is paid for at least, what is free, and what a pool of stopped machines keeps costing.
import { InvalidInput } from "../errors.ts";
import { MONTH_SECONDS, type PriceTable, plain, priceOf } from "./prices.ts";

export interface Estimate {
  jobs: number;
  /** Of each job, on its machine. */
  minutes: number;
  /** Per second; instead of provider and size. */
  perSecond?: number;
  provider?: string;
  size?: string;
  cpus?: number;
  memoryMb?: number;
  region?: string;
  /** Jobs at once on one machine. Default: 1. */
  slots?: number;
  /** How many jobs one after the other a machine does before it leaves. Default: 1, so that each pays for a start and an idle time. */
  jobsPerMachine?: number;
  /** Seconds from the start until the worker is there. Default: 0. */
  bootSeconds?: number;
  /** Seconds without a job before it leaves. Default: 0. */
  idleSeconds?: number;
  /** Paid for at least, for each machine that is started; the price table's without one. */
  leastSeconds?: number;
  /** Machines that are kept stopped, with so many GB each. Default: 0, 1. */
  warm?: number;
  diskGb?: number;
  /** Per GB of a stopped machine and month; the price table's without one. */
  stoppedGbMonth?: number;
  /** Counts what the provider gives away in a month. Default: false, because it is given once per account. */
  freeTier?: boolean;
  at?: Date;
  prices?: PriceTable;
}

export interface EstimateLine {
  what: string;
  /** The product or sum, with its numbers. */
  reckoning: string;
  value: number;
  unit: "machines" | "s" | "vCPU-s" | "GB-s" | "$" | "$ a month";
}

export interface Estimated {
  lines: EstimateLine[];
  /** Per second of a machine. */
  perSecond: number;
  /** The price table's name; "own" for a price that was given. */
  table: string;
  machines: number;
  /** That are paid for, of all machines. */
  seconds: number;
  /** For the jobs; for the stopped machines in a month of 30 days. */
  amount: number;
  perJob: number;
  monthly: number;
  /** vCPU-seconds that are billed, where the size is known. */
  vcpuSeconds: number | undefined;
}

export function estimate(input: Estimate): Estimated {
  const jobs = amount("jobs", input.jobs);
  const minutes = amount("minutes", input.minutes);
  const slots = amount("slots", input.slots ?? 1, 1);
  const jobsPerMachine = amount("jobsPerMachine", input.jobsPerMachine ?? 1, 1);
  const warm = amount("warm", input.warm ?? 0);
  const diskGb = amount("diskGb", input.diskGb ?? 1);
  const boot = amount("bootSeconds", input.bootSeconds ?? 0);
  const idle = amount("idleSeconds", input.idleSeconds ?? 0);
  const { price, perSecond, table, formula, leastSeconds, stoppedGbMonth } = pricesOf(input);

  const lines: EstimateLine[] = [];
  const line = (what: string, reckoning: string, value: number, unit: EstimateLine["unit"]) => {
    lines.push({ what, reckoning, value, unit });
    return value;
  };
  line(`a second of a machine (${table})`, formula, perSecond, "$");
  const machines = line(
    "machines started",
    slots * jobsPerMachine === 1
      ? `one for each of ${plain(jobs)} jobs`
      : `${plain(jobs)} jobs ÷ (${plain(slots)} at once × ${plain(jobsPerMachine)} one after the other)`,
    Math.ceil(jobs / (slots * jobsPerMachine)),
    "machines",
  );
  const turns = Math.min(jobsPerMachine, Math.max(1, jobs));
  const each = line(
    "each is up for",
    [`${plain(turns)} × ${plain(minutes)} min × 60`, boot && `${plain(boot)} to start`, idle && `${plain(idle)} idle`]
      .filter(Boolean)
      .join(" + "),
    turns * minutes * 60 + boot + idle,
    "s",
  );
  const paidEach = Math.max(each, leastSeconds);
  if (paidEach > each) line("each is paid for", `at least ${plain(leastSeconds)} s`, paidEach, "s");
  const seconds = line("machine time", `${plain(machines)} × ${plain(paidEach)} s`, machines * paidEach, "s");

  let cost = line("all jobs", `${plain(seconds)} s × $${plain(perSecond)}`, seconds * perSecond, "$");
  const { cpus, memoryMb } = input;
  const vcpuSeconds =
    cpus === undefined
      ? undefined
      : line("billed", `${plain(seconds)} s × ${plain(cpus)} vCPU`, seconds * cpus, "vCPU-s");
  if (input.freeTier && price?.free && cpus !== undefined && memoryMb !== undefined) {
    const gb = memoryMb / 1024;
    line("billed", `${plain(seconds)} s × ${plain(gb)} GB`, seconds * gb, "GB-s");
    const { vcpuSeconds: freeCpu = 0, gbSeconds: freeGb = 0 } = price.free;
    const overCpu = line(
      "beyond what is free",
      `${plain(seconds * cpus)} − ${plain(freeCpu)} free in a month`,
      Math.max(0, seconds * cpus - freeCpu),
      "vCPU-s",
    );
    const overGb = line(
      "beyond what is free",
      `${plain(seconds * gb)} − ${plain(freeGb)} free in a month`,
      Math.max(0, seconds * gb - freeGb),
      "GB-s",
    );
    const { vcpuSecond = 0, gbSecond = 0 } = price;
    cost = line(
      "all jobs, after what is free",
      `${plain(overCpu)} × $${plain(vcpuSecond)} + ${plain(overGb)} × $${plain(gbSecond)}`,
      overCpu * vcpuSecond + overGb * gbSecond,
      "$",
    );
  }
  const perJob = jobs > 0 ? line("each job", `$${plain(cost)} ÷ ${plain(jobs)}`, cost / jobs, "$") : 0;
  const monthly =
    warm > 0
      ? line(
          "stopped machines",
          `${plain(warm)} × ${plain(diskGb)} GB × $${plain(stoppedGbMonth)} per GB and month`,
          warm * diskGb * stoppedGbMonth,
          "$ a month",
        )
      : 0;
  return { lines, perSecond, table, machines, seconds, amount: cost, perJob, monthly, vcpuSeconds };
}

function pricesOf(input: Estimate) {
  const { perSecond, provider, size, cpus, memoryMb, region, at, prices } = input;
  const facts = {
    ...(size !== undefined && { size }),
    ...(cpus !== undefined && { cpus }),
    ...(memoryMb !== undefined && { memoryMb }),
    ...(region !== undefined && { region }),
  };
  const found =
    provider === undefined ? undefined : priceOf(provider, facts, { ...(at && { at }), ...(prices && { prices }) });
  if (perSecond === undefined && !found) {
    throw new InvalidInput(
      provider === undefined
        ? "Neither a price nor a provider is given"
        : `There is no price for ${[provider, size, cpus && `${cpus} vCPU`, memoryMb && `${memoryMb} MB`, region && `in ${region}`].filter(Boolean).join(" ")}`,
      { field: "provider", remedy: "Give a provider, size and region of the price tables, or a price per second" },
    );
  }
  return {
    price: found?.price,
    perSecond: perSecond === undefined ? found!.perSecond : amount("perSecond", perSecond),
    table: perSecond === undefined ? found!.table : "own",
    formula: perSecond === undefined ? found!.formula : "as given",
    leastSeconds: amount("leastSeconds", input.leastSeconds ?? (perSecond === undefined ? found!.leastSeconds : 0)),
    stoppedGbMonth: amount(
      "stoppedGbMonth",
      input.stoppedGbMonth ?? (found ? found.idlePerSecond(1) * MONTH_SECONDS : 0),
    ),
  };
}

function amount(field: string, value: number, least = 0): number {
  if (Number.isFinite(value) && value >= least && value <= 1e12) return value;
  throw new InvalidInput(`${field} ${value} cannot be`, { field, remedy: `Use a number from ${least} on` });
}
