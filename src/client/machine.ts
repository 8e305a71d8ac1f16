// The types of pools and machines, and their conversion from rows.
import type { MachineRow, PoolRow } from "../db/calls/reads.ts";

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
  trouble: PoolTrouble | null;
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
  larger: string | null;
  /** Machines that are not stopped, and those of them whose worker has not arrived yet. */
  now: number;
  starting: number;
}

export interface PoolTrouble {
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
  /** "leaving": its worker has exited. "retiring": it gets no more jobs and will be stopped. */
  state: MachineRow["state"];
  /** Null for a worker that was not started by an orchestrator. */
  machine: MachineLife | null;
  /** How it ended; null until then. */
  end: { at: Date; how: string; well: boolean } | null;
}

/** One start-to-end period of a machine. */
export interface MachineLife {
  life: string;
  /** Its slot number in the pool. */
  slot: number;
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
  askedBy: string | null;
  askedAt: Date;
  startedAt: Date | null;
  arrivedAt: Date | null;
  idleSince: Date | null;
  /** Per second, and the price table. */
  price: number;
  prices: string | null;
}

export function toPool(row: PoolRow): PoolInfo {
  const { paused_at, paused_by, pause_reason, next_due, machines, alive, starting, trouble, wasted_starts, ...same } =
    row;
  return {
    ...same,
    wastedStarts: wasted_starts,
    paused: paused_at && { at: paused_at, by: paused_by, reason: pause_reason },
    // pg parses infinity as a number.
    nextDue: next_due instanceof Date ? next_due : null,
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
      larger: machines.larger ?? null,
      now: alive,
      starting,
    },
    trouble: trouble && {
      code: trouble.code,
      message: trouble.message,
      remedy: trouble.remedy ?? null,
      since: toDate(trouble.since),
      until: toDate(trouble.until),
    },
  };
}

export function toMachine(row: MachineRow): Machine {
  const { worker, pool, running, since, lease_until, listening, state, life } = row;
  return {
    worker,
    pool,
    running,
    since,
    leaseUntil: lease_until,
    listening,
    state,
    machine:
      life === null
        ? null
        : {
            life,
            slot: row.slot,
            burst: row.burst,
            provider: row.provider,
            providerId: row.provider_id,
            region: row.region,
            size: row.size,
            slots: row.slots,
            jobs: row.jobs,
            why: row.why,
            askedBy: row.asked_by,
            askedAt: row.asked_at,
            startedAt: row.started_at,
            arrivedAt: row.arrived_at,
            idleSince: row.idle_since,
            price: row.price,
            prices: row.prices,
          },
    end: row.ended_at && { at: row.ended_at, how: row.ending!, well: row.ended_well! },
  };
}

function toDate(text: string | undefined): Date | null {
  return text === undefined ? null : new Date(text);
}
