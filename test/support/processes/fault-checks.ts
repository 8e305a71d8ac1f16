// Checks for tests that kill or suspend processes: which processes are alive, which steps were repeated, how long it took.
import fs from "node:fs";
import type pg from "pg";
import type { Job, Stillwake } from "../../../src/index.ts";
import { waitFor } from "../../../src/testing/index.ts";
import { recordFigure } from "../figures.ts";
import type { StepObserver } from "./step-observer.ts";

/** The full number of iterations, for releases; other runs use fewer. */
export const FULL = process.env.STILLWAKE_FULL === "1";

/** A random share of the cases, at least one; all of them in the full form and for mutants. */
export function sample<Case>(cases: readonly Case[], share: number): readonly Case[] {
  if (FULL || process.env.STILLWAKE_SAMPLE === "all") return cases;
  const chosen = cases.filter(() => Math.random() < share);
  return chosen.length > 0 ? chosen : cases.slice(0, 1);
}

/** Waits until the database's clock has advanced by this much, for faults of a given duration. */
export async function waitDatabaseTime(client: pg.Client, time: string): Promise<void> {
  const { rows } = await client.query("select clock_timestamp() + $1::interval as then", [time]);
  const isThen = async () =>
    (await client.query("select clock_timestamp() > $1 as past", [rows[0].then])).rows[0].past as boolean;
  await waitFor(isThen, { timeout: 120_000, interval: 50 });
}

/** After a start of Postgres no worker counts as dead for the length of a lease: waits until that has passed. */
export async function waitForStartupGrace(client: pg.Client, span: string): Promise<void> {
  await waitFor(
    async () => {
      const { rows } = await client.query(
        "select stillwake.now() > pg_postmaster_start_time() + $1::interval as past",
        [span],
      );
      return rows[0].past;
    },
    { timeout: 20_000, what: "Postgres to be up for the length of a lease" },
  );
}

/** Returns the job once it has ended with any outcome; wait() would throw for failed ones. */
export async function waitForEnd(stillwake: Stillwake, id: string, timeout = 20_000): Promise<Job> {
  const isOver = async () => {
    const job = await stillwake.get(id);
    return ["completed", "failed", "cancelled"].includes(job.state) && job;
  };
  return waitFor(isOver, { timeout, interval: 25, what: `job ${id} to end` });
}

/** Steps that ran again after their checkpoint: reported to the observer with a later epoch than that of the checkpoint. */
export async function repeatedSteps(client: pg.Client, observer: StepObserver, jobs: string[]): Promise<string[]> {
  const { rows } = await client.query("select job_id, step, epoch from stillwake.checkpoints where job_id = any ($1)", [
    jobs,
  ]);
  const keptAt = new Map(rows.map(({ job_id, step, epoch }) => [`${job_id} ${step}`, BigInt(epoch)]));
  return observer.reports
    .filter(({ job, step, epoch, event }) => {
      const kept = event === "effect" && jobs.includes(job) ? keptAt.get(`${job} ${step}`) : undefined;
      return kept !== undefined && BigInt(epoch) > kept;
    })
    .map(({ job, step, epoch }) => `${job} ${step} at epoch ${epoch}`);
}

/** The number of attempts of these jobs by outcome. */
export async function endedAttempts(client: pg.Client, jobs: string[]): Promise<Record<string, number>> {
  const { rows } = await client.query(
    "select outcome, count(*)::int as n from stillwake.ended_attempts where job_id = any ($1) group by outcome",
    [jobs],
  );
  return Object.fromEntries(rows.map(({ outcome, n }) => [outcome, n]));
}

/** A zombie process counts as dead. */
export function isAlive(pid: number): boolean {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, "latin1");
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch {
    return false;
  }
}

/** Every process whose working directory is in `dir`. */
export function processesIn(dir: string): number[] {
  return fs.readdirSync("/proc").flatMap((entry) => {
    try {
      return fs.readlinkSync(`/proc/${Number(entry)}/cwd`).startsWith(dir) ? [Number(entry)] : [];
    } catch {
      return [];
    }
  });
}

/** The kernel's process state: "T" for a stopped one. */
export function processState(pid: number): string {
  const stat = fs.readFileSync(`/proc/${pid}/stat`, "latin1");
  return stat.slice(stat.lastIndexOf(")") + 2).charAt(0);
}

export function recordTimes(name: string, times: number[], note = ""): { p50: number; p99: number; most: number } {
  const sorted = [...times].sort((a, b) => a - b);
  const at = (fraction: number) => sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * fraction) - 1)]!;
  const result = { p50: at(0.5), p99: at(0.99), most: sorted.at(-1)! };
  recordFigure(`${name}, p50`, round(result.p50), "ms", note || `n = ${times.length}`);
  recordFigure(`${name}, p99`, round(result.p99), "ms", note || `n = ${times.length}`);
  return result;
}

export function round(value: number): number {
  return Math.round(value * 10) / 10;
}
