// runJob of stillwake/testing: one job with the real engine, optionally with a crash at a step.
import { describe, expect, expectTypeOf, it } from "vitest";
import { pipeline, RateLimited } from "../../src/index.ts";
import { runJob } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { freshDatabase } from "../support/database/database.ts";

const { url } = await freshDatabase();
const scan = pipeline<{ repo: string }>("scan");

const twoSteps = implement(scan, async (job, input) => {
  const files = await job.step("clone", { start: "Cloning…", end: (found) => `${found.length} files` }, () => [
    input.repo,
    "b",
  ]);
  await job.step("count", () => files.length);
  return files.length;
});

describe("runJob", () => {
  it("runs a job to its end and returns its logs", async () => {
    const { job, logs, runs, attempts } = await runJob(twoSteps, { repo: "acme" }, { url });
    expect(job).toMatchObject({ state: "completed", output: 2 });
    expect(logs.map(({ level, message }) => [level, message])).toEqual([
      ["info", "Cloning…"],
      ["success", "2 files"],
    ]);
    expect({ runs, attempts }).toEqual({ runs: { clone: 1, count: 1 }, attempts: 1 });
    expectTypeOf(runJob<typeof twoSteps>)
      .parameter(1)
      .toEqualTypeOf<{ repo: string }>();
  });

  it("does not repeat a step after a crash behind its checkpoint, and repeats it after a crash before", async () => {
    const after = await runJob(twoSteps, { repo: "acme" }, { url, crashAfter: "clone" });
    expect(after).toMatchObject({ job: { state: "completed", crashes: 1 }, runs: { clone: 1, count: 1 }, attempts: 2 });
    const before = await runJob(twoSteps, { repo: "acme" }, { url, crashBefore: "clone" });
    expect(before).toMatchObject({
      job: { state: "completed", crashes: 1 },
      runs: { clone: 2, count: 1 },
      attempts: 2,
    });
  });

  it("says which event a job waits for when its time is over", async () => {
    const asking = implement(pipeline("asking"), (job) => job.waitFor("approval"));
    await expect(runJob(asking, {}, { url, timeout: 500, signals: { other: 1 } })).rejects.toThrow(
      /^Job \S+ of "asking" has not ended within 500 ms: it waits for the event "approval". Pass its data: signals: \{ "approval": … \}$/,
    );
  });

  it("says which children a job waits for, and that a job is still running", async () => {
    const parent = implement(pipeline("parent"), async (job) =>
      (await job.spawn(scan, [{ repo: "a" }, { repo: "b" }])).done(),
    );
    await expect(runJob(parent, {}, { url, timeout: 500 })).rejects.toThrow(
      /it waits for 2 of its children, spawned as "scan". Pass their pipelines: children: \[ … \]$/,
    );
    const endless = implement(pipeline("endless"), (job) =>
      job.step("long", ({ signal }) => new Promise((resolve) => signal.addEventListener("abort", resolve))),
    );
    await expect(runJob(endless, {}, { url, timeout: 500 })).rejects.toThrow(/it is running, in attempt 1$/);
  });

  it("skips waits: sleep, rate limits and back-off take no time", async () => {
    let limited = false;
    let failed = false;
    const slow = implement(pipeline("slow", { retry: { initial: "1h", max: "2h" } }), async (job) => {
      await job.sleep("a day", "1d");
      if (!limited) {
        limited = true;
        throw new RateLimited("2h");
      }
      if (!failed) {
        failed = true;
        throw new Error("once");
      }
    });
    const began = performance.now();
    const { job, attempts, logs } = await runJob(slow, {}, { url });
    expect(job).toMatchObject({ state: "completed", attempt: 2 });
    expect(attempts).toBe(4);
    expect(logs.map(({ message }) => message)).toEqual(["once"]);
    expect(performance.now() - began).toBeLessThan(10_000);
  });

  it("returns a failure as it is stored", async () => {
    const bad = implement(
      pipeline("bad", { failures: { NOPE: "fatal" } }),
      () => {
        throw Object.assign(new Error("no such repository"), { code: "NOPE" });
      },
      { explain: () => "Repository not found - it may have been deleted or made private" },
    );
    const { job, logs } = await runJob(bad, {}, { url });
    expect(job.state).toBe("failed");
    expect(job.failure).toMatchObject({
      code: "NOPE",
      message: "no such repository",
      sentence: "Repository not found - it may have been deleted or made private",
    });
    expect(logs.at(-1)).toMatchObject({
      level: "error",
      message: "Repository not found - it may have been deleted or made private",
    });
  });

  it("runs spawned jobs in any pool, and sends the signals it waits for", async () => {
    const part = pipeline<{ n: number }, { n: number }, number>("part", { pool: "elsewhere" });
    const whole = implement(pipeline("whole"), async (job) => {
      const numbers = await (await job.spawn(part, [{ n: 1 }, { n: 2 }])).done();
      const { factor } = (await job.waitFor("factor")) as { factor: number };
      return numbers.map((n) => n * factor);
    });
    const parts = implement(part, (_job, { n }) => n);
    const { job } = await runJob(whole, {}, { url, children: [parts], signals: { factor: { factor: 10 } } });
    expect(job).toMatchObject({ state: "completed", output: [10, 20] });
  });
});
