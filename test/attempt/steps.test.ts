// Steps in pipeline code: checkpoints, limits, retries, optional steps, sleep, and the end of an attempt.
import { getEventListeners } from "node:events";
import pg from "pg";
import { beforeAll, describe, expect, expectTypeOf, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import {
  Fatal,
  implement,
  type JobContext,
  Pause,
  RateLimited,
  Retry,
  type StepOptions,
  Stopped,
} from "../../src/worker/index.ts";
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";
import { startStepObserver } from "../support/processes/step-observer.ts";
import { startWorker } from "../support/processes/workers.ts";

const {
  database,
  run,
  start,
  stillwake,
  until,
  attempts,
  checkpoints,
  events,
  name,
  logs: readLogs,
  query,
} = await inProcessFixture();

beforeAll(buildPackage);

const twice = { retry: { attempts: 2, initial: "1ms", max: "1ms" } } as const;
const once = { retry: { attempts: 1 } };
const lines = (logs: { level: string; message: string }[]) => logs.map(({ level, message }) => `${level}: ${message}`);

/** A step waits here until the test opens it. */
function gate(): { passed: Promise<void>; open(): void } {
  const { promise: passed, resolve: open } = deferred();
  return { passed, open };
}

describe("the result of a step", () => {
  it.each([
    ["nothing", undefined],
    ["null", null],
    ["a text", "text"],
    ["a number", 0.1],
    ["minus zero", -0],
    ["a bigint", 2n ** 80n],
    ["a Date", new Date("2024-02-29T00:00:00.001Z")],
    ["bytes", new Uint8Array([0, 1, 255])],
    ["a Buffer", Buffer.from("bytes")],
    [
      "nested",
      { when: [new Date(1), { size: 5n, raw: new Uint8Array([7]) }], gone: undefined, list: [undefined, null] },
    ],
    ["keys in an odd order", { zebra: 1, a: 2, mm: 3, $stillwake: ["date", "1"] }],
  ])("is the same the first time and after a failed attempt, and is made once: %s", async (_, value) => {
    const seen: unknown[] = [];
    let calls = 0;
    const { job } = await run({ pipeline: twice }, async (context) => {
      const result = await context.step("make", () => {
        calls += 1;
        return value;
      });
      seen.push(result);
      if (context.attempt === 1) throw new Error("after the step");
    });
    expect(job).toMatchObject({ state: "completed", attempt: 2 });
    expect(calls).toBe(1);
    expect(seen).toHaveLength(2);
    expect(seen[1]).toStrictEqual(seen[0]);
    if (typeof value === "object" && value)
      expect(JSON.stringify(String(seen[1]))).toBe(JSON.stringify(String(seen[0])));
  });

  it("is kept when the attempt dies right after it was stored, and computed again when it dies right before", async () => {
    const calls: string[] = [];
    const crashAt = new Set(["after:one", "before:two"]);
    const { job, id } = await run(
      {
        pipeline: { retry: { attempts: 5, initial: "1ms", max: "1ms" } },
        worker: { crash: (point, step) => crashAt.delete(`${point}:${step}`) },
      },
      async (context) => {
        for (const step of ["one", "two", "three"]) {
          await context.step(step, () => {
            calls.push(step);
            return step;
          });
        }
      },
    );
    expect(job).toMatchObject({ state: "completed", attempt: 3, crashes: 2 });
    expect(calls).toEqual(["one", "two", "two", "three"]);
    expect((await checkpoints(id)).map(({ step, epoch }) => [step, epoch])).toEqual([
      ["one", "1"],
      ["two", "3"],
      ["three", "3"],
    ]);
  });

  it("is kept when the runner is killed right after it was stored", async () => {
    const observer = await startStepObserver();
    await startWorker({ url: database.url, args: ["--slots", "1"], env: { STILLWAKE_CRASH: "after:one" } });
    const steps = ["one", "two"].map((step) => ({ name: step, act: "nothing" }));
    const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
    const job = await stillwake.wait(id, { timeout: "20s" });
    expect(job).toMatchObject({ output: "done", attempt: 2, crashes: 1 });
    const effects = observer.reportsOf(id).filter(({ event }) => event === "effect");
    expect(effects.map(({ step }) => step)).toEqual(["one", "two"]);
    expect(effects[0]!.pid).not.toBe(effects[1]!.pid);
  });

  it("that is larger than 1 MB fails the job without a retry, with a remedy", async () => {
    const { job } = await run((context) => context.step("render", () => "x".repeat(1024 * 1024)));
    expect(job).toMatchObject({
      state: "failed",
      attempt: 1,
      failure: {
        code: "INVALID_INPUT",
        step: "render",
        message:
          'The result of step "render" is 1048578 bytes of JSON, the limit is 1048576. Store it with job.artifact() and return a reference',
      },
    });
  });

  it("of 1 MB exactly, or of many small numbers, is kept", async () => {
    const numbers = new Array(200_000).fill(7);
    const { job } = await run(async (context) => {
      await context.step("text", () => "x".repeat(1024 * 1024 - 2));
      await context.step("numbers", () => numbers);
      return "kept";
    });
    expect(job).toMatchObject({ state: "completed", output: "kept" });
  });

  it("that is unsupported fails the job without a retry, with its path", async () => {
    const { job } = await run((context) => context.step("load", () => ({ rows: [{ when: new Map() }] })));
    expect(job).toMatchObject({ state: "failed", attempt: 1, failure: { code: "INVALID_INPUT", step: "load" } });
    expect(job.failure!.message).toMatch(
      /^The result of step "load"\.rows\[0\]\.when is a Map\. Return a plain object, array, Date, bigint or Uint8Array/,
    );
  });
});

describe("the name of a step", () => {
  it("cannot be used twice in a job, one after the other or at once", async () => {
    for (const code of [
      async (job: JobContext) => {
        await job.step("same", () => 1);
        await job.optional("same", () => 2);
      },
      (job: JobContext) => Promise.all([job.step("same", () => 1), job.step("same", () => 2)]),
      async (job: JobContext) => {
        await job.step("same", () => 1);
        await job.sleep("same", "1h");
      },
    ]) {
      const { job } = await run(code);
      expect(job).toMatchObject({ state: "failed", attempt: 1, failure: { code: "INVALID_INPUT" } });
      expect(job.failure!.message).toBe(
        'Step "same" was already used in this job. Give each step a unique name; in a loop, include the item\'s id',
      );
    }
  });

  it.each([
    ["empty", ""],
    ["longer than 200 characters", "x".repeat(201)],
    ["with a NUL", "a\u0000b"],
    ["with an unpaired surrogate", "a\ud83d"],
    ["no text", 5 as unknown as string],
  ])("cannot be %s", async (_, bad) => {
    const { job } = await run((context) => context.step(bad, () => 1));
    expect(job).toMatchObject({ state: "failed", attempt: 1, failure: { code: "INVALID_INPUT" } });
    expect(job.failure!.message).toMatch(/is not a valid step name\. Use a string of 1 to 200 characters/);
  });

  it("may be any other text of up to 200 characters", async () => {
    const names = ["x".repeat(200), `it's "odd" \\ $1 🐘\n`, "__proto__", "constructor", " "];
    const seen: unknown[] = [];
    const { job } = await run({ pipeline: twice }, async (context) => {
      for (const one of names) seen.push(await context.step(one, () => `${context.attempt}`));
      if (context.attempt === 1) throw new Error("again");
    });
    expect(job.state).toBe("completed");
    expect(seen).toEqual(new Array(names.length * 2).fill("1"));
  });
});

describe("concurrent steps", () => {
  it("run at the same time, and each result is saved", async () => {
    const together = gate();
    let here = 0;
    const { job, id } = await run(async (context) => {
      const steps = Array.from({ length: 50 }, (_, n) =>
        context.step(`part ${n}`, async () => {
          if (++here === 50) together.open();
          await together.passed;
          return n;
        }),
      );
      const parts = await Promise.all(steps);
      return parts.reduce((sum, n) => sum + n, 0);
    });
    expect(job.output).toBe(1225);
    expect(await checkpoints(id)).toHaveLength(50);
  });

  it("fail the attempt when one of them fails; saved results are not computed again", async () => {
    const calls: string[] = [];
    const { job } = await run({ pipeline: twice }, (context) =>
      Promise.all([
        context.step("good", () => void calls.push("good")),
        context.step("bad", async () => {
          await waitFor(async () => (await checkpoints(context.id)).length > 0);
          calls.push("bad");
          if (context.attempt === 1) throw new Error("the first time");
        }),
      ]),
    );
    expect(job).toMatchObject({ state: "completed", attempt: 2 });
    expect(calls).toEqual(["good", "bad", "bad"]);
  });

  it("cannot write into the next attempt after their attempt has ended", async () => {
    const late = gate();
    const over = gate();
    const seen: unknown[] = [];
    const { job, events: announced } = await run({ pipeline: twice }, async (context) => {
      if (context.attempt === 1) {
        const slow = context.step("slow", async () => {
          await late.passed;
          return "of the first attempt";
        });
        slow.then(
          () => over.open(),
          (error) => {
            seen.push(error.code);
            over.open();
          },
        );
        throw new Error("does not wait for it");
      }
      late.open();
      await over.passed;
      seen.push(await context.step("slow", () => "of the second attempt"));
      return seen.at(-1);
    });
    expect(job).toMatchObject({ state: "completed", attempt: 2, crashes: 0, output: "of the second attempt" });
    expect(seen).toEqual(["ATTEMPT_ENDED", "of the second attempt"]);
    expect(announced.filter(({ kind }) => kind === "write.refused")).toEqual([]);
  });

  it("cannot write into the next job of the runner after their attempt has ended", async () => {
    const observer = await startStepObserver();
    await startWorker({
      url: database.url,
      pipelines: new URL("../fixtures/pipelines/left-behind.mjs", import.meta.url).pathname,
      args: ["--slots", "1"],
    });
    const first = await stillwake.enqueue("left.behind", { observer: observer.url, text: "first", leave: true });
    expect(await until(first.id)).toMatchObject({ state: "failed" });
    const second = await stillwake.enqueue("left.behind", { observer: observer.url, text: "second", leave: false });
    await observer.waitForReport(({ job, step }) => job === second.id && step === "before");
    observer.openGate("late");
    const job = await until(second.id);
    expect(job).toMatchObject({ state: "completed", output: "second" });
    expect((await checkpoints(second.id)).map(({ step, output }) => [step, output])).toEqual([
      ["before", "second"],
      ["slow", "second"],
    ]);
  });
});

describe("the limits of a step", () => {
  it("the timeout aborts the signal and fails the attempt with a sentence", async () => {
    const reasons: unknown[] = [];
    const { job } = await run({ pipeline: once }, (context) =>
      context.step("slow", { timeout: "30ms" }, async (step) => {
        await new Promise((_, reject) =>
          step.signal.addEventListener("abort", () => {
            reasons.push(step.signal.reason);
            reject(new Error("something else"));
          }),
        );
      }),
    );
    expect(job.failure).toMatchObject({
      code: "RETRIES_EXHAUSTED",
      cause: { code: "STEP_TIMEOUT", step: "slow", message: 'Step "slow" was still running after 30 ms' },
    });
    expect(reasons).toEqual([expect.objectContaining({ code: "STEP_TIMEOUT" })]);
  });

  it("the timeout fails a step that ignores the signal after the grace, and its later result is discarded", async () => {
    const held = gate();
    const { job, id } = await run({ pipeline: twice, worker: { grace: "20ms" } }, (context) =>
      context.step("deaf", { timeout: "20ms" }, async () => {
        if (context.attempt === 1) await held.passed;
        return context.attempt;
      }),
    );
    held.open();
    expect(job).toMatchObject({ state: "completed", output: 2 });
    expect(await checkpoints(id)).toMatchObject([{ step: "deaf", output: 2 }]);
  });

  it("a step that returns within the grace after its timeout has failed", async () => {
    const { job } = await run({ pipeline: once }, (context) =>
      context.step(
        "late",
        { timeout: "20ms" },
        (step) => new Promise((resolve) => step.signal.addEventListener("abort", () => resolve("late"))),
      ),
    );
    expect(job.failure).toMatchObject({ cause: { code: "STEP_TIMEOUT" } });
  });

  it("a step that finishes in time leaves no timer and no listener", async () => {
    let signal: AbortSignal | undefined;
    const { job } = await run(async (context) => {
      signal = context.signal;
      for (let n = 0; n < 100; n++) await context.step(`${n}`, { timeout: "1h", silence: "1h" }, () => n);
    });
    expect(job.state).toBe("completed");
    expect(getEventListeners(signal!, "abort")).toHaveLength(0);
  });

  it("the silence limit fails a step without activity", async () => {
    const { job } = await run({ pipeline: once, worker: { grace: "10ms" } }, (context) =>
      context.step("quiet", { silence: "50ms" }, () => new Promise(() => {})),
    );
    expect(job.failure).toMatchObject({
      cause: { code: "STEP_SILENT", message: 'Step "quiet" was silent for 50 ms' },
    });
  });

  it.each([
    ["log lines", (job: JobContext) => job.log.info("still here")],
    ["progress", (job: JobContext) => job.progress(0.5)],
  ])("%s count as activity", async (_, sign) => {
    const { job } = await run({ pipeline: once }, (context) =>
      context.step("long", { silence: "150ms" }, async () => {
        const began = performance.now();
        while (performance.now() - began < 450) {
          sign(context);
          await new Promise((resolve) => setTimeout(resolve, 30));
        }
      }),
    );
    expect(job.failure).toBeNull();
  });

  it.each([
    ["timeout", { timeout: "soon" }],
    ["silence", { silence: "-1s" }],
    ["retry.initial", { retry: { attempts: 2, initial: "later" } }],
  ])("%s that is not a duration fails the job without a retry", async (field, options) => {
    const { job } = await run((context) =>
      context.step("one", options as StepOptions, () => {
        throw new Error("first");
      }),
    );
    expect(job).toMatchObject({ state: "failed", attempt: 1, failure: { code: "INVALID_INPUT" } });
    expect(job.failure!.message).toMatch(new RegExp(`^${field} ".*" is not a duration`));
  });

  it("the timeout of the attempt stops everything in it", async () => {
    const { job } = await run({ pipeline: { ...once, timeout: "100ms" } }, (context) =>
      context.step(
        "long",
        (step) => new Promise((_, reject) => step.signal.addEventListener("abort", () => reject(step.signal.reason))),
      ),
    );
    expect(job.failure).toMatchObject({
      cause: { code: "TIMEOUT", message: "The attempt was still running after 100 ms" },
    });
  });
});

describe("tries within a step", () => {
  it("are made as often as configured, with a warning each, and use no attempt", async () => {
    let tries = 0;
    const { job, logs } = await run((context) =>
      context.step("flaky", { retry: { attempts: 3, initial: "10ms", max: "10ms" } }, () => {
        tries += 1;
        if (tries < 3) throw Object.assign(new Error(`try ${tries} failed`), { code: "EFLAKY" });
        return tries;
      }),
    );
    expect(job).toMatchObject({ state: "completed", attempt: 1, output: 3 });
    expect(logs).toHaveLength(2);
    expect(logs[0]).toMatchObject({ level: "warning", step: "flaky", data: { code: "EFLAKY" } });
    expect(logs.map(({ message }) => message.replace(/\d+ ms/, "…"))).toEqual([
      "try 1 failed (try 1 of 3, again in …)",
      "try 2 failed (try 2 of 3, again in …)",
    ]);
  });

  it("are logged with the sentence of explain and the numbers in the data", async () => {
    let tries = 0;
    const sentence = "Database sync failed - retrying...";
    const { logs } = await run(
      { code: { explain: (error) => ((error as { code: string }).code === "40P01" ? sentence : undefined) } },
      (context) =>
        context.step("sync", { retry: { attempts: 3, initial: "10ms", max: "10ms" } }, () => {
          if (++tries < 3) throw Object.assign(new Error("deadlock"), { code: tries === 1 ? "40P01" : "OTHER" });
        }),
    );
    expect(logs).toMatchObject([
      { level: "warning", step: "sync", message: sentence, data: { code: "40P01", try: 1, tries: 3 } },
      { level: "warning", step: "sync", message: expect.stringMatching(/^deadlock \(try 2 of 3, again in \d+ ms\)$/) },
    ]);
    expect(logs[0]!.data!.pause_ms).toEqual(expect.any(Number));
  });

  it("that all fail, fail the attempt with the last error", async () => {
    let tries = 0;
    const { job } = await run({ pipeline: once }, (context) =>
      context.step("flaky", { retry: { attempts: 3, initial: "1ms" } }, () => {
        throw new Error(`try ${++tries}`);
      }),
    );
    expect(tries).toBe(3);
    expect(job.failure).toMatchObject({ cause: { message: "try 3", step: "flaky" } });
  });

  it.each([
    ["Fatal", () => new Fatal("never")],
    ["RateLimited", () => new RateLimited("1h")],
    ["Pause", () => new Pause("by hand")],
    ["a code that is fatal", () => Object.assign(new Error("no"), { code: "ENOPE" })],
  ])("are not made after %s", async (_, error) => {
    let tries = 0;
    const { job } = await run(
      {
        pipeline: { failures: { ENOPE: "fatal" } },
        until: ({ state, waitingFor }) => state !== "running" && (state !== "queued" || waitingFor === "limit"),
      },
      (context) =>
        context.step("once", { retry: { attempts: 5, initial: "1ms" } }, () => {
          tries += 1;
          throw error();
        }),
    );
    expect(tries).toBe(1);
    expect(["failed", "paused", "queued"]).toContain(job.state);
  });

  it("wait for the delay of Retry", async () => {
    let tries = 0;
    const { logs } = await run((context) =>
      context.step("asked", { retry: { attempts: 2, initial: "1h" } }, () => {
        if (++tries === 1) throw new Retry("come back", { in: "7ms" });
      }),
    );
    expect(lines(logs)).toEqual(["warning: come back (try 1 of 2, again in 7 ms)"]);
  });

  it("each have the full timeout", async () => {
    let tries = 0;
    const { job, logs } = await run((context) =>
      context.step("slow", { timeout: "50ms", retry: { attempts: 2, initial: "1ms", max: "1ms" } }, (step) => {
        tries += 1;
        if (tries === 2) return "done";
        return new Promise<string>((_, reject) => step.signal.addEventListener("abort", () => reject(new Error("x"))));
      }),
    );
    expect(job).toMatchObject({ state: "completed", output: "done", attempt: 1 });
    expect(logs[0]!.message).toMatch(/^Step "slow" was still running after 50 ms \(try 1 of 2/);
  });

  it("end at once when the job is cancelled between two tries", async () => {
    const failed = gate();
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, null);
    await start(
      [
        implement(contract, (job) =>
          job.step("flaky", { retry: { attempts: 9, initial: "1h", max: "1h" } }, () => {
            failed.open();
            throw new Error("again");
          }),
        ),
      ],
      { lease: "1s" },
    );
    await failed.passed;
    await stillwake.cancel(id, { reason: "changed my mind" });
    expect(await until(id)).toMatchObject({ state: "cancelled" });
  });
});

describe("tokens for external systems", () => {
  it("the idempotency key of a step is the same in every attempt, the fencing token grows", async () => {
    const keys: string[] = [];
    const tokens: number[] = [];
    const { job, id } = await run({ pipeline: { retry: { attempts: 3, initial: "1ms" } } }, async (context) => {
      await context.step("charge", (step) => {
        keys.push(step.idempotencyKey);
        tokens.push(step.fencingToken, context.fencingToken);
        if (context.attempt < 3) throw new Error("again");
      });
      await context.step("mail", (step) => void keys.push(step.idempotencyKey));
    });
    expect(job.state).toBe("completed");
    expect(keys).toEqual([`${id}:charge`, `${id}:charge`, `${id}:charge`, `${id}:mail`]);
    expect(tokens).toEqual([1, 1, 2, 2, 3, 3]);
    // It is sent to other systems in JSON.
    expect(JSON.parse(JSON.stringify({ tokens }))).toEqual({ tokens });
  });

  it("the fencing token also grows when the attempt is not counted", async () => {
    const tokens: [number, number][] = [];
    const { job } = await run(async (context) => {
      tokens.push([context.attempt, context.fencingToken]);
      if (tokens.length === 1) throw new RateLimited("1ms");
      await context.sleep("nap", "1ms");
    });
    expect(job.state).toBe("completed");
    expect(tokens).toEqual([
      [1, 1],
      [1, 2],
      [1, 3],
    ]);
  });
});

describe("the log lines of a step", () => {
  it("are written when it starts and when its result is saved, with its duration", async () => {
    const { logs } = await run((context) =>
      context.step(
        "sbom",
        {
          start: "Generating software bill of materials...",
          end: ({ found }) => `SBOM generated - found ${found} dependencies`,
        },
        async () => ({ found: 147 }),
      ),
    );
    expect(logs).toMatchObject([
      { level: "info", step: "sbom", message: "Generating software bill of materials...", data: null },
      {
        level: "success",
        step: "sbom",
        message: "SBOM generated - found 147 dependencies",
        data: { took_ms: expect.any(Number) },
      },
    ]);
  });

  it("are not repeated for a saved step, and the end line is not written after a failure", async () => {
    const { logs } = await run({ pipeline: twice }, async (context) => {
      await context.step("one", { start: "one begins", end: "one is done" }, () => 1);
      await context.step("two", { start: "two begins", end: "two is done" }, () => {
        if (context.attempt === 1) throw new Error("two broke");
      });
    });
    expect(lines(logs)).toEqual([
      "info: one begins",
      "success: one is done",
      "info: two begins",
      "error: two broke",
      "info: two begins",
      "success: two is done",
    ]);
    expect(logs[3]).toMatchObject({
      step: "two",
      data: { error: "two broke", stack: expect.stringContaining("steps.test") },
    });
  });

  it("are accompanied by worker events for started, completed, failed and saved steps", async () => {
    const { events: announced } = await run({ pipeline: twice }, async (context) => {
      await context.step("one", () => 1);
      await context.step("two", () => {
        if (context.attempt === 1) throw Object.assign(new Error("x"), { code: "EX" });
      });
    });
    const ended = announced.flatMap((event) =>
      event.kind === "step.ended" ? [`${event.step} ${event.outcome} ${event.code ?? ""}`] : [],
    );
    expect(ended).toEqual(["one completed ", "two failed EX", "one kept ", "two completed "]);
  });
});

describe("an optional step", () => {
  it("has the type T | undefined", () => {
    const typed = async (job: JobContext) => {
      expectTypeOf(await job.optional("scan", () => 12)).toEqualTypeOf<number | undefined>();
      expectTypeOf(await job.optional("scan", { end: (n) => `${n.toFixed()}` }, async () => 12)).toEqualTypeOf<
        number | undefined
      >();
      expectTypeOf(await job.step("scan", () => 12)).toEqualTypeOf<number>();
      expectTypeOf(await job.step("scan", { end: (n) => `${n.toFixed()}` }, async () => 12)).toEqualTypeOf<number>();
    };
    expect(typed).toBeTypeOf("function");
  });

  it("that fails logs a warning and is listed as missing, and the job completes", async () => {
    const seen: unknown[] = [];
    const { job, logs } = await run(
      {
        code: {
          explain: (error) =>
            (error as { code?: string }).code === "EXEC_FAILED" ? "Vulnerability scan failed" : undefined,
        },
      },
      async (context) => {
        seen.push(
          await context.optional("vuln_scan", { start: "Running vulnerability scan..." }, () => {
            throw Object.assign(new Error("dep-scan exited with 1"), { code: "EXEC_FAILED" });
          }),
        );
        seen.push(await context.optional("semgrep", () => "4 findings"));
        return "complete";
      },
    );
    expect(seen).toEqual([undefined, "4 findings"]);
    expect(job).toMatchObject({
      state: "completed",
      output: "complete",
      missing: ["vuln_scan"],
      attempt: 1,
      failure: null,
    });
    expect(logs).toMatchObject([
      { level: "info", message: "Running vulnerability scan..." },
      {
        level: "warning",
        step: "vuln_scan",
        message: "Vulnerability scan failed",
        data: { code: "EXEC_FAILED", error: "dep-scan exited with 1" },
      },
    ]);
  });

  it("that succeeds is saved, also with the result undefined", async () => {
    let calls = 0;
    const { job } = await run({ pipeline: twice }, async (context) => {
      await context.optional("one", () => {
        calls += 1;
      });
      if (context.attempt === 1) throw new Error("again");
    });
    expect(calls).toBe(1);
    expect(job).toMatchObject({ state: "completed", missing: [] });
  });

  it("does not catch a rate limit, a pause or a classification that applies to the job", async () => {
    const seen: string[] = [];
    const limited = await run(async (context) => {
      await context.optional("call", () => {
        if (seen.push("limited") === 1) throw new RateLimited("1ms");
      });
    });
    expect(limited.job).toMatchObject({ state: "completed", missing: [], attempt: 1 });
    expect(await attempts(limited.id)).toMatchObject([{ outcome: "slept" }, { outcome: "completed" }]);

    const paused = await run({ until: ({ state }) => state === "paused" }, (context) =>
      context.optional("call", () => {
        throw new Pause("the provider is down");
      }),
    );
    expect(paused.job.pause).toMatchObject({ reason: "the provider is down" });

    const classified = await run(
      {
        code: { classify: () => ({ rateLimitedUntil: "1h" }) },
        until: ({ state, waitingFor }) => state !== "running" && (state !== "queued" || waitingFor === "limit"),
      },
      (context) =>
        context.optional("call", () => {
          throw new Error("429");
        }),
    );
    expect(classified.job).toMatchObject({ state: "queued", waitingFor: "limit" });
  });

  it("does not catch a cancel", async () => {
    const begun = gate();
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, null);
    const after: string[] = [];
    const code = implement(contract, async (job) => {
      await job.optional("long", (step) => {
        begun.open();
        return new Promise((_, reject) => step.signal.addEventListener("abort", () => reject(new Error("stopped"))));
      });
      after.push("continued");
    });
    await start([code], { lease: "1s" });
    await begun.passed;
    await stillwake.cancel(id);
    expect(await until(id)).toMatchObject({ state: "cancelled", missing: [] });
    expect(after).toEqual([]);
    expect(lines(await readLogs(id))).toEqual([]);
  });

  it("that sleeps has not failed", async () => {
    const { job, logs } = await run(async (context) => {
      await context.optional("nap", async () => {
        await context.sleep("inner", "1ms");
        return "rested";
      });
    });
    expect(job).toMatchObject({ state: "completed", missing: [] });
    expect(lines(logs)).toEqual([]);
  });
});

describe("sleep", () => {
  it("occupies no slot, uses no attempt, and is not repeated", async () => {
    const contract = pipeline<string>(name(), { retry: { attempts: 3, initial: "1ms" } });
    const seen: string[] = [];
    const code = implement(contract, async (job, what) => {
      if (what === "other") return "ran during the sleep";
      seen.push(`attempt ${job.attempt}`);
      await job.step("before", () => void seen.push("before"));
      await job.sleep("an hour", "1h");
      seen.push("awake");
      if (seen.filter((one) => one === "awake").length === 1) throw new Error("after the sleep");
      return "rested";
    });
    await start([code], { slots: 1 });
    const { id } = await stillwake.enqueue(contract, "sleeper");
    const asleep = await until(id, ({ waitingFor }) => waitingFor === "time");
    expect(asleep).toMatchObject({ state: "queued", attempt: 0 });
    expect(asleep.runAt!.getTime() - Date.now()).toBeGreaterThan(3_500_000);

    const other = await stillwake.enqueue(contract, "other");
    expect(await until(other.id)).toMatchObject({ output: "ran during the sleep" });
    expect(seen).toEqual(["attempt 1", "before"]);

    await travel(database.url, "1h");
    expect(await until(id)).toMatchObject({ state: "completed", output: "rested", attempt: 2 });
    expect(seen).toEqual(["attempt 1", "before", "attempt 1", "awake", "attempt 2", "awake"]);
    expect(await events(id)).toEqual(["slept", "failed"]);
    expect(lines(await readLogs(id))).toEqual(["error: after the sleep"]);
  });

  it("until a Date ends when the database's clock has reached it", async () => {
    const [{ now }] = (await query<{ now: Date }>("select stillwake.now()")) as [{ now: Date }];
    const date = new Date(now.getTime() + 3_600_000);
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, null);
    await start([implement(contract, (job) => job.sleep("until then", date))]);
    const asleep = await until(id, ({ waitingFor }) => waitingFor === "time");
    expect(asleep.runAt).toEqual(date);
    await travel(database.url, "59m");
    expect(await until(id, ({ state }) => state === "queued")).toMatchObject({ waitingFor: "time" });
    await travel(database.url, "1m");
    expect(await until(id)).toMatchObject({ state: "completed" });
  });

  it("until a past Date continues at once", async () => {
    const { job } = await run((context) => context.sleep("past", new Date(0)));
    expect(job).toMatchObject({ state: "completed", attempt: 1 });
  });

  it("cannot be prevented by catching its error, and later calls of the attempt are rejected", async () => {
    const seen: unknown[] = [];
    const { job } = await run(async (context) => {
      try {
        await context.sleep("nap", "1ms");
      } catch {
        seen.push(await context.step("after", () => 1).catch((error) => error.code));
      }
      return "woke";
    });
    expect(job).toMatchObject({ state: "completed", output: "woke" });
    expect(seen).toEqual(["ATTEMPT_ENDED"]);
  });

  it.each([
    ["no duration", "soon"],
    ["an invalid Date", new Date("never")],
  ])("of %s fails", async (_, time) => {
    const { job } = await run({ pipeline: once }, (context) => context.sleep("nap", time as Date));
    expect(job.state).toBe("failed");
    expect(job.waitingFor).toBeNull();
  });

  it("hundreds of jobs sleep in one slot", async () => {
    const contract = pipeline<number>(name());
    const many = 300;
    const began = performance.now();
    const jobs = await stillwake.enqueueMany(contract, [...new Array(many).keys()]);
    await start([implement(contract, (job) => job.sleep("nap", "1d"))], { slots: 1, lease: "1h" });
    const asleep = async () =>
      (
        await query<{ count: number }>(
          "select count(*)::int from stillwake.jobs where pipeline = $1 and waiting_for = 'time'",
          [contract.name],
        )
      )[0]!.count;
    await waitFor(async () => (await asleep()) === many, { timeout: 20_000 });
    expect(jobs).toHaveLength(many);
    recordFigure("jobs asleep at once per slot", many, "", `after ${Math.round(performance.now() - began)} ms`);
  });
});

describe("the signal of a job", () => {
  it("aborts with the reason when it is cancelled, and every call then throws that reason", async () => {
    const begun = gate();
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, null);
    const seen: unknown[] = [];
    const code = implement(contract, async (job) => {
      begun.open();
      await new Promise((resolve) => job.signal.addEventListener("abort", resolve));
      seen.push(job.signal.reason, await job.step("late", () => 1).catch((error) => error));
      throw new Error("whatever");
    });
    await start([code], { lease: "1s" });
    await begun.passed;
    await stillwake.cancel(id, { reason: "not needed", by: "me" });
    expect(await until(id)).toMatchObject({ state: "cancelled", cancel: { reason: "not needed", by: "me" } });
    expect(seen[0]).toBeInstanceOf(Stopped);
    expect(seen[0]).toMatchObject({
      code: "STOPPED_CANCEL",
      message: "The job was cancelled: not needed",
      stop: { kind: "cancel", reason: "not needed" },
    });
    expect(seen[1]).toBe(seen[0]);
  });

  it("a job that finishes after its cancel is completed", async () => {
    const begun = gate();
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, null);
    const code = implement(contract, async (job) => {
      begun.open();
      await new Promise((resolve) => job.signal.addEventListener("abort", resolve));
      return "finished";
    });
    await start([code], { lease: "1s" });
    await begun.passed;
    await stillwake.cancel(id);
    expect(await until(id)).toMatchObject({ state: "completed", output: "finished" });
  });
});

describe("after the end of an attempt", () => {
  const calls: [string, (job: JobContext) => unknown][] = [
    ["step", (job) => job.step("late", () => 1)],
    ["optional", (job) => job.optional("late", () => 1)],
    [
      "tx",
      (job) =>
        job.tx(
          "late",
          {},
          async () => {},
          () => 1,
        ),
    ],
    ["sleep", (job) => job.sleep("late", "1h")],
    ["artifact", (job) => job.artifact("late.txt", () => "late")],
    ["exec", (job) => job.exec("true")],
    ["scratch", (job) => job.scratch()],
    ["progress", (job) => job.progress(1)],
    ["log", (job) => job.log.info("late")],
    ["flush", (job) => job.flush()],
  ];
  it.each(calls)("%s throws ATTEMPT_ENDED", async (_, call) => {
    let kept: JobContext | undefined;
    const { id } = await run((context) => {
      kept = context;
    });
    const late = async () => call(kept!);
    await expect(late()).rejects.toMatchObject({
      code: "ATTEMPT_ENDED",
      message: `This attempt of job ${id} has ended. Await everything the job does before its function returns`,
    });
    expect(await readLogs(id)).toEqual([]);
  });

  it("a running transaction is rolled back", async () => {
    const late = gate();
    const over: Promise<unknown>[] = [];
    const pool = new pg.Pool({ connectionString: database.url, max: 1 });
    await pool.query("create table late_rows (id integer)");
    const { id, job } = await run({ pipeline: once }, async (context) => {
      const begun = gate();
      const work = context.tx("late", {}, pool, async (tx) => {
        await tx.query("insert into late_rows values (1)");
        begun.open();
        await late.passed;
      });
      work.catch(() => {});
      over.push(work);
      await begun.passed;
      throw new Error("the function fails");
    });
    expect(job.state).toBe("failed");
    late.open();
    await expect(over[0]).rejects.toMatchObject({ code: "ATTEMPT_ENDED" });
    expect((await pool.query("select from late_rows")).rowCount).toBe(0);
    expect(await checkpoints(id)).toEqual([]);
    await pool.end();
  });
});

describe("the output of a job", () => {
  it.each([
    ["nothing", undefined, null],
    ["null", null, null],
    ["a Date, as JSON writes it", { at: new Date(0) }, { at: "1970-01-01T00:00:00.000Z" }],
    ["200,000 small numbers", new Array(200_000).fill(1), new Array(200_000).fill(1)],
  ])("can be %s", async (_, value, stored) => {
    const { job } = await run(() => value);
    expect(job.failure).toBeNull();
    expect(job.output).toEqual(stored);
  });

  it.each([
    ["more than 1 MB", "x".repeat(1024 * 1024), /^output is 1048578 bytes of JSON, the limit is 1048576/],
    ["a NUL character", { deep: ["a\u0000b"] }, /^output\.deep\[0\] contains a NUL character/],
    ["an unpaired surrogate", "\ud83d", /^output contains an unpaired surrogate/],
    ["a bigint", { n: 1n }, /^output cannot be serialized as JSON/],
    ["a function", () => 1, /^output is function/],
  ])("cannot be %s: the job fails at once", async (_, value, message) => {
    const { job } = await run(() => value as never);
    expect(job).toMatchObject({ state: "failed", attempt: 1, failure: { code: "INVALID_INPUT" } });
    expect(job.failure!.message).toMatch(message);
  });
});

describe("a step that is called wrongly fails the job, without retries:", () => {
  it.each<[what: string, args: unknown[], message: RegExp]>([
    [
      "an unknown option",
      [{ retries: 3 }, () => 1],
      /^Step "mail" has an unknown option "retries".* Known options: start,/,
    ],
    ["retry as a number", [{ retry: 3 }, () => 1], /^Step "mail": retry must be an object, not 3/],
    ["no function", [{ timeout: "5s" }], /^Step "mail" has no function/],
  ])("%s", async (_, args, message) => {
    for (const kind of ["step", "optional"] as const) {
      const { job } = await run((context) =>
        (context[kind] as (...args: unknown[]) => Promise<unknown>)("mail", ...args),
      );
      expect(job).toMatchObject({ state: "failed", attempt: 1, failure: { code: "INVALID_INPUT" } });
      expect(job.failure!.message).toMatch(message);
    }
  });
});

describe("a runner that sends forged messages", () => {
  // See fixtures/pipelines/forger.mjs.
  const forgeries = {
    "an output that is too large": "failed",
    "an output Postgres cannot store": "failed",
    "an output with an unpaired surrogate": "failed",
    "a failure Postgres cannot store": "failed",
    "an unknown outcome": "failed",
    "no outcome": "failed",
    "a sleep until never": "failed",
    "an unknown waiting reason": "failed",
    "a step name that is too long": "completed",
    "a result that is not JSON": "completed",
    "an empty result": "completed",
    "an artifact of another job": "completed",
    "an invalid time": "completed",
    "unknown calls": "completed",
    "an invalid log": "completed",
    "lines with invalid numbers of repetition": "completed",
    "a line Postgres cannot store": "completed",
    "data Postgres cannot store": "completed",
    "invalid progress": "completed",
    "unknown messages": "completed",
  };

  it("harms only its own job: other jobs of the same worker lose no step and no line", async () => {
    const observer = await startStepObserver();
    const worker = await startWorker({
      url: database.url,
      pipelines: new URL("../fixtures/pipelines/forger.mjs", import.meta.url).pathname,
      args: ["--slots", "3", "--grace", "200ms"],
    });
    const honest = await stillwake.enqueueMany("honest", new Array(2).fill({ observer: observer.url }));
    const sent = await stillwake.enqueueMany("forger", Object.keys(forgeries));
    const states: Record<string, string> = {};
    for (const { id } of sent) {
      const { input, state } = await until(id);
      states[input as string] = state;
    }
    expect(states).toEqual(forgeries);
    observer.openGate("sent");
    for (const { id } of honest) {
      const { output } = await stillwake.wait(id, { timeout: "10s" });
      const steps = output as number;
      expect(steps).toBeGreaterThan(sent.length);
      expect(await checkpoints(id)).toHaveLength(steps);
      expect((await readLogs(id)).map(({ message }) => message)).toEqual(
        Array.from({ length: steps }, (_, n) => `line ${n}`),
      );
      recordFigure("steps and lines stored beside a forging runner", steps, "", `${sent.length} forged messages`);
    }
    expect(worker.child.exitCode).toBeNull();
  });
});
