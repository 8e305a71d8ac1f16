// A runner is killed with SIGKILL during a job. Its keeper notices at once, kills the runner's processes, releases the
// job, and the spare runs it.
import fs from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { waitFor } from "../../../src/testing/index.ts";
import { recordFigure } from "../../support/figures.ts";
import {
  endedAttempts,
  FULL,
  isAlive,
  recordTimes,
  repeatedSteps,
  waitForEnd,
} from "../../support/processes/fault-checks.ts";
import { processFixture } from "../../support/processes/process-fixture.ts";
import { gated, nothing } from "../../support/processes/script-steps.ts";
import { startWorker } from "../../support/processes/workers.ts";

const { database, stillwake, client, observer } = await processFixture();

describe("a runner killed with SIGKILL", () => {
  const kills = FULL ? 200 : 30;

  it(`has its job continued by the spare of the same worker, ${kills} times`, async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const steps = [nothing("one"), gated("two", "enough")];
    const { id } = await stillwake.enqueue("script", { observer: observer.url, steps }, { attempts: 1000 });
    const atTwo = (epoch: number) =>
      observer.waitForReport(({ job, step, epoch: seen }) => job === id && step === "two" && seen === String(epoch));
    const times: number[] = [];
    for (let epoch = 1; epoch <= kills; epoch++) {
      const { pid } = await atTwo(epoch);
      // Including the spare: two at first, and one more for each that died.
      await waitFor(() => worker.lines.filter(({ event }) => event === "runner.started").length > epoch);
      const killedAt = performance.now();
      process.kill(pid, "SIGKILL");
      const next = await atTwo(epoch + 1);
      expect(next.pid).not.toBe(pid);
      times.push(next.at - killedAt);
    }
    observer.openGate("enough");
    const job = await stillwake.wait(id, { timeout: "20s" });
    expect(job).toMatchObject({ state: "completed", attempt: kills + 1, crashes: kills });
    expect(observer.reportsOf(id).filter(({ step }) => step === "one")).toHaveLength(1);
    expect(await repeatedSteps(client, observer, [id])).toEqual([]);
    expect(await endedAttempts(client, [id])).toEqual({ lost: kills });
    expect(
      worker.lines.filter(({ event, job, signal }) => event === "runner.died" && job === id && signal === "SIGKILL"),
    ).toHaveLength(kills);
    const { most } = recordTimes("runner kill -9 to its job's next effect", times);
    expect(most).toBeLessThan(5000);
  }, 600_000);

  it("repeats at most the step it was in, wherever it was killed", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "2"] });
    const names = Array.from({ length: 12 }, (_, n) => `step-${n}`);
    const steps = names.map((name) => ({ name, act: "nothing" }));
    const jobs: string[] = [];
    for (let n = 0; n < (FULL ? 20 : 4); n++) {
      const { id } = await stillwake.enqueue("script", { observer: observer.url, steps }, { attempts: 1000 });
      jobs.push(id);
    }
    // Each of these steps kills its runner during its effect, in the first attempt that reaches it.
    const targets = jobs.flatMap((job, n) =>
      names.filter((_, place) => place % 3 === n % 3).map((step) => ({ job, step })),
    );
    await Promise.all(
      targets.map(async ({ job, step }) => {
        const { pid } = await observer.waitForReport((report) => report.job === job && report.step === step, {
          timeout: 60_000,
        });
        if (isAlive(pid)) process.kill(pid, "SIGKILL");
      }),
    );
    for (const id of jobs) expect(await stillwake.wait(id, { timeout: "60s" })).toMatchObject({ state: "completed" });
    expect(await repeatedSteps(client, observer, jobs)).toEqual([]);
    const effects = observer.reports.filter(({ job, event }) => jobs.includes(job) && event === "effect");
    const died = worker.lines.filter(({ event }) => event === "runner.died").length;
    // A kill repeats at most one effect, always with the same token.
    const repeats = effects.length - jobs.length * names.length;
    expect(new Set(effects.map(({ token }) => token)).size).toBe(jobs.length * names.length);
    expect(died).toBeGreaterThan(0);
    expect(repeats).toBeLessThanOrEqual(died);
    recordFigure("runners killed at the moment of an effect", died, "kills");
    recordFigure("effects repeated by them", repeats, "effects", `of ${effects.length}`);
    recordFigure("finished steps run again", 0, "steps", `${died} kills`);
  }, 300_000);

  it("right after a checkpoint does not repeat the step", async () => {
    const worker = await startWorker({
      url: database.url,
      args: ["--slots", "1"],
      env: { STILLWAKE_CRASH: "after:two" },
    });
    const steps = ["one", "two", "three"].map((name) => ({ name, act: "nothing" }));
    const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ state: "completed", attempt: 2, crashes: 1 });
    expect(
      observer
        .reportsOf(id)
        .filter(({ event }) => event === "effect")
        .map(({ step, epoch }) => `${step} ${epoch}`),
    ).toEqual(["one 1", "two 1", "three 2"]);
    expect(worker.lines.filter(({ event }) => event === "runner.died")).toHaveLength(1);
  });

  it("has no running commands when the next attempt starts", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const file = path.join(worker.scratch, "pids");
    // A child in the command's process group, and one that has left it.
    const command = `echo $$ >> ${file}; (setsid sh -c 'echo $$ >> ${file}; exec sleep 1000' &) ; exec sleep 1000`;
    const steps = [{ name: "run", act: "exec", command: "sh", args: ["-c", command] }];
    const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
    const pids = () => fs.readFileSync(file, "utf8").trim().split("\n").map(Number);
    await waitFor(() => pids().length === 2);
    const before = pids();
    const { pid } = await observer.waitForReport(({ job, step }) => job === id && step === "run");
    expect(before.every(isAlive)).toBe(true);
    process.kill(pid, "SIGKILL");
    await worker.waitForLine(({ event, epoch }) => event === "attempt.started" && epoch === "2");
    expect(before.filter(isAlive)).toEqual([]);
    await stillwake.cancel(id);
    expect(await waitForEnd(stillwake, id)).toMatchObject({ state: "cancelled" });
    expect(pids().filter(isAlive)).toEqual([]);
  });

  it("as a spare affects no job and is replaced", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const { id } = await stillwake.enqueue("script", {
      observer: observer.url,
      steps: [{ name: "one", act: "gate", gate: "spare" }],
    });
    const { pid } = await observer.waitForReport(({ job, step }) => job === id && step === "one");
    for (let n = 2; n < 5; n++) {
      await waitFor(() => worker.lines.filter(({ event }) => event === "runner.started").length === n);
      const spare = worker.runners().find((one) => one !== pid)!;
      process.kill(spare, "SIGKILL");
      await worker.waitForLine(({ event, pid }) => event === "runner.died" && pid === spare);
    }
    observer.openGate("spare");
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
  });
});
