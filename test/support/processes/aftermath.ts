// What a test asks after it has killed or paused something: who is still there, what was repeated, how long it took.
import fs from "node:fs";
import pg from "pg";
import type { Job, Stillwake } from "../../../src/index.ts";
import { waitFor } from "../../../src/testing/index.ts";
import { recordFigure } from "../figures.ts";
import type { Witness } from "./witness.ts";

/** The counts for a release; a run on every change makes do with fewer. */
export const FULL = process.env.STILLWAKE_FULL === "1";

/** A connection that outlives none of the tests of a file: call it in beforeAll, end it in afterAll. */
export async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: "test" });
  await client.connect();
  return client;
}

/** Where the length of a fault is the fault: until the database's clock has gone on by so much. */
export async function pass(client: pg.Client, time: string): Promise<void> {
  const { rows } = await client.query("select clock_timestamp() + $1::interval as then", [time]);
  const isThen = async () =>
    (await client.query("select clock_timestamp() > $1 as past", [rows[0].then])).rows[0].past as boolean;
  await waitFor(isThen, { timeout: 120_000, interval: 50 });
}

/** After its start Postgres gives every worker the length of its lease; nobody is taken for dead before. */
export async function leasesCount(client: pg.Client, span: string): Promise<void> {
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

/** The job once it has ended, whichever way: wait() throws for those that failed. */
export async function ended(stillwake: Stillwake, id: string, timeout = 20_000): Promise<Job> {
  const isOver = async () => {
    const job = await stillwake.get(id);
    return ["completed", "failed", "cancelled"].includes(job.state) && job;
  };
  return waitFor(isOver, { timeout, interval: 25, what: `job ${id} to end` });
}

/** Steps that ran although an earlier attempt had finished them (I4): seen by the witness at a later epoch than that of their checkpoint. */
export async function repeatedSteps(client: pg.Client, witness: Witness, jobs: string[]): Promise<string[]> {
  const { rows } = await client.query("select job_id, step, epoch from stillwake.checkpoints where job_id = any ($1)", [
    jobs,
  ]);
  const keptAt = new Map(rows.map(({ job_id, step, epoch }) => [`${job_id} ${step}`, BigInt(epoch)]));
  return witness.sights
    .filter(({ job, step, epoch, event }) => {
      const kept = event === "effect" && jobs.includes(job) ? keptAt.get(`${job} ${step}`) : undefined;
      return kept !== undefined && BigInt(epoch) > kept;
    })
    .map(({ job, step, epoch }) => `${job} ${step} at epoch ${epoch}`);
}

/** How many attempts of these jobs ended in each way. */
export async function endedAttempts(client: pg.Client, jobs: string[]): Promise<Record<string, number>> {
  const { rows } = await client.query(
    "select outcome, count(*)::int as n from stillwake.ended_attempts where job_id = any ($1) group by outcome",
    [jobs],
  );
  return Object.fromEntries(rows.map(({ outcome, n }) => [outcome, n]));
}

/** A zombie in the sense of the kernel is dead. */
export function isAlive(pid: number): boolean {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, "latin1");
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch {
    return false;
  }
}

/** "T" for one that is stopped. */
export function stateOf(pid: number): string {
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
