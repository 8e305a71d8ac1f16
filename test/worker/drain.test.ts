// How a worker stops: drained by a signal, forced by a second one, or by itself when it is idle, when nothing is left
// or after one job. Nothing is lost, no attempt is counted, and no process is left running.
import fs from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { pipeline } from "../../src/index.ts";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { createWorker, implement } from "../../src/worker/index.ts";
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";
import { gated, nothing } from "../support/processes/script-steps.ts";
import { startStepObserver } from "../support/processes/step-observer.ts";
import { type StartWorkerOptions, startWorker } from "../support/processes/workers.ts";

const {
  database,
  start,
  stillwake,
  until,
  attempts,
  events,
  name,
  checkpoints,
  query,
  logs: readLogs,
} = await inProcessFixture();
const observer = await startStepObserver();

beforeAll(buildPackage);

/** Each test uses a separate pool, so that it does not claim the jobs of another. */
let pools = 0;
async function place() {
  const pool = `pool${++pools}`;
  await stillwake.register(pipeline(`of.${pool}`, { pool }), pipeline("script"));
  const enqueue = async (steps: { name: string; act: string; [key: string]: unknown }[], more: object = {}) =>
    (await stillwake.enqueue("script", { observer: observer.url, steps }, { pool, ...more })).id;
  const begin = (args: string[] = [], options: Partial<StartWorkerOptions> = {}) =>
    startWorker({ url: database.url, ...options, args: ["--pool", pool, "--slots", "2", "--grace", "300ms", ...args] });
  return { pool, enqueue, begin };
}

async function worker(args: string[] = [], options: Partial<StartWorkerOptions> = {}) {
  const { pool, enqueue, begin } = await place();
  return { pool, enqueue, process: await begin(args, options) };
}

const stepOf = (job: string, step: string) =>
  observer.waitForReport((report) => report.job === job && report.step === step);
const effects = (job: string) =>
  observer
    .reportsOf(job)
    .filter(({ event }) => event === "effect")
    .map(({ step }) => step);

/** Processes with a tag of this worker. */
function marked(workerName: string): number[] {
  return fs
    .readdirSync("/proc")
    .map(Number)
    .filter(Number.isInteger)
    .filter((pid) => {
      try {
        return fs.readFileSync(`/proc/${pid}/environ`, "latin1").includes(`STILLWAKE_PROCESS_TAG=${workerName}`);
      } catch {
        return false;
      }
    });
}

describe("SIGTERM", () => {
  it("waits for running jobs, claims no other, and exits with 0", async () => {
    const { process, enqueue } = await worker();
    const id = await enqueue([{ name: "long", act: "gate", gate: "drain" }]);
    await stepOf(id, "long");
    process.signal("SIGTERM");
    expect(await process.waitForLine("worker.draining")).toMatchObject({ active: 1, limitMs: 25_000 });
    const late = await enqueue([{ name: "late", act: "nothing" }]);
    observer.openGate("drain");
    expect(await until(id)).toMatchObject({ state: "completed", attempt: 1 });
    expect(await process.exited).toBe(0);
    expect(await stillwake.get(late)).toMatchObject({ state: "queued", attempt: 0 });
    expect(await process.waitForLine("worker.stopped")).toMatchObject({ reason: "SIGTERM" });
  });

  it("after the limit stops the job and releases it: no attempt is counted, and finished steps do not run again", async () => {
    const { process, enqueue, pool } = await worker(["--drain-timeout", "100ms"]);
    const id = await enqueue([nothing("one"), gated("two", "after-the-drain")]);
    await stepOf(id, "two");
    process.signal("SIGTERM");
    expect(await process.exited).toBe(0);
    expect(await stillwake.get(id)).toMatchObject({
      state: "queued",
      attempt: 0,
      crashes: 0,
      failure: null,
      waitingFor: null,
    });
    expect(await events(id)).toEqual(["aborted:shutdown"]);
    expect(await attempts(id)).toMatchObject([{ outcome: "released", failure: null }]);
    expect((await readLogs(id)).map(({ level, message }) => [level, message])).toEqual([
      ["warning", "The worker is shutting down; the job is queued again"],
    ]);

    await startWorker({ url: database.url, args: ["--pool", pool, "--slots", "1"] });
    await observer.waitForReport(({ job, step, epoch }) => job === id && step === "two" && epoch === "2");
    observer.openGate("after-the-drain");
    expect(await until(id)).toMatchObject({ state: "completed", attempt: 1 });
    expect(effects(id)).toEqual(["one", "two", "two"]);
  });

  it("after the limit kills a job that does not stop, and releases it too", async () => {
    const { process, enqueue } = await worker(["--drain-timeout", "100ms"]);
    const deaf = await enqueue([{ name: "deaf", act: "hang" }]);
    const busy = await enqueue([{ name: "busy", act: "block", ms: 60_000 }]);
    await stepOf(deaf, "deaf");
    await stepOf(busy, "busy");
    process.signal("SIGTERM");
    expect(await process.exited).toBe(0);
    for (const id of [deaf, busy]) {
      expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 0, crashes: 0, failure: null });
      expect(await events(id)).toEqual(["aborted:shutdown"]);
    }
  });

  it("a second signal stops jobs at once; SIGINT and SIGHUP work the same way", async () => {
    const { process, enqueue } = await worker(["--drain-timeout", "10m"]);
    const id = await enqueue([{ name: "long", act: "gate", gate: "never" }]);
    await stepOf(id, "long");
    process.signal("SIGINT");
    expect(await process.waitForLine("worker.draining")).toMatchObject({ reason: "SIGINT", limitMs: 600_000 });
    const began = performance.now();
    process.signal("SIGHUP");
    expect(await process.exited).toBe(0);
    expect(performance.now() - began).toBeLessThan(5000);
    recordFigure(
      "second signal to exit of a worker with a job",
      Math.round(performance.now() - began),
      "ms",
      "grace 300ms",
    );
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 0 });
    // A claim that was in flight when the drain began may get the released job once more, and it is released again.
    expect(["aborted:shutdown", "aborted:shutdown,aborted:shutdown"]).toContain((await events(id)).join());
  });

  it("leaves no process behind: no runner, no command, no daemon of a command", async () => {
    const name = `tidy-${process.pid}`;
    const { process: one, enqueue } = await worker(["--drain-timeout", "1ms", "--name", name]);
    const script = "trap '' TERM; setsid sleep 1000 & sleep 1000 & echo started; sleep 1000";
    const id = await enqueue([{ name: "tree", act: "exec", command: "sh", args: ["-c", script] }]);
    await waitFor(async () => (await readLogs(id)).some(({ message }) => message === "started"));
    // The runners of two slots, one spare, and the process tree.
    expect(marked(name).length).toBeGreaterThanOrEqual(5);
    one.signal("SIGTERM");
    expect(await one.exited).toBe(0);
    expect(marked(name)).toEqual([]);
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 0 });
    recordFigure("processes left by a drained worker", marked(name).length);
  });

  it("exits with 0 while the worker still waits for the database", async () => {
    const { process } = await worker([], { url: "postgres://nobody@127.0.0.1:1/nothing", skipWait: true });
    await process.waitForLine("database.lost");
    process.signal("SIGTERM");
    expect(await process.exited).toBe(0);
    expect(process.stderr()).toBe("");
  });
});

describe("a worker that is stopped while it loads its pipelines", () => {
  it("exits with 0 and leaves no process behind", async () => {
    const workerName = `early-${process.pid}`;
    const { process: one } = await worker(["--name", workerName], {
      skipWait: true,
      pipelines: new URL("../fixtures/pipelines/slow-to-load.mjs", import.meta.url).pathname,
    });
    await waitFor(() => marked(workerName).length > 0);
    one.signal("SIGTERM");
    expect(await one.exited).toBe(0);
    expect(one.stderr()).toBe("");
    expect(marked(workerName)).toEqual([]);
  });
});

describe("--idle-exit", () => {
  it("exits with 0 after this long without a job", async () => {
    const { process, enqueue } = await worker(["--idle-exit", "2s"]);
    const began = performance.now();
    expect(await process.exited).toBe(0);
    expect(await process.waitForLine("worker.stopped")).toMatchObject({ reason: "idle", jobs: 0 });
    recordFigure("--idle-exit 2s: from ready to gone", Math.round(performance.now() - began), "ms");
    expect(await stillwake.get(await enqueue([]))).toMatchObject({ state: "queued" });
  });

  it("restarts with every job: a worker with a job is not idle, however long the job takes", async () => {
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, null);
    const ends: number[] = [];
    const code = implement(contract, async () => {
      await delay(500);
      ends.push(performance.now());
    });
    const { worker: one } = await start([code], { idleExit: "200ms" });
    expect(await one.done).toBe("idle");
    expect(performance.now() - ends[0]!).toBeGreaterThan(150);
    expect(await stillwake.get(id)).toMatchObject({ state: "completed" });
  });

  it("exits with 1 and a message if the database was never reachable", async () => {
    const { process } = await worker(["--idle-exit", "2s"], {
      url: "postgres://nobody@127.0.0.1:1/nothing",
      skipWait: true,
    });
    expect(await process.exited).toBe(1);
    expect(process.stderr()).not.toMatch(/The client is closed|\n {4}at /);
    expect([process.stderr(), ...process.lines.map(({ msg }) => msg)].join("\n")).toMatch(
      /the database cannot be reached/,
    );
  });

  it("exits if the database becomes unreachable", async () => {
    await using proxy = await faultProxy(database.url);
    const { worker: one } = await start([implement(pipeline(name()), () => 1)], { url: proxy.url, idleExit: "500ms" });
    proxy.mode = "refuse";
    proxy.reset();
    const began = performance.now();
    expect(await one.done).toBe("the database cannot be reached");
    expect(performance.now() - began).toBeLessThan(4000);
  });
});

describe("--drain and --once", () => {
  it("--drain works until nothing is left, and leaves jobs that are not due", async () => {
    const { enqueue, begin } = await place();
    const ids: string[] = [];
    for (let n = 0; n < 5; n++) ids.push(await enqueue([{ name: "one", act: "nothing" }]));
    const later = await enqueue([{ name: "one", act: "nothing" }], { delay: "1h" });
    const drained = await begin(["--drain"], { skipWait: true });
    expect(await drained.exited).toBe(0);
    for (const id of ids) expect(await stillwake.get(id)).toMatchObject({ state: "completed" });
    expect(await stillwake.get(later)).toMatchObject({ state: "queued", waitingFor: "time" });
    expect(await drained.waitForLine("worker.stopped")).toMatchObject({ reason: "nothing is left to do", jobs: 5 });
  });

  it("--drain in a pool that does not exist is an error", async () => {
    const drained = await startWorker({ url: database.url, args: ["--pool", "scann", "--drain"], skipWait: true });
    expect(await drained.exited).toBe(1);
    expect(drained.stderr()).toMatch(/Pool "scann" does not exist\. Known pools: .*default/);
  });

  it("--once runs exactly one job, however many slots there are", async () => {
    const { enqueue, begin } = await place();
    const ids: string[] = [];
    for (let n = 0; n < 3; n++) ids.push(await enqueue([{ name: "one", act: "nothing" }]));
    const one = await begin(["--slots", "8", "--once"], { skipWait: true });
    expect(await one.exited).toBe(0);
    const states = await Promise.all(ids.map(async (id) => (await stillwake.get(id)).state));
    expect(states).toEqual(["completed", "queued", "queued"]);
    expect(await one.waitForLine("worker.stopped")).toMatchObject({ jobs: 1 });
  });

  it("--once runs one attempt: a failed job is left to the next worker", async () => {
    const { enqueue, begin } = await place();
    const id = await enqueue([{ name: "one", act: "fail" }]);
    const one = await begin(["--once"], { skipWait: true });
    expect(await one.exited).toBe(0);
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 1 });
  });
});

describe("a worker in this process", () => {
  it("releases jobs at once that a claim in flight returns during a drain", async () => {
    const pool = `pool${++pools}`;
    const contract = pipeline(name(), { pool, retry: { attempts: 1 } });
    await stillwake.register(contract);
    const ran: string[] = [];
    const { worker: one, events: announced } = await start([implement(contract, (job) => void ran.push(job.id))], {
      pool,
    });
    await waitFor(() => announced.some(({ kind }) => kind === "claim.empty"));
    const client = new pg.Client({ connectionString: database.url });
    onTestFinished(() => client.end());
    await client.connect();
    await client.query("begin; lock table stillwake.leases in exclusive mode");
    const jobs = await stillwake.enqueueMany(contract, [1, 2]);
    one.poke();
    await waitFor(async () => {
      const blocked = "select from pg_stat_activity where wait_event_type = 'Lock' and query like '%settle_and_claim%'";
      return (await query(blocked)).length;
    });
    const drained = one.drain("test", 10_000);
    await client.query("commit");
    await drained;
    expect(ran).toEqual([]);
    for (const { id } of jobs) {
      expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 0, crashes: 0 });
      expect(await events(id)).toEqual(["aborted:shutdown"]);
    }
  });

  it("completes a job that finishes after the stop request, and keeps its checkpoints", async () => {
    const contract = pipeline(name(), { retry: { attempts: 1 } });
    const { id } = await stillwake.enqueue(contract, null);
    const code = implement(contract, async (job) => {
      const { signal } = job;
      return job.step(
        "quick",
        () => new Promise((resolve) => signal.addEventListener("abort", () => resolve("all I have"))),
      );
    });
    const { worker: one } = await start([code]);
    await until(id, ({ state }) => state === "running");
    await one.stop();
    expect(await stillwake.get(id)).toMatchObject({ state: "completed", output: "all I have" });
    expect(await checkpoints(id)).toMatchObject([{ step: "quick", output: "all I have" }]);
  });

  it("abandons code that does not stop, and refuses its later writes", async () => {
    const contract = pipeline(name(), { retry: { attempts: 1 } });
    const { id } = await stillwake.enqueue(contract, null);
    const { promise: held, resolve: release } = deferred();
    const late: unknown[] = [];
    const code = implement(contract, async (job) => {
      await job.step("deaf", () => held);
      late.push("it was allowed");
    });
    const { worker: one } = await start([code]);
    await until(id, ({ state }) => state === "running");
    await one.stop();
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 0 });
    release();
    const next = await start([implement(contract, (job) => job.step("deaf", () => "by the next worker"))]);
    expect(await until(id)).toMatchObject({ output: "by the next worker", attempt: 1 });
    expect(late).toEqual([]);
    await next.worker.stop();
  });

  it("is drained once, however often drain is called, and never claims again", async () => {
    const contract = pipeline(name());
    const { worker: one, events: announced } = await start([implement(contract, () => 1)]);
    await Promise.all([one.drain("first"), one.drain("second"), one.stop(), one[Symbol.asyncDispose]()]);
    expect(await one.done).toBe("first");
    expect(one.state).toBe("stopped");
    expect(announced.filter(({ kind }) => kind === "worker.stopped")).toHaveLength(1);
    one.poke();
    const { id } = await stillwake.enqueue(contract, null);
    expect(await stillwake.get(id)).toMatchObject({ state: "queued" });
  });

  it("can be stopped without having been started", async () => {
    const one = createWorker({ url: database.url, pipelines: [implement(pipeline(name()), () => 1)] });
    await one.stop();
    expect(one.state).toBe("stopped");
  });

  it("reports why it could not start, and can be stopped", async () => {
    const one = createWorker({ url: database.url, pipelines: "/nowhere" });
    onTestFinished(() => one.stop());
    await expect(one.start()).rejects.toMatchObject({ code: "INVALID_INPUT" });
    await one.stop();
    expect(one.state).toBe("stopped");
  });

  it("stops in bounded time without its database, and its leases expire", async () => {
    await using proxy = await faultProxy(database.url);
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, null);
    const code = implement(
      contract,
      (job) => new Promise((_, reject) => job.signal.addEventListener("abort", () => reject(job.signal.reason))),
    );
    const { worker: one } = await start([code], { url: proxy.url, grace: "50ms", lease: "1s" });
    await until(id, ({ state }) => state === "running");
    proxy.mode = "refuse";
    proxy.reset();
    const began = performance.now();
    await one.stop();
    expect(performance.now() - began).toBeLessThan(10_000);
    recordFigure("drain without a database", Math.round(performance.now() - began), "ms", "grace 50ms");
    await start([implement(contract, () => "by the next worker")], { poll: "100ms" });
    expect(await until(id)).toMatchObject({ output: "by the next worker", crashes: 1 });
  });
});
