// What code that runs again from the start does not do twice: log its lines, and try optional steps that have failed.
import pg from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, run, stillwake, until, attempts, query, logs: readLogs } = await inProcessFixture();
const twice = { retry: { attempts: 2, initial: "1ms", max: "1ms" } } as const;
const once = { retry: { attempts: 1 } };

describe("the log of code that runs again from the start", () => {
  it("repeats no line after a wait, and loses none that is new", async () => {
    const { logs, id } = await run(async (job) => {
      job.log.info("Starting");
      for (let n = 1; n <= 2; n++) job.log.info("Tick", { n: 1 });
      await job.step("one", { start: "One...", end: "One done" }, () => 1);
      job.log.warning("Between");
      await job.sleep("first", "1ms");
      job.log.info("Tick", { n: 1 });
      job.log.info("Tick", { n: 2 });
      job.log.info("Awake");
      await job.sleep("second", "1ms");
      job.log.info("Starting");
      job.log.success("End");
    });
    expect(await attempts(id)).toHaveLength(3);
    const texts = logs.map(({ message, data, epoch }) => [message, data && "n" in data ? data.n : null, epoch]);
    expect(texts).toEqual([
      ["Starting", null, "1"],
      ["Tick", 1, "1"],
      ["Tick", 1, "1"],
      ["One...", null, "1"],
      ["One done", null, "1"],
      ["Between", null, "1"],
      ["Tick", 1, "2"],
      ["Tick", 2, "2"],
      ["Awake", null, "2"],
      ["Starting", null, "3"],
      ["End", null, "3"],
    ]);
  });

  it("contains lines that differ between attempts, lines of commands, and every line after a step has run", async () => {
    const { logs } = await run({ pipeline: twice }, async (job) => {
      job.log.info("Starting");
      job.log.info(`Attempt ${job.attempt}`);
      await job.exec("echo", ["cloned"]);
      await job.step("one", () => 1);
      job.log.info("Between");
      const two = job.step("two", { start: "Two..." }, () => {
        job.log.info("In two");
        if (job.attempt === 1) throw new Error("broken");
      });
      await two.finally(() => job.log.info("Two is over"));
      job.log.info("Starting");
    });
    expect(logs.map(({ message, epoch }) => `${epoch} ${message}`)).toEqual([
      "1 Starting",
      "1 Attempt 1",
      "1 cloned",
      "1 Between",
      "1 Two...",
      "1 In two",
      "1 Two is over",
      "1 broken",
      "2 Attempt 2",
      "2 cloned",
      "2 Two...",
      "2 In two",
      "2 Two is over",
      "2 Starting",
    ]);
  });

  it("starts again when the job is retried by hand", async () => {
    let broken = true;
    const { id } = await run({ pipeline: once }, (job) => {
      job.log.info("Starting");
      if (broken) throw new Error("broken");
    });
    broken = false;
    await stillwake.retry(id);
    await until(id);
    expect((await readLogs(id)).map(({ message }) => message)).toEqual(["Starting", "broken", "Starting"]);
  });
});

describe("an optional step", () => {
  it("that failed is not tried again after a wait or by another attempt, and stays missing", async () => {
    let calls = 0;
    const { job, id, logs } = await run({ pipeline: twice }, async (context) => {
      const result = await context.optional("scan", () => {
        calls += 1;
        throw new Error("no credit");
      });
      expect(result).toBeUndefined();
      await context.sleep("a wait", "1ms");
      if (context.attempt === 1) throw new Error("again");
    });
    expect(await attempts(id)).toMatchObject([{ outcome: "slept" }, { outcome: "failed" }, { outcome: "completed" }]);
    expect(calls).toBe(1);
    expect(job).toMatchObject({ state: "completed", missing: ["scan"] });
    expect(logs.filter(({ level }) => level === "warning")).toMatchObject([{ message: "no credit", step: "scan" }]);
    // It has no result: neither the list of steps nor the stream shows it as saved.
    expect((await stillwake.steps(id)).map(({ name }) => name)).toEqual(["a wait"]);
    const saved = await query(
      "select step from stillwake.read_feeds(array[$1::uuid], '{0}', '{0}') where what = 'step'",
      [id],
    );
    expect(saved).toEqual([{ step: "a wait" }]);
  });

  it("that failed runs again when the job is retried from the start", async () => {
    let calls = 0;
    const { id, job } = await run({ pipeline: { retry: { attempts: 1 } } }, async (context) => {
      await context.optional("scan", () => {
        if (++calls === 1) throw new Error("not now");
      });
      if (calls === 1) throw new Error("the job fails");
    });
    expect(job.state).toBe("failed");
    await stillwake.retry(id, { fromStart: true });
    expect(await until(id)).toMatchObject({ state: "completed", missing: [] });
    expect(calls).toBe(2);
  });

  it.each(["step", "tx"] as const)(
    "that failed runs when new code makes it a critical %s, and its result is saved",
    async (kind) => {
      const pool = new pg.Pool({ connectionString: database.url, max: 1 });
      onTestFinished(() => pool.end());
      let calls = 0;
      const { job } = await run({ pipeline: { retry: { attempts: 3, initial: "1ms" } } }, async (context) => {
        if (context.attempt === 1) {
          await context.optional("scan", () => {
            throw new Error("not now");
          });
          throw new Error("the code changes");
        }
        const scan = () => ++calls;
        const found = kind === "step" ? await context.step("scan", scan) : await context.tx("scan", {}, pool, scan);
        if (context.attempt === 2) throw new Error("again");
        return found;
      });
      expect(job).toMatchObject({ state: "completed", output: 1, missing: [] });
      expect(calls).toBe(1);
    },
  );
});
