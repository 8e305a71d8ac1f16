// Cancel: a waiting job ends at once; a running one receives the request, has a short grace to clean up, and is then killed with everything
// it started, at once if its event loop is blocked. Real workers and real processes, looked up in /proc.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { recordFigure } from "../support/figures.ts";
import { ROOT } from "../support/processes/build.ts";
import { FULL, isAlive, recordTimes, round, waitForEnd } from "../support/processes/fault-checks.ts";
import { processFixture } from "../support/processes/process-fixture.ts";
import { startWorker, type WorkerProcess } from "../support/processes/workers.ts";

const { database, stillwake, client, observer } = await processFixture();
const TREES = path.join(ROOT, "test/fixtures/pipelines/trees.mjs");
/** From the return of cancel() to the exit of the last process, including the grace of 500 ms; more on a busy machine. */
const MAX_MS = 1000 + (os.loadavg()[0]! > 2 * os.availableParallelism() ? 1000 : 0);

interface Step {
  name: string;
  act: string;
  [key: string]: unknown;
}

const enqueue = async (steps: Step[], more: object = {}) =>
  (await stillwake.enqueue("script", { observer: observer.url, steps }, more)).id;

/** The pid of the runner that runs this step. */
const at = async (id: string, step: string) =>
  (await observer.waitForReport((report) => report.job === id && report.step === step)).pid;

/** A process and all its descendants. */
function family(pid: number): number[] {
  const threads = isAlive(pid) ? fs.readdirSync(`/proc/${pid}/task`) : [];
  const lists = threads.map((thread) => fs.readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8"));
  const children = lists.flatMap((list) => list.split(" ").filter(Boolean).map(Number));
  return [pid, ...children.flatMap(family)];
}

/** A worker that receives a cancel at once. */
async function listening(args: string[] = [], pipelines?: string): Promise<WorkerProcess> {
  const worker = await startWorker({ url: database.url, args, ...(pipelines && { pipelines }) });
  await worker.waitForLine("hints.ready");
  return worker;
}

/** Cancels all at once. Returns for each the milliseconds from the return of cancel() until none of its processes exists. */
async function cancelAndSee(jobs: { id: string; pids: number[] }[]): Promise<number[]> {
  const all = jobs.map(({ pids }) => ({ pids, cancelledAt: Number.NaN, goneAt: Number.NaN }));
  expect(all.flatMap(({ pids }) => pids).filter((pid) => !isAlive(pid))).toEqual([]);
  const cancels = jobs.map(async ({ id }, n) => {
    expect(await stillwake.cancel(id)).toBe("running");
    all[n]!.cancelledAt = performance.now();
  });
  const look = () => {
    for (const one of all.filter(({ goneAt }) => Number.isNaN(goneAt))) {
      if (!one.pids.some(isAlive)) one.goneAt = performance.now();
    }
    return all.every(({ goneAt }) => !Number.isNaN(goneAt));
  };
  await waitFor(look, { interval: 5, what: `${all.map(({ pids }) => pids)} to be gone` });
  await Promise.all(cancels);
  return all.map(({ cancelledAt, goneAt }) => goneAt - cancelledAt);
}

describe("a running job that is cancelled", () => {
  it("is gone within a second when it is in an endless loop, and its slot keeps working", async () => {
    const worker = await listening(["--slots", "1"]);
    const times: number[] = [];
    for (let n = 0; n < (FULL ? 20 : 3); n++) {
      const id = await enqueue([{ name: "endless", act: "block", ms: 600_000 }]);
      const runner = await at(id, "endless");
      times.push(...(await cancelAndSee([{ id, pids: [runner] }])));
      expect(await waitForEnd(stillwake, id)).toMatchObject({
        state: "cancelled",
        attempt: 1,
        crashes: 0,
        failure: null,
      });
      expect(worker.runners()).not.toContain(runner);
    }
    expect(recordTimes("cancel to the end of an endless loop", times).most).toBeLessThan(MAX_MS);
    const next = await enqueue([]);
    expect(await stillwake.wait(next, { timeout: "20s" })).toMatchObject({ state: "completed" });
    expect(worker.lines.filter(({ event }) => event === "runner.died")).toEqual([]);
  });

  it.each([
    ["commands", "exec", "hang"],
    ["processes past job.exec", "spawn", "hang"],
    ["commands, while it blocks its event loop", "exec", "block"],
  ])(
    "is gone within a second with its whole tree of %s: processes that ignore SIGTERM, in separate sessions, and orphans",
    async (_, how, end) => {
      const worker = await listening(["--slots", "1"], TREES);
      const file = path.join(worker.scratch, "pids");
      const { id } = await stillwake.enqueue("planting", { observer: observer.url, file, how, end });
      const pids = () => fs.readFileSync(file, "utf8").trim().split("\n").map(Number);
      const runner = await at(id, "planted");
      const tree = pids();
      onTestFinished(() => {
        for (const pid of tree) if (isAlive(pid)) process.kill(pid, "SIGKILL");
      });
      expect(tree.length).toBe(8);
      const [tookMs = Number.NaN] = await cancelAndSee([{ id, pids: [runner, ...tree] }]);
      recordFigure(`cancel to the end of a tree (${how}, ${end})`, round(tookMs), "ms");
      expect(tookMs).toBeLessThan(MAX_MS);
      expect(await waitForEnd(stillwake, id)).toMatchObject({ state: "cancelled", attempt: 1, crashes: 0 });
      expect([runner, ...tree].filter(isAlive)).toEqual([]);
    },
  );

  it("has the grace to clean up when it listens to the signal, and its runner is kept", async () => {
    const worker = await listening(["--slots", "1"]);
    const id = await enqueue([{ name: "work", act: "tidy", ms: 200 }]);
    const runner = await at(id, "work");
    await stillwake.cancel(id);
    expect(await waitForEnd(stillwake, id)).toMatchObject({ state: "cancelled", attempt: 1, crashes: 0 });
    expect(await at(id, "work, tidied")).toBe(runner);
    expect(worker.runners()).toContain(runner);
  });

  it("is killed when it cleans up for longer than the grace; --cancel-grace extends it up to --grace", async () => {
    const cleanUp = [{ name: "work", act: "tidy", ms: 1000 }];
    const tidied = (id: string) => observer.reportsOf(id).some(({ step }) => step === "work, tidied");
    for (const [args, pool, gets] of [
      [["--grace", "5s"], "short", false],
      [["--cancel-grace", "3s"], "long", true],
      [["--cancel-grace", "3s", "--grace", "300ms"], "capped", false],
    ] as const) {
      await client.query("select stillwake.register_pipeline($1, $2)", [`of.${pool}`, JSON.stringify({ pool })]);
      await listening(["--slots", "1", "--pool", pool, ...args]);
      const id = await enqueue(cleanUp, { pool });
      const runner = await at(id, "work");
      await stillwake.cancel(id);
      expect(await waitForEnd(stillwake, id), pool).toMatchObject({ state: "cancelled" });
      expect({ tidied: tidied(id), alive: isAlive(runner) }, pool).toEqual({ tidied: gets, alive: gets });
    }
  });

  it("is completed when it finishes after the cancel", async () => {
    await listening(["--slots", "1"]);
    const id = await enqueue([{ name: "work", act: "tidy", ms: 50, finish: true }]);
    await at(id, "work");
    expect(await stillwake.cancel(id, { reason: "too late", by: "ann" })).toBe("running");
    expect(await waitForEnd(stillwake, id)).toMatchObject({
      state: "completed",
      output: "done",
      cancel: { reason: "too late", by: "ann" },
    });
  });
});

describe("a cancel", () => {
  it("reaches a worker with a direct connection at once, one without with its next heartbeat", async () => {
    const hinted = await listening(["--slots", "1", "--lease", "6s"]);
    const first = await enqueue([{ name: "endless", act: "hang" }]);
    const [byHintMs = Number.NaN] = await cancelAndSee([{ id: first, pids: [await at(first, "endless")] }]);
    expect(byHintMs).toBeLessThan(MAX_MS);
    hinted.signal("SIGTERM");
    await hinted.exited;

    const config = path.join(temporaryDirectory("cancel"), "stillwake.config.mjs");
    fs.writeFileSync(config, "export default { directUrl: false };");
    const args = ["--slots", "1", "--lease", "6s", "--config", config, "--log-level", "trace"];
    const deaf = await startWorker({ url: database.url, args });
    const second = await enqueue([{ name: "endless", act: "hang" }]);
    const runner = await at(second, "endless");
    await deaf.waitForLine("heartbeat");
    const [byHeartbeatMs = Number.NaN] = await cancelAndSee([{ id: second, pids: [runner] }]);
    expect(deaf.lines.filter(({ event }) => event === "hints.ready")).toEqual([]);
    // At most one heartbeat interval, a third of the lease.
    expect(byHeartbeatMs).toBeGreaterThan(1000);
    expect(byHeartbeatMs).toBeLessThan(2000 + MAX_MS);
    recordFigure("cancel to process gone, by hint", round(byHintMs), "ms");
    recordFigure(
      "cancel to process gone, by heartbeat only",
      round(byHeartbeatMs),
      "ms",
      "lease 6 s, so a heartbeat every 2 s",
    );
  });

  it("ends waiting jobs at once without a worker: queued, delayed and paused", async () => {
    const queued = await enqueue([], { pool: "short" });
    const delayed = await enqueue([], { pool: "short", delay: "1h" });
    const paused = await enqueue([], { pool: "short" });
    await stillwake.pause(paused);
    for (const id of [queued, delayed, paused]) {
      expect(await stillwake.cancel(id)).toBe("cancelled");
      expect(await stillwake.get(id)).toMatchObject({ state: "cancelled", attempt: 0, endedAt: expect.any(Date) });
    }
    const { rows } = await client.query("select from stillwake.live_jobs where id = any ($1)", [
      [queued, delayed, paused],
    ]);
    expect(rows).toEqual([]);
  });

  it("records who requested it and why in the job and its events, for a waiting and a running job", async () => {
    await listening(["--slots", "1"]);
    const waiting = await enqueue([], { delay: "1h" });
    const running = await enqueue([{ name: "endless", act: "hang" }]);
    await at(running, "endless");
    for (const id of [waiting, running]) {
      await stillwake.cancel(id, { by: "ann", reason: "not needed any more" });
      // The first request counts.
      await stillwake.cancel(id, { by: "bob", reason: "me too" });
      const cancel = { by: "ann", reason: "not needed any more", at: expect.any(String) };
      expect(await waitForEnd(stillwake, id)).toMatchObject({ state: "cancelled", cancel });
      const { rows } = await client.query("select kind, data from stillwake.events where job_id = $1 order by seq", [
        id,
      ]);
      expect(rows).toEqual([{ kind: "cancel_requested", data: cancel }]);
    }
  });

  it("of twenty jobs at once ends all of them", async () => {
    const worker = await listening(["--slots", "20"]);
    // Ten do not listen to the signal, two block their event loop, eight wait for a command.
    const acts = (n: number): Step => {
      if (n % 2 === 0) return { name: "work", act: "hang" };
      if (n % 10 === 1) return { name: "work", act: "block", ms: 600_000 };
      return { name: "work", act: "exec", command: "sh", args: ["-c", "trap '' TERM; sleep 600 & wait; sleep 600"] };
    };
    const ids = await Promise.all(Array.from({ length: 20 }, (_, n) => enqueue([acts(n)])));
    const runners = await Promise.all(ids.map((id) => at(id, "work")));
    expect(new Set(runners).size).toBe(20);
    const families = await waitFor(() => {
      const found = runners.map(family);
      // Each command is a shell with its sleep.
      return found.flat().length === 20 + 8 * 2 && found;
    });
    const times = await cancelAndSee(ids.map((id, n) => ({ id, pids: families[n]! })));
    const { most } = recordTimes("cancel to process gone", times, "20 at once in one worker");
    // 36 processes exit while their replacements start.
    expect(most).toBeLessThan(MAX_MS + 500);
    for (const id of ids) expect(await waitForEnd(stillwake, id)).toMatchObject({ state: "cancelled", crashes: 0 });
    expect(worker.runners().filter((pid) => runners.includes(pid))).toEqual([]);
    expect(families.flat().filter(isAlive)).toEqual([]);
  }, 120_000);
});
