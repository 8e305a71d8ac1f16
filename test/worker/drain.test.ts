// How a worker ends: drained by a signal, hurried by a second one, by itself when it is idle, when nothing is left or after one job. Nothing is
// lost by it, no attempt is charged, and nothing is left running.
import fs from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { pipeline } from "../../src/index.ts";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { createWorker, implement } from "../../src/worker/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { rig } from "../support/processes/in-process.ts";
import { startWitness } from "../support/processes/witness.ts";
import { type StartWorkerOptions, startWorker } from "../support/processes/workers.ts";

const database = await freshDatabase();
const { start, stillwake, until, attempts, events, name, checkpoints, query, logs: readLogs } = rig(database);
const witness = await startWitness();

beforeAll(() => {
  buildPackage();
  return () => witness.close();
});

/** Each test has a pool of its own, so that none finds the jobs of another. */
let pools = 0;
async function place() {
  const pool = `pool${++pools}`;
  await stillwake.register(pipeline(`of.${pool}`, { pool }), pipeline("script"));
  const enqueue = async (steps: { name: string; act: string; [key: string]: unknown }[], more: object = {}) =>
    (await stillwake.enqueue("script", { witness: witness.url, steps }, { pool, ...more })).id;
  const begin = (args: string[] = [], options: Partial<StartWorkerOptions> = {}) =>
    startWorker({ url: database.url, ...options, args: ["--pool", pool, "--slots", "2", "--grace", "300ms", ...args] });
  return { pool, enqueue, begin };
}

async function worker(args: string[] = [], options: Partial<StartWorkerOptions> = {}) {
  const { pool, enqueue, begin } = await place();
  return { pool, enqueue, process: await begin(args, options) };
}

const stepOf = (job: string, step: string) => witness.see((sight) => sight.job === job && sight.step === step);
const effects = (job: string) =>
  witness
    .of(job)
    .filter(({ event }) => event === "effect")
    .map(({ step }) => step);

/** Processes that carry a mark of this worker. */
function marked(workerName: string): number[] {
  return fs
    .readdirSync("/proc")
    .map(Number)
    .filter(Number.isInteger)
    .filter((pid) => {
      try {
        return fs.readFileSync(`/proc/${pid}/environ`, "latin1").includes(`STILLWAKE_GUARD=${workerName}`);
      } catch {
        return false;
      }
    });
}

describe("SIGTERM", () => {
  it("waits for the jobs that run, takes no other, and ends with 0", async () => {
    const { process, enqueue } = await worker();
    const id = await enqueue([{ name: "long", act: "gate", gate: "patience" }]);
    await stepOf(id, "long");
    process.signal("SIGTERM");
    expect(await process.says("worker.draining")).toMatchObject({ active: 1, limitMs: 25_000 });
    const late = await enqueue([{ name: "late", act: "nothing" }]);
    witness.open("patience");
    expect(await until(id)).toMatchObject({ state: "completed", attempt: 1 });
    expect(await process.ended).toBe(0);
    expect(await stillwake.get(late)).toMatchObject({ state: "queued", attempt: 0 });
    expect(await process.says("worker.stopped")).toMatchObject({ reason: "SIGTERM" });
  });

  it("past the limit tells the job to stop and hands it back: no attempt is charged and kept steps are not run again", async () => {
    const { process, enqueue, pool } = await worker(["--drain-timeout", "100ms"]);
    const id = await enqueue([
      { name: "one", act: "nothing" },
      { name: "two", act: "gate", gate: "after-the-drain" },
    ]);
    await stepOf(id, "two");
    process.signal("SIGTERM");
    expect(await process.ended).toBe(0);
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
      ["warning", "The worker is shutting down; the job goes back to the line"],
    ]);

    await startWorker({ url: database.url, args: ["--pool", pool, "--slots", "1"] });
    await witness.see(({ job, step, epoch }) => job === id && step === "two" && epoch === "2");
    witness.open("after-the-drain");
    expect(await until(id)).toMatchObject({ state: "completed", attempt: 1 });
    expect(effects(id)).toEqual(["one", "two", "two"]);
  });

  it("past the limit kills a job that does not listen, and hands it back all the same", async () => {
    const { process, enqueue } = await worker(["--drain-timeout", "100ms"]);
    const deaf = await enqueue([{ name: "deaf", act: "hang" }]);
    const busy = await enqueue([{ name: "busy", act: "block", ms: 60_000 }]);
    await stepOf(deaf, "deaf");
    await stepOf(busy, "busy");
    process.signal("SIGTERM");
    expect(await process.ended).toBe(0);
    for (const id of [deaf, busy]) {
      expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 0, crashes: 0, failure: null });
      expect(await events(id)).toEqual(["aborted:shutdown"]);
    }
  });

  it("a second signal hurries; SIGINT and SIGHUP are the same", async () => {
    const { process, enqueue } = await worker(["--drain-timeout", "10m"]);
    const id = await enqueue([{ name: "long", act: "gate", gate: "never" }]);
    await stepOf(id, "long");
    process.signal("SIGINT");
    expect(await process.says("worker.draining")).toMatchObject({ reason: "SIGINT", limitMs: 600_000 });
    const began = performance.now();
    process.signal("SIGHUP");
    expect(await process.ended).toBe(0);
    expect(performance.now() - began).toBeLessThan(5000);
    recordFigure(
      "second signal to exit of a worker with a job",
      Math.round(performance.now() - began),
      "ms",
      "grace 300ms",
    );
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 0 });
    expect(await events(id)).toEqual(["aborted:shutdown"]);
  });

  it("leaves no process behind: no runner, no command, no daemon of one", async () => {
    const name = `tidy-${process.pid}`;
    const { process: one, enqueue } = await worker(["--drain-timeout", "1ms", "--name", name]);
    const script = "trap '' TERM; setsid sleep 1000 & sleep 1000 & echo started; sleep 1000";
    const id = await enqueue([{ name: "tree", act: "exec", command: "sh", args: ["-c", script] }]);
    await waitFor(async () => (await readLogs(id)).some(({ message }) => message === "started"));
    // The runners of two slots, one to spare, and the tree.
    expect(marked(name).length).toBeGreaterThanOrEqual(5);
    one.signal("SIGTERM");
    expect(await one.ended).toBe(0);
    expect(marked(name)).toEqual([]);
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 0 });
    recordFigure("processes left by a drained worker", marked(name).length);
  });

  it("while it still waits for the database ends it with 0", async () => {
    const { process } = await worker([], { url: "postgres://nobody@127.0.0.1:1/nothing", impatient: true });
    await process.says("database.lost");
    process.signal("SIGTERM");
    expect(await process.ended).toBe(0);
    expect(process.stderr()).toBe("");
  });
});

describe("a worker told to stop while it loads its pipelines", () => {
  it("ends with 0 and leaves nobody behind", async () => {
    const workerName = `early-${process.pid}`;
    const { process: one } = await worker(["--name", workerName], {
      impatient: true,
      pipelines: new URL("../fixtures/pipelines/slow-to-load.mjs", import.meta.url).pathname,
    });
    await waitFor(() => marked(workerName).length > 0);
    one.signal("SIGTERM");
    expect(await one.ended).toBe(0);
    expect(one.stderr()).toBe("");
    expect(marked(workerName)).toEqual([]);
  });
});

describe("--idle-exit", () => {
  it("ends a worker that had nothing to do for so long, with 0", async () => {
    const { process, enqueue } = await worker(["--idle-exit", "2s"]);
    const began = performance.now();
    expect(await process.ended).toBe(0);
    expect(await process.says("worker.stopped")).toMatchObject({ reason: "idle", jobs: 0 });
    recordFigure("--idle-exit 2s: from ready to gone", Math.round(performance.now() - began), "ms");
    expect(await stillwake.get(await enqueue([]))).toMatchObject({ state: "queued" });
  });

  it("begins anew with every job: one that has a job is not idle, however long the job takes", async () => {
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

  it("ends one that cannot reach the database from the start, with 1 and a sentence", async () => {
    const { process } = await worker(["--idle-exit", "2s"], {
      url: "postgres://nobody@127.0.0.1:1/nothing",
      impatient: true,
    });
    expect(await process.ended).toBe(1);
    expect(process.stderr()).not.toMatch(/This Stillwake is closed|\n {4}at /);
    expect([process.stderr(), ...process.lines.map(({ msg }) => msg)].join("\n")).toMatch(
      /the database cannot be reached/,
    );
  });

  it("ends one that has lost the database", async () => {
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
  it("--drain works until nothing is left, and leaves what is not due", async () => {
    const { enqueue, begin } = await place();
    const ids: string[] = [];
    for (let n = 0; n < 5; n++) ids.push(await enqueue([{ name: "one", act: "nothing" }]));
    const later = await enqueue([{ name: "one", act: "nothing" }], { delay: "1h" });
    const drained = await begin(["--drain"], { impatient: true });
    expect(await drained.ended).toBe(0);
    for (const id of ids) expect(await stillwake.get(id)).toMatchObject({ state: "completed" });
    expect(await stillwake.get(later)).toMatchObject({ state: "queued", waitingFor: "time" });
    expect(await drained.says("worker.stopped")).toMatchObject({ reason: "nothing is left to do", jobs: 5 });
  });

  it("--drain in a pool that no pipeline names says so and ends", async () => {
    const drained = await startWorker({ url: database.url, args: ["--pool", "scann", "--drain"], impatient: true });
    expect(await drained.ended).toBe(0);
    expect((await drained.says("claim.failed")).msg).toMatch(/Pool "scann" does not exist\. Known pools: .*default/);
  });

  it("--once does exactly one, however many slots there are", async () => {
    const { enqueue, begin } = await place();
    const ids: string[] = [];
    for (let n = 0; n < 3; n++) ids.push(await enqueue([{ name: "one", act: "nothing" }]));
    const one = await begin(["--slots", "8", "--once"], { impatient: true });
    expect(await one.ended).toBe(0);
    const states = await Promise.all(ids.map(async (id) => (await stillwake.get(id)).state));
    expect(states).toEqual(["completed", "queued", "queued"]);
    expect(await one.says("worker.stopped")).toMatchObject({ jobs: 1 });
  });

  it("--once does one attempt: a job that fails is left to the next worker", async () => {
    const { enqueue, begin } = await place();
    const id = await enqueue([{ name: "one", act: "fail" }]);
    const one = await begin(["--once"], { impatient: true });
    expect(await one.ended).toBe(0);
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 1 });
  });
});

describe("a worker in this process", () => {
  it("hands back at once what a claim brings that was in flight when the drain began", async () => {
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

  it("a job that comes to its end when it is told to stop has ended, and what its steps returned is kept", async () => {
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

  it("gives up code that does not stop, and what that code still says counts for nothing", async () => {
    const contract = pipeline(name(), { retry: { attempts: 1 } });
    const { id } = await stillwake.enqueue(contract, null);
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
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

  it("is drained once, however often it is asked to, and never works again", async () => {
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

  it("that was never started can be stopped", async () => {
    const one = createWorker({ url: database.url, pipelines: [implement(pipeline(name()), () => 1)] });
    await one.stop();
    expect(one.state).toBe("stopped");
  });

  it("that could not be started says why, and can be stopped", async () => {
    const one = createWorker({ url: database.url, pipelines: "/nowhere" });
    onTestFinished(() => one.stop());
    await expect(one.start()).rejects.toMatchObject({ code: "INVALID_INPUT" });
    await one.stop();
    expect(one.state).toBe("stopped");
  });

  it("ends in bounded time without its database, and its jobs are left to their leases", async () => {
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
