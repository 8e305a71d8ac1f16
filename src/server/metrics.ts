// The installation's numbers for Prometheus, read when somebody asks. What a worker counts is at the worker's own /metrics.
import { Gauge, Registry } from "prom-client";
import type { Stillwake } from "../client.ts";

export async function metricsText(stillwake: Stillwake): Promise<string> {
  const [pools, machines, stats, limits, breakers] = await Promise.all([
    stillwake.pools(),
    stillwake.machines(),
    stillwake.stats({ span: "5m", parts: 1 }),
    stillwake.flow.limits(),
    stillwake.flow.breakers(),
  ]);
  const registry = new Registry();
  const gauge = (name: string, help: string, labelNames: string[] = []) =>
    new Gauge({ name: `stillwake_${name}`, help, labelNames, registers: [registry] });
  const now = Date.now();

  const claimable = gauge("pool_claimable_jobs", "Jobs that a worker could take now, counted up to 1000.", ["pool"]);
  const running = gauge("pool_running_jobs", "Jobs that run.", ["pool"]);
  const age = gauge("pool_oldest_seconds", "How long the first of the claimable jobs has waited.", ["pool"]);
  const paused = gauge("pool_paused", "1 while the pool is paused, else 0.", ["pool"]);
  for (const pool of pools) {
    const labels = { pool: pool.name };
    claimable.set(labels, pool.claimable);
    running.set(labels, pool.running);
    age.set(labels, pool.oldest ? Math.max(0, (now - pool.oldest.getTime()) / 1000) : 0);
    paused.set(labels, pool.paused ? 1 : 0);
  }
  const live = gauge("live_jobs", "Jobs that have not ended, by state.", ["state"]);
  for (const [state, count] of Object.entries(stats.live)) live.set({ state }, count);
  const waiting = gauge("waiting_jobs", "Queued jobs by what they wait for.", ["for"]);
  for (const [reason, count] of Object.entries(stats.waiting)) waiting.set({ for: reason }, count);
  const ended = gauge("ended_jobs_5m", "Jobs that ended in the last five minutes, by pipeline and state.", [
    "pipeline",
    "state",
  ]);
  for (const { name, completed, failed, cancelled } of stats.pipelines) {
    ended.set({ pipeline: name, state: "completed" }, completed);
    ended.set({ pipeline: name, state: "failed" }, failed);
    ended.set({ pipeline: name, state: "cancelled" }, cancelled);
  }
  gauge("workers", "Workers that hold leases or listen for work.").set(
    new Set(machines.map(({ worker }) => worker)).size,
  );
  const free = gauge("limit_free", "Uses of a limit that are free now.", ["limit"]);
  for (const { name, free: left } of limits) free.set({ limit: name }, left);
  const open = gauge("breaker_open", "1 while the breaker is open, else 0.", ["breaker"]);
  for (const { name, state } of breakers) open.set({ breaker: name }, state === "open" ? 1 : 0);
  return registry.metrics();
}
