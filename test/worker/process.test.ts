// `stillwake worker` as a process: a keeper with runner processes, and the death of a runner.
import { describe, expect, it } from "vitest";
import { processFixture } from "../support/processes/process-fixture.ts";
import { gated, nothing } from "../support/processes/script-steps.ts";
import { startWorker } from "../support/processes/workers.ts";

const { database, stillwake, observer } = await processFixture();

describe("stillwake worker", () => {
  it("runs a job in a runner process and exits with 0 on SIGTERM", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "2"] });
    const { id } = await stillwake.enqueue("script", {
      observer: observer.url,
      steps: [{ name: "one", act: "nothing" }],
    });
    const job = await stillwake.wait(id, { timeout: "20s" });
    expect(job.output).toBe("done");
    expect(observer.reportsOf(id).map(({ pid }) => pid)).not.toContain(worker.pid);
    worker.signal("SIGTERM");
    expect(await worker.exited).toBe(0);
  });

  it("stores a line outside of steps once, however often the job waits", async () => {
    await startWorker({ url: database.url, args: ["--slots", "1"] });
    const input = { observer: observer.url, steps: [nothing("one")], sleeps: ["first", "second"] };
    const { id } = await stillwake.enqueue("script", input);
    await stillwake.wait(id, { timeout: "20s" });
    expect(observer.reportsOf(id).filter(({ event }) => event === "begin")).toHaveLength(3);
    const lines = await stillwake.logs(id);
    expect(lines.map(({ message }) => message)).toEqual(["Before first", "Before second"]);
    // Each with the attempt that wrote it.
    expect(lines.map(({ epoch }) => epoch)).toEqual(["1", "2"]);
  });

  it("resumes from the last checkpoint when its runner is killed", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const steps = [nothing("one"), gated("two", "killed")];
    const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
    const first = await observer.waitForReport(({ job, step }) => job === id && step === "two");
    process.kill(first.pid, "SIGKILL");
    await observer.waitForReport(({ job, step, pid }) => job === id && step === "two" && pid !== first.pid);
    observer.openGate("killed");
    const job = await stillwake.wait(id, { timeout: "20s" });
    expect(job).toMatchObject({ state: "completed", attempt: 2, crashes: 1 });
    expect(observer.reportsOf(id).filter(({ step }) => step === "one")).toHaveLength(1);
    expect(await worker.waitForLine("runner.died")).toMatchObject({ signal: "SIGKILL", job: id });
  });
});
