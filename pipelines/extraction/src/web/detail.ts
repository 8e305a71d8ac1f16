// One extraction as it stands, of our tables and of what the engine knows: where it runs, how often it was tried, what it cost.
import { type Job, type JobCost, type Stillwake, StillwakeError } from "stillwake";
import type { Extraction } from "../projects.ts";

export interface ExtractionDetail extends Extraction {
  /** Null when the engine has forgotten the job; what stands above is kept. */
  job: { state: Job["state"]; waitingFor: Job["waitingFor"]; attempt: number; maxAttempts: number } | null;
  /** Every machine that has tried, the last one last. */
  machines: string[];
  /** Null where it ran on no machine that has a price. */
  cost: (Pick<JobCost, "amount" | "provisional"> & { parts: CostPart[] }) | null;
}

interface CostPart {
  machine: string;
  size: string | null;
  region: string | null;
  seconds: number;
  pricePerSecond: number;
  amount: number;
}

export async function detailOf(stillwake: Stillwake, row: Extraction): Promise<ExtractionDetail> {
  const [job, attempts, cost] = await Promise.all([
    stillwake.get(row.id).catch(unlessForgotten),
    stillwake.attempts(row.id),
    stillwake.costs.ofJob(row.id),
  ]);
  const machines = [...new Set(attempts.flatMap(({ worker }) => worker ?? []))];
  return {
    ...row,
    // While the job lives it knows better than what was written down of it.
    ...(job && !job.endedAt && { status: job.state === "running" ? "running" : "queued", error: null, endedAt: null }),
    missing: job?.endedAt ? job.missing : row.missing,
    machine: job?.worker ?? machines.at(-1) ?? row.machine,
    attempts: Math.max(job?.attempt ?? 0, row.attempts),
    startedAt: row.startedAt ?? job?.startedAt ?? null,
    job: job && { state: job.state, waitingFor: job.waitingFor, attempt: job.attempt, maxAttempts: job.maxAttempts },
    machines,
    cost: cost.parts.some(({ prices }) => prices !== null) ? costFor(cost) : null,
  };
}

export interface Costs {
  /** Of this organization, this month. */
  month: { amount: number; extractions: number };
  /** What stopped machines cost in a month, whether they are used or not. */
  idlePools: { pool: string; machines: number; perMonth: number }[];
}

export async function costsOf(stillwake: Stillwake, organization: string): Promise<Costs> {
  const [own, all] = await Promise.all([stillwake.costs.of({ tenant: organization }), stillwake.costs.of()]);
  return {
    month: { amount: own.total.amount, extractions: own.total.jobs },
    idlePools: all.idlePools.map(({ pool, machines, perMonth }) => ({ pool, machines, perMonth })),
  };
}

function costFor({ amount, provisional, parts }: JobCost): ExtractionDetail["cost"] {
  return {
    amount,
    provisional,
    parts: parts.map((part) => ({
      machine: part.machine,
      size: part.size,
      region: part.region,
      seconds: part.busySeconds + part.idleSeconds,
      pricePerSecond: part.pricePerSecond,
      amount: part.amount,
    })),
  };
}

function unlessForgotten(error: unknown): null {
  if (error instanceof StillwakeError && error.code === "JOB_NOT_FOUND") return null;
  throw error;
}
