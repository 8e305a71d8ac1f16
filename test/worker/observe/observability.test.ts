// Monitoring of real workers: metrics, health, process log, memory warnings and traces.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { context, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { pipeline } from "../../../src/index.ts";
import { faultProxy, waitFor } from "../../../src/testing/index.ts";
import { implement } from "../../../src/worker/index.ts";
import { temporaryDirectory } from "../../support/cleanup.ts";
import { recordTimes, waitForEnd, waitForStartupGrace } from "../../support/processes/fault-checks.ts";
import { processFixture } from "../../support/processes/process-fixture.ts";
import { startRecordedWorker } from "../../support/processes/recorded-worker.ts";
import { type StartWorkerOptions, startWorker, type WorkerProcess } from "../../support/processes/workers.ts";

const { database, stillwake, client, observer } = await processFixture();

describe("the metrics of a worker", () => {
  it("are correct after completed, failed, retried, cancelled, lost and recovered jobs", async () => {
    await waitForStartupGrace(client, "2s");
    // A job of a dead worker, which the tested worker recovers.
    const gone = await start({ args: ["--lease", "2s", "--name", "gone"] });
    const recovered = await enqueue({ name: "held", act: "gate", gate: "recovered" });
    await observer.waitForReport(({ job, step }) => job === recovered && step === "held");
    const { worker, url } = await startObserved({ args: ["--lease", "2s", "--slots", "2"] });
    gone.signal("SIGKILL");
    await observer.waitForReport(({ job, step, epoch }) => job === recovered && step === "held" && epoch === "2");
    expect(await samplesOf(url)).toMatchObject({ worker_concurrent_jobs: 1 });
    observer.openGate("recovered");
    await waitForEnd(stillwake, recovered);

    await waitForEnd(stillwake, await enqueue({ name: "first", act: "nothing" }, { name: "second", act: "nothing" }));
    await waitForEnd(stillwake, await enqueueTo("timed", { name: "broken", act: "fail", code: "E_BROKEN" }));
    for (const epoch of [1, 2]) observer.openGate(`retried-${epoch}`);
    await waitForEnd(stillwake, await enqueue({ name: "retried", act: "turnstile", gate: "retried", failAt: "1" }));
    const cancelled = await enqueue({ name: "endless", act: "gate", gate: "never" });
    await observer.waitForReport(({ job, step }) => job === cancelled && step === "endless");
    await stillwake.cancel(cancelled);
    await waitForEnd(stillwake, cancelled);
    const killed = await enqueue({ name: "killed", act: "gate", gate: "killed" });
    const { pid } = await observer.waitForReport(({ job, step }) => job === killed && step === "killed");
    process.kill(pid, "SIGKILL");
    await observer.waitForReport(({ job, step, epoch }) => job === killed && step === "killed" && epoch === "2");
    observer.openGate("killed");
    await waitForEnd(stillwake, killed);

    // The database knows the last settlement a moment before the worker does.
    const samples = await waitFor(async () => {
      const now = await samplesOf(url);
      return now.worker_concurrent_jobs === 0 && now;
    });
    expect(samples).toMatchObject({
      'stillwake_attempts_total{pipeline="script",outcome="completed"}': 4,
      'stillwake_attempts_total{pipeline="script",outcome="failed"}': 1,
      'stillwake_attempts_total{pipeline="script",outcome="cancelled"}': 1,
      'stillwake_attempts_total{pipeline="script",outcome="lost"}': 1,
      'stillwake_attempts_total{pipeline="timed",outcome="failed"}': 1,
      'worker_retry_attempts_total{code="unknown"}': 1,
      'worker_retry_attempts_total{code="RUNNER_KILLED"}': 1,
      'stillwake_runner_deaths_total{cause="killed"}': 1,
      'stillwake_step_seconds_count{pipeline="script",step="first"}': 1,
      'stillwake_step_seconds_count{pipeline="script",step="retried"}': 2,
      'stillwake_step_seconds_count{pipeline="timed",step="broken"}': 1,
      'stillwake_attempt_seconds_count{pipeline="script",outcome="completed"}': 4,
      stillwake_database_up: 1,
      worker_heartbeat_failures_total: 0,
      stillwake_log_lines_dropped_total: 0,
    });
    const taken = (reason: string) => samples[`worker_recovered_jobs_total{reason="${reason}"}`]!;
    expect(taken("stale") + taken("absent")).toBe(1);
    expect(samples.worker_heartbeats_total).toBeGreaterThanOrEqual(1);
    expect(samples.stillwake_memory_used_fraction).toBeGreaterThan(0);
    expect(samples['worker_retry_attempts_total{code="E_BROKEN"}']).toBeUndefined();
    worker.signal("SIGTERM");
    expect(await worker.exited).toBe(0);
  });

  it("include every documented name, and promtool accepts every line", async () => {
    const { url } = await startObserved();
    const hostile = 'a "quoted" \\ step\nin two lines, ä';
    await waitForEnd(stillwake, await enqueue({ name: hostile, act: "nothing" }));
    const response = await fetch(`${url}/metrics`);
    expect(response.headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/);
    const { types, samples } = parseExposition(await response.text());
    expect(Object.fromEntries(types)).toEqual({
      worker_heartbeats_total: "counter",
      worker_heartbeat_failures_total: "counter",
      worker_recovered_jobs_total: "counter",
      worker_retry_attempts_total: "counter",
      worker_concurrent_jobs: "gauge",
      worker_acquire_conflicts_total: "counter",
      stillwake_queue_depth: "gauge",
      stillwake_queue_age_seconds: "gauge",
      stillwake_step_seconds: "histogram",
      stillwake_attempt_seconds: "histogram",
      stillwake_attempts_total: "counter",
      stillwake_refused_writes_total: "counter",
      stillwake_runner_deaths_total: "counter",
      stillwake_log_lines_dropped_total: "counter",
      stillwake_memory_used_fraction: "gauge",
      stillwake_database_up: "gauge",
    });
    for (const { labels } of samples) expect(labels).toMatchObject({ pool: "default", worker: expect.any(String) });
    expect(samples.map(({ labels }) => labels.step)).toContain(hostile);
  });

  it("report how many jobs wait, and how long", async () => {
    const { url } = await startObserved({ args: ["--slots", "1"], config: { demandEvery: "50ms" } });
    const depth = async () => {
      const samples = await samplesOf(url);
      return [samples.stillwake_queue_depth, samples.stillwake_queue_age_seconds];
    };
    await waitFor(async () => (await depth())[0] === 0);
    const holding = await enqueue({ name: "holds the slot", act: "gate", gate: "depth" });
    await observer.waitForReport(({ job, step }) => job === holding && step === "holds the slot");
    const waiting = [await enqueue(), await enqueue(), await enqueue()];
    const [, before] = await waitFor(async () => {
      const now = await depth();
      return now[0] === 3 && now[1]! > 0 && now;
    });
    await waitFor(async () => (await depth())[1]! > before!);
    observer.openGate("depth");
    for (const id of [holding, ...waiting]) await waitForEnd(stillwake, id);
    await waitFor(async () => (await depth()).every((value) => value === 0));
  });
});

describe("the health of a worker", () => {
  it("is ok, fails without its database, and recovers", async () => {
    await using proxy = await faultProxy(database.url);
    const { url } = await startObserved({ url: proxy.url });
    expect(await healthOf(url)).toMatchObject({
      code: 200,
      status: "ok",
      database: "up",
      active: 0,
      lastHeartbeatAgoMs: null,
    });
    proxy.mode = "refuse";
    proxy.reset();
    await fetch(`${url}/wake`, { method: "POST" });
    const down = await waitFor(async () => {
      const health = await healthOf(url);
      return health.code === 503 && health;
    });
    expect(down).toMatchObject({ status: "database down", database: "down" });
    expect((await fetch(`${url}/live`)).status).toBe(200);
    expect(await samplesOf(url)).toMatchObject({ stillwake_database_up: 0 });
    proxy.mode = "pass";
    await waitFor(async () => (await healthOf(url)).code === 200);
    expect(await samplesOf(url)).toMatchObject({ stillwake_database_up: 1 });
    const id = await enqueue();
    expect(await waitForEnd(stillwake, id)).toMatchObject({ state: "completed" });
  });

  it("reports a drain and the running job until it is done", async () => {
    const { worker, url } = await startObserved();
    const id = await enqueue({ name: "last", act: "gate", gate: "drain" });
    await observer.waitForReport(({ job, step }) => job === id && step === "last");
    expect(await healthOf(url)).toMatchObject({ code: 200, active: 1, lastHeartbeatAgoMs: expect.any(Number) });
    worker.signal("SIGTERM");
    await worker.waitForLine("worker.draining");
    expect(await healthOf(url)).toMatchObject({ code: 503, status: "draining", draining: true, active: 1 });
    observer.openGate("drain");
    expect(await worker.exited).toBe(0);
    expect(await stillwake.get(id)).toMatchObject({ state: "completed" });
  });
});

describe("POST /wake", () => {
  it("makes a worker with a poll interval of an hour claim at once", async () => {
    const slow = { poll: "1h", pollWithHints: "1h", directUrl: false, demandEvery: "50ms" };
    const { worker, url } = await startObserved({ config: slow, args: ["--slots", "1", "--log-level", "trace"] });
    const times: number[] = [];
    let from = 0;
    for (let n = 0; n < 10 && times.length < 5; n++) {
      // It has claimed after its start, or after the last job, and found nothing.
      await worker.waitForLine("claim.empty", { from });
      from = worker.lines.length;
      const id = await enqueue();
      const hasBegun = () => observer.reportsOf(id).length > 0;
      // Its metrics have shown the job more than once, and it was not claimed.
      const waits = (line: { event?: string; claimable?: unknown }) => line.event === "demand" && line.claimable === 1;
      await waitFor(() => hasBegun() || worker.lines.slice(from).filter(waits).length >= 3);
      // After an empty claim it queries when the next job is due. A job that was enqueued before that query is claimed.
      if (!hasBegun()) {
        const wokenAt = performance.now();
        expect((await fetch(`${url}/wake`, { method: "POST" })).status).toBe(202);
        const begun = await observer.waitForReport(({ job, event }) => job === id && event === "begin");
        times.push(begun.at - wokenAt);
      }
      await worker.waitForLine("attempt.ended", { from });
      from = worker.lines.findIndex(({ event, job }) => event === "attempt.ended" && job === id);
    }
    expect(times).toHaveLength(5);
    const { most } = recordTimes("POST /wake to the beginning of the job", times);
    expect(most).toBeLessThan(2000);
  });
});

describe("the process log", () => {
  /** Event names that users have built filters and alerts on: changing one would break them. */
  const names =
    `worker.started env.withheld worker.draining worker.stopped database.lost database.back hints.lost hints.ready hints.unavailable
    claimed claim.empty claim.failed heartbeat heartbeat.failed recovered attempt.started attempt.ended step.started step.ended write.refused
    runner.started runner.died runner.output memory.high demand logs.dropped http`.split(/\s+/);

  it("is one JSON object per line, with time, level, message and event", async () => {
    await using proxy = await faultProxy(database.url);
    const flags = ["--log-level", "trace", "--metrics-port", "0"];
    const starting = startWorker({ url: proxy.url, args: ["--slots", "1", ...flags], skipWait: true });
    let raw = "";
    const worker = await starting;
    worker.child.stdout!.on("data", (data) => {
      raw += data;
    });
    await worker.waitForLine("hints.ready");
    await waitForEnd(
      stillwake,
      await enqueue({ name: "said", act: "print", text: 'two\nlines "quoted" {"level":"fatal"}' }),
    );
    await waitForEnd(stillwake, await enqueueTo("timed", { name: "broken", act: "fail" }));
    const killed = await enqueue({ name: "killed", act: "gate", gate: "log" });
    const { pid } = await observer.waitForReport(({ job, step }) => job === killed && step === "killed");
    process.kill(pid, "SIGKILL");
    await observer.waitForReport(({ job, step, epoch }) => job === killed && step === "killed" && epoch === "2");
    proxy.mode = "refuse";
    proxy.reset();
    await worker.waitForLine("database.lost");
    proxy.mode = "pass";
    await worker.waitForLine("database.back");
    observer.openGate("log");
    await waitForEnd(stillwake, killed);
    worker.signal("SIGTERM");
    expect(await worker.exited).toBe(0);
    await waitFor(() => raw.includes("worker.stopped"));

    const lines = raw
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    for (const line of lines) {
      expect(line).toMatchObject({
        time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
        msg: expect.any(String),
      });
      expect(["trace", "debug", "info", "warn", "error"]).toContain(line.level);
      expect(names).toContain(line.event);
    }
    const seen = new Set(lines.map(({ event }) => event));
    const due =
      `worker.started env.withheld worker.draining worker.stopped database.lost database.back hints.lost hints.ready claimed claim.empty
      attempt.started attempt.ended step.started step.ended runner.started runner.died runner.output http`.split(/\s+/);
    expect(due.filter((name) => !seen.has(name))).toEqual([]);
    // Lines about a job have its id, lines about the worker a reason.
    const of = (event: string) => lines.filter((line) => line.event === event);
    for (const line of [...of("attempt.started"), ...of("attempt.ended"), ...of("step.ended")])
      expect(line.job).toMatch(/^[0-9a-f-]{36}$/);
    expect(
      of("attempt.ended")
        .map(({ outcome }) => outcome)
        .sort(),
    ).toEqual(["completed", "completed", "failed", "lost"]);
    expect(of("runner.died")).toMatchObject([{ level: "warn", signal: "SIGKILL", cause: "killed", job: killed }]);
    expect(of("runner.output").map(({ line }) => line)).toEqual(["two", 'lines "quoted" {"level":"fatal"}']);
    expect(of("database.lost")).toHaveLength(1);
    expect(of("http")).toMatchObject([{ address: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/) }]);
    // The password appears nowhere.
    expect(raw).not.toContain(new URL(database.url).password);
  });
});

const canMount = spawnSync("unshare", ["-m", "mount", "--bind", "/tmp", "/sys/fs/cgroup"]).status === 0;

describe("memory", () => {
  it.skipIf(!canMount)(
    "that is nearly exhausted is reported once in the log of every running job (needs permission to mount)",
    async () => {
      const cgroup = temporaryDirectory("cgroup");
      const limit = 100 * 2 ** 20;
      const use = (fraction: number) => fs.writeFileSync(path.join(cgroup, "memory.current"), String(limit * fraction));
      fs.writeFileSync(path.join(cgroup, "memory.max"), String(limit));
      fs.writeFileSync(path.join(cgroup, "memory.stat"), "inactive_file 0\n");
      use(0.5);
      const through = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /sys/fs/cgroup && exec "$@"', cgroup];
      const { worker, url } = await startObserved({ args: ["--slots", "2"], wrapper: through });
      const jobs = [
        await enqueue({ name: "one", act: "gate", gate: "memory" }),
        await enqueue({ name: "two", act: "gate", gate: "memory" }),
      ];
      for (const id of jobs) await observer.waitForReport(({ job, step }) => job === id && step !== undefined);
      expect(await samplesOf(url)).toMatchObject({ stillwake_memory_used_fraction: 0.5 });
      use(0.9);
      expect(await worker.waitForLine("memory.high")).toMatchObject({ level: "warn", limitBytes: limit });
      expect(await samplesOf(url)).toMatchObject({ stillwake_memory_used_fraction: 0.9 });
      const warnings = async () => {
        const logs = await Promise.all(jobs.map((id) => stillwake.logs(id)));
        return logs.map((lines) => lines.filter(({ message }) => message.startsWith("Memory is nearly exhausted")));
      };
      await waitFor(async () => (await warnings()).every((lines) => lines.length === 1));
      expect((await warnings())[0]).toMatchObject([
        { level: "warning", message: "Memory is nearly exhausted: 90 % of 0.1 GB used", data: { limit_bytes: limit } },
      ]);
      observer.openGate("memory");
      for (const id of jobs) await waitForEnd(stillwake, id);
    },
  );
});

describe("traces", () => {
  const exporter = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  const app = trace.getTracer("app");
  beforeAll(() => {
    trace.setGlobalTracerProvider(provider);
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  });
  afterAll(async () => {
    await provider.shutdown();
    trace.disable();
    context.disable();
  });
  const spansOf = (id: string) =>
    exporter.getFinishedSpans().filter(({ attributes }) => attributes["stillwake.job.id"] === id);

  it("lead from the enqueuer through the database to the attempts, their steps and calls", async () => {
    const contract = pipeline("traced", { pool: "traced", retry: { attempts: 2, initial: "1ms", max: "1ms" } });
    const implementation = implement(contract, async (job) => {
      await job.step("kept", () => {
        app.startSpan("a call of the user").end();
      });
      if (job.attempt === 1) throw new Error("once");
    });
    await stillwake.register(contract);
    const enqueuer = app.startSpan("request");
    const { id } = await context.with(trace.setSpan(context.active(), enqueuer), () =>
      stillwake.enqueue("traced", null),
    );
    enqueuer.end();
    const outside = await stillwake.enqueue("traced", null);
    await startRecordedWorker({ url: database.url, pool: "traced", pipelines: [implementation] });
    await Promise.all([waitForEnd(stillwake, id), waitForEnd(stillwake, outside.id)]);
    const attempts = await waitFor(() => spansOf(id).length === 2 && spansOf(id));

    const { traceId, spanId } = enqueuer.spanContext();
    expect(attempts.map((span) => span.spanContext().traceId)).toEqual([traceId, traceId]);
    expect(attempts.map(({ parentSpanContext }) => parentSpanContext?.spanId)).toEqual([spanId, spanId]);
    expect(attempts.map(({ attributes }) => attributes)).toMatchObject([
      {
        "stillwake.pipeline": "traced",
        "stillwake.attempt": 1,
        "stillwake.outcome": "failed",
        "stillwake.pool": "traced",
      },
      { "stillwake.pipeline": "traced", "stillwake.attempt": 2, "stillwake.outcome": "completed" },
    ]);
    expect(attempts.map(({ status }) => status.code)).toEqual([SpanStatusCode.ERROR, SpanStatusCode.UNSET]);

    const inTrace = exporter.getFinishedSpans().filter((span) => span.spanContext().traceId === traceId);
    // A step restored from its checkpoint has no span.
    const steps = inTrace.filter(({ name }) => name === "stillwake step kept");
    expect(steps.map(({ parentSpanContext }) => parentSpanContext?.spanId)).toEqual([
      attempts[0]!.spanContext().spanId,
    ]);
    const [call] = inTrace.filter(({ name }) => name === "a call of the user");
    expect(call?.parentSpanContext?.spanId).toBe(steps[0]!.spanContext().spanId);

    // A job enqueued outside of any trace starts a new one.
    const own = await waitFor(() => spansOf(outside.id).length === 2 && spansOf(outside.id));
    expect(own.map(({ parentSpanContext }) => parentSpanContext)).toEqual([undefined, undefined]);
  });

  it("show each claim as a separate trace", async () => {
    exporter.reset();
    const contract = pipeline("claimed", { pool: "claimed" });
    const code = implement(contract, () => "done");
    const own = await startRecordedWorker({ url: database.url, pool: "claimed", pipelines: [code] });
    await own.waitForEvent("claim.empty");
    const { id } = await stillwake.enqueue("claimed", null);
    await waitForEnd(stillwake, id);
    const claims = exporter.getFinishedSpans().filter(({ name }) => name === "stillwake claim");
    expect(claims.length).toBeGreaterThanOrEqual(2);
    for (const span of claims) expect(span.parentSpanContext).toBeUndefined();
    const [attempt] = await waitFor(() => spansOf(id).length === 1 && spansOf(id));
    expect(claims.map((span) => span.spanContext().traceId)).not.toContain(attempt!.spanContext().traceId);
  });
});

interface Step {
  name: string;
  act: string;
  [value: string]: unknown;
}

function enqueue(...steps: Step[]): Promise<string> {
  return enqueueTo("script", ...steps);
}

async function enqueueTo(name: string, ...steps: Step[]): Promise<string> {
  return (await stillwake.enqueue(name, { observer: observer.url, steps })).id;
}

/** With `config`, writes a configuration file into a separate directory. */
async function start({
  config,
  args = [],
  ...options
}: Partial<StartWorkerOptions> & { config?: object } = {}): Promise<WorkerProcess> {
  const flags = [...args];
  if (config) {
    const dir = temporaryDirectory("config");
    const file = path.join(dir, "stillwake.config.mjs");
    fs.writeFileSync(file, `export default ${JSON.stringify(config)};`);
    flags.push("--config", file);
  }
  return startWorker({ url: database.url, args: flags, ...options });
}

async function startObserved({ args = [], ...options }: Parameters<typeof start>[0] = {}) {
  const worker = await start({ ...options, args: [...args, "--metrics-port", "0"] });
  const { address } = await worker.waitForLine("http");
  return { worker, url: String(address) };
}

async function healthOf(url: string): Promise<{ code: number } & Record<string, unknown>> {
  const response = await fetch(`${url}/health`);
  return { code: response.status, ...((await response.json()) as object) };
}

/** By name and labels, without the default labels. */
async function samplesOf(url: string): Promise<Record<string, number>> {
  const { samples } = parseExposition(await (await fetch(`${url}/metrics`)).text());
  return Object.fromEntries(
    samples.map(({ name, labels: { pool: _1, worker: _2, ...labels }, value }) => {
      const pairs = Object.entries(labels).map(([label, text]) => `${label}="${text}"`);
      return [pairs.length > 0 ? `${name}{${pairs.join(",")}}` : name, value];
    }),
  );
}

interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** Parses the Prometheus text format 0.0.4 as strictly as promtool. Throws at the first invalid line. */
function parseExposition(text: string): { types: Map<string, string>; samples: Sample[] } {
  const types = new Map<string, string>();
  const helped = new Set<string>();
  const samples: Sample[] = [];
  const closed = new Set<string>();
  let family = "";
  expect(text.endsWith("\n")).toBe(true);
  for (const line of text.slice(0, -1).split("\n")) {
    if (line === "") continue;
    const comment = /^# (HELP|TYPE) ([a-zA-Z_:][\w:]*) (.+)$/.exec(line);
    if (comment) {
      const [, kind, name, rest] = comment as unknown as [string, string, string, string];
      if (name !== family) {
        // The lines of a metric family are adjacent.
        expect(closed, line).not.toContain(name);
        if (family) closed.add(family);
        family = name;
      }
      if (kind === "HELP") {
        expect(helped, line).not.toContain(name);
        helped.add(name);
      } else {
        expect(types.has(name), line).toBe(false);
        expect(["counter", "gauge", "histogram"], line).toContain(rest);
        types.set(name, rest);
      }
      continue;
    }
    const [, name, labels = "", value] =
      /^([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)$/.exec(line) ?? [];
    expect(name, line).toBeDefined();
    const type = types.get(family);
    const suffix = name!.slice(family.length);
    expect(
      name!.startsWith(family) && (type === "histogram" ? ["_bucket", "_sum", "_count"] : [""]).includes(suffix),
      line,
    ).toBe(true);
    if (type === "counter") expect(family, line).toMatch(/_total$/);
    expect(value, line).toMatch(/^(NaN|[+-]Inf|[+-]?\d+(\.\d+)?(e[+-]?\d+)?)$/);
    const pairs = [...labels.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"/g)].map(([, label, escaped]) => {
      const unescaped = escaped!.replaceAll(/\\(["\\n])/g, (_, one) => (one === "n" ? "\n" : one));
      return [label!, unescaped] as const;
    });
    expect(new Set(pairs.map(([label]) => label)).size, line).toBe(pairs.length);
    samples.push({ name: name!, labels: Object.fromEntries(pairs), value: Number(value!.replace("Inf", "Infinity")) });
  }
  expect([...types.keys()].sort()).toEqual([...helped].sort());
  const series = samples.map(({ name, labels }) => `${name} ${JSON.stringify(Object.entries(labels).sort())}`);
  expect(new Set(series).size).toBe(series.length);
  for (const [name, type] of types) if (type === "histogram") checkHistogram(name, samples);
  return { types, samples };
}

/** Buckets are cumulative, the last is +Inf, and equals the count. */
function checkHistogram(name: string, samples: Sample[]): void {
  for (const { labels, value } of samples.filter((sample) => sample.name === `${name}_count`)) {
    const same = ({ le: _, ...others }: Record<string, string>) =>
      JSON.stringify(Object.entries(others).sort()) === JSON.stringify(Object.entries(labels).sort());
    const buckets = samples.filter((sample) => sample.name === `${name}_bucket` && same(sample.labels));
    const bounds = buckets.map((bucket) => Number(bucket.labels.le!.replace("Inf", "Infinity")));
    const counts = buckets.map((bucket) => bucket.value);
    expect(bounds).toEqual([...bounds].sort((a, b) => a - b));
    expect(counts).toEqual([...counts].sort((a, b) => a - b));
    expect([bounds.at(-1), counts.at(-1)]).toEqual([Number.POSITIVE_INFINITY, value]);
  }
}
