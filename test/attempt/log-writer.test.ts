// Log lines, their data, and progress: the log writer alone where time and size matter, and through a worker into Postgres.
import pg from "pg";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { LogWriter } from "../../src/worker/attempt/log-writer.ts";
import { implement, type JobContext, type StepHandle, type WorkerOptions } from "../../src/worker/index.ts";
import { Redactor } from "../../src/worker/redact/redact.ts";
import type { LogLine, Port, Progress } from "../../src/worker/runner/port.ts";
import { cleanUp } from "../support/cleanup.ts";
import { connect } from "../support/database/connections.ts";
import { installFaults } from "../support/database/sql-faults.ts";
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, name, run, start, stillwake, until, logs: readLogs } = await inProcessFixture();
const once = { retry: { attempts: 1 } };

describe("a line of the log", () => {
  it("keeps its level, data, step and order", async () => {
    const { logs } = await run(async (job) => {
      job.log.info("first", { count: 1 });
      await job.step("cloning", (step) => {
        step.log.success("cloned", { files: 147 });
        job.log.warning("of the job, within a step");
      });
      job.log.error("last");
    });
    expect(logs.map(({ level, message, step, data }) => [level, message, step, data])).toEqual([
      ["info", "first", null, { count: 1 }],
      ["success", "cloned", "cloning", { files: 147 }],
      ["warning", "of the job, within a step", "cloning", null],
      ["error", "last", null, null],
    ]);
  });

  it("has the name of its step, also with two concurrent steps", async () => {
    const { logs } = await run(async (job) => {
      const both = ["a", "b"].map((name) =>
        job.step(name, async (step) => {
          await job.flush();
          step.log.info(`from ${name}`);
        }),
      );
      await Promise.all(both);
    });
    expect(logs.map(({ step, message }) => `${step}: ${message}`).sort()).toEqual(["a: from a", "b: from b"]);
  });

  it("is in order among thousands, and timestamps do not go back", async () => {
    const many = 5000;
    const { logs, job } = await run(async (context) => {
      for (let n = 0; n < many; n++) {
        context.log.info(`line ${n}`);
        if (n % 500 === 0) await context.step(`step ${n}`, () => n);
      }
    });
    expect(job.state).toBe("completed");
    expect(logs.map(({ message }) => message)).toEqual(Array.from({ length: many }, (_, n) => `line ${n}`));
    // Times are relative to the arrival of the batch, so lines of two batches may differ slightly; seq defines the order.
    expect(logs.at(-1)!.at.getTime()).toBeGreaterThanOrEqual(logs[0]!.at.getTime());
  });

  it("is stored after flush(), while the job continues", async () => {
    const { promise: gate, resolve: release } = deferred();
    const seen: string[] = [];
    await run(async (job) => {
      job.log.info("written");
      await job.flush();
      seen.push(...(await readLogs(job.id)).map(({ message }) => message));
      release();
      await gate;
    });
    expect(seen).toEqual(["written"]);
  });

  it("of more than 16 KB is truncated between characters, with the count of the rest", async () => {
    const { logs } = await run((job) => {
      job.log.info("x".repeat(20_000));
      job.log.info("🐘".repeat(10_000));
    });
    for (const { message } of logs) {
      expect(message.length).toBeLessThanOrEqual(16 * 1024);
      expect(message).toMatch(/^(x+|(🐘)+)… \(\d+ more\)$/u);
    }
  });

  it("with a NUL or an unpaired surrogate is stored, and so is its data", async () => {
    const { logs } = await run((job) => {
      job.log.info("a\u0000b \ud83d.", { text: "a\u0000b", half: "\ud83d.", "k\u0000": 1 });
      job.log.info("beside it");
    });
    expect(logs.map(({ message }) => message)).toEqual(["a\u2400b \ufffd.", "beside it"]);
    expect(Object.keys(logs[0]!.data!)).toHaveLength(3);
    expect(JSON.stringify(logs[0]!.data)).not.toMatch(/\\u0000|\\ud83d/);
  });

  const circular: Record<string, unknown> = { name: "circle" };
  circular.self = circular;
  const nested = (levels: number) => {
    let value: unknown = 1;
    for (let level = 0; level < levels; level++) value = [value];
    return value as Record<string, unknown>;
  };
  const throwing = Object.defineProperty({}, "secret", {
    enumerable: true,
    get() {
      throw new Error("not readable");
    },
  });
  const bare: Record<string, unknown> = Object.create(null);
  bare.self = bare;
  const odd: [string, Record<string, unknown>, unknown][] = [
    ["a bigint", { size: 2n ** 70n }, { size: "1180591620717411303424" }],
    ["a Date", { at: new Date(0) }, { at: "1970-01-01T00:00:00.000Z" }],
    ["an error among them", { error: new Error("x") }, { error: {} }],
    ["nothing", { gone: undefined }, {}],
    ["text that looks like an escape", { pattern: "\\u0000 and \\ud83d" }, { pattern: "\\u0000 and \\ud83d" }],
    ["a backslash before a NUL", { path: "C:\\\u0000" }, { path: "C:\\\u2400" }],
    ["a key like any other", JSON.parse('{"__proto__": 1}'), JSON.parse('{"__proto__": 1}')],
    ["500 levels", nested(500), nested(500)],
    ["20,000 levels", nested(20_000), { unreadable: "object" }],
    ["a property that throws", throwing, { unreadable: "[object Object]" }],
    ["no prototype and itself within", bare, { unreadable: "object" }],
    ["itself within", circular, { unreadable: expect.any(String) }],
    ["more than 16 KB", { big: "x".repeat(20_000) }, { dropped: "larger than 16384 bytes", bytes: 20_010 }],
  ];
  it.each(odd)("can have data with %s", async (_, data, stored) => {
    const { job, logs } = await run((context) => context.log.info("see", data));
    expect(job.failure).toBeNull();
    expect(logs[0]!.data).toEqual(stored);
  });

  it("has a numeric secret redacted in its data, and nothing else", async () => {
    const { job, logs } = await run((context) => {
      context.secret("1234567890");
      context.secret("n12345678");
      context.log.info("see", { phone: 1234567890, list: [11234567890, 5], text: "\n12345678", flag: true });
    });
    expect(job.failure).toBeNull();
    expect(logs[0]!.data).toMatchObject({ phone: "***", list: [expect.anything(), 5], flag: true });
    expect(JSON.stringify(logs[0]!.data)).not.toContain("1234567890");
  });

  it("that is not a text is converted", async () => {
    const { logs } = await run((job) => {
      for (const message of [42, null, undefined, { a: 1 }, Object.create(null)]) job.log.info(message as never);
    });
    expect(logs.map(({ message }) => message)).toEqual(["42", "null", "undefined", "[object Object]", "object"]);
  });
});

/** The progress of a completed job is complete: a failed one keeps what was reported. */
const runAndFail = (report: (job: JobContext) => void) =>
  run({ pipeline: once }, (job) => {
    report(job);
    throw new Error("after its progress");
  });

describe("progress", () => {
  it("is stored in the job as a fraction or as done of total, with its sentence and time", async () => {
    const fraction = await runAndFail((job) => job.progress(0.25, "a quarter"));
    expect(fraction.job.progress).toMatchObject({ fraction: 0.25, sentence: "a quarter", at: expect.any(String) });
    const done = await runAndFail((job) => job.progress({ done: 3, total: 12 }));
    expect(done.job.progress).toMatchObject({ done: 3, total: 12 });
    expect(done.job.progress).not.toHaveProperty("sentence");
  });

  it("of a step handle is the progress of the job", async () => {
    const { job } = await run((context) => context.step("one", (step) => step.progress(1, "all")));
    expect(job.progress).toMatchObject({ fraction: 1, sentence: "all" });
  });

  it("stays within 0 and 1", async () => {
    expect((await runAndFail((job) => job.progress(17))).job.progress).toMatchObject({ fraction: 1 });
    expect((await runAndFail((job) => job.progress(-3))).job.progress).toMatchObject({ fraction: 0 });
  });

  it.each([
    ["NaN", Number.NaN],
    ["0 of NaN", { done: 0, total: Number.NaN }],
    ["3 of undefined", { done: 3 / (undefined as unknown as number), total: 5 }],
  ])("that is %s does not replace what was known", async (_, value) => {
    const { job } = await runAndFail((context) => {
      context.progress(0.5);
      context.progress(value);
    });
    expect(job.progress).toMatchObject({ fraction: 0.5 });
  });

  it("reported ten thousand times ends with the last value stored", async () => {
    const { job } = await run(async (context) => {
      for (let n = 1; n <= 10_000; n++) context.progress({ done: n, total: 10_000 }, `${n} of 10000`);
    });
    expect(job.progress).toMatchObject({ done: 10_000, total: 10_000, sentence: "10000 of 10000" });
  });

  it("is kept in the next attempt", async () => {
    const seen: unknown[] = [];
    const { job } = await run({ pipeline: { retry: { attempts: 2, initial: "1ms" } } }, async (context) => {
      if (context.attempt === 1) {
        context.progress(0.75, "nearly");
        throw new Error("again");
      }
      seen.push((await stillwake.get(context.id)).progress);
    });
    expect(job.state).toBe("completed");
    expect(seen).toEqual([expect.objectContaining({ fraction: 0.75, sentence: "nearly" })]);
  });
});

describe("the log writer", () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
  afterEach(() => void vi.useRealTimers());

  it("sends progress when it changed by 1% or after 500 ms, and the last value at the end", () => {
    const { writer, sent } = open();
    const progress = () => sent.flatMap((one) => (one.progress ? [one.progress.fraction] : []));
    writer.progress({ fraction: 0 });
    writer.progress({ fraction: 0.004 });
    writer.progress({ fraction: 0.008 });
    expect(progress()).toEqual([0]);
    writer.progress({ fraction: 0.0101 });
    expect(progress()).toEqual([0, 0.0101]);
    writer.progress({ fraction: 0.012 });
    vi.advanceTimersByTime(499);
    expect(progress()).toEqual([0, 0.0101]);
    vi.advanceTimersByTime(1);
    expect(progress()).toEqual([0, 0.0101, 0.012]);
    vi.advanceTimersByTime(500);
    writer.progress({ fraction: 0.013 });
    expect(progress()).toEqual([0, 0.0101, 0.012, 0.013]);
    writer.progress({ fraction: 0.014 });
    writer.close();
    expect(progress()).toEqual([0, 0.0101, 0.012, 0.013, 0.014]);
    vi.advanceTimersByTime(5000);
    expect(progress()).toHaveLength(5);
  });

  it("sends progress that goes back too", () => {
    const { writer, sent } = open();
    writer.progress({ fraction: 0.9 });
    writer.progress({ fraction: 0.1 });
    expect(sent.map(({ progress }) => progress?.fraction)).toEqual([0.9, 0.1]);
  });

  it("sends ten thousand immediate values as a hundred", () => {
    const { writer, sent } = open();
    for (let done = 0; done <= 10_000; done++) writer.progress({ done, total: 10_000 });
    writer.close();
    expect(sent.length).toBeGreaterThanOrEqual(99);
    expect(sent.length).toBeLessThanOrEqual(102);
    expect(sent.at(-1)!.progress).toEqual({ done: 10_000, total: 10_000 });
    recordFigure("progress writes for 10,000 calls within one moment", sent.length);
  });

  it("batches lines in order, and sends them before the progress that follows", () => {
    const { writer, sent } = open({ lingerMs: 20 });
    writer.write("info", "one");
    writer.write("info", "two");
    expect(sent).toEqual([]);
    vi.advanceTimersByTime(20);
    expect(sent.map(({ lines }) => lines.map(({ message }) => message))).toEqual([["one", "two"]]);
    writer.write("info", "three");
    writer.progress({ fraction: 0.5 });
    expect(sent[1]).toMatchObject({ lines: [{ message: "three" }], progress: { fraction: 0.5 } });
    vi.advanceTimersByTime(1000);
    expect(sent).toHaveLength(2);
  });

  it("sends a batch at 64 KB", () => {
    const { writer, sent } = open({ lingerMs: 1000 });
    for (let n = 0; n < 5; n++) writer.write("info", "x".repeat(16_000));
    expect(sent.length).toBeGreaterThanOrEqual(1);
  });

  it("beyond the log size keeps only the last 200 lines, after a line that counts the dropped ones", () => {
    const { writer, sent } = open({ maxBytes: 10 * 100 });
    for (let n = 0; n < 1000; n++) writer.write("info", `${n}`.padEnd(36));
    const before = sent.flatMap(({ lines }) => lines).length;
    expect(before).toBe(10);
    writer.close();
    const lines = sent.flatMap((one) => one.lines);
    expect(lines).toHaveLength(10 + 1 + 200);
    expect(lines[10]).toMatchObject({ level: "warning", message: "… 790 lines omitted: the job's log is full" });
    expect(lines.slice(11).map(({ message }) => Number(message))).toEqual(
      Array.from({ length: 200 }, (_, n) => 800 + n),
    );
  });

  it("counts the data of a line toward the log size", () => {
    const { writer, sent } = open({ maxBytes: 50_000 });
    for (let n = 0; n < 100; n++) writer.write("info", "small", undefined, { big: "x".repeat(10_000) });
    expect(sent.flatMap(({ lines }) => lines).length).toBeLessThan(10);
  });

  it("writes nothing after close()", () => {
    const { writer, sent } = open({ lingerMs: 20 });
    writer.write("info", "last");
    writer.close();
    writer.write("info", "late");
    writer.progress({ fraction: 1 });
    writer.close();
    vi.advanceTimersByTime(5000);
    expect(sent.map(({ lines }) => lines.map(({ message }) => message))).toEqual([["last"]]);
  });
});

describe("lines of many jobs", () => {
  it("do not mix, and each job's lines are in order", async () => {
    const chatter = pipeline<number>("chatter");
    const ids = await stillwake.enqueueMany(chatter, [...new Array(20).keys()]);
    const code = implement(chatter, async (job, n) => {
      for (let line = 0; line < 50; line++) {
        job.log.info(`${n}.${line}`);
        if (line % 10 === 0) await job.step(`${line}`, () => null);
      }
    });
    await start([code], { slots: 20 });
    for (const [n, { id }] of ids.entries()) {
      await until(id);
      expect((await readLogs(id)).map(({ message }) => message)).toEqual(
        Array.from({ length: 50 }, (_, line) => `${n}.${line}`),
      );
    }
  });
});

/** A log writer and what it sends. */
function open({ lingerMs = 0, maxBytes }: { lingerMs?: number; maxBytes?: number } = {}) {
  const sent: { lines: LogLine[]; progress?: Progress | undefined }[] = [];
  const port = { log: (lines: LogLine[], progress?: Progress) => void sent.push({ lines, progress }) } as Port;
  const writer = new LogWriter({
    port,
    redactor: new Redactor(),
    lingerMs,
    ...(maxBytes !== undefined && { maxBytes }),
  });
  return { writer, sent };
}

describe("the progress of a completed job", () => {
  it.each([
    [
      { done: 40, total: 100 },
      { done: 100, total: 100 },
    ],
    [0.4, { fraction: 1 }],
    [
      { done: 7, total: 5 },
      { done: 7, total: 5 },
    ],
  ])("is complete, although it last reported %o", async (reported, shown) => {
    const { job } = await run((context) => context.progress(reported, "Two of five parts"));
    expect(job.progress).toEqual({ ...shown, sentence: "Two of five parts", at: expect.any(String) });
  });

  it("stays as reported when the job fails", async () => {
    const { job } = await run({ pipeline: once }, (context) => {
      context.progress({ done: 40, total: 100 });
      throw new Error("broken");
    });
    expect(job.progress).toMatchObject({ done: 40, total: 100 });
  });
});

describe("the lines of a kept step", async () => {
  const client = await connect(database.url);
  const faults = await installFaults(client, ["append_logs"], ["53100"]);
  const ofStep = ["Started", "Working", "Finished with 1"];
  const linesOf = async (id: string) => (await readLogs(id)).flatMap(({ step, message }) => (step ? [message] : []));
  const texts = { start: "Started", end: (result: number) => `Finished with ${result}` };
  const startJob = async (options: Partial<WorkerOptions>, code: (job: JobContext) => Promise<unknown>) => {
    const contract = pipeline(name(), { retry: { attempts: 5, crashes: 5, initial: "1ms", max: "1ms" } });
    const { id } = await stillwake.enqueue(contract, null);
    await start([implement(contract, code)], options);
    return id;
  };
  const oneStep = (job: JobContext) =>
    job.step("work", texts, (step: StepHandle) => {
      step.log.info("Working");
      return 1;
    });

  it("are stored before its checkpoint, or with it", async () => {
    await faults.once("append_logs", "53100", "before", 1_000_000);
    const id = await startJob({}, oneStep);
    const retried = async () => (await faults.raised())["53100"]! >= 5;
    await waitFor(retried, { timeout: 20_000, what: "the lines to be refused a few times" });
    const { rows } = await client.query("select step from stillwake.checkpoints where job_id = $1", [id]);
    expect(rows).toEqual([]);
    await faults.none();
    expect((await stillwake.wait(id, { timeout: "20s" })).attempt).toBe(1);
    expect(await linesOf(id)).toEqual(ofStep);
  });

  const crashOnce = () => {
    let crashed = false;
    return (point: "before" | "after") => {
      const crashes = point === "after" && !crashed;
      crashed ||= crashes;
      return crashes;
    };
  };

  it("are all there when the attempt ends right after its checkpoint", async () => {
    const id = await startJob({ crash: crashOnce() }, oneStep);
    expect((await stillwake.wait(id, { timeout: "20s" })).crashes).toBe(1);
    expect(await linesOf(id)).toEqual(ofStep);
  });

  it("are stored before a transaction commits its checkpoint", async () => {
    const pool = new pg.Pool({ connectionString: database.url, max: 1 });
    cleanUp(() => pool.end());
    const stored: string[] = [];
    const begin = async (use: (tx: pg.PoolClient) => Promise<unknown>) => {
      const tx = await pool.connect();
      await tx.query("begin");
      await use(tx);
      // Before the commit, by another connection.
      const { rows } = await client.query(
        "select message from stillwake.logs where step = 'in a transaction' order by seq",
      );
      stored.push(...rows.map(({ message }) => message));
      await tx.query("commit");
      tx.release();
    };
    const id = await startJob({}, (job) =>
      job.tx("in a transaction", texts, begin, (_: pg.PoolClient, step: StepHandle) => {
        step.log.info("Working");
        return 1;
      }),
    );
    await stillwake.wait(id, { timeout: "20s" });
    expect(stored).toEqual(ofStep);
  });
});
