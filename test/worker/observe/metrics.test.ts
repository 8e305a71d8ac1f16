// Prometheus metrics of worker events: the metric names, which events change them, and their cost.
import { describe, expect, it, vi } from "vitest";
import { createWorkerEvents, type WorkerEvent } from "../../../src/worker/observe/events.ts";
import { createMetrics } from "../../../src/worker/observe/metrics.ts";
import { recordFigure } from "../../support/figures.ts";

const ended = {
  kind: "attempt.ended",
  job: "j",
  pipeline: "clip",
  epoch: "1",
  outcome: "completed",
  state: "completed",
  tookMs: 40,
  retry: false,
} as const;
const stepEnded = { kind: "step.ended", job: "j", pipeline: "clip", step: "upload", outcome: "completed" } as const;
const started = { kind: "attempt.started", job: "j", pipeline: "clip", attempt: 1, epoch: "1" } as const;

describe("worker events", () => {
  it("reach the next listener when one throws or rejects, with one warning", async () => {
    const workerEvents = createWorkerEvents();
    const received: string[] = [];
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    workerEvents.subscribe(() => {
      throw new Error("broken listener");
    });
    workerEvents.subscribe(async () => {
      throw new Error("broken promise");
    });
    workerEvents.subscribe((event) => received.push(event.kind));
    workerEvents.emit({ kind: "hints.ready" });
    workerEvents.emit({ kind: "hints.ready" });
    await new Promise(setImmediate);
    expect(received).toEqual(["hints.ready", "hints.ready"]);
    const warnings = warn.mock.calls.map(([text]) => /broken \w+/.exec(String(text))?.[0]);
    expect(warnings).toEqual(["broken listener", "broken promise"]);
    warn.mockRestore();
  });

  it("do not reach a listener that has unsubscribed, even during an event", () => {
    const workerEvents = createWorkerEvents();
    const received: string[] = [];
    const leave = workerEvents.subscribe(() => {
      received.push("first");
      leave();
    });
    workerEvents.subscribe(() => received.push("second"));
    workerEvents.emit({ kind: "hints.ready" });
    workerEvents.emit({ kind: "hints.ready" });
    expect(received).toEqual(["first", "second", "second"]);
  });
});

describe("the metrics", () => {
  it("start with every documented name, and with zero where the labels are known", async () => {
    const { samples, names } = await read([]);
    expect(names).toEqual(
      new Set([
        "worker_heartbeats_total counter",
        "worker_heartbeat_failures_total counter",
        "worker_recovered_jobs_total counter",
        "worker_retry_attempts_total counter",
        "worker_concurrent_jobs gauge",
        "worker_acquire_conflicts_total counter",
        "stillwake_queue_depth gauge",
        "stillwake_queue_age_seconds gauge",
        "stillwake_step_seconds histogram",
        "stillwake_attempt_seconds histogram",
        "stillwake_attempts_total counter",
        "stillwake_refused_writes_total counter",
        "stillwake_runner_deaths_total counter",
        "stillwake_log_lines_dropped_total counter",
        "stillwake_memory_used_fraction gauge",
        "stillwake_database_up gauge",
      ]),
    );
    expect(samples).toMatchObject({
      worker_heartbeats_total: 0,
      'worker_recovered_jobs_total{reason="stale"}': 0,
      worker_concurrent_jobs: 0,
      stillwake_database_up: 1,
      stillwake_memory_used_fraction: 0.5,
    });
  });

  const cases: [string, WorkerEvent[], Record<string, number>][] = [
    [
      "heartbeats and failed heartbeats",
      [
        { kind: "heartbeat", jobs: 3, tookMs: 2 },
        { kind: "heartbeat", jobs: 3, tookMs: 2 },
        { kind: "heartbeat.failed", message: "" },
      ],
      { worker_heartbeats_total: 2, worker_heartbeat_failures_total: 1 },
    ],
    [
      "recovered jobs by reason",
      [
        { kind: "recovered", count: 4, reason: "stale" },
        { kind: "recovered", count: 1, reason: "absent" },
      ],
      { 'worker_recovered_jobs_total{reason="stale"}': 4, 'worker_recovered_jobs_total{reason="absent"}': 1 },
    ],
    [
      "acquire conflicts: an empty claim counts only after a hint",
      [
        { kind: "claim.empty", hinted: false },
        { kind: "claim.empty", hinted: true },
      ],
      { worker_acquire_conflicts_total: 1 },
    ],
    [
      "demand, the latest of each pool",
      [
        { kind: "demand", pool: "gpu", claimable: 9, running: 1, oldestSeconds: 60 },
        { kind: "demand", pool: "gpu", claimable: 7, running: 1, oldestSeconds: 30 },
        { kind: "demand", pool: "cpu", claimable: 0, running: 0, oldestSeconds: 0 },
      ],
      {
        'stillwake_queue_depth{pool="gpu"}': 7,
        'stillwake_queue_age_seconds{pool="gpu"}': 30,
        'stillwake_queue_depth{pool="cpu"}': 0,
      },
    ],
    [
      "refused writes, dead runners and dropped lines",
      [
        { kind: "write.refused", job: "j", verb: "save_checkpoint" },
        { kind: "runner.died", runner: "r", pid: 1, code: null, signal: "SIGKILL", cause: "memory" },
        { kind: "logs.dropped", job: "j", lines: 12 },
      ],
      {
        'stillwake_refused_writes_total{verb="save_checkpoint"}': 1,
        'stillwake_runner_deaths_total{cause="memory"}': 1,
        stillwake_log_lines_dropped_total: 12,
      },
    ],
    ["the outage of the database", [{ kind: "database.lost", message: "" }], { stillwake_database_up: 0 }],
    [
      "the end of the outage",
      [
        { kind: "database.lost", message: "" },
        { kind: "database.back", awayMs: 1 },
      ],
      { stillwake_database_up: 1 },
    ],
    [
      "running jobs",
      [started, { ...started, job: "k" }, { ...started, job: "l" }, ended],
      { worker_concurrent_jobs: 2 },
    ],
    [
      "retries by code, and no retry for a job that ended",
      [
        { ...ended, outcome: "failed", retry: true, code: "YTDLP_TIMEOUT" },
        { ...ended, outcome: "failed", retry: true },
        { ...ended, outcome: "failed", retry: false, code: "FATAL" },
      ],
      {
        'worker_retry_attempts_total{code="YTDLP_TIMEOUT"}': 1,
        'worker_retry_attempts_total{code="unknown"}': 1,
        'worker_retry_attempts_total{code="FATAL"}': 0,
        'stillwake_attempts_total{pipeline="clip",outcome="failed"}': 3,
      },
    ],
    [
      "attempts in their buckets, a bound included",
      [
        { ...ended, tookMs: 10 },
        { ...ended, tookMs: 10.001 },
        { ...ended, tookMs: 7_200_000 },
        { ...ended, tookMs: Number.NaN },
      ],
      {
        'stillwake_attempt_seconds_bucket{pipeline="clip",outcome="completed",le="0.01"}': 2,
        'stillwake_attempt_seconds_bucket{pipeline="clip",outcome="completed",le="0.025"}': 3,
        'stillwake_attempt_seconds_bucket{pipeline="clip",outcome="completed",le="3600"}': 3,
        'stillwake_attempt_seconds_bucket{pipeline="clip",outcome="completed",le="+Inf"}': 4,
        'stillwake_attempt_seconds_count{pipeline="clip",outcome="completed"}': 4,
        'stillwake_attempt_seconds_sum{pipeline="clip",outcome="completed"}': 7200.020001,
        'stillwake_attempts_total{pipeline="clip",outcome="completed"}': 4,
      },
    ],
    [
      "steps that ran, not those restored from a checkpoint",
      [
        { ...stepEnded, tookMs: 2000 },
        { ...stepEnded, tookMs: 500, outcome: "failed" },
        { ...stepEnded, tookMs: 0, outcome: "kept" },
        { ...stepEnded, tookMs: 0, outcome: "skipped" },
      ],
      {
        'stillwake_step_seconds_bucket{pipeline="clip",step="upload",le="1"}': 1,
        'stillwake_step_seconds_count{pipeline="clip",step="upload"}': 2,
        'stillwake_step_seconds_sum{pipeline="clip",step="upload"}': 2.5,
      },
    ],
  ];
  it.each(cases)("count %s", async (_, events, expected) => {
    const { samples } = await read(events);
    for (const [name, value] of Object.entries(expected)) expect(samples[name] ?? 0, name).toBeCloseTo(value, 6);
  });

  it("list 50 steps per pipeline by name and count the rest as other", async () => {
    const events = Array.from({ length: 60 }, (_, page) => ({ ...stepEnded, step: `page-${page}`, tookMs: 1 }));
    const { samples } = await read([...events, { ...stepEnded, pipeline: "digest", tookMs: 1 }]);
    const counts = Object.keys(samples).filter((name) => name.startsWith("stillwake_step_seconds_count"));
    expect(counts).toHaveLength(52);
    expect(samples['stillwake_step_seconds_count{pipeline="clip",step="page-49"}']).toBe(1);
    expect(samples['stillwake_step_seconds_count{pipeline="clip",step="other"}']).toBe(10);
    expect(samples['stillwake_step_seconds_count{pipeline="digest",step="upload"}']).toBe(1);
  });

  it("list 200 codes by name, and each series once", async () => {
    const names = ["other", "x".repeat(500), `${"x".repeat(500)}y`, ...Array.from({ length: 300 }, (_, n) => `E${n}`)];
    const { samples, lines } = await read(
      names.map((code) => ({ ...ended, outcome: "failed", retry: true, code }) as const),
    );
    const series = lines.filter((line) => line.startsWith("worker_retry_attempts_total{"));
    expect(series).toHaveLength(200);
    expect(samples['worker_retry_attempts_total{code="other"}']).toBe(1 + 300 - 198);
    expect(samples[`worker_retry_attempts_total{code="${"x".repeat(120)}"}`]).toBe(2);
  });

  it("escape special characters in labels", async () => {
    const { lines } = await read([{ ...ended, pipeline: 'a"b\\c\nd' }]);
    expect(lines).toContain('stillwake_attempts_total{pipeline="a\\"b\\\\c\\nd",outcome="completed"} 1');
  });

  it("of two workers in one process are separate, with prefix and labels", async () => {
    const [one, other] = [createWorkerEvents(), createWorkerEvents()];
    const first = createMetrics(one, { prefix: "app_", labels: { pool: "gpu", worker: "w1" } });
    const second = createMetrics(other, { labels: { pool: "cpu", worker: "w2" } });
    one.emit(ended);
    one.emit({ kind: "demand", pool: "watched", claimable: 5, running: 0, oldestSeconds: 0 });
    expect(await first.text()).toContain(
      'app_stillwake_attempts_total{pipeline="clip",outcome="completed",pool="gpu",worker="w1"} 1',
    );
    expect(await first.text()).toMatch(/app_stillwake_attempt_seconds_sum\{.*worker="w1"\} 0\.04/);
    expect(await first.text()).toContain('app_stillwake_queue_depth{pool="watched",worker="w1"} 5');
    expect(await second.text()).toContain('worker_heartbeats_total{pool="cpu",worker="w2"} 0');
    expect(await second.text()).not.toContain('pipeline="clip"');
    expect(first.contentType).toMatch(/^text\/plain; version=0\.0\.4/);
  });

  it("stop counting after stop, and can still be read", async () => {
    const workerEvents = createWorkerEvents();
    const metrics = createMetrics(workerEvents);
    workerEvents.emit({ kind: "heartbeat", jobs: 1, tookMs: 1 });
    metrics.stop();
    workerEvents.emit({ kind: "heartbeat", jobs: 1, tookMs: 1 });
    expect(await metrics.text()).toMatch(/^worker_heartbeats_total 1$/m);
  });

  it("cost little per attempt", async () => {
    const workerEvents = createWorkerEvents();
    const metrics = createMetrics(workerEvents);
    const rounds = 300_000;
    const run = () => {
      const from = performance.now();
      for (let n = 0; n < rounds; n++) {
        workerEvents.emit({ ...started, attempt: n });
        workerEvents.emit({ ...ended, pipeline: n % 2 ? "clip" : "digest", tookMs: n % 500 });
      }
      return ((performance.now() - from) * 1e6) / (2 * rounds);
    };
    run();
    recordFigure("metrics: one announcement of an attempt", Math.round(run()), "ns", "with the making of the event");
    expect(await metrics.text()).toContain(`outcome="completed"} ${rounds}`);
  });
});

/** The samples by name and labels, and the names with their types. Reads twice, because a read must not change anything. */
async function read(events: readonly WorkerEvent[]) {
  const workerEvents = createWorkerEvents();
  const metrics = createMetrics(workerEvents, { memory: () => ({ fraction: 0.5 }) });
  for (const event of events) workerEvents.emit(event);
  await metrics.text();
  const lines = (await metrics.text()).split("\n");
  const parsed = lines.filter((line) => line && !line.startsWith("#")).map((line) => /^(.*) (\S+)$/.exec(line)!);
  return {
    lines,
    samples: Object.fromEntries(parsed.map(([, name, value]) => [name, Number(value)])) as Record<string, number>,
    names: new Set(lines.filter((line) => line.startsWith("# TYPE ")).map((line) => line.slice("# TYPE ".length))),
  };
}
