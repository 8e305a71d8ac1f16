// Processes started by jobs, with real workers: none is left after the job, its runner or its worker has ended, and
// none of an attempt is left when the next attempt starts.
import fs from "node:fs";
import path from "node:path";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { waitFor } from "../../../src/testing/index.ts";
import { temporaryDirectory } from "../../support/cleanup.ts";
import { recordFigure } from "../../support/figures.ts";
import { ROOT } from "../../support/processes/build.ts";
import { isAlive, recordTimes, waitForEnd } from "../../support/processes/fault-checks.ts";
import { otherUserUnavailable, skipReason } from "../../support/processes/other-users.ts";
import { processFixture } from "../../support/processes/process-fixture.ts";
import { startWorker, type WorkerProcess } from "../../support/processes/workers.ts";

const { database, stillwake, observer } = await processFixture();
const TREES = path.join(ROOT, "test/fixtures/pipelines/trees.mjs");
/** The number of processes of exec-tree.sh: they ignore SIGTERM, are orphans, in other sessions, daemons, some without the tag. */
const TREE = 8;
/** Started by job.exec, and by user code directly. */
const WAYS = ["exec", "spawn"];
let survivors = 0;
let planted = 0;

afterAll(async () => {
  recordFigure("survivors of trees of jobs", survivors, "processes", `of ${planted}, over all ways to end`);
});

describe.skipIf(!fs.existsSync("/proc/self/environ"))(
  "a process started by a job (needs /proc)",
  { timeout: 60_000 },
  () => {
    it("is gone after a cancel", async () => {
      const worker = await start();
      for (const how of WAYS) {
        const { id, pids } = await plant(worker, { how, end: "hang" });
        await stillwake.cancel(id);
        expect(await waitForEnd(stillwake, id), how).toMatchObject({ state: "cancelled" });
        expectGone(pids);
      }
    });

    it("is gone after the job completed", async () => {
      const worker = await start();
      for (const how of WAYS) {
        const { id, pids } = await plant(worker, { how, end: "return" });
        expect(await waitForEnd(stillwake, id), how).toMatchObject({ state: "completed", attempt: 1 });
        expectGone(pids);
        // The runner was replaced because of the leftover process; it did not die, and the job's log shows it.
        expect(worker.lines.filter(({ event }) => event === "runner.died")).toEqual([]);
        const lines = await stillwake.logs(id);
        const killLines = lines.filter(({ message }) =>
          message.startsWith("Killing processes that the job left behind: "),
        );
        expect(killLines).toHaveLength(how === "spawn" ? 1 : 0);
      }
    });

    it("is gone before the next attempt starts, however the job failed", async () => {
      const worker = await start();
      for (const end of ["fail", "uncaught", "exit"]) {
        for (const how of WAYS) {
          const { id, pids } = await plant(worker, { how, end });
          expect(await waitForEnd(stillwake, id), `${how}, ${end}`).toMatchObject({ state: "completed", attempt: 2 });
          expectNoneAtSecondBegin(id);
          expectGone(pids);
        }
      }
    });

    it.each(["exec", "spawn"])(
      "is gone before the next attempt starts when its runner is killed, started by %s",
      async (how) => {
        const worker = await start();
        const times: number[] = [];
        for (let n = 0; n < 3; n++) {
          const { id, pids, runner } = await plant(worker, { how, end: "hang" });
          const killedAt = performance.now();
          process.kill(runner, "SIGKILL");
          const next = await observer.waitForReport(
            ({ job, step, attempt }) => job === id && step === "begin" && attempt === 2,
          );
          times.push(next.at - killedAt);
          expectNoneAtSecondBegin(id);
          expectGone(pids);
          expect(await waitForEnd(stillwake, id)).toMatchObject({ state: "completed", crashes: 1 });
        }
        recordTimes(`kill -9 of a runner with a tree (${how}) to the next attempt`, times);
      },
    );

    it("is gone before the next attempt starts when its runner hangs in a loop and is killed", async () => {
      const worker = await start();
      const { id, pids } = await plant(worker, { how: "exec", end: "block", pipeline: "planting.timed" });
      await waitForEnd(stillwake, id);
      expectNoneAtSecondBegin(id);
      expectGone(pids);
    });

    it.each(["exec", "spawn"])("is gone soon after its worker is killed, started by %s", async (how) => {
      const worker = await start();
      const { pids, runner } = await plant(worker, { how, end: "hang" });
      const all = [...pids, ...worker.runners()];
      expect(all).toContain(runner);
      const killedAt = performance.now();
      worker.signal("SIGKILL");
      await waitFor(() => all.filter(isAlive).length === 0, {
        interval: 5,
        what: "the tree and the runners to be gone",
      });
      recordTimes(`kill -9 of a worker with a tree (${how}) to the end of the tree`, [performance.now() - killedAt]);
      expectGone(all);
    });

    it.skipIf(otherUserUnavailable)(
      `is gone too when runners run as another user${skipReason(otherUserUnavailable)}`,
      async () => {
        const dir = temporaryDirectory("trees");
        fs.chmodSync(dir, 0o777);
        const config = path.join(dir, "stillwake.config.mjs");
        fs.writeFileSync(config, "export default { runAs: { uid: 65534, gid: 65534 } };");
        const worker = await start(["--config", config]);
        for (const [how, end] of [
          ["exec", "return"],
          ["spawn", "return"],
          ["exec", "fail"],
          ["spawn", "exit"],
        ] as const) {
          const { id, pids } = await plant({ scratch: dir }, { how, end });
          expect(await waitForEnd(stillwake, id)).toMatchObject({ state: "completed" });
          if (end !== "return") expectNoneAtSecondBegin(id);
          expectGone(pids);
        }
        const { pids, runner } = await plant({ scratch: dir }, { how: "exec", end: "hang" });
        for (const pid of [runner, ...pids]) expect(fs.statSync(`/proc/${pid}`).uid).toBe(65534);
        worker.signal("SIGKILL");
        await waitFor(() => pids.filter(isAlive).length === 0, { interval: 5, what: "the tree to be gone" });
        expectGone(pids);
      },
    );

    it("is gone after a drain of its worker, which exits with 0", async () => {
      const worker = await start(["--drain-timeout", "100ms"]);
      const { id, pids } = await plant(worker, { how: "exec", end: "hang" });
      worker.signal("SIGTERM");
      expect(await worker.exited).toBe(0);
      expectGone(pids);
      expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 0 });
      await stillwake.cancel(id);
    });
  },
);

function start(args: string[] = []): Promise<WorkerProcess> {
  return startWorker({ url: database.url, pipelines: TREES, args: ["--slots", "1", "--grace", "300ms", ...args] });
}

interface Planted {
  id: string;
  pids: number[];
  runner: number;
}

/** A job of this worker whose process tree is running. */
async function plant(
  { scratch }: Pick<WorkerProcess, "scratch">,
  { how, end, pipeline = "planting" }: { how: string; end: string; pipeline?: string },
): Promise<Planted> {
  const file = path.join(scratch, `pids-${Math.random()}`);
  const { id } = await stillwake.enqueue(pipeline, { observer: observer.url, file, how, end });
  onTestFinished(() => {
    for (const pid of pidsIn(file)) if (isAlive(pid)) process.kill(pid, "SIGKILL");
  });
  const { pid } = await observer.waitForReport(({ job, step }) => job === id && step === "planted");
  const pids = pidsIn(file);
  expect(pids.length).toBeGreaterThanOrEqual(TREE);
  planted += pids.length;
  return { id, pids, runner: pid };
}

function pidsIn(file: string): number[] {
  return fs.existsSync(file) ? fs.readFileSync(file, "utf8").trim().split("\n").filter(Boolean).map(Number) : [];
}

function expectGone(pids: number[]): void {
  const left = pids.filter(isAlive);
  survivors += left.length;
  expect(left).toEqual([]);
}

/** The attempt itself checked this first. */
function expectNoneAtSecondBegin(id: string): void {
  const second = observer.reportsOf(id).find(({ step, attempt }) => step === "begin" && attempt === 2);
  expect(second).toMatchObject({ survivors: [] });
}
