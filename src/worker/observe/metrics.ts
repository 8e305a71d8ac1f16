// Prometheus metrics of a worker, counted from its events. Without isolation a worker ends tens of thousands of
// attempts per second, so attempts and steps are tallied in plain objects and become samples only at a scrape;
// prom-client counts everything else. Each worker has its own registry, so that several can run in one process.
import { Counter, Gauge, type Metric, Registry } from "prom-client";
import { memoryUse } from "../../memory.ts";
import type { EventOf, WorkerEvent, WorkerEvents } from "./events.ts";

export interface Metrics {
  text(): Promise<string>;
  readonly contentType: string;
  /** Stops counting; the counts can still be read. */
  stop(): void;
}

export interface MetricsOptions {
  /** Prefix of every metric name. */
  prefix?: string;
  /** Labels of every sample; `pool` with the pools it serves, separated by commas, follows when the worker has started. */
  labels?: Readonly<Record<string, string>>;
  /** Called at every scrape. */
  memory?: () => { fraction: number };
}

/** Seconds from 10 ms to 1 h. */
const BOUNDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];

// Label values from user code are limited, so that dynamic step names cannot exhaust the memory of Prometheus. Steps
// are limited per pipeline, so that one pipeline cannot displace the steps of others.
const MAX_NAMES = 200;
const MAX_STEPS = 50;
const MAX_NAME = 120;
const OTHER = "other";

export function createMetrics(
  events: WorkerEvents,
  { prefix = "", labels, memory = memoryUse }: MetricsOptions = {},
): Metrics {
  const registry = new Registry();
  if (labels) registry.setDefaultLabels(labels);
  const named = (name: string, help: string) => ({ name: `${prefix}${name}`, help, registers: [registry] });

  const heartbeats = new Counter(named("worker_heartbeats_total", "Heartbeats that reached the database."));
  const failedHeartbeats = new Counter(named("worker_heartbeat_failures_total", "Heartbeats that failed."));
  const recovered = new Counter({
    ...named("worker_recovered_jobs_total", "Jobs recovered from dead workers."),
    labelNames: ["reason"],
  });
  const retries = new Counter({
    ...named("worker_retry_attempts_total", "Failed attempts that will be retried, by failure code."),
    labelNames: ["code"],
  });
  const conflicts = new Counter(named("worker_acquire_conflicts_total", "Claims after a hint that found no job."));
  const depth = new Gauge({
    ...named("stillwake_queue_depth", "Claimable jobs at the worker's last query."),
    labelNames: ["pool"],
  });
  const age = new Gauge({
    ...named("stillwake_queue_age_seconds", "How long the oldest claimable job has waited."),
    labelNames: ["pool"],
  });
  const refused = new Counter({
    ...named("stillwake_refused_writes_total", "Writes refused because the attempt was replaced."),
    labelNames: ["verb"],
  });
  const deaths = new Counter({
    ...named("stillwake_runner_deaths_total", "Runner processes that died, by cause."),
    labelNames: ["cause"],
  });
  const dropped = new Counter(named("stillwake_log_lines_dropped_total", "Dropped log lines of jobs."));
  const database = new Gauge(named("stillwake_database_up", "1 while the database is reachable, else 0."));

  let active = 0;
  new Gauge({
    ...named("worker_concurrent_jobs", "Jobs running in this worker."),
    collect() {
      this.set(active);
    },
  });
  new Gauge({
    ...named("stillwake_memory_used_fraction", "Used fraction of the memory of the cgroup or the machine."),
    collect() {
      this.set(memory().fraction);
    },
  });

  const attempts: Tally[] = [];
  const steps: Tally[] = [];
  const pipelines = limited(MAX_NAMES, (pipeline) => ({
    outcome: limited(MAX_NAMES, (outcome) => newTally({ pipeline, outcome }, attempts)),
    step: limited(MAX_STEPS, (step) => newTally({ pipeline, step }, steps)),
  }));
  new Counter({
    ...named("stillwake_attempts_total", "Attempts that ended, by outcome."),
    labelNames: ["pipeline", "outcome"],
    collect() {
      this.reset();
      for (const { labels, count } of attempts) this.inc(labels, count);
    },
  });
  registerHistogram(registry, named("stillwake_attempt_seconds", "Duration of attempts."), attempts);
  registerHistogram(
    registry,
    named("stillwake_step_seconds", "Duration of steps that ran, without those restored from a checkpoint."),
    steps,
  );

  const code = limited(MAX_NAMES, (name) => ({ code: name }));
  const verb = limited(MAX_NAMES, (name) => ({ verb: name }));
  const cause = limited(MAX_NAMES, (name) => ({ cause: name }));
  // Known labels start at zero, because a rate needs two samples.
  recovered.inc({ reason: "stale" }, 0);
  recovered.inc({ reason: "absent" }, 0);
  database.set(1);

  const addPools = ({ pools }: EventOf<"worker.started">) =>
    labels && registry.setDefaultLabels({ ...labels, pool: Object.keys(pools).join(",") });
  const count: { [Kind in WorkerEvent["kind"]]?: (event: EventOf<Kind>) => void } = {
    "worker.started": addPools,
    "attempt.started": () => {
      active++;
    },
    "attempt.ended": (event) => {
      active--;
      add(pipelines(event.pipeline).outcome(event.outcome), event.tookMs);
      if (event.retry) retries.inc(code(event.code ?? "unknown"));
    },
    "step.ended": (event) => {
      // A step restored from its checkpoint takes no time and would distort the durations.
      if (event.outcome === "kept" || event.outcome === "skipped") return;
      add(pipelines(event.pipeline).step(event.step), event.tookMs);
    },
    heartbeat: () => heartbeats.inc(),
    "heartbeat.failed": () => failedHeartbeats.inc(),
    recovered: (event) => recovered.inc({ reason: event.reason }, event.count),
    "claim.empty": (event) => event.hinted && conflicts.inc(),
    demand: (event) => {
      depth.set({ pool: event.pool }, event.claimable);
      age.set({ pool: event.pool }, event.oldestSeconds);
    },
    "write.refused": (event) => refused.inc(verb(event.verb)),
    "runner.died": (event) => deaths.inc(cause(event.cause)),
    "logs.dropped": (event) => dropped.inc(event.lines),
    "database.lost": () => database.set(0),
    "database.back": () => database.set(1),
  };
  const stop = events.subscribe((event) => (count[event.kind] as ((event: WorkerEvent) => void) | undefined)?.(event));
  return { text: () => registry.metrics(), contentType: registry.contentType, stop };
}

interface Tally {
  readonly labels: Record<string, string>;
  /** Element i counts durations up to BOUNDS[i] and above the previous bound; the last element counts the rest. */
  readonly buckets: number[];
  seconds: number;
  count: number;
}

function newTally(labels: Record<string, string>, all: Tally[]): Tally {
  const tally = { labels, buckets: new Array<number>(BOUNDS.length + 1).fill(0), seconds: 0, count: 0 };
  all.push(tally);
  return tally;
}

function add(tally: Tally, tookMs: number): void {
  // NaN would spoil the sum permanently.
  const seconds = tookMs > 0 ? tookMs / 1000 : 0;
  let bucket = 0;
  while (bucket < BOUNDS.length && seconds > BOUNDS[bucket]!) bucket++;
  tally.buckets[bucket]!++;
  tally.seconds += seconds;
  tally.count++;
}

/** Returns the value of a name, creating it if needed. Beyond the limit, all new names share one value. */
function limited<T>(max: number, make: (name: string) => T): (name: string) => T {
  const known = new Map<string, T>();
  return (name) => known.get(name) ?? create(name);

  function create(fullName: string): T {
    const short = fullName.slice(0, MAX_NAME);
    const name = known.has(short) || known.size < max ? short : OTHER;
    const value = known.get(name) ?? make(name);
    known.set(name, value);
    return value;
  }
}

/** prom-client's Histogram cannot be filled from sums; a registry accepts any object whose `get` returns samples. */
function registerHistogram(registry: Registry, { name, help }: { name: string; help: string }, tallies: Tally[]): void {
  const metric = { name, help, type: "histogram", aggregator: "sum" };
  const get = async () => ({ ...metric, values: tallies.flatMap((tally) => samples(name, tally)) });
  registry.registerMetric({ ...metric, get } as unknown as Metric);
}

function samples(name: string, { labels, buckets, seconds, count }: Tally) {
  let cumulative = 0;
  const bounds = buckets.map((inBucket, index) => {
    cumulative += inBucket;
    return { metricName: `${name}_bucket`, labels: { ...labels, le: BOUNDS[index] ?? "+Inf" }, value: cumulative };
  });
  return [
    ...bounds,
    { metricName: `${name}_sum`, labels, value: seconds },
    { metricName: `${name}_count`, labels, value: count },
  ];
}
