// The verbs of sql/functions/machines/machines.sql: for the orchestrator, and for the worker that runs on a machine.
import type { Database } from "../database.ts";

export interface Fleet {
  id: string;
  /** False for a copy of the database whose machines these are not. */
  fits: boolean;
  why: string | null;
}

/** `address`: where the database is reached, as told by its URL; null for one that tells nothing. */
export async function readFleet(database: Database, address: string | null): Promise<Fleet> {
  const [fleet] = await database.query<Fleet>(`select id, fits, why from ${database.schema}.fleet($1)`, [address]);
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

/** What people and planners are told of the machines of a pool. */
export interface MachineFacts {
  provider: string;
  size?: string;
  region?: string;
  /** Of what they are made, in short. */
  made?: string;
  slots: number;
  warm: number;
  max: number;
  burst: number;
  idle_exit_ms: number;
  /** Per second; of which table. */
  price?: number;
  prices?: string;
  currency?: string;
  least_seconds?: number;
  /** GB of root file system that a stopped machine keeps. */
  disk?: number;
  /** Per stopped machine and second. */
  idle_price?: number;
  /** The pool of the next size. */
  larger?: string;
}

export async function setMachines(database: Database, pool: string, facts: MachineFacts | null): Promise<void> {
  await database.query(`select ${database.schema}.set_machines($1, $2::text::jsonb)`, [
    pool,
    facts && JSON.stringify(facts),
  ]);
}

/** A machine from its start to its end. */
export interface Life {
  id: string;
  machine: string;
  slot: number;
  burst: boolean;
  providerId: string | null;
  /** Jobs at once, and those it has. */
  slots: number;
  running: number;
  askedAt: Date;
  startedAt: Date | null;
  arrivedAt: Date | null;
  idleSince: Date | null;
  /** Its worker has not been heard of since a lease of it ran out. */
  silentSince: Date | null;
  leftAt: Date | null;
  retiredAt: Date | null;
}

export interface Trouble {
  code: string;
  message: string;
  /** Nothing is started before. */
  until?: string;
}

export interface Look {
  pool: string;
  /** The database's time. */
  at: Date;
  /** Why nothing may start. */
  paused: string | null;
  claimable: number;
  running: number;
  oldest: Date | null;
  nextDue: Date | null;
  wastedStarts: number;
  wastedStartsAt: Date | null;
  trouble: Trouble | null;
  lives: Life[];
  /** Whoever has jobs of the pool, machine or not. */
  working: string[];
}

interface LookRow {
  pool: string;
  at: Date;
  paused: string | null;
  claimable: number;
  running: number;
  oldest: Date | null;
  next_due: Date | number | null;
  wastedStarts: number;
  wasted_starts_at: Date | null;
  trouble: Trouble | null;
  lives: Record<string, string | number | boolean | null>[];
  working: string[];
}

export async function look(database: Database, pools: readonly string[]): Promise<Look[]> {
  const rows = await database.query<LookRow>(`select * from ${database.schema}.look($1)`, [pools]);
  return rows.map(({ next_due, wasted_starts_at, lives, ...row }) => ({
    ...row,
    nextDue: next_due instanceof Date ? next_due : null,
    wastedStartsAt: wasted_starts_at,
    lives: lives.map((life) => ({
      id: life.id as string,
      machine: life.machine as string,
      slot: Number(life.slot),
      burst: Boolean(life.burst),
      providerId: life.provider_id as string | null,
      slots: Number(life.slots),
      running: Number(life.running),
      askedAt: new Date(life.asked_at as string),
      startedAt: time(life.started_at),
      arrivedAt: time(life.arrived_at),
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
  slot: number;
  /** Its name; SQL puts a number behind that of a burst machine. */
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

/** Undefined when somebody else was quicker, or there are as many machines as may be. */
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

/** Answers how many jobs went back to the line. */
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

/** True when it has no job and gets none any more. */
export async function retireMachine(database: Database, life: string): Promise<boolean> {
  const [row] = await database.query<{ may: boolean }>(`select ${database.schema}.retire_machine($1) as may`, [life]);
  return row!.may;
}

export async function reportTrouble(database: Database, pool: string, trouble: Trouble | null): Promise<void> {
  await database.query(`select ${database.schema}.report_trouble($1, $2::text::jsonb)`, [
    pool,
    trouble && JSON.stringify(trouble),
  ]);
}

/** The worker on a machine is there. False: the machine is about to be stopped. */
export async function machineArrived(
  database: Database,
  machine: string,
  pool: string,
  slots: number,
): Promise<boolean> {
  const [row] = await database.query<{ welcome: boolean }>(
    `select ${database.schema}.machine_arrived($1, $2, $3) as welcome`,
    [machine, pool, slots],
  );
  return row!.welcome;
}

export interface LeaveQuestion {
  machine: string;
  pool: string;
  pipelines: readonly string[];
  versions: readonly number[];
  oldest: readonly number[];
}

/** May it go, or is there a job for it? With a reason it is no question. */
export async function machineLeaves(
  database: Database,
  { machine, pool, pipelines, versions, oldest }: LeaveQuestion,
  reason: string | null,
): Promise<boolean> {
  const [row] = await database.query<{ may: boolean }>(
    `select ${database.schema}.machine_leaves($1, $2, $3, $4, $5, $6) as may`,
    [machine, pool, reason, pipelines, versions, oldest],
  );
  return row!.may;
}
