// Outages of Postgres: crashes during jobs, a missing server at start, long outages. Workers are real processes; they
// must neither exit nor spin, and continue by themselves.
import fs from "node:fs";
import { beforeAll, describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { connect, openStillwake } from "../support/database/connections.ts";
import { startPostgresServer } from "../support/database/postgres-server.ts";
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { countedEffects } from "../support/processes/effects.ts";
import { FULL, recordTimes, repeatedSteps, waitForStartupGrace } from "../support/processes/fault-checks.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";
import { gated, nothing } from "../support/processes/script-steps.ts";
import { startStepObserver } from "../support/processes/step-observer.ts";
import { startWorker, type WorkerProcess } from "../support/processes/workers.ts";

const server = await startPostgresServer();
const stillwake = openStillwake(server.url, { retryTimeout: "forever" });
const observer = await startStepObserver();
beforeAll(buildPackage);

describe("when Postgres crashes under two workers with running steps", () => {
  const crashes = FULL ? 20 : 4;

  it(`every job ends, no acknowledged job is lost, no finished step runs again, no worker exits (${crashes} times)`, {
    timeout: 60_000 + crashes * 15_000,
  }, async () => {
    const workers = await Promise.all(
      [1, 2].map((number) => startWorker({ url: server.url, args: ["--slots", "4", "--name", `crash-${number}`] })),
    );
    const acknowledged: string[] = [];
    let stopping = false;
    const steps = [nothing("one"), { name: "two", act: "wait", ms: 150, deaf: true }, nothing("three")];
    async function caller(): Promise<void> {
      while (!stopping) {
        const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
        acknowledged.push(id);
        await stillwake.wait(id, { timeout: "2m" });
      }
    }
    const callers = Promise.all(Array.from({ length: 12 }, caller));
    const effects = () => observer.reports.filter(({ event }) => event === "effect").length;
    const restarts: number[] = [];
    for (let crash = 0; crash < crashes; crash++) {
      const before = effects();
      await waitFor(() => effects() > before + 60, { timeout: 60_000, interval: 5, what: "work to go on" });
      const from = observer.reports.length;
      await server.kill(crash % 2 === 0 ? "SIGQUIT" : "SIGKILL");
      const accepting = await server.start();
      const begun = await observer.waitForReport(({ event, at }) => event === "begin" && at > accepting, {
        from,
        timeout: 60_000,
      });
      restarts.push(begun.at - accepting);
    }
    stopping = true;
    await callers;

    const client = await connect(server.url);
    const { rows } = await client.query(
      "select state, crashes, count(*)::int from stillwake.jobs where pipeline = 'script' group by 1, 2 order by 2",
    );
    expect(rows.map(({ state }) => state)).toEqual(rows.map(() => "completed"));
    const known = await client.query("select id from stillwake.jobs where id = any ($1)", [acknowledged]);
    expect(known.rows).toHaveLength(acknowledged.length);
    expect(await repeatedSteps(client, observer, acknowledged)).toEqual([]);
    for (const worker of workers) {
      expect(worker.child.exitCode).toBeNull();
      const countLines = (event: string) => worker.lines.filter((line) => line.event === event).length;
      await worker.waitForLine(
        (line) => line.event === "database.back" && countLines("database.back") === countLines("database.lost"),
      );
      expect(countLines("database.lost")).toBeLessThanOrEqual(crashes * 2);
    }
    recordTimes("Postgres accepts to first claim at work", restarts, `${crashes} crashes`);
    recordFigure("jobs acknowledged", acknowledged.length, "jobs", `over ${crashes} crashes; lost 0`);
    const lost = rows.reduce((sum, row) => sum + row.crashes * row.count, 0);
    recordFigure("attempts lost in crashes", lost);
    // Running jobs continue: after a start of Postgres every lease gets its full length.
    expect(lost).toBe(0);
    expect(Math.max(...restarts)).toBeLessThan(6_000);
  });
});

describe("when the database is not reachable at the start of a worker", () => {
  it("the worker waits, reports it once, and works as soon as the server is reachable", async () => {
    await stillwake.register(pipeline("early", { pool: "early" }));
    await server.kill("SIGINT");
    const worker = await startWorker({ url: server.url, skipWait: true, args: ["--slots", "1", "--pool", "early"] });
    await worker.waitForLine("database.lost");
    const { id } = await (async () => {
      const accepting = await server.start();
      const enqueued = await stillwake
        .register(pipeline("strict"))
        .then(() => stillwake.enqueue("strict", { observer: observer.url, steps: [] }, { pool: "default" }));
      await worker.waitForLine("worker.started");
      recordFigure("worker: Postgres accepts to a worker that had waited for it", performance.now() - accepting, "ms");
      return enqueued;
    })();
    expect(worker.lines.filter(({ event }) => event === "database.lost")).toHaveLength(1);
    expect(worker.lines.filter(({ event }) => event === "database.back")).toHaveLength(1);
    const second = await startWorker({ url: server.url, args: ["--slots", "1"] });
    await stillwake.wait(id, { timeout: "20s" });
    expect(second.child.exitCode).toBeNull();
  });

  it("a worker that is stopped before it reached its database exits cleanly at once", async () => {
    await server.kill("SIGINT");
    try {
      const worker = await startWorker({ url: server.url, skipWait: true });
      await worker.waitForLine("database.lost");
      const stoppedAt = performance.now();
      worker.signal("SIGTERM");
      expect(await worker.exited, worker.stderr()).toBe(0);
      expect(performance.now() - stoppedAt).toBeLessThan(5_000);
    } finally {
      await server.start();
    }
  });
});

describe("during a long outage of the database", () => {
  const seconds = FULL ? 600 : 10;

  it(`of ${seconds} s the worker neither exits nor spins, reports it once, and settles its jobs afterwards`, {
    timeout: (seconds + 60) * 1000,
  }, async () => {
    await using proxy = await faultProxy(server.url);
    const worker = await startWorker({ url: proxy.url, args: ["--slots", "3", "--lease", "5s", "--name", "patient"] });
    await worker.waitForLine("hints.ready");
    const steps = [nothing("before"), gated("across", "away"), nothing("after")];
    const jobs = await stillwake.enqueueMany(
      "script",
      [1, 2].map(() => ({ observer: observer.url, steps })),
    );
    for (const { id } of jobs) await observer.waitForReport(({ job, step }) => job === id && step === "across");

    proxy.mode = "refuse";
    proxy.reset();
    await worker.waitForLine("database.lost");
    const from = { cpuMs: cpuMs(worker), lines: worker.lines.length, at: performance.now() };
    // The steps finish during the outage.
    observer.openGate("away");
    // The pauses between connects grow; they are counted when they have grown.
    const growingMs = 4000;
    await new Promise((resolve) => setTimeout(resolve, growingMs));
    const grown = { asked: proxy.asked(), at: performance.now() };
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000 - growingMs));
    const lasted = performance.now() - from.at;
    const asked = (proxy.asked() - grown.asked) / ((performance.now() - grown.at) / 1000);
    const cpu = (cpuMs(worker) - from.cpuMs) / lasted;
    const loud = worker.lines
      .slice(from.lines)
      .filter(({ level }) => level >= 30 || ["info", "warn", "error"].includes(String(level)));
    const late = await stillwake.enqueue("script", {
      observer: observer.url,
      steps: [{ name: "late", act: "nothing" }],
    });
    proxy.mode = "pass";
    const healed = performance.now();
    const done = await Promise.all([...jobs, late].map(({ id }) => stillwake.wait(id, { timeout: "30s" })));
    const settled = performance.now() - healed;

    recordFigure("worker: connects per second while the database is away", asked, "/s", `${seconds} s`);
    recordFigure("worker: processor time while the database is away", cpu * 100, "%", `${seconds} s`);
    recordFigure("worker: the database is back to all settled", settled, "ms");
    expect(asked).toBeLessThan(2.5);
    expect(asked, "it must go on asking").toBeGreaterThan(0.1);
    expect(cpu).toBeLessThan(0.05);
    expect(loud.length, JSON.stringify(loud)).toBeLessThan(10);
    await worker.waitForLine("database.back");
    expect(worker.lines.filter(({ event }) => event === "database.lost")).toHaveLength(1);
    expect(worker.lines.filter(({ event }) => event === "database.back")).toHaveLength(1);
    for (const job of done) expect(job).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    for (const { id } of jobs) {
      const effects = observer.reportsOf(id).filter(({ event }) => event === "effect");
      expect(effects.map(({ step }) => step)).toEqual(["before", "across", "after"]);
    }
    expect(worker.child.exitCode).toBeNull();
  });

  it("longer than the lease, no worker recovers its own running jobs afterwards", async () => {
    await using proxy = await faultProxy(server.url);
    const workers = await Promise.all(
      Array.from({ length: 12 }, async (_, number) => {
        const name = `across-${number}`;
        const { promise: until, resolve: finish } = deferred();
        const counted = countedEffects(name, { steps: 2, before: () => until });
        const pipelines = [counted.implementation];
        const own = await startRecordedWorker({
          url: proxy.url,
          name,
          pool: name,
          pipelines,
          slots: 3,
          lease: "2s",
          poll: "50ms",
        });
        const { id } = await stillwake.enqueue(name, {});
        await own.waitForEvent("attempt.started");
        return { own, id, finish };
      }),
    );
    proxy.mode = "refuse";
    proxy.reset();
    const client = await connect(server.url);
    await waitFor(
      async () => {
        const { rows } = await client.query(
          "select from stillwake.leases where pool like 'across-%' and until > stillwake.now()",
        );
        return rows.length === 0;
      },
      { what: "the leases to have run out" },
    );
    proxy.mode = "pass";
    await Promise.all(workers.map(({ own }) => own.waitForEvent("database.back")));
    const after = performance.now();
    await Promise.all(workers.map(({ own }) => own.waitForEvent("heartbeat", { after })));
    for (const { finish } of workers) finish();
    const jobs = await Promise.all(workers.map(({ id }) => stillwake.wait(id, { timeout: "20s" })));
    expect(jobs.map(({ attempt, crashes }) => ({ attempt, crashes }))).toEqual(
      jobs.map(() => ({ attempt: 1, crashes: 0 })),
    );
    await Promise.all(workers.map(({ own }) => own.worker.stop()));
  });

  it("the first worker that is back does not recover the jobs of workers that have not reconnected yet", async () => {
    const client = await connect(server.url);
    await waitForStartupGrace(client, "8s");
    await using slow = await faultProxy(server.url);
    await using quick = await faultProxy(server.url);
    const { promise: until, resolve: finish } = deferred();
    const counted = countedEffects("first-back", { steps: 2, before: () => until });
    const floors = { poll: "100ms", pollWithHints: "100ms" } as const;
    const options = {
      pool: "first-back",
      pipelines: [counted.implementation],
      slots: 2,
      lease: "8s" as const,
      ...floors,
    };
    const holder = await startRecordedWorker({ url: slow.url, name: "slow", ...options });
    await holder.waitForEvent("hints.ready");
    const { id } = await stillwake.enqueue("first-back", {});
    await holder.waitForEvent("attempt.started");
    const rival = await startRecordedWorker({ url: quick.url, name: "quick", ...options });
    await rival.waitForEvent("hints.ready");
    for (const proxy of [slow, quick]) {
      proxy.mode = "refuse";
      proxy.reset();
    }
    await Promise.all([holder, rival].map((one) => one.waitForEvent("database.lost")));
    quick.mode = "pass";
    await rival.waitForEvent("database.back");
    // Two seconds of presence checks: several times the grace period.
    await rival.waitForEvent("claim.empty", { after: performance.now(), times: 20 });
    slow.mode = "pass";
    await holder.waitForEvent("database.back");
    await holder.waitForEvent("heartbeat", { after: holder.eventsOf("database.back")[0]!.at });
    finish();
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ attempt: 1, crashes: 0, worker: "slow" });
    expect(rival.eventsOf("recovered")).toEqual([]);
    await Promise.all([holder, rival].map((one) => one.worker.stop()));
  });

  it("an idle worker that is stopped does not wait for the database", async () => {
    await using proxy = await faultProxy(server.url);
    const worker = await startWorker({ url: proxy.url, args: ["--slots", "1"] });
    await worker.waitForLine("hints.ready");
    proxy.mode = "refuse";
    proxy.reset();
    await worker.waitForLine("database.lost");
    const stoppedAt = performance.now();
    worker.signal("SIGTERM");
    expect(await worker.exited, worker.stderr()).toBe(0);
    const took = performance.now() - stoppedAt;
    recordFigure("worker: SIGTERM to the end, idle and without its database", took, "ms");
    expect(took).toBeLessThan(5_000);
  });
});

/** CPU time of the keeper and its runners. */
function cpuMs(worker: WorkerProcess): number {
  const ticks = [worker.pid, ...worker.runners()].map((pid) => {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, "latin1");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return Number(fields[11]) + Number(fields[12]);
  });
  return ticks.reduce((sum, one) => sum + one, 0) * 10;
}
