// The numbers of a worker for Prometheus, counted from its announcements. A worker in process mode ends tens of thousands of attempts a
// second, so attempts and steps are tallied in plain objects and become samples only when somebody asks; all else is counted by
// prom-client itself. Each worker has a registry of its own, so several can live in one process.
import { Counter, Gauge, type Metric, Registry } from "prom-client";
import { memoryUse } from "../runner/memory.ts";
import type { Announcer, EventOf, WorkerEvent } from "./events.ts";

export interface Metrics {
  text(): Promise<string>;
  readonly contentType: string;
  /** Ends the counting; what was counted can still be read. */
  stop(): void;
}

export interface MetricsOptions {
  /** Stands before every name. */
  prefix?: string;
  /** Stand at every sample. */
  labels?: { pool: string; worker: string };
  /** Asked at every reading. */
  memory?: () => { fraction: number };
}

/** Seconds from 10 ms to 1 h. */
const BOUNDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];

// Names that users make up are limited, so that a step named after its page cannot fill the memory of Prometheus. Steps are limited
// within each pipeline, so that one pipeline cannot hide the steps of the others.
const MAX_NAMES = 200;
const MAX_STEPS = 50;
const MAX_NAME = 120;
const OTHER = "other";

export function createMetrics(
  announcer: Announcer,
  { prefix = "", labels, memory = memoryUse }: MetricsOptions = {},
): Metrics {
  const registry = new Registry();
  if (labels) registry.setDefaultLabels(labels);
  const named = (name: string, help: string) => ({ name: `${prefix}${name}`, help, registers: [registry] });

  const heartbeats = new Counter(named("worker_heartbeats_total", "Beats that reached the database."));
  const failedHeartbeats = new Counter(named("worker_heartbeat_failures_total", "Beats that failed."));
  const recovered = new Counter({
    ...named("worker_recovered_jobs_total", "Jobs taken back from workers that were gone."),
    labelNames: ["reason"],
  });
  const retries = new Counter({
    ...named("worker_retry_attempts_total", "Attempts that failed and will be retried, by code of the failure."),
    labelNames: ["code"],
  });
  const conflicts = new Counter(
    named("worker_acquire_conflicts_total", "Claims that came too late for the job they were woken for."),
  );
  const depth = new Gauge({
    ...named("stillwake_queue_depth", "Jobs that could be claimed, when the worker last asked."),
    labelNames: ["pool"],
  });
  const age = new Gauge({
    ...named("stillwake_queue_age_seconds", "How long the oldest of them has waited."),
    labelNames: ["pool"],
  });
  const refused = new Counter({
    ...named("stillwake_refused_writes_total", "Writes refused because the attempt had been replaced."),
    labelNames: ["verb"],
  });
  const deaths = new Counter({
    ...named("stillwake_runner_deaths_total", "Runner processes that ended, by cause."),
    labelNames: ["cause"],
  });
  const dropped = new Counter(named("stillwake_log_lines_dropped_total", "Log lines of jobs that were dropped."));
  const database = new Gauge(named("stillwake_database_up", "1 while the database can be reached, else 0."));

  let active = 0;
  new Gauge({
    ...named("worker_concurrent_jobs", "Jobs running in this worker."),
    collect() {
      this.set(active);
    },
  });
  new Gauge({
    ...named("stillwake_memory_used_fraction", "Used memory as a part of what the cgroup or the machine has."),
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
  registerHistogram(registry, named("stillwake_attempt_seconds", "How long attempts took."), attempts);
  registerHistogram(registry, named("stillwake_step_seconds", "How long steps took that were not kept."), steps);

  const code = limited(MAX_NAMES, (name) => ({ code: name }));
  const verb = limited(MAX_NAMES, (name) => ({ verb: name }));
  const cause = limited(MAX_NAMES, (name) => ({ cause: name }));
  // A rate is only seen from the second sample on, so what is known beforehand begins at zero.
  recovered.inc({ reason: "stale" }, 0);
  recovered.inc({ reason: "absent" }, 0);
  database.set(1);

  const count: { [Kind in WorkerEvent["kind"]]?: (event: EventOf<Kind>) => void } = {
    "attempt.started": () => {
      active++;
    },
    "attempt.ended": (event) => {
      active--;
      add(pipelines(event.pipeline).outcome(event.outcome), event.tookMs);
      if (event.retry) retries.inc(code(event.code ?? "unknown"));
    },
    "step.ended": (event) => {
      // A step whose checkpoint is there takes no time: it would only blur how long the step takes.
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
  const stop = announcer.subscribe((event) =>
    (count[event.kind] as ((event: WorkerEvent) => void) | undefined)?.(event),
  );
  return { text: () => registry.metrics(), contentType: registry.contentType, stop };
}

interface Tally {
  readonly labels: Record<string, string>;
  /** How many took at most BOUNDS[i] and longer than the bound before; the last element is for the rest. */
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
  // Not a number would make the sum useless for good.
  const seconds = tookMs > 0 ? tookMs / 1000 : 0;
  let bucket = 0;
  while (bucket < BOUNDS.length && seconds > BOUNDS[bucket]!) bucket++;
  tally.buckets[bucket]!++;
  tally.seconds += seconds;
  tally.count++;
}

/** Finds or makes what belongs to a name. Past the limit, all new names share one. */
function limited<T>(most: number, make: (name: string) => T): (name: string) => T {
  const known = new Map<string, T>();
  return (name) => known.get(name) ?? learn(name);

  function learn(given: string): T {
    const cut = given.slice(0, MAX_NAME);
    const name = known.has(cut) || known.size < most ? cut : OTHER;
    const made = known.get(name) ?? make(name);
    known.set(name, made);
    return made;
  }
}

/** prom-client's own Histogram cannot be filled from sums; a registry takes anything that answers `get` with samples. */
function registerHistogram(registry: Registry, { name, help }: { name: string; help: string }, tallies: Tally[]): void {
  const described = { name, help, type: "histogram", aggregator: "sum" };
  const get = async () => ({ ...described, values: tallies.flatMap((tally) => samples(name, tally)) });
  registry.registerMetric({ ...described, get } as unknown as Metric);
}

function samples(name: string, { labels, buckets, seconds, count }: Tally) {
  let below = 0;
  const bounds = buckets.map((inBucket, index) => {
    below += inBucket;
    return { metricName: `${name}_bucket`, labels: { ...labels, le: BOUNDS[index] ?? "+Inf" }, value: below };
  });
  return [
    ...bounds,
    { metricName: `${name}_sum`, labels, value: seconds },
    { metricName: `${name}_count`, labels, value: count },
  ];
}
