// Calls of sql/functions/machines/machines.sql: for the orchestrator, and for the worker on a machine.
import type { Database } from "../database.ts";
import { splitHosts } from "../hosts.ts";
import { finiteTime, fromRow, type RowOf } from "../row.ts";

export interface Fleet {
  id: string;
  /** False for a copy of the database whose machines these are not. */
  fits: boolean;
  why: string | null;
}

/**
 * Host, port and name of the database, to tell a copied database from its original. Null for a loopback address, which is
 * the same for every copy.
 */
export function databaseAddress(url: string | undefined): string | null {
  const urls = url === undefined ? [] : splitHosts(url);
  if (urls.length === 0 || !urls.every((single) => URL.canParse(single))) return null;
  const hosts = urls.flatMap((single) => {
    const { hostname, port } = new URL(single);
    const isLoopback = hostname === "localhost" || hostname === "[::1]" || /^127\./.test(hostname);
    const isSocket = hostname === "" || hostname.startsWith("%2F") || hostname.startsWith("/");
    return isLoopback || isSocket ? [] : [`${hostname.toLowerCase()}:${port || 5432}`];
  });
  return hosts.length === urls.length ? `${hosts.join(",")}${new URL(urls[0]!).pathname}` : null;
}

/** `address`: see databaseAddress(). */
export async function readFleet(database: Database, address: string | null): Promise<Fleet> {
  const [fleet] = await database.read<Fleet>(`select id, fits, why from ${database.schema}.fleet($1)`, [address]);
  return fleet!;
}

export async function adoptFleet(
  database: Database,
  { address, same, by }: { address: string | null; same: boolean; by: string | null },
): Promise<string> {
  const [row] = await database.query<{ id: string }>(`select ${database.schema}.adopt_fleet($1, $2, $3) as id`, [
    address,
    same,
    by,
  ]);
  return row!.id;
}

/** The machine settings of a pool, as stored for planners and pages. */
export interface MachineFacts {
  provider: string;
  size?: string;
  region?: string;
  /** A fingerprint of their settings. */
  made?: string;
  slots: number;
  warm: number;
  max: number;
  burst: number;
  idle_exit_ms: number;
  /** The price per second, and the price table. */
  price?: number;
  prices?: string;
  currency?: string;
  least_seconds?: number;
  /** GB of disk that a stopped machine keeps. */
  disk?: number;
  /** The price of a stopped machine per second. */
  idle_price?: number;
  /** The pool of the next larger size. */
  larger_pool?: string;
}

export async function setMachines(database: Database, pool: string, facts: MachineFacts | null): Promise<void> {
  await database.query(`select ${database.schema}.set_machines($1, $2::text::jsonb)`, [
    pool,
    facts && JSON.stringify(facts),
  ]);
}

/** One start-to-end period of a machine. */
export interface MachineLife {
  id: string;
  machine: string;
  ordinal: number;
  burst: boolean;
  providerId: string | null;
  /** Its concurrency, and the number of jobs it runs. */
  slots: number;
  running: number;
  requestedAt: Date;
  startedAt: Date | null;
  registeredAt: Date | null;
  idleSince: Date | null;
  /** No heartbeat since one of its leases expired. */
  silentSince: Date | null;
  leftAt: Date | null;
  retiredAt: Date | null;
}

export interface ReportedProviderError {
  code: string;
  message: string;
  /** No machine is started before this time. */
  until?: string;
}

/** The state of a pool as the orchestrator polls it. */
export interface PoolSnapshot {
  pool: string;
  /** The database's time. */
  at: Date;
  /** The reason of the pause. */
  paused: string | null;
  claimable: number;
  running: number;
  oldest: Date | null;
  nextDue: Date | null;
  wastedStarts: number;
  wastedStartsAt: Date | null;
  providerError: ReportedProviderError | null;
  lives: MachineLife[];
  /** Workers that hold jobs of the pool, on a machine or not. */
  working: string[];
}

type SameFields = Omit<PoolSnapshot, "nextDue" | "lives">;

interface PoolSnapshotRow extends RowOf<SameFields> {
  next_due: Date | number | null;
  /** JSON: its times are text. */
  lives: Record<string, string | number | boolean | null>[];
}

/** Runs what is due without a worker (schedules, recovery, budgets) and returns a snapshot per pool. */
export async function pollPools(database: Database, pools: readonly string[]): Promise<PoolSnapshot[]> {
  const rows = await database.query<PoolSnapshotRow>(`select * from ${database.schema}.orchestrator_snapshot($1)`, [
    pools,
  ]);
  return rows.map(({ next_due, lives, ...row }) => ({
    ...fromRow<SameFields>(row),
    nextDue: finiteTime(next_due),
    lives: lives.map((life) => ({
      id: life.id as string,
      machine: life.machine as string,
      ordinal: Number(life.ordinal),
      burst: Boolean(life.burst),
      providerId: life.provider_id as string | null,
      slots: Number(life.slots),
      running: Number(life.running),
      requestedAt: new Date(life.requested_at as string),
      startedAt: time(life.started_at),
      registeredAt: time(life.registered_at),
      idleSince: time(life.idle_since),
      silentSince: time(life.silent_since),
      leftAt: time(life.left_at),
      retiredAt: time(life.retired_at),
    })),
  }));
}

function time(value: unknown): Date | null {
  return typeof value === "string" ? new Date(value) : null;
}

export interface Reservation {
  ordinal: number;
  /** Its name; SQL appends a number to that of a burst machine. */
  machine: string;
  burst: boolean;
  provider: string;
  region?: string;
  size?: string;
  slots: number;
  price?: number;
  prices?: string;
  least_seconds?: number;
  by: string;
  why: string;
}

/** Undefined when the ordinal was taken in between, or the pool has its maximum of machines. */
export async function reserveMachine(
  database: Database,
  pool: string,
  most: number,
  reservation: Reservation,
): Promise<{ life: string; machine: string } | undefined> {
  const [row] = await database.query<{ life: string; machine: string }>(
    `select life, machine from ${database.schema}.reserve_machine($1, $2, $3::text::jsonb)`,
    [pool, most, JSON.stringify(reservation)],
  );
  return row;
}

export async function machineStarted(
  database: Database,
  life: string,
  id: string,
  startedAt: Date | undefined,
): Promise<void> {
  await database.query(`select ${database.schema}.machine_started($1, $2, $3)`, [life, id, startedAt ?? null]);
}

/** Returns how many jobs were requeued. */
export async function machineEnded(
  database: Database,
  life: string,
  { exit = {}, startedAt, endedAt }: { exit?: object; startedAt?: Date | undefined; endedAt?: Date | undefined },
): Promise<number> {
  const [row] = await database.query<{ jobs: number }>(
    `select ${database.schema}.machine_ended($1, $2::text::jsonb, $3, $4) as jobs`,
    [life, JSON.stringify(exit), startedAt ?? null, endedAt ?? null],
  );
  return row!.jobs;
}

/** True when it has no job and will get none. */
export async function retireMachine(database: Database, life: string): Promise<boolean> {
  const [row] = await database.query<{ may: boolean }>(`select ${database.schema}.retire_machine($1) as may`, [life]);
  return row!.may;
}

export async function reportProviderError(
  database: Database,
  pool: string,
  providerError: ReportedProviderError | null,
): Promise<void> {
  await database.query(`select ${database.schema}.report_provider_error($1, $2::text::jsonb)`, [
    pool,
    providerError && JSON.stringify(providerError),
  ]);
}

/** Registers the worker of a machine. False: the machine is being retired and the worker must leave. */
export async function machineRegistered(
  database: Database,
  machine: string,
  pool: string,
  slots: number,
): Promise<boolean> {
  const [row] = await database.query<{ welcome: boolean }>(
    `select ${database.schema}.machine_registered($1, $2, $3) as welcome`,
    [machine, pool, slots],
  );
  return row!.welcome;
}

export interface LeaveRequest {
  machine: string;
  pool: string;
  pipelines: readonly string[];
  versions: readonly number[];
  oldest: readonly number[];
}

/** Whether the machine may leave: not while there is a job for it, unless a reason is passed. */
export async function leaveMachine(
  database: Database,
  { machine, pool, pipelines, versions, oldest }: LeaveRequest,
  reason: string | null,
): Promise<boolean> {
  const [row] = await database.query<{ may: boolean }>(
    `select ${database.schema}.machine_leaves($1, $2, $3, $4, $5, $6) as may`,
    [machine, pool, reason, pipelines, versions, oldest],
  );
  return row!.may;
}
