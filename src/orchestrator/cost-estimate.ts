// Estimates what N jobs of M minutes cost. Every product is listed, so that the result can be checked by hand: machine
// time with jobs, idle time, minimum billed time, free tier, and the cost of stopped machines.
import { InvalidInput } from "../errors.ts";
import { findPrice, formatDecimal, MONTH_SECONDS, type PriceTable } from "./prices.ts";

export interface Estimate {
  jobs: number;
  /** Duration of each job on its machine. */
  minutes: number;
  /** Price per second; replaces provider and size. */
  perSecond?: number;
  provider?: string;
  size?: string;
  cpus?: number;
  memoryMb?: number;
  region?: string;
  /** Concurrent jobs per machine. Default: 1. */
  slots?: number;
  /** Jobs that a machine runs in sequence before it exits. Default: 1. */
  jobsPerMachine?: number;
  /** Seconds from the start until the worker registers. Default: 0. */
  bootSeconds?: number;
  /** Seconds without a job before a machine exits. Default: 0. */
  idleSeconds?: number;
  /** Minimum billed seconds of each start. Default: from the price table. */
  leastSeconds?: number;
  /** Machines that are kept stopped. Default: 0. */
  warm?: number;
  /** Disk of each stopped machine. Default: 1. */
  diskGb?: number;
  /** Per GB of a stopped machine and month. Default: from the price table. */
  stoppedGbMonth?: number;
  /** Subtracts the monthly free tier. Default: false, because it applies once per account. */
  freeTier?: boolean;
  at?: Date;
  prices?: PriceTable;
}

export interface EstimateLine {
  what: string;
  /** The arithmetic, with its numbers. */
  reckoning: string;
  value: number;
  unit: "machines" | "s" | "vCPU-s" | "GB-s" | "$" | "$ a month";
}

export interface Estimated {
  lines: EstimateLine[];
  /** Price of a machine per second. */
  perSecond: number;
  /** The name of the price table; "own" for a price from the input. */
  table: string;
  machines: number;
  /** Billed seconds of all machines. */
  seconds: number;
  /** For all jobs. */
  amount: number;
  perJob: number;
  /** For the stopped machines, in a month of 30 days. */
  monthly: number;
  /** Billed vCPU-seconds, if the size is known. */
  vcpuSeconds: number | undefined;
}

export function estimate(input: Estimate): Estimated {
  const jobs = checkAmount("jobs", input.jobs);
  const minutes = checkAmount("minutes", input.minutes);
  const slots = checkAmount("slots", input.slots ?? 1, 1);
  const jobsPerMachine = checkAmount("jobsPerMachine", input.jobsPerMachine ?? 1, 1);
  const warm = checkAmount("warm", input.warm ?? 0);
  const diskGb = checkAmount("diskGb", input.diskGb ?? 1);
  const boot = checkAmount("bootSeconds", input.bootSeconds ?? 0);
  const idle = checkAmount("idleSeconds", input.idleSeconds ?? 0);
  const { price, perSecond, table, formula, leastSeconds, stoppedGbMonth } = resolvePrice(input);

  const lines: EstimateLine[] = [];
  const addLine = (what: string, reckoning: string, value: number, unit: EstimateLine["unit"]) => {
    lines.push({ what, reckoning, value, unit });
    return value;
  };
  addLine(`a second of a machine (${table})`, formula, perSecond, "$");
  const machines = addLine(
    "machines started",
    slots * jobsPerMachine === 1
      ? `one for each of ${formatDecimal(jobs)} jobs`
      : `${formatDecimal(jobs)} jobs ÷ (${formatDecimal(slots)} concurrent × ${formatDecimal(jobsPerMachine)} in sequence)`,
    Math.ceil(jobs / (slots * jobsPerMachine)),
    "machines",
  );
  const perMachine = Math.min(jobsPerMachine, Math.max(1, jobs));
  const upSeconds = addLine(
    "each is up for",
    [
      `${formatDecimal(perMachine)} × ${formatDecimal(minutes)} min × 60`,
      boot && `${formatDecimal(boot)} to start`,
      idle && `${formatDecimal(idle)} idle`,
    ]
      .filter(Boolean)
      .join(" + "),
    perMachine * minutes * 60 + boot + idle,
    "s",
  );
  const billedEach = Math.max(upSeconds, leastSeconds);
  if (billedEach > upSeconds)
    addLine("each is billed for", `at least ${formatDecimal(leastSeconds)} s`, billedEach, "s");
  const seconds = addLine(
    "machine time",
    `${formatDecimal(machines)} × ${formatDecimal(billedEach)} s`,
    machines * billedEach,
    "s",
  );

  let cost = addLine(
    "all jobs",
    `${formatDecimal(seconds)} s × $${formatDecimal(perSecond)}`,
    seconds * perSecond,
    "$",
  );
  const { cpus, memoryMb } = input;
  const vcpuSeconds =
    cpus === undefined
      ? undefined
      : addLine("billed", `${formatDecimal(seconds)} s × ${formatDecimal(cpus)} vCPU`, seconds * cpus, "vCPU-s");
  if (input.freeTier && price?.free && cpus !== undefined && memoryMb !== undefined) {
    const gb = memoryMb / 1024;
    addLine("billed", `${formatDecimal(seconds)} s × ${formatDecimal(gb)} GB`, seconds * gb, "GB-s");
    const { vcpuSeconds: freeCpu = 0, gbSeconds: freeGb = 0 } = price.free;
    const overCpu = addLine(
      "beyond the free tier",
      `${formatDecimal(seconds * cpus)} − ${formatDecimal(freeCpu)} free in a month`,
      Math.max(0, seconds * cpus - freeCpu),
      "vCPU-s",
    );
    const overGb = addLine(
      "beyond the free tier",
      `${formatDecimal(seconds * gb)} − ${formatDecimal(freeGb)} free in a month`,
      Math.max(0, seconds * gb - freeGb),
      "GB-s",
    );
    const { vcpuSecond = 0, gbSecond = 0 } = price;
    cost = addLine(
      "all jobs, after the free tier",
      `${formatDecimal(overCpu)} × $${formatDecimal(vcpuSecond)} + ${formatDecimal(overGb)} × $${formatDecimal(gbSecond)}`,
      overCpu * vcpuSecond + overGb * gbSecond,
      "$",
    );
  }
  const perJob =
    jobs > 0 ? addLine("each job", `$${formatDecimal(cost)} ÷ ${formatDecimal(jobs)}`, cost / jobs, "$") : 0;
  const monthly =
    warm > 0
      ? addLine(
          "stopped machines",
          `${formatDecimal(warm)} × ${formatDecimal(diskGb)} GB × $${formatDecimal(stoppedGbMonth)} per GB and month`,
          warm * diskGb * stoppedGbMonth,
          "$ a month",
        )
      : 0;
  return { lines, perSecond, table, machines, seconds, amount: cost, perJob, monthly, vcpuSeconds };
}

function resolvePrice(input: Estimate) {
  const { perSecond, provider, size, cpus, memoryMb, region, at, prices } = input;
  const facts = {
    ...(size !== undefined && { size }),
    ...(cpus !== undefined && { cpus }),
    ...(memoryMb !== undefined && { memoryMb }),
    ...(region !== undefined && { region }),
  };
  const found =
    provider === undefined ? undefined : findPrice(provider, facts, { ...(at && { at }), ...(prices && { prices }) });
  if (perSecond === undefined && !found) {
    throw new InvalidInput(
      provider === undefined
        ? "Neither a price nor a provider is set"
        : `There is no price for ${[provider, size, cpus && `${cpus} vCPU`, memoryMb && `${memoryMb} MB`, region && `in ${region}`].filter(Boolean).join(" ")}`,
      { field: "provider", remedy: "Use a provider, size and region of the price tables, or a price per second" },
    );
  }
  return {
    price: found?.price,
    perSecond: perSecond === undefined ? found!.perSecond : checkAmount("perSecond", perSecond),
    table: perSecond === undefined ? found!.table : "own",
    formula: perSecond === undefined ? found!.formula : "from the input",
    leastSeconds: checkAmount(
      "leastSeconds",
      input.leastSeconds ?? (perSecond === undefined ? found!.leastSeconds : 0),
    ),
    stoppedGbMonth: checkAmount(
      "stoppedGbMonth",
      input.stoppedGbMonth ?? (found ? found.idlePerSecond(1) * MONTH_SECONDS : 0),
    ),
  };
}

function checkAmount(field: string, value: number, min = 0): number {
  if (Number.isFinite(value) && value >= min && value <= 1e12) return value;
  throw new InvalidInput(`${field} cannot be ${value}`, { field, remedy: `Use a number of at least ${min}` });
}
