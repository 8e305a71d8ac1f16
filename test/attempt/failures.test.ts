// What an error means for a job: what user code throws, how the pipeline classifies it, and what is stored.
import { beforeAll, describe, expect, it } from "vitest";
import { type Duration, type Job, pipeline, StillwakeError } from "../../src/index.ts";
import { startClock, stopClock, travel } from "../../src/testing/index.ts";
import { Fatal, type ImplementOptions, implement, Pause, RateLimited, Retry } from "../../src/worker/index.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";
import { startWorker } from "../support/processes/workers.ts";

const {
  database,
  run,
  start,
  stillwake,
  until,
  attempts,
  events,
  name,
  query,
  logs: readLogs,
} = await inProcessFixture();

beforeAll(buildPackage);

const coded = (code: unknown, more: object = {}) => Object.assign(new Error("it failed"), { code, ...more });
/** The job after its first attempt. Retries are an hour away. */
const settled = ({ epoch, state }: Job) => epoch === "1" && state !== "running";

type Failures = Record<string, "retry" | "fatal" | "pause">;

async function fail(error: unknown, failures?: Failures, code?: ImplementOptions): Promise<Job & { id: string }> {
  const { job } = await run(
    {
      pipeline: { retry: { attempts: 3, initial: "1h", max: "1h" }, ...(failures && { failures }) },
      ...(code && { code }),
      until: settled,
    },
    () => {
      throw error;
    },
  );
  return job;
}

const retried = { state: "queued", waitingFor: "retry", attempt: 1 };
const fatal = { state: "failed", attempt: 1 };
const limited = { state: "queued", waitingFor: "limit", attempt: 0 };
const paused = { state: "paused", attempt: 0 };

interface Case {
  what: string;
  error: unknown;
  failures?: Failures;
  code?: ImplementOptions;
  meant: object;
}

const cases: Case[] = [
  { what: "an ordinary error is tried again", error: new Error("it failed"), meant: retried },
  {
    what: "Fatal ends the job",
    error: new Fatal("no"),
    meant: { ...fatal, failure: { code: "FATAL", name: "Fatal" } },
  },
  {
    what: "Fatal has the code it was given",
    error: new Fatal("no", { code: "GONE" }),
    meant: { failure: { code: "GONE" } },
  },
  {
    what: "Fatal is fatal whatever the failures say",
    error: new Fatal("no", { code: "E" }),
    failures: { E: "retry", "*": "retry" },
    meant: fatal,
  },
  {
    what: "Fatal is fatal whatever classify returns",
    error: new Fatal("no"),
    code: { classify: () => "retry" },
    meant: fatal,
  },
  { what: "Retry is retried", error: new Retry("later"), meant: retried },
  {
    what: "Retry is retried whatever the failures say",
    error: new Retry("later", { code: "E" }),
    failures: { E: "fatal", "*": "fatal" },
    meant: retried,
  },
  { what: "RateLimited waits without an attempt", error: new RateLimited("5m"), meant: limited },
  {
    what: "RateLimited waits whatever the failures say",
    error: new RateLimited("5m", { code: "E" }),
    failures: { E: "fatal" },
    meant: limited,
  },
  {
    what: "Pause sets the job aside without an attempt",
    error: new Pause("provider down"),
    meant: { ...paused, runAt: null, pause: { reason: "provider down" } },
  },
  {
    what: "classify returns retry",
    error: coded("E"),
    failures: { E: "fatal" },
    code: { classify: () => "retry" },
    meant: retried,
  },
  { what: "classify returns fatal", error: coded("E"), code: { classify: () => "fatal" }, meant: fatal },
  {
    what: "classify returns rate limited",
    error: coded("E"),
    code: { classify: () => ({ rateLimitedUntil: "5m" }) },
    meant: limited,
  },
  {
    what: "classify returns pause",
    error: coded("E"),
    code: { classify: () => ({ pause: "by hand" }) },
    meant: { ...paused, pause: { reason: "by hand" } },
  },
  {
    what: "classify returns undefined, so the failures decide",
    error: coded("E"),
    failures: { E: "fatal" },
    code: { classify: () => undefined },
    meant: fatal,
  },
  {
    what: "classify throws, so the failures decide",
    error: coded("E"),
    failures: { E: "fatal" },
    code: {
      classify() {
        throw new Error("broken");
      },
    },
    meant: { ...fatal, failure: { code: "E", message: "it failed" } },
  },
  { what: "a code is fatal by the table", error: coded("E"), failures: { E: "fatal" }, meant: fatal },
  {
    what: "a code pauses by the table, with the error's message",
    error: coded("E"),
    failures: { E: "pause" },
    meant: { ...paused, pause: { reason: "it failed" } },
  },
  {
    what: "a code that is a number is found in the table",
    error: coded(404),
    failures: { 404: "fatal" },
    meant: { ...fatal, failure: { code: "404" } },
  },
  { what: "another code is not meant", error: coded("F"), failures: { E: "fatal" }, meant: retried },
  { what: "all others are fatal by *", error: coded("F"), failures: { E: "retry", "*": "fatal" }, meant: fatal },
  {
    what: "an error without a code is one of all others",
    error: new Error("x"),
    failures: { E: "retry", "*": "fatal" },
    meant: fatal,
  },
  { what: "a code goes before *", error: coded("E"), failures: { E: "retry", "*": "fatal" }, meant: retried },
  {
    what: "an exit code is EXIT_<n>",
    error: coded("EXEC_OOM", { exitCode: 137 }),
    failures: { EXIT_137: "fatal" },
    meant: fatal,
  },
  {
    what: "a code goes before an exit code",
    error: coded("E", { exitCode: 137 }),
    failures: { EXIT_137: "fatal", E: "retry" },
    meant: retried,
  },
  {
    what: "the name of an error class",
    error: new RangeError("x"),
    failures: { RangeError: "fatal" },
    meant: { ...fatal, failure: { name: "RangeError" } },
  },
  {
    what: "a timeout of fetch, by its name",
    error: new DOMException("The operation timed out", "TimeoutError"),
    failures: { TimeoutError: "fatal" },
    meant: fatal,
  },
  {
    what: "a code that is a property of every object is not an entry of the failures",
    error: coded("constructor"),
    failures: { E: "fatal" },
    meant: retried,
  },
  {
    what: "one of ours that cannot succeed is fatal",
    error: new StillwakeError("X", "no", { retryable: false }),
    meant: fatal,
  },
  {
    what: "one of ours that may succeed is tried again",
    error: new StillwakeError("X", "no", { retryable: true }),
    meant: retried,
  },
  { what: "one of ours by the table", error: new StillwakeError("X", "no"), failures: { X: "retry" }, meant: retried },
  { what: "one of ours by *", error: new StillwakeError("X", "no"), failures: { "*": "retry" }, meant: retried },
  { what: "a text", error: "just a text", meant: { ...retried, failure: { message: "just a text", code: "THROWN" } } },
  { what: "nothing", error: undefined, meant: { ...retried, failure: { message: "undefined" } } },
  { what: "null", error: null, meant: { ...retried, failure: { message: "null" } } },
  { what: "a symbol", error: Symbol("odd"), meant: { ...retried, failure: { message: "Symbol(odd)" } } },
  {
    what: "an object without a message",
    error: { status: 404 },
    meant: { ...retried, failure: { message: '{"status":404}' } },
  },
  {
    what: "an object with a code",
    error: { code: "E" },
    failures: { E: "fatal" },
    meant: { ...fatal, failure: { code: "E" } },
  },
  { what: "an object that is not an error and contains itself", error: circular(), meant: retried },
  { what: "an error whose message cannot be read", error: unreadable(), meant: retried },
  {
    what: "an error with a NUL and an unpaired surrogate in it",
    error: new Error("a\u0000b\ud83d"),
    meant: { ...retried, failure: { message: "a\u2400b\ufffd" } },
  },
  {
    what: "an error of a megabyte",
    error: new Error("x".repeat(1_000_000)),
    meant: { failure: { message: expect.stringMatching(/^x{4000}… \(996000 more\)$/) } },
  },
  {
    what: "RateLimited until an invalid date fails with the reason",
    error: new RateLimited(new Date("never")),
    meant: { ...fatal, failure: { code: "INVALID_INPUT", message: expect.stringContaining("invalid Date") } },
  },
  {
    what: "a classify with an invalid duration fails with the reason",
    error: coded("E"),
    code: { classify: () => ({ retryIn: "soon" as Duration }) },
    meant: { ...fatal, failure: { message: expect.stringContaining('retryIn "soon" is not a duration') } },
  },
];

describe("what an error means", () => {
  it.each(cases)("$what", async ({ error, failures, code, meant }) => {
    expect(await fail(error, failures, code)).toMatchObject(meant);
  });

  it("the cases are counted", () => {
    recordFigure("ways to fail that are classified as documented", cases.length);
    expect(new Set(cases.map(({ what }) => what)).size).toBe(cases.length);
  });

  it("is stored in the attempt when the job is retried", async () => {
    const { id, job } = await run({ pipeline: { retry: { attempts: 2, initial: "1ms" } } }, (context) => {
      if (context.attempt === 1) throw coded("EFIRST");
    });
    expect(job).toMatchObject({ state: "completed", failure: null });
    expect((await attempts(id))[0]).toMatchObject({ outcome: "failed", failure: { code: "EFIRST" } });
    expect(await events(id)).toEqual(["failed"]);
  });
});

describe("clip's table of codes", () => {
  // Only these codes are retried; all others fail the job, whatever attempts remain.
  const again = ["STORAGE_UPLOAD_FAILED", "YTDLP_TIMEOUT", "CLIP_TIMEOUT", "UPSTREAM_FAILURE", "INTERNAL_TRANSIENT"];
  const failures: Failures = {
    ...Object.fromEntries(again.map((code) => [code, "retry" as const])),
    EMPTY_ARTIFACT: "retry",
    "*": "fatal",
  };

  it.each(again)("%s is retried", async (code) => {
    expect(await fail(coded(code), failures)).toMatchObject(retried);
  });

  it.each(["FFMPEG_FAILED", "INVALID_RANGE", "EXEC_FAILED", "ENOENT", "VIDEO_UNAVAILABLE"])(
    "%s is fatal",
    async (code) => {
      expect(await fail(coded(code), failures)).toMatchObject(fatal);
    },
  );

  it("an unknown error is fatal, and a 0-byte output is retried", async () => {
    expect(await fail(new TypeError("x is not a function"), failures)).toMatchObject(fatal);
    const { job } = await run(
      {
        pipeline: { retry: { attempts: 3, initial: "1h", max: "1h" }, failures },
        worker: { store: `file:/tmp/stillwake-failures-${process.pid}` },
        until: settled,
      },
      (context) => context.artifact("clip.mp4", () => ""),
    );
    expect(job).toMatchObject({ ...retried, failure: { code: "EMPTY_ARTIFACT" } });
  });
});

describe("what is stored of an error", () => {
  it("is its name, message, code, stack, step, and up to four levels of causes", async () => {
    const deepest = new Error("fifth");
    const chain = ["fourth", "third", "second"].reduce((cause, message) => new Error(message, { cause }), deepest);
    const { job } = await run((context) =>
      context.step("load", () => {
        throw new Fatal("first", { code: "ELOAD", cause: chain });
      }),
    );
    const { failure } = job;
    expect(failure).toMatchObject({ name: "Fatal", message: "first", code: "ELOAD", step: "load" });
    expect(failure!.stack).toMatch(/^Fatal: first\n {4}at .*failures\.test/);
    const messages: string[] = [];
    for (let one = failure as { message: string; cause?: unknown } | undefined; one; one = one.cause as typeof one)
      messages.push(one.message);
    expect(messages).toEqual(["first", "second", "third", "fourth"]);
  });

  it("ends at a cause that is its own cause", async () => {
    const error = new Error("round and round");
    error.cause = error;
    expect((await fail(error)).failure).toMatchObject({ cause: { message: "round and round" } });
  });

  it("includes the sentence of explain, in the log too", async () => {
    const explain = (error: unknown) =>
      (error as { code?: string }).code === "E401"
        ? "Authentication failed - reconnect your GitHub integration"
        : undefined;
    const { job, logs } = await run({ pipeline: { failures: { E401: "fatal" } }, code: { explain } }, (context) =>
      context.step("cloning", () => {
        throw Object.assign(new Error("git exited with 128"), { code: "E401" });
      }),
    );
    expect(job.failure).toMatchObject({
      sentence: "Authentication failed - reconnect your GitHub integration",
      message: "git exited with 128",
      code: "E401",
      step: "cloning",
    });
    expect(logs).toMatchObject([
      {
        level: "error",
        step: "cloning",
        message: "Authentication failed - reconnect your GitHub integration",
        data: { code: "E401", error: "git exited with 128" },
      },
    ]);
  });

  it("is the error's message if explain returns nothing or throws", async () => {
    for (const explain of [
      () => undefined,
      () => "",
      () => {
        throw new Error("broken");
      },
    ]) {
      const { job, logs } = await run({ code: { explain } }, () => {
        throw new Fatal("own words");
      });
      expect(job.failure).not.toHaveProperty("sentence");
      expect(logs.map(({ message }) => message)).toEqual(["own words"]);
    }
  });

  it("has a log line even for an error without a message", async () => {
    const { logs } = await run({ pipeline: { retry: { attempts: 1 } } }, () => {
      throw Object.assign(new AggregateError([new Error("inner")]), { code: "ECONNREFUSED" });
    });
    expect(logs.map(({ message }) => message)).toEqual(["ECONNREFUSED"]);
  });
});

describe("attempts", () => {
  it("that all fail, fail the job with RETRIES_EXHAUSTED, the last failure and its sentence", async () => {
    let calls = 0;
    const { job, id } = await run(
      {
        pipeline: { retry: { attempts: 3, initial: "1ms", max: "1ms" } },
        code: { explain: () => "The provider does not answer" },
      },
      (context) =>
        context.step("call", () => {
          throw Object.assign(new Error(`failure ${++calls}`), { code: "EUPSTREAM" });
        }),
    );
    expect(calls).toBe(3);
    const { job: once } = await run({ pipeline: { retry: { attempts: 1 } } }, () => {
      throw new Error("at once");
    });
    expect(once.failure?.message).toBe("Failed after 1 attempt: at once");
    expect(job).toMatchObject({
      state: "failed",
      attempt: 3,
      failure: {
        code: "RETRIES_EXHAUSTED",
        message: "Failed after 3 attempts: failure 3",
        sentence: "The provider does not answer",
        step: "call",
        cause: { code: "EUPSTREAM", message: "failure 3", sentence: "The provider does not answer", step: "call" },
      },
    });
    expect((await attempts(id)).map(({ outcome }) => outcome)).toEqual(["failed", "failed", "failed"]);
    expect((await readLogs(id)).map(({ message }) => message)).toEqual(
      new Array(3).fill("The provider does not answer"),
    );
  });

  it("are not counted for rate limits, pauses and sleep: a job with one attempt survives ten of each", async () => {
    let calls = 0;
    const contract = pipeline(name(), { retry: { attempts: 1 } });
    const { id } = await stillwake.enqueue(contract, null);
    const code = implement(contract, async (job) => {
      calls += 1;
      if (calls <= 10) throw new RateLimited("1ms");
      if (calls <= 20) throw new Pause("a moment", { resumeIn: "1ms" });
      for (let n = 0; n < 10; n++) await job.sleep(`nap ${n}`, "1ms");
      return calls;
    });
    await start([code]);
    expect(await until(id)).toMatchObject({ state: "completed", attempt: 1, output: 31, failure: null });
    const outcomes = (await attempts(id)).map(({ outcome }) => outcome);
    expect(outcomes).toEqual([
      ...new Array(10).fill("slept"),
      ...new Array(10).fill("paused"),
      ...new Array(10).fill("slept"),
      "completed",
    ]);
  });

  it("start after the delay of the error", async () => {
    const waits: [unknown, ImplementOptions | undefined, number, "run" | "resume"][] = [
      [new Retry("later", { in: "7m" }), undefined, 7 * 60_000, "run"],
      [new RateLimited("5m"), undefined, 5 * 60_000, "run"],
      [coded("E"), { classify: () => ({ retryIn: "90s" }) }, 90_000, "run"],
      [coded("E"), { classify: () => ({ rateLimitedUntil: "2h" }) }, 7_200_000, "run"],
      [new Pause("down", { resumeIn: "30s" }), undefined, 30_000, "resume"],
      [coded("E"), { classify: () => ({ pause: "down", resumeIn: "45s" }) }, 45_000, "resume"],
    ];
    await stopClock(database.url);
    const [{ now }] = (await query<{ now: Date }>("select stillwake.now()")) as [{ now: Date }];
    for (const [error, code, wait, kind] of waits) {
      const job = await fail(error, undefined, code);
      expect(job.runAt!.getTime() - now.getTime()).toBe(wait);
      if (kind === "resume") expect(new Date(job.pause!.resume_at!).getTime() - now.getTime()).toBe(wait);
    }
    const date = new Date(now.getTime() + 123_456);
    expect((await fail(new RateLimited(date))).runAt).toEqual(date);
    await startClock(database.url);
  });

  it("start automatically when a rate limit or a pause is over", async () => {
    const contract = pipeline<string>(name(), { retry: { attempts: 1 } });
    const tried = new Set<string>();
    const code = implement(contract, (_, how) => {
      if (tried.has(how)) return "continued";
      tried.add(how);
      throw how === "limit" ? new RateLimited("1h") : new Pause("down", { resumeIn: "1h" });
    });
    await start([code]);
    const [limit, pause] = await stillwake.enqueueMany(contract, ["limit", "pause"]);
    await until(limit!.id, ({ waitingFor }) => waitingFor === "limit");
    await until(pause!.id, ({ state }) => state === "paused");
    await travel(database.url, "1h");
    for (const { id } of [limit!, pause!])
      expect(await until(id)).toMatchObject({ state: "completed", output: "continued", attempt: 1 });
  });

  it("of a paused job without a resume time start when it is resumed", async () => {
    const contract = pipeline(name());
    let calls = 0;
    const code = implement(contract, () => {
      if (++calls === 1) throw new Pause("look at it");
      return "looked at";
    });
    await start([code]);
    const { id } = await stillwake.enqueue(contract, null);
    await until(id, ({ state }) => state === "paused");
    await travel(database.url, "30d");
    expect(await stillwake.get(id)).toMatchObject({ state: "paused", pause: { reason: "look at it" } });
    await stillwake.resume(id, { by: "me" });
    expect(await until(id)).toMatchObject({ output: "looked at", attempt: 1 });
  });

  it("wait twice as long each time, up to the maximum, with random jitter", async () => {
    const many = 40;
    const contract = pipeline<number>(name(), { retry: { attempts: 5, initial: "10s", max: "25s" } });
    await stopClock(database.url);
    const jobs = await stillwake.enqueueMany(contract, [...new Array(many).keys()]);
    const code = implement(contract, () => {
      throw new Error("again");
    });
    await start([code], { slots: many, poll: "20ms", lease: "1d" });
    for (const [epoch, longest] of [
      [1, 10_000],
      [2, 20_000],
      [3, 25_000],
      [4, 25_000],
    ] as const) {
      const [{ now }] = (await query<{ now: Date }>("select stillwake.now()")) as [{ now: Date }];
      const waits: number[] = [];
      for (const { id } of jobs) {
        const job = await until(id, (one) => one.epoch === String(epoch) && one.state === "queued");
        waits.push(job.runAt!.getTime() - now.getTime());
      }
      expect(Math.min(...waits)).toBeGreaterThanOrEqual(longest / 2);
      expect(Math.max(...waits)).toBeLessThanOrEqual(longest);
      expect(new Set(waits).size).toBeGreaterThan(many / 2);
      // Spread over the upper half of the interval.
      const middle = longest * 0.75;
      expect(waits.filter((wait) => wait < middle).length).toBeGreaterThan(many / 10);
      expect(waits.filter((wait) => wait > middle).length).toBeGreaterThan(many / 10);
      await travel(database.url, "25s");
    }
    for (const { id } of jobs)
      expect(await until(id)).toMatchObject({ state: "failed", attempt: 5, failure: { code: "RETRIES_EXHAUSTED" } });
    await startClock(database.url);
  });
});

describe("in a runner", () => {
  it("every kind of failure ends the attempt with its code and sentence, and redacts registered secrets", async () => {
    const ways: Record<string, object> = {
      "rate limited until an invalid date": {
        failure: { code: "INVALID_INPUT", message: expect.stringContaining("invalid Date") },
      },
      "rate limited for no duration": { failure: { message: expect.stringContaining('"a while" is not a duration') } },
      "an error that cannot be read": { failure: { code: "RETRIES_EXHAUSTED" } },
      "an error of another realm": {
        failure: { code: "ENOPE", message: "from elsewhere", sentence: "It is not allowed" },
      },
      "thrown later": { failure: { code: "ENOPE", message: "later, with ***", sentence: "It is not allowed" } },
      "unhandled rejection": { failure: { cause: { code: "UNCAUGHT", message: "unhandled, with ***" } } },
    };
    await startWorker({
      url: database.url,
      pipelines: new URL("../fixtures/pipelines/failing.mjs", import.meta.url).pathname,
      args: ["--slots", "2", "--grace", "200ms"],
    });
    const jobs = await stillwake.enqueueMany("failing", Object.keys(ways));
    const ended: Record<string, Job> = {};
    for (const { id } of jobs) {
      const job = await until(id);
      ended[job.input as string] = job;
    }
    for (const [way, wanted] of Object.entries(ways))
      expect(ended[way], way).toMatchObject({ state: "failed", attempt: 1, crashes: 0, ...wanted });
    for (const { id } of jobs) {
      const lines = await readLogs(id);
      expect(lines.filter(({ level }) => level === "error")).toHaveLength(1);
      expect(JSON.stringify(lines)).not.toContain("canary-uncaught-4711");
    }
  });
});

function circular(): unknown {
  const one: Record<string, unknown> = {};
  one.self = one;
  return one;
}

function unreadable(): unknown {
  return {
    get message() {
      throw new Error("not to be read");
    },
  };
}
