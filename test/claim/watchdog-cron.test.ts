// The only worker is killed, and no other process of Stillwake runs. A cron job that calls the watchdog is enough: the job can
// be claimed again within one period, and the next worker resumes it.
import type pg from "pg";
import { beforeAll, describe, expect, it } from "vitest";
import { createStillwake } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { findPgCron, shortestPeriod, startCronServer } from "../support/database/pg-cron.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { FULL, isAlive, repeatedSteps, round, waitForStartupGrace } from "../support/processes/fault-checks.ts";
import { nothing, turnstile } from "../support/processes/script-steps.ts";
import { startStepObserver } from "../support/processes/step-observer.ts";
import { startWorker } from "../support/processes/workers.ts";

const database = await freshDatabase();
const pgCron = findPgCron();
const [lease, leaseMs] = FULL ? ["15s", 15_000] : ["2s", 2000];

beforeAll(buildPackage);

/** What Postgres itself may take for a check and a commit on a busy machine. */
const SLACK_MS = 3000;

interface Lone {
  url: string;
  client: pg.Client;
  /** How often cron calls; `call` does it where no cron runs. */
  periodMs: number;
  call?(): Promise<unknown>;
}

/** A job of three steps whose worker is killed in the second; returns how long it took until it could be claimed again. */
async function loseTheOnlyWorker({ url, client, periodMs, call }: Lone): Promise<number> {
  const observer = await startStepObserver();
  await using stillwake = createStillwake({ url });
  await waitForStartupGrace(client, lease);
  const worker = await startWorker({ url, args: ["--slots", "1", "--lease", lease] });
  const steps = [nothing("one"), turnstile("two", "two"), nothing("three")];
  const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
  const { pid } = await observer.waitForReport(({ job, step }) => job === id && step === "two");
  const runners = worker.runners();
  expect(runners).toContain(pid);
  worker.signal("SIGKILL");
  expect(await worker.exited).toBe("SIGKILL");
  const killedAt = performance.now();
  await waitFor(() => !runners.some(isAlive), { what: "its runners to be gone" });
  const sessions =
    "select from pg_stat_activity where application_name = 'stillwake direct' and datname = current_database()";
  await waitFor(async () => (await client.query(sessions)).rowCount === 0, { what: "its session to be gone" });

  const claimable = async () =>
    (await client.query("select claimable, running from stillwake.demand() where pool = 'default'")).rows[0];
  expect(await claimable()).toEqual({ claimable: 0, running: 1 });
  await waitFor(
    async () => {
      await call?.();
      return (await claimable()).claimable === 1;
    },
    { interval: call ? periodMs : 20, timeout: leaseMs * 2 + periodMs + 30_000, what: "the job to be claimable" },
  );
  const tookMs = performance.now() - killedAt;
  // Without any other worker a death looks like an outage, after which it would have the length of its lease to return.
  expect(tookMs).toBeLessThan(leaseMs * 2 + periodMs + SLACK_MS);
  const { rows } = await client.query("select state, crashes, lease_id from stillwake.live_jobs where id = $1", [id]);
  expect(rows).toEqual([{ state: "queued", crashes: 1, lease_id: null }]);

  observer.openGate("two-2");
  await startWorker({ url, args: ["--slots", "1"] });
  expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ state: "completed", attempt: 2, crashes: 1 });
  expect(await repeatedSteps(client, observer, [id])).toEqual([]);
  const effects = observer.reportsOf(id).filter(({ event }) => event === "effect");
  expect(effects.map(({ step, epoch }) => `${step} ${epoch}`)).toEqual(["one 1", "two 1", "two 2", "three 2"]);
  return tookMs;
}

describe("the only worker is killed -9", () => {
  it("and a cron job that only calls select stillwake.watchdog() makes its job claimable within one period", async () => {
    const client = await connect(database.url);
    const cron = await connect(database.url);
    const call = () => cron.query("select stillwake.watchdog()");
    const tookMs = await loseTheOnlyWorker({ url: database.url, client, periodMs: 1000, call });
    const note = `lease ${lease}, called every 1 s`;
    recordFigure("kill -9 of the only worker to its job claimable", round(tookMs), "ms", note);
  }, 120_000);

  it("and pg_cron alone makes its job claimable within one period", async (context) => {
    if (typeof pgCron === "string") return context.skip(pgCron);
    const server = await startCronServer(pgCron.build);
    const client = await connect(server.url);
    await client.query("create extension pg_cron");
    const { schedule, periodMs, version } = await shortestPeriod(client);
    await client.query("select cron.schedule('stillwake', $1, 'select stillwake.watchdog()')", [schedule]);
    const tookMs = await loseTheOnlyWorker({ url: server.url, client, periodMs });
    const { rows } = await client.query("select distinct status from cron.job_run_details where end_time is not null");
    expect(rows).toEqual([{ status: "succeeded" }]);
    const note = `lease ${lease}, pg_cron ${version}, '${schedule}'`;
    recordFigure("kill -9 of the only worker to its job claimable, pg_cron", round(tookMs), "ms", note);
  }, 240_000);
});
