// The log of a worker process: the level and text of each event, and redaction of secrets.
import { describe, expect, it, vi } from "vitest";
import { createWorkerEvents, type WorkerEvent } from "../../../src/worker/observe/events.ts";
import { createProcessLog, logEvents, type ProcessLogOptions } from "../../../src/worker/observe/process-log.ts";
import { recordFigure } from "../../support/figures.ts";

const started = { kind: "attempt.started", job: "0198", pipeline: "clip", attempt: 2, epoch: "7" } as const;
const ended = {
  kind: "attempt.ended",
  job: "0198",
  pipeline: "clip",
  epoch: "7",
  outcome: "completed",
  state: "completed",
  tookMs: 1234,
  retry: false,
} as const;
const failed = {
  ...ended,
  outcome: "failed",
  state: "queued",
  code: "YTDLP_TIMEOUT",
  step: "resolve",
  retry: true,
} as const;
const step = { kind: "step.ended", job: "0198", pipeline: "clip", step: "upload", tookMs: 5 } as const;

describe("an event", () => {
  it("is one line of JSON with its name, its data and a message", () => {
    const [line, ...others] = announced([failed]);
    expect(others).toEqual([]);
    expect(line).toEqual({
      level: "warn",
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
      event: "attempt.ended",
      job: "0198",
      pipeline: "clip",
      epoch: "7",
      outcome: "failed",
      state: "queued",
      code: "YTDLP_TIMEOUT",
      tookMs: 1234,
      retry: true,
      step: "resolve",
      msg: "clip failed in step resolve (YTDLP_TIMEOUT) after 1.2 s, will retry, job 0198",
    });
  });

  const levels: [WorkerEvent, string][] = [
    [
      {
        kind: "worker.started",
        worker: "w",
        slots: 1,
        pools: { p: [] },
        notServed: {},
        isolation: "process",
        version: "1",
      },
      "info",
    ],
    [{ kind: "worker.draining", reason: "SIGTERM", active: 2, limitMs: 30_000 }, "info"],
    [{ kind: "worker.stopped", reason: "SIGTERM", tookMs: 1, jobs: 2 }, "info"],
    [{ kind: "database.lost", message: "ECONNREFUSED" }, "error"],
    [{ kind: "database.back", awayMs: 10 }, "info"],
    [{ kind: "hints.lost", message: "closed" }, "warn"],
    [{ kind: "hints.ready" }, "info"],
    [{ kind: "hints.unavailable", why: "a pooler" }, "warn"],
    [{ kind: "claimed", count: 3, tookMs: 4 }, "debug"],
    [{ kind: "claim.empty", hinted: true }, "debug"],
    [{ kind: "claim.empty", hinted: false }, "trace"],
    [{ kind: "heartbeat", jobs: 1, tookMs: 1 }, "trace"],
    [{ kind: "recovered", count: 1, reason: "stale" }, "warn"],
    [started, "debug"],
    [ended, "debug"],
    [{ ...ended, outcome: "released" }, "debug"],
    [{ ...ended, outcome: "lost", state: "queued" }, "warn"],
    [{ kind: "step.started", job: "0198", pipeline: "clip", step: "upload" }, "debug"],
    [{ ...step, outcome: "failed" }, "debug"],
    [{ kind: "write.refused", job: "0198", verb: "settle" }, "warn"],
    [{ kind: "runner.started", runner: "r", pid: 9, tookMs: 80 }, "debug"],
    [{ kind: "runner.died", runner: "r", pid: 9, code: null, signal: "SIGKILL", cause: "memory", job: "0198" }, "warn"],
    [{ kind: "runner.died", runner: "r", pid: 9, code: 0, signal: null, cause: "retired" }, "debug"],
    [{ kind: "memory.high", fraction: 0.84, usedBytes: 84 * 2 ** 20, limitBytes: 100 * 2 ** 20 }, "warn"],
    [{ kind: "demand", pool: "p", claimable: 1, running: 0, oldestSeconds: 3 }, "debug"],
    [{ kind: "housekeeping.failed", message: "timeout" }, "warn"],
    [{ kind: "logs.dropped", job: "0198", lines: 1 }, "warn"],
  ];
  it.each(levels)("%o is logged at level %s", (event, level) => {
    const [line] = announced([event], { level: "trace" });
    expect(line).toMatchObject({ level, event: event.kind });
    expect(line.msg).not.toMatch(/undefined|NaN|\[object/);
  });

  it("heartbeat.failed is a warning once, and again after a successful heartbeat", () => {
    const broken = { kind: "heartbeat.failed", message: "timeout" } as const;
    const lines = announced([broken, broken, broken, { kind: "heartbeat", jobs: 1, tookMs: 1 }, broken]);
    expect(lines.map(({ level }) => level)).toEqual(["warn", "warn"]);
  });

  it("memory.high contains the used memory", () => {
    const [line] = announced([
      { kind: "memory.high", fraction: 0.84, usedBytes: 840 * 2 ** 20, limitBytes: 1000 * 2 ** 20 },
    ]);
    expect(line.msg).toBe("memory is nearly exhausted: 84 % of 1000 MB used (840 MB)");
  });

  it("is not logged after the subscription has ended", () => {
    const workerEvents = createWorkerEvents();
    const { lines, log } = logged();
    logEvents(workerEvents, log)();
    workerEvents.emit(failed);
    expect(lines).toEqual([]);
  });

  it("costs little when its level is disabled", () => {
    const workerEvents = createWorkerEvents();
    const { lines, log } = logged();
    logEvents(workerEvents, log);
    const rounds = 300_000;
    const run = () => {
      const from = performance.now();
      for (let n = 0; n < rounds; n++) workerEvents.emit({ ...ended, tookMs: n });
      return ((performance.now() - from) * 1e6) / rounds;
    };
    run();
    const write = vi.spyOn(log, "debug");
    workerEvents.emit(ended);
    expect(write).not.toHaveBeenCalled();
    write.mockRestore();
    recordFigure("process log: an attempt below the level", Math.round(run()), "ns", "with the making of the event");
    expect(lines).toEqual([]);
  });
});

describe("secrets", () => {
  it("in fields with secret names are not written, at any usual depth", () => {
    const { lines, log } = logged();
    log.info({
      url: "s3cret",
      password: "s3cret",
      headers: { authorization: "s3cret" },
      provider: { options: { token: "s3cret", region: "iad" } },
    });
    expect(lines.join("")).not.toContain("s3cret");
    expect(JSON.parse(lines[0]!)).toMatchObject({ url: "***", provider: { options: { token: "***", region: "iad" } } });
  });

  it.each([
    ["postgres://app:s3cret@db:5432/x is gone", "postgres://app:***@db:5432/x is gone"],
    ["postgres://app:s3c@ret/s3cret@db/x", "postgres://app:***@db/x"],
    ["at postgresql://db/x?user=app&password=s3cret&a=1", "at postgresql://db/x?user=app&password=***&a=1"],
    ["see https://example.com:8080/a or mail a@b.c", "see https://example.com:8080/a or mail a@b.c"],
  ])("in a message are not written: %s", (message, written) => {
    const [line] = announced([{ kind: "database.lost", message }]);
    expect(line.message).toBe(written);
    expect(line.msg).toContain(written);
  });
});

describe("on a terminal", () => {
  it("a line has time, level and message", () => {
    const { lines, log } = logged({ pretty: true, level: "debug" });
    const workerEvents = createWorkerEvents();
    logEvents(workerEvents, log);
    workerEvents.emit({ kind: "claimed", count: 3, tookMs: 4 });
    workerEvents.emit({ kind: "hints.ready" });
    expect(lines[0]).toMatch(/^\d\d:\d\d:\d\d debug claimed 3 jobs in 4 ms\n$/);
    expect(lines[1]).toMatch(/^\d\d:\d\d:\d\d info {2}the connection for hints is ready\n$/);
  });

  it("other lines show their fields, and an error its stack", () => {
    const { lines, log } = logged({ pretty: true });
    log.info({ port: 4701, host: "::1" }, "listening");
    log.error(new Error("broken"));
    expect(lines[0]).toMatch(/info {2}listening port=4701 host="::1"\n$/);
    expect(lines[1]).toMatch(/error broken\nError: broken\n {2} +at .*process-log\.test/);
  });

  it("untrusted text can neither move the cursor nor forge a line", () => {
    const { lines, log } = logged({ pretty: true });
    log.warn({ title: "\u001b[2J" }, "first\n12:00:00 error forged\u001b[31m\u009b");
    expect(lines[0]!.match(/\p{Cc}/gu)).toEqual(["\n"]);
    expect(lines[0]).toContain("first\\x0a12:00:00 error forged\\x1b[31m\\x9b");
  });

  it("secrets are not shown either", () => {
    const { lines, log } = logged({ pretty: true });
    log.info({ token: "s3cret" }, "postgres://u:s3cret@h");
    expect(lines[0]).toContain('postgres://u:***@h token="***"');
  });
});

function logged(options: ProcessLogOptions = {}) {
  const lines: string[] = [];
  const log = createProcessLog({ destination: { write: (line: string) => void lines.push(line) }, ...options });
  return { lines, log };
}

function announced(events: WorkerEvent[], options: ProcessLogOptions = {}) {
  const workerEvents = createWorkerEvents();
  const { lines, log } = logged(options);
  logEvents(workerEvents, log);
  for (const event of events) workerEvents.emit(event);
  return lines.map((line) => JSON.parse(line));
}
