// Pools and machines as the client shows them: rows of SQL under the names of TypeScript.
import type { MachineRow, PoolRow } from "../db/calls/reads.ts";

export interface PoolInfo {
  name: string;
  paused: { at: Date; by: string | null; reason: string | null } | null;
  /** Jobs that may run at once on all workers; null for as many as there are slots. */
  concurrency: number | null;
  /** Jobs that a worker could take now, counted up to 1000. */
  claimable: number;
  running: number;
  /** Since when the first of them waits. */
  oldest: Date | null;
  /** When something happens next; in the past when there is work now, null when everybody may sleep. */
  nextDue: Date | null;
  /** The machines that an orchestrator starts for it; null for a pool that has none. */
  machines: PoolMachines | null;
  /** Machines that its work needs now, at most as many as may be; null as above. */
  wanted: number | null;
  /** What keeps machines from being started, as the orchestrator said last. */
  trouble: PoolTrouble | null;
  /** Machines in a row that ended without a job while there was one. */
  wastedStarts: number;
}

/** What the machines of a pool are, and how many there are now. */
export interface PoolMachines {
  /** "fly", "cloud-run", "kubernetes", "local". */
  provider: string;
  size: string | null;
  region: string | null;
  /** Jobs at once on one machine. */
  slots: number;
  /** Made beforehand and stopped; at once at most; of these beyond the warm ones. */
  warm: number;
  max: number;
  burst: number;
  idleExitMs: number;
  /** Per second: of a machine that runs, and of one that is stopped. Null where no price is known. */
  price: number | null;
  idlePrice: number | null;
  /** Of which price table, in which currency. */
  prices: string | null;
  currency: string | null;
  /** The pool of the next size, where a job that ran out of memory goes on. */
  larger: string | null;
  /** Those that are not stopped, and of these the ones whose worker has not arrived yet. */
  now: number;
  starting: number;
}

export interface PoolTrouble {
  code: string;
  message: string;
  remedy: string | null;
  since: Date | null;
  /** Nothing is started before. */
  until: Date | null;
}

/** A machine, or a worker that is on none of ours and holds leases or listens for work. */
export interface Machine {
  /** The name of its worker, which is that of the machine. */
  worker: string;
  pool: string;
  running: number;
  /** Since when it has had work without a pause; null when it has none. */
  since: Date | null;
  leaseUntil: Date | null;
  /** Whether it hears of new work at once. */
  listening: boolean;
  /** "leaving": its worker has left. "retiring": it gets no job any more and is about to be stopped. */
  state: MachineRow["state"];
  /** Null for a worker that no orchestrator knows a machine of. */
  machine: MachineLife | null;
  /** How it ended; null while it has not. */
  end: { at: Date; how: string; well: boolean } | null;
}

/** A machine from its start to its end. */
export interface MachineLife {
  life: string;
  /** Its place in the pool. */
  slot: number;
  /** Made for this life alone. */
  burst: boolean;
  provider: string;
  providerId: string | null;
  region: string | null;
  size: string | null;
  slots: number;
  /** How many jobs it has had, counted among its first 1000 attempts. */
  jobs: number;
  /** Why it was asked for, and by which orchestrator. */
  why: string | null;
  askedBy: string | null;
  askedAt: Date;
  startedAt: Date | null;
  arrivedAt: Date | null;
  idleSince: Date | null;
  /** Per second; of which table. */
  price: number;
  prices: string | null;
}

export function toPool(row: PoolRow): PoolInfo {
  const { paused_at, paused_by, pause_reason, next_due, machines, alive, starting, trouble, ...same } = row;
  return {
    ...same,
    paused: paused_at && { at: paused_at, by: paused_by, reason: pause_reason },
    // The driver reads infinity as a number.
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
      since: timeOf(trouble.since),
      until: timeOf(trouble.until),
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

function timeOf(text: string | undefined): Date | null {
  return text === undefined ? null : new Date(text);
}
