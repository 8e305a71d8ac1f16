// One extraction, combined from the application's tables and Stillwake's job: machines, attempts, cost.
import { type Job, type JobCost, type Stillwake, StillwakeError } from "stillwake";
import type { Extraction } from "../projects.ts";

export interface ExtractionDetail extends Extraction {
  /** Null if Stillwake has deleted the job; the row of the extraction stays. */
  job: { state: Job["state"]; waitingFor: Job["waitingFor"]; attempt: number; maxAttempts: number } | null;
  /** Machines of all attempts, in order. */
  machines: string[];
  /** Null if no machine had a price. */
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

export async function readDetail(stillwake: Stillwake, row: Extraction): Promise<ExtractionDetail> {
  const [job, attempts, cost] = await Promise.all([
    stillwake.get(row.id).catch(nullIfJobGone),
    stillwake.attempts(row.id),
    stillwake.costs.ofJob(row.id),
  ]);
  const machines = [...new Set(attempts.flatMap(({ worker }) => worker ?? []))];
  return {
    ...row,
    // While the job is active, its state is newer than the row.
    ...(job && !job.endedAt && { status: job.state === "running" ? "running" : "queued", error: null, endedAt: null }),
    missing: job?.endedAt ? job.missing : row.missing,
    machine: job?.worker ?? machines.at(-1) ?? row.machine,
    attempts: Math.max(job?.attempt ?? 0, row.attempts),
    startedAt: row.startedAt ?? job?.startedAt ?? null,
    job: job && { state: job.state, waitingFor: job.waitingFor, attempt: job.attempt, maxAttempts: job.maxAttempts },
    machines,
    cost: cost.parts.some(({ prices }) => prices !== null) ? toCost(cost) : null,
  };
}

export interface Costs {
  /** This month's cost of the organization. */
  month: { amount: number; extractions: number };
  /** Monthly cost of stopped machines. */
  idlePools: { pool: string; machines: number; perMonth: number }[];
}

export async function readCosts(stillwake: Stillwake, organization: string): Promise<Costs> {
  const [own, all] = await Promise.all([stillwake.costs.of({ tenant: organization }), stillwake.costs.of()]);
  return {
    month: { amount: own.total.amount, extractions: own.total.jobs },
    idlePools: all.idlePools.map(({ pool, machines, perMonth }) => ({ pool, machines, perMonth })),
  };
}

function toCost({ amount, provisional, parts }: JobCost): ExtractionDetail["cost"] {
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

function nullIfJobGone(error: unknown): null {
  if (error instanceof StillwakeError && error.code === "JOB_NOT_FOUND") return null;
  throw error;
}
