// Prometheus metrics of the installation, read from the database at each scrape. Workers have separate metrics.
import { Gauge, Registry } from "prom-client";
import type { Stillwake } from "../client/client.ts";
import type { Machine, PoolInfo } from "../db/calls/pools.ts";

type MakeGauge = (name: string, help: string, labelNames?: string[]) => Gauge;

export async function metricsText(stillwake: Stillwake): Promise<string> {
  const [pools, machines, lives, stats, limits, breakers] = await Promise.all([
    stillwake.pools(),
    stillwake.machines(),
    stillwake.machineCounts({ span: "5m" }),
    stillwake.stats({ span: "5m", parts: 1 }),
    stillwake.flow.limits(),
    stillwake.flow.breakers(),
  ]);
  const registry = new Registry();
  const gauge: MakeGauge = (name, help, labelNames = []) =>
    new Gauge({ name: `stillwake_${name}`, help, labelNames, registers: [registry] });
  const now = Date.now();

  const claimable = gauge("pool_claimable_jobs", "Jobs that a worker could claim now, counted up to 1000.", ["pool"]);
  const running = gauge("pool_running_jobs", "Running jobs.", ["pool"]);
  const age = gauge("pool_oldest_seconds", "How long the oldest claimable job has waited.", ["pool"]);
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
  const waiting = gauge("waiting_jobs", "Queued jobs by the reason they wait.", ["for"]);
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
  const active = machines.filter(({ state }) => state !== "starting" && state !== "leaving");
  gauge("workers", "Active workers: they have leases, listen for work, or are present on their machine.").set(
    new Set(active.map(({ worker }) => worker)).size,
  );
  setMachineGauges(gauge, { pools, machines, lives });
  const free = gauge("limit_free", "Uses of a limit that are available now.", ["limit"]);
  for (const { name, free: left } of limits) free.set({ limit: name }, left);
  const open = gauge("breaker_open", "1 while the breaker is open, else 0.", ["breaker"]);
  for (const { name, state } of breakers) open.set({ breaker: name }, state === "open" ? 1 : 0);
  return registry.metrics();
}

const machineStates = ["starting", "up", "idle", "leaving", "retiring", "lost"] as const;

/** For pools with an orchestrator. Zeros are exported too, so that alerts have a series to compare with. */
function setMachineGauges(
  gauge: MakeGauge,
  {
    pools,
    machines,
    lives,
  }: { pools: PoolInfo[]; machines: Machine[]; lives: Awaited<ReturnType<Stillwake["machineCounts"]>> },
): void {
  const alive = gauge("machines", "Machines that have not ended, by state.", ["pool", "state"]);
  const wanted = gauge("pool_wanted", "Machines that the work of a pool needs, at most its maximum.", ["pool"]);
  const providerError = gauge(
    "pool_provider_error",
    "1 while machines cannot be started, with the code of the cause.",
    ["pool", "code"],
  );
  const wastedStarts = gauge(
    "pool_wasted_starts",
    "Consecutive machines that ended without a job although there was one.",
    ["pool"],
  );
  const started = gauge("machines_started_5m", "Machines that were requested in the last five minutes.", ["pool"]);
  const ended = gauge(
    "machines_ended_5m",
    "Machines that ended in the last five minutes, by whether they ended normally.",
    ["pool", "normal"],
  );
  for (const info of pools) {
    const pool = info.name;
    const ofPool = machines.filter((machine) => machine.machine !== null && machine.pool === pool);
    if (info.machines === null && ofPool.length === 0) continue;
    for (const state of machineStates) {
      alive.set({ pool, state }, ofPool.filter((machine) => machine.state === state).length);
    }
    wanted.set({ pool }, info.wanted ?? 0);
    wastedStarts.set({ pool }, info.wastedStarts);
    if (info.providerError) providerError.set({ pool, code: info.providerError.code }, 1);
    const counts = lives.find((life) => life.pool === pool) ?? { started: 0, ended: 0, abnormal: 0 };
    started.set({ pool }, counts.started);
    ended.set({ pool, normal: "true" }, counts.ended - counts.abnormal);
    ended.set({ pool, normal: "false" }, counts.abnormal);
  }
}
