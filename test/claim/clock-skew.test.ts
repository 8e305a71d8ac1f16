// Wrong clocks. The clock of a worker decides nothing, so it may be off by any amount; the clock of the database may be
// set back, and then everything takes a little longer, but no lease ends early.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { travel, waitFor } from "../../src/testing/index.ts";
import { recordFigure } from "../support/figures.ts";
import { ROOT } from "../support/processes/build.ts";
import {
  endedAttempts,
  FULL,
  round,
  waitDatabaseTime,
  waitForStartupGrace,
} from "../support/processes/fault-checks.ts";
import { processFixture } from "../support/processes/process-fixture.ts";
import { nothing, turnstile } from "../support/processes/script-steps.ts";
import { startWorker, type WorkerProcess } from "../support/processes/workers.ts";

const { database, stillwake, client, observer } = await processFixture();
const leaseAlone = path.join(os.tmpdir(), `stillwake-skew-${process.pid}.config.mjs`);
const clock = pathToFileURL(path.join(ROOT, "test/fixtures/shifted-clock.mjs")).href;
const HOUR = 3_600_000;

beforeAll(async () => {
  fs.writeFileSync(leaseAlone, "export default { directUrl: false };");
  await waitForStartupGrace(client, "2s");
});
afterAll(async () => {
  fs.rmSync(leaseAlone, { force: true });
});

const recoveries = (workers: WorkerProcess[]) =>
  workers.flatMap(({ lines }) => lines).filter(({ event }) => event === "recovered");

/** Enqueues a job that stays in its step, and waits until it is running. */
async function longJob(gate: string): Promise<{ id: string; pid: number }> {
  const steps = [turnstile("long", gate), nothing("after")];
  const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
  const { pid } = await observer.waitForReport(({ job, step }) => job === id && step === "long");
  return { id, pid };
}

describe("workers whose clocks are wrong by an hour", () => {
  const startWithClock = (ms: number) =>
    startWorker({
      url: database.url,
      args: ["--slots", "1", "--lease", "2s", "--config", leaseAlone],
      env: { NODE_OPTIONS: `--import ${clock}?ms=${ms}` },
    });

  it("lose no lease early, recover none of each other, and recover dead workers in time", async () => {
    const workers = [await startWithClock(HOUR), await startWithClock(-HOUR)];
    // Their logs show the wrong clock.
    const hours = workers.map(({ lines }) =>
      Math.round((new Date(lines[0]!.time as string).getTime() - Date.now()) / HOUR),
    );
    expect(hours).toEqual([1, -1]);
    const jobs = [await longJob("skew-0"), await longJob("skew-1")];
    const idle = [await startWithClock(-HOUR), await startWithClock(HOUR)];
    await waitDatabaseTime(client, FULL ? "20s" : "6s");
    expect(recoveries([...workers, ...idle])).toEqual([]);
    expect(
      await endedAttempts(
        client,
        jobs.map(({ id }) => id),
      ),
    ).toEqual({});

    // Due times follow the database's clock.
    const delayed = await stillwake.enqueue("script", { observer: observer.url, steps: [] }, { delay: "2s" });
    const enqueuedAt = performance.now();
    const begun = await observer.waitForReport(({ job }) => job === delayed.id);
    expect(begun.at - enqueuedAt).toBeGreaterThan(1900);
    expect(begun.at - enqueuedAt).toBeLessThan(2000 + 2000);

    const victim = workers.find((worker) => worker.runners().includes(jobs[0]!.pid))!;
    const killedAt = performance.now();
    victim.signal("SIGKILL");
    const next = await observer.waitForReport(
      ({ job, step, epoch }) => job === jobs[0]!.id && step === "long" && epoch === "2",
    );
    expect(next.at - killedAt).toBeGreaterThan(1000);
    expect(next.at - killedAt).toBeLessThan(3000 + 2000);
    recordFigure(
      "worker killed to its job's next effect, clocks an hour off, lease of 2 s",
      round(next.at - killedAt),
      "ms",
    );

    for (const gate of ["skew-0-1", "skew-0-2", "skew-1-1"]) observer.openGate(gate);
    expect(await stillwake.wait(jobs[0]!.id, { timeout: "20s" })).toMatchObject({ attempt: 2, crashes: 1 });
    expect(await stillwake.wait(jobs[1]!.id, { timeout: "20s" })).toMatchObject({ attempt: 1, crashes: 0 });
    // No stored row has their time.
    const { rows } = await client.query(
      "select from stillwake.feed where abs(extract(epoch from at - stillwake.now())) > 300",
    );
    expect(rows).toEqual([]);
    recordFigure("clock skew: leases that ended early, workers' clocks wrong by an hour", 0, "leases");
  }, 300_000);
});

describe("a database whose clock is changed", () => {
  it("back by five seconds ends no lease early and runs nothing twice", async () => {
    // Well past the start of Postgres on this clock too: before that no worker counts as dead.
    await travel(database.url, "1h");
    const start = () => startWorker({ url: database.url, args: ["--slots", "2", "--lease", "2s"] });
    const workers = [await start()];
    const jobs = [await longJob("back-0"), await longJob("back-1")];
    workers.push(await start());
    const steps = FULL ? 10 : 2;
    for (let n = 0; n < steps; n++) {
      await travel(database.url, "-5s");
      await waitDatabaseTime(client, "3s");
    }
    expect(recoveries(workers)).toEqual([]);
    for (const { id, pid } of jobs) {
      expect(await stillwake.get(id)).toMatchObject({ state: "running", attempt: 1, crashes: 0 });
      expect(new Set(observer.reportsOf(id).map((report) => report.pid))).toEqual(new Set([pid]));
    }
    // Recovery works: the worker that is really dead is found.
    const killedAt = performance.now();
    workers[0]!.signal("SIGKILL");
    for (const { id } of jobs)
      await observer.waitForReport(({ job, step, epoch }) => job === id && step === "long" && epoch === "2");
    recordFigure(
      "worker killed after the clock was set back, to its jobs' next effects",
      round(performance.now() - killedAt),
      "ms",
    );
    for (const [n, { id }] of jobs.entries()) {
      observer.openGate(`back-${n}-2`);
      expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ attempt: 2, crashes: 1 });
    }
    recordFigure(
      "clock skew: leases that ended early, the database's clock set back by 5 s",
      0,
      "leases",
      `${steps} times`,
    );
  }, 300_000);

  it("forward and back by five seconds ends no default lease early", async () => {
    const workers = [await startWorker({ url: database.url, args: ["--slots", "1"] })];
    const { id } = await longJob("to-and-fro");
    workers.push(await startWorker({ url: database.url, args: ["--slots", "1"] }));
    for (let n = 0; n < (FULL ? 6 : 2); n++) {
      const heartbeats = async () =>
        (await client.query("select until from stillwake.leases")).rows[0].until.getTime() as number;
      const before = await heartbeats();
      await travel(database.url, n % 2 === 0 ? "5s" : "-5s");
      // The lease was extended on the new time.
      await waitFor(async () => (await heartbeats()) !== before);
    }
    expect(recoveries(workers)).toEqual([]);
    observer.openGate("to-and-fro-1");
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ attempt: 1, crashes: 0 });
  }, 300_000);
});
