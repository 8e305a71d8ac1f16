// Reads of pools and machines.
import type { Queries } from "../database.ts";
import { finiteTime, fromRow, type RowOf, readValues } from "../row.ts";
import type { MachineFacts } from "./machines.ts";

export interface PoolInfo {
  name: string;
  paused: { at: Date; by: string | null; reason: string | null } | null;
  /** Jobs that can run concurrently, over all workers; null for no cap. */
  concurrency: number | null;
  /** Jobs that a worker could claim now, counted up to 1000. */
  claimable: number;
  running: number;
  /** When the oldest claimable job became claimable. */
  oldest: Date | null;
  /** When the next work is due; in the past when there is work now, null without any. */
  nextDue: Date | null;
  /** The machines that an orchestrator starts for it; null for a pool without an orchestrator. */
  machines: PoolMachines | null;
  /** Machines that its work needs now, at most `max`; null as above. */
  wanted: number | null;
  /** Why machines cannot be started, as last reported by the orchestrator. */
  providerError: PoolProviderError | null;
  /** Consecutive machines that ended without a job although there was one. */
  wastedStarts: number;
}

/** The settings of a pool's machines, and their current number. */
export interface PoolMachines {
  /** "fly", "cloud-run", "kubernetes", "local". */
  provider: string;
  size: string | null;
  region: string | null;
  /** Concurrent jobs per machine. */
  slots: number;
  /** Machines created in advance and stopped. */
  warm: number;
  /** The maximum number of machines, and how many of them may be beyond the warm ones. */
  max: number;
  burst: number;
  idleExitMs: number;
  /** Per second, of a running and of a stopped machine. Null if no price is known. */
  price: number | null;
  idlePrice: number | null;
  /** The price table and its currency. */
  prices: string | null;
  currency: string | null;
  /** The pool of the next size, to which a job that ran out of memory moves. */
  largerPool: string | null;
  /** Machines that are not stopped, and those of them whose worker has not registered yet. */
  now: number;
  starting: number;
}

export interface PoolProviderError {
  code: string;
  message: string;
  remedy: string | null;
  since: Date | null;
  /** No machine is started before. */
  until: Date | null;
}

/** A machine, or a worker without a machine that has leases or listens for work. */
export interface Machine {
  /** The name of the worker, which is also the machine's name. */
  worker: string;
  pool: string;
  running: number;
  /** Since when it has had work without interruption; null without work. */
  since: Date | null;
  leaseUntil: Date | null;
  /** Whether it receives hints of new work. */
  listening: boolean;
  /**
   * "leaving": its worker has exited. "retiring": it gets no more jobs and will be stopped. "lost": its session has ended
   * without notice, because it was killed or cannot reach the database.
   */
  state: "starting" | "up" | "idle" | "leaving" | "retiring" | "lost" | "ended";
  /** Null for a worker that was not started by an orchestrator. */
  machine: MachineLife | null;
  /** How it ended; null until then. */
  end: { at: Date; how: string; normal: boolean } | null;
}

/** One start-to-end period of a machine. */
export interface MachineLife {
  life: string;
  /** Its number in the pool. */
  ordinal: number;
  /** Created for this life only. */
  burst: boolean;
  provider: string;
  providerId: string | null;
  region: string | null;
  size: string | null;
  slots: number;
  /** The number of its jobs, counted among its first 1000 attempts. */
  jobs: number;
  /** Why it was requested, and by which orchestrator. */
  why: string | null;
  requestedBy: string | null;
  requestedAt: Date;
  startedAt: Date | null;
  registeredAt: Date | null;
  idleSince: Date | null;
  /** Per second, and the price table. */
  price: number;
  prices: string | null;
}

type SamePoolFields = Omit<PoolInfo, "paused" | "nextDue" | "machines" | "providerError">;

interface PoolRow extends RowOf<SamePoolFields> {
  paused_at: Date | null;
  paused_by: string | null;
  pause_reason: string | null;
  next_due: Date | number | null;
  /** Stored by the orchestrator. */
  machines: MachineFacts | null;
  /** Machines that have not ended, and those of them whose worker has not registered. */
  alive: number;
  starting: number;
  provider_error: { code: string; message: string; remedy?: string; since?: string; until?: string } | null;
}

/** `wanted` is computed as in the view wanted_workers. */
export async function readPools(database: Queries): Promise<PoolInfo[]> {
  const rows = await database.read<PoolRow>(
    `select p.name, p.paused_at, p.paused_by, p.pause_reason, p.concurrency, d.claimable, d.running, d.oldest, d.next_due,
      p.machines, coalesce(m.alive, 0) as alive, coalesce(m.starting, 0) as starting,
      case when p.machines is null then null when p.paused_at is not null then 0
        else least(ceil((d.claimable + d.running)::numeric / greatest(coalesce((p.machines ->> 'slots')::integer, 1), 1)),
          coalesce((p.machines ->> 'max')::integer, 1000))::integer end as wanted,
      p.provider_error, p.wasted_starts
    from ${database.schema}.pools p join ${database.schema}.demand() d on d.pool = p.name
    left join (
      select pool, count(*)::integer as alive, (count(*) filter (where state = 'starting'))::integer as starting
      from ${database.schema}.machines() where life is not null group by pool
    ) m on m.pool = p.name
    order by p.name`,
  );
  return rows.map(toPool);
}

function toPool(row: PoolRow): PoolInfo {
  const { paused_at, paused_by, pause_reason, next_due, machines, alive, starting, provider_error, ...same } = row;
  return {
    ...fromRow<SamePoolFields>(same),
    paused: paused_at && { at: paused_at, by: paused_by, reason: pause_reason },
    nextDue: finiteTime(next_due),
    machines: machines && {
      provider: machines.provider,
      size: machines.size ?? null,
      region: machines.region ?? null,
      slots: machines.slots,
      warm: machines.warm,
      max: machines.max,
      burst: machines.burst,
      idleExitMs: machines.idle_exit_ms,
      price: machines.price ?? null,
      idlePrice: machines.idle_price ?? null,
      prices: machines.prices ?? null,
      currency: machines.currency ?? null,
      largerPool: machines.larger_pool ?? null,
      now: alive,
      starting,
    },
    providerError: provider_error && {
      code: provider_error.code,
      message: provider_error.message,
      remedy: provider_error.remedy ?? null,
      since: toDate(provider_error.since),
      until: toDate(provider_error.until),
    },
  };
}

interface MachineRow extends RowOf<Omit<Machine, "machine" | "end">>, RowOf<Omit<MachineLife, "life">> {
  /** Null for a worker without a machine, like the other columns of MachineLife. */
  life: string | null;
  ended_at: Date | null;
  ending: string | null;
  ended_normally: boolean | null;
}

/** Also returns the given number of ended machines, latest first. */
export async function readMachines(database: Queries, ended: number): Promise<Machine[]> {
  const rows = await database.read<MachineRow>(`select * from ${database.schema}.machines($1)`, [ended]);
  return rows.map(toMachine);
}

function toMachine(row: MachineRow): Machine {
  const {
    worker,
    pool,
    running,
    since,
    lease_until,
    listening,
    state,
    ended_at,
    ending,
    ended_normally,
    life,
    ...rest
  } = row;
  return {
    worker,
    pool,
    running,
    since,
    leaseUntil: lease_until,
    listening,
    state,
    machine: life === null ? null : fromRow<MachineLife>({ life, ...rest }),
    end: ended_at && { at: ended_at, how: ending!, normal: ended_normally! },
  };
}

/** Machines requested and ended in the span, by pool; `abnormal`: those that did not end as intended. */
export async function countMachines(
  database: Queries,
  span: string,
): Promise<{ pool: string; started: number; ended: number; abnormal: number }[]> {
  return readValues(
    database,
    `select pool, started::integer, ended::integer, abnormal::integer from ${database.schema}.machine_counts($1)`,
    [span],
  );
}

function toDate(text: string | undefined): Date | null {
  return text === undefined ? null : new Date(text);
}
