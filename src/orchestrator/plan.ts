// Decides which machines to start, to stop and to leave alone: a pure function of a snapshot of the database and the
// provider's list. Nothing here does I/O, waits or keeps state.
//
// A life is one start-to-end period of a machine, a row of machine_lives:
//
//   requested --confirmed--> starting --worker registers--> up --idle--> left --provider confirms--> ended
//     |                     |                            |
//     | not confirmed:      | not registered in time:    | idle for far too long:
//     v requested again     v retired, removed           v retired, removed
//
// Machines exit by themselves. The orchestrator stops only those that never registered, are stuck, or are still running
// after their worker left; never one that has a job, which the database checks (retire_machine). Each life has an
// ordinal in its pool, from 1 to max, so that there are never more than max machines.

import type { MachineLife, PoolSnapshot } from "../db/calls/machines.ts";
import { formatPlural } from "../text/format.ts";
import type { Exit, ListedMachine } from "./provider.ts";
import type { PoolSettings } from "./settings.ts";

export type Action =
  | { do: "start"; ordinal: number; burst: boolean; why: string }
  /** Request it again: the first call got no response. */
  | { do: "repeat"; life: MachineLife }
  | { do: "confirm"; life: MachineLife; machine: ListedMachine }
  | { do: "prepare"; ordinal: number }
  /** It has ended: close its life. */
  | { do: "end"; life: MachineLife; machine?: ListedMachine; exit: Exit }
  /** Stop it, if it has no job. */
  | { do: "retire"; life: MachineLife; machine?: ListedMachine; why: string }
  /** Remove it at the provider; the database has no life of it. */
  | { do: "remove"; machine: ListedMachine; ordinal: number; why: string };

export interface PlanInput {
  settings: PoolSettings;
  snapshot: PoolSnapshot;
  /** The provider's list, and how long before the snapshot it was requested; undefined when it was not requested. */
  listing?: { machines: readonly ListedMachine[]; agoMs: number };
  /** The ordinal of a machine by its name; undefined for a name of another pool. */
  ordinalOf(name: string): number | undefined;
  /** Ordinals whose machine could not be started recently. */
  unavailableOrdinals: ReadonlySet<number>;
  /** For how long this process has listed a machine without a life, by its name. */
  strayMs(name: string): number;
  /** Lives whose start this process requested without a response, after every retry. */
  unanswered: ReadonlySet<string>;
  /** Whether the provider can create stopped machines. */
  canPrepare: boolean;
}

export interface Plan {
  /** Machines that are up or starting. */
  current: number;
  wanted: number;
  why: string;
  actions: Action[];
  /** Some lives cannot be decided on without the provider's list. */
  needsListing: boolean;
  /** Poll again after this time even if nothing becomes due; undefined: only when something becomes due. */
  checkAgainMs: number | undefined;
}

/** Tolerance for clock differences between provider and database, and for the age of a list. */
export const SKEW_MS = 10_000;
/** Longest time in a temporary state, such as "starting". */
export const STUCK_MS = 5 * 60_000;
/** Extra time for a machine that has left, or should have. */
const EXIT_MARGIN_MS = 60_000;
/** After this time, longer than a call with all retries, an unconfirmed start is requested again. */
export const UNCONFIRMED_MS = 120_000;
/** After this many wasted starts in a row, starts pause; the pause doubles. */
export const MAX_WASTED_STARTS = 3;
const INITIAL_PAUSE_MS = 10 * 60_000;
const MAX_PAUSE_MS = 6 * 3_600_000;

export function plan(input: PlanInput): Plan {
  const { settings, snapshot } = input;
  const actions = [...reconcileLives(input), ...removeStrays(input), ...prepareWarmMachines(input)];
  const ending = new Set(
    actions.flatMap((action) =>
      "life" in action && action.do !== "confirm" && action.do !== "repeat" ? [action.life.id] : [],
    ),
  );
  const ended = new Set(actions.flatMap((action) => (action.do === "end" ? [action.life.id] : [])));
  const open = snapshot.lives.filter(({ id }) => !ended.has(id));
  const present = open.filter((life) => !ending.has(life.id) && !life.leftAt && !life.retiredAt && !life.silentSince);
  const room = present.reduce((sum, { slots, running }) => sum + Math.max(0, slots - running), 0);
  const missing = Math.max(0, snapshot.claimable - room);
  const needed = Math.ceil(missing / settings.slots);
  const wanted = Math.min(settings.max, present.length + needed);
  const { max, reason } = startLimit(input, present, ending.size > 0);
  const free = freeOrdinals(input, open);
  const starting = Math.min(needed, max, free.length, Math.max(0, settings.max - open.length));
  const isFull = open.length + starting >= settings.max;
  const shortage =
    reason ??
    (isFull
      ? `the pool is at its maximum of ${formatPlural(settings.max, "machine")}`
      : "the remaining machines failed to start recently");
  const why = explain(snapshot.claimable, room, starting < needed ? shortage : undefined);
  for (const { ordinal, burst } of free.slice(0, starting)) actions.push({ do: "start", ordinal, burst, why });
  return {
    current: present.length,
    wanted: snapshot.paused ? present.length : wanted,
    why,
    actions,
    needsListing: input.listing === undefined && snapshot.lives.some((life) => needsListing(input, life)),
    checkAgainMs: nextCheckMs(input, open, needed > 0),
  };
}

function explain(claimable: number, room: number, shortage: string | undefined): string {
  if (claimable === 0) return "no job is waiting";
  const jobs = claimable === 1 ? "1 job is waiting" : `${claimable} jobs are waiting`;
  return `${jobs}, room for ${room}${shortage ? `; ${shortage}` : ""}`;
}

/** How many machines may be started now, and why not more. */
function startLimit(
  { snapshot, settings }: PlanInput,
  present: MachineLife[],
  isEnding: boolean,
): { max: number; reason?: string } {
  if (snapshot.paused !== null) return { max: 0, reason: `the pool is paused: ${snapshot.paused}` };
  const { providerError, wastedStarts, at } = snapshot;
  const wasted = `the last ${wastedStarts === 1 ? "machine" : `${wastedStarts} machines`} ended without running a job`;
  const waitMs = blockedMs(snapshot);
  if (waitMs > 0) {
    const cause =
      providerError?.until && Date.parse(providerError.until) > at.getTime() ? providerError.message : wasted;
    return { max: 0, reason: `starts are paused for ${Math.ceil(waitMs / 1000)} s: ${cause}` };
  }
  // After a wasted start, the next machine has to run a job before another one is started.
  if (wastedStarts > 0) {
    // A machine that ends in this round may be wasted too, which is known only in the next one.
    const isUnproven = isEnding || present.some((life) => life.running === 0);
    return { max: isUnproven ? 0 : 1, reason: `${wasted}, so machines start one at a time` };
  }
  return { max: settings.max };
}

/** For how long no machine may be started: because of a provider error, or of wasted starts. */
export function blockedMs({ at, providerError, wastedStarts, wastedStartsAt }: PoolSnapshot): number {
  const errorMs = providerError?.until ? Date.parse(providerError.until) - at.getTime() : 0;
  const pauseMs =
    wastedStarts < MAX_WASTED_STARTS
      ? 0
      : Math.min(INITIAL_PAUSE_MS * 2 ** Math.min(wastedStarts - MAX_WASTED_STARTS, 20), MAX_PAUSE_MS);
  const wastedMs = wastedStartsAt ? wastedStartsAt.getTime() + pauseMs - at.getTime() : 0;
  return Math.max(0, errorMs, pauseMs > 0 ? wastedMs : 0);
}

/** Warm machines first: starting a stopped machine is faster than creating one. */
function freeOrdinals(
  { settings, unavailableOrdinals }: PlanInput,
  open: MachineLife[],
): { ordinal: number; burst: boolean }[] {
  const taken = new Set(open.map(({ ordinal }) => ordinal));
  const all = Array.from({ length: Math.min(settings.max, settings.warm + settings.burst) }, (_, index) => ({
    ordinal: index + 1,
    burst: index >= settings.warm,
  }));
  return all.filter(({ ordinal }) => !taken.has(ordinal) && !unavailableOrdinals.has(ordinal));
}

function msSince(snapshot: PoolSnapshot, date: Date | null): number {
  return date === null ? 0 : snapshot.at.getTime() - date.getTime();
}

/** Only the provider knows what became of it. */
function needsListing(input: PlanInput, life: MachineLife): boolean {
  return (
    life.leftAt !== null ||
    life.retiredAt !== null ||
    isUnconfirmed(input, life) ||
    overdueReason(input, life) !== undefined
  );
}

function isUnconfirmed({ snapshot, unanswered }: PlanInput, life: MachineLife): boolean {
  if (life.startedAt !== null) return false;
  return msSince(snapshot, life.requestedAt) > UNCONFIRMED_MS || (unanswered.has(life.id) && blockedMs(snapshot) === 0);
}

/** What the machine should have done by now; undefined when it is on time. */
function overdueReason({ snapshot, settings }: PlanInput, life: MachineLife): string | undefined {
  const { idleExitMs, minUptimeMs, bootMs, graceMs } = settings;
  if (life.running > 0) return undefined;
  if (life.leftAt)
    return msSince(snapshot, life.leftAt) > graceMs + EXIT_MARGIN_MS
      ? "its worker has exited, but the machine still runs"
      : undefined;
  if (!life.registeredAt) {
    const limitMs = life.startedAt ? bootMs : bootMs + UNCONFIRMED_MS;
    return msSince(snapshot, life.startedAt ?? life.requestedAt) > limitMs ? "its worker never registered" : undefined;
  }
  if (life.silentSince && msSince(snapshot, life.silentSince) > graceMs + EXIT_MARGIN_MS)
    return "no heartbeat since its lease expired";
  const idleMs = life.idleSince ? msSince(snapshot, life.idleSince) : 0;
  return idleMs > Math.max(idleExitMs, minUptimeMs) + graceMs + EXIT_MARGIN_MS
    ? "it is idle and does not exit"
    : undefined;
}

/** Compares lives with the provider's list. */
function reconcileLives(input: PlanInput): Action[] {
  const { snapshot, listing } = input;
  const byName = new Map((listing?.machines ?? []).map((machine) => [machine.name, machine]));
  const actions: Action[] = [];
  for (const life of snapshot.lives) {
    const machine = byName.get(life.machine);
    const overdue = overdueReason(input, life);
    // A list requested before the start, or while it was in progress, proves nothing about the machine.
    const isSettled = life.startedAt !== null || isUnconfirmed(input, life);
    const isConclusive =
      listing !== undefined &&
      isSettled &&
      msSince(snapshot, later(life.requestedAt, life.startedAt)) > listing.agoMs + SKEW_MS;
    if (listing && machine && isOver(machine) && (isConclusive || isEndOf(machine, life))) {
      actions.push({ do: "end", life, machine, exit: machine.exit ?? {} });
    } else if (listing && !machine && isConclusive && life.running === 0 && (life.startedAt !== null || overdue)) {
      // A machine with a job is alive, even if it is missing from a list; if it is dead, its lease expires.
      actions.push({ do: "end", life, exit: { reason: overdue ?? "the provider no longer lists it" } });
    } else if (life.retiredAt || (overdue && listing)) {
      if (listing) actions.push({ do: "retire", life, ...(machine && { machine }), why: overdue ?? "it was retired" });
    } else if (machine && life.running === 0 && isStuck(input, machine)) {
      actions.push({ do: "retire", life, machine, why: `it has been ${machine.state} for too long` });
    } else if (machine && life.startedAt === null && !isOver(machine)) {
      actions.push({ do: "confirm", life, machine });
    } else if (listing && isUnconfirmed(input, life)) {
      actions.push({ do: "repeat", life });
    }
  }
  return actions;
}

function later(a: Date, b: Date | null): Date {
  return b && b > a ? b : a;
}

function isOver({ state }: ListedMachine): boolean {
  return state === "stopped" || state === "gone";
}

/** The listed exit belongs to this life and not to an earlier one. */
function isEndOf({ state, startedAt, endedAt }: ListedMachine, life: MachineLife): boolean {
  if (life.burst && state === "gone") return true;
  const since = life.requestedAt.getTime();
  return startedAt !== undefined && endedAt !== undefined && startedAt.getTime() >= since && endedAt.getTime() > since;
}

function isStuck({ snapshot }: PlanInput, { state, since }: ListedMachine): boolean {
  return (
    (state === "starting" || state === "stopping") &&
    since !== undefined &&
    snapshot.at.getTime() - since.getTime() > STUCK_MS
  );
}

/** Machines without a life: from a lost response, from older settings, or started by hand. */
function removeStrays(input: PlanInput): Action[] {
  const { snapshot, listing, settings, ordinalOf, strayMs } = input;
  // A worker with a job is alive, with or without a life.
  const known = new Set([...snapshot.lives.map(({ machine }) => machine), ...snapshot.working]);
  const actions: Action[] = [];
  for (const machine of listing?.machines ?? []) {
    const ordinal = ordinalOf(machine.name);
    if (known.has(machine.name) || machine.state === "gone" || ordinal === undefined) continue;
    const isWarm = ordinal <= settings.warm && isWarmName(machine.name);
    if (machine.state === "stopped") {
      if (!isWarm) actions.push({ do: "remove", machine, ordinal, why: "it is stopped and not a warm machine" });
      else if (machine.stale)
        actions.push({ do: "remove", machine, ordinal, why: "it was created with other settings" });
    } else if (strayMs(machine.name) > settings.bootMs + EXIT_MARGIN_MS) {
      // Its worker, if it has one, would have registered by now.
      actions.push({ do: "remove", machine, ordinal, why: "it runs without a registered worker" });
    }
  }
  return actions;
}

/** The name of a burst machine has a number after the ordinal. */
function isWarmName(name: string): boolean {
  return /-m\d+$/.test(name);
}

function prepareWarmMachines({ snapshot, listing, settings, ordinalOf, canPrepare }: PlanInput): Action[] {
  if (!listing || !canPrepare || snapshot.paused !== null || blockedMs(snapshot) > 0) return [];
  const listed = new Set(
    listing.machines
      .filter(({ name, state }) => state !== "gone" && isWarmName(name))
      .map(({ name }) => ordinalOf(name)),
  );
  const used = new Set(snapshot.lives.map(({ ordinal }) => ordinal));
  const ordinals = Array.from({ length: settings.warm }, (_, index) => index + 1);
  return ordinals
    .filter((ordinal) => !listed.has(ordinal) && !used.has(ordinal))
    .map((ordinal) => ({ do: "prepare", ordinal }));
}

function nextCheckMs(input: PlanInput, open: MachineLife[], isShort: boolean): number | undefined {
  const { snapshot } = input;
  const blocked = blockedMs(snapshot);
  if (isShort && snapshot.paused === null && blocked > 0) return Math.min(blocked, 60_000);
  const isChanging = (life: MachineLife) =>
    !life.retiredAt && (!life.registeredAt || (life.leftAt && msSince(snapshot, life.leftAt) < 30_000));
  if (open.some(isChanging)) return 2000;
  if (open.some((life) => life.leftAt || life.retiredAt)) return 10_000;
  if (isShort && snapshot.paused === null) return 5000;
  if (open.length > 0) return 15_000;
  return undefined;
}

export function describeAction(action: Action): string {
  switch (action.do) {
    case "start":
      return `start ${action.burst ? "burst " : ""}machine ${action.ordinal}`;
    case "prepare":
      return `prepare machine ${action.ordinal}`;
    case "remove":
      return `remove ${action.machine.name} (${action.why})`;
    case "retire":
      return `stop ${action.life.machine} (${action.why})`;
    case "repeat":
      return `request ${action.life.machine} again`;
    case "confirm":
      return `${action.life.machine} is running`;
    case "end":
      return `${action.life.machine} has ended`;
  }
}
