// Which machines to start, to end and to leave alone: a pure function of what the database and the provider say. Nothing here asks, waits or remembers.
//
// A life is a machine from its start to its end, as the database has it:
//
//   asked --confirmed--> starting --its worker arrives--> up --nothing to do--> left --the provider says so--> ended
//     |                     |                              |
//     | not confirmed:      | not arrived in time:         | idle for far too long:
//     v asked again         v retired, removed             v retired, removed
//
// Machines end by themselves. From outside only those are ended that never came, that are stuck, or that have left and are still there; and none that has a
// job, which the database decides (retire_machine). Each life has a place in its pool, so that there are never more machines than places.
import type { Life, Look } from "../db/calls/machines.ts";
import type { Exit, SeenMachine } from "./provider.ts";
import type { PoolSettings } from "./settings.ts";

export type Action =
  | { do: "start"; slot: number; burst: boolean; why: string }
  /** Ask for it again: the answer to the first call never came. */
  | { do: "repeat"; life: Life }
  | { do: "confirm"; life: Life; machine: SeenMachine }
  | { do: "prepare"; slot: number }
  /** It has ended: close its life. */
  | { do: "end"; life: Life; machine?: SeenMachine; exit: Exit }
  /** End it, if it has no job. */
  | { do: "retire"; life: Life; machine?: SeenMachine; why: string }
  /** At the provider alone: there is no life to it. */
  | { do: "remove"; machine: SeenMachine; place: number; why: string };

export interface PlanInput {
  settings: PoolSettings;
  look: Look;
  /** What the provider says, and how long before the look it was asked; undefined when it was not asked. */
  seen?: { machines: readonly SeenMachine[]; agoMs: number };
  /** The place of a machine by its name, undefined when it has none in this pool. */
  placeOf(name: string): number | undefined;
  /** Places whose machine could not be started lately. */
  shunned: ReadonlySet<number>;
  /** For how long this process has seen a machine that has no life, by its name. */
  strayMs(name: string): number;
  /** Lives whose start was asked for by this process and had no answer, after every try. */
  unanswered: ReadonlySet<string>;
  /** Whether the provider can make machines beforehand. */
  prepares: boolean;
}

export interface Plan {
  /** Machines there are or that are coming, and machines there should be. */
  current: number;
  wanted: number;
  why: string;
  actions: Action[];
  /** Nothing can be decided about some lives before the provider has been asked. */
  ask: boolean;
  /** Look again after this time even if nothing becomes due; undefined: not before something does. */
  againMs: number | undefined;
}

/** How far the clocks of a provider and of the database may be apart, and how old an answer of the provider may be. */
export const SKEW_MS = 10_000;
/** A state that should pass, such as "starting", and does not. */
export const STUCK_MS = 5 * 60_000;
/** A machine that has left, or should have, is given this long on top of its own times. */
const PATIENCE_MS = 60_000;
/** A start by somebody else that was not confirmed is asked for again after this time: the call itself, with all its tries, is shorter. */
export const UNCONFIRMED_MS = 120_000;
/** So many machines in a row may be of no use; then there is a pause that doubles. */
export const MAX_WASTED_STARTS = 3;
const VAIN_FIRST_MS = 10 * 60_000;
const VAIN_MOST_MS = 6 * 3_600_000;

export function plan(input: PlanInput): Plan {
  const { settings, look } = input;
  const actions = [...tidy(input), ...strays(input), ...warmth(input)];
  const ending = new Set(
    actions.flatMap((action) =>
      "life" in action && action.do !== "confirm" && action.do !== "repeat" ? [action.life.id] : [],
    ),
  );
  const ended = new Set(actions.flatMap((action) => (action.do === "end" ? [action.life.id] : [])));
  const open = look.lives.filter(({ id }) => !ended.has(id));
  const present = open.filter((life) => !ending.has(life.id) && !life.leftAt && !life.retiredAt && !life.silentSince);
  const room = present.reduce((sum, { slots, running }) => sum + Math.max(0, slots - running), 0);
  const missing = Math.max(0, look.claimable - room);
  const needed = Math.ceil(missing / settings.slots);
  const wanted = Math.min(settings.max, present.length + needed);
  const { most, held } = allowance(input, present, ending.size > 0);
  const free = places(input, open);
  const starting = Math.min(needed, most, free.length, Math.max(0, settings.max - open.length));
  const full = open.length + starting >= settings.max;
  const short =
    held ?? (full ? `as many machines as may be (${settings.max})` : "no other machine could be started lately");
  const why = whyOf(look.claimable, room, starting < needed ? short : undefined);
  for (const { slot, burst } of free.slice(0, starting)) actions.push({ do: "start", slot, burst, why });
  const ask = input.seen === undefined && look.lives.some((life) => inDoubt(input, life));
  return {
    current: present.length,
    wanted: look.paused ? present.length : wanted,
    why,
    actions,
    ask,
    againMs: againMs(input, open, needed > 0),
  };
}

function whyOf(claimable: number, room: number, short: string | undefined): string {
  if (claimable === 0) return "no job waits";
  const jobs = claimable === 1 ? "1 job waits" : `${claimable} jobs wait`;
  return `${jobs}, there is room for ${room}${short ? `; ${short}` : ""}`;
}

/** How many machines may be started now, and why not more. */
function allowance({ look, settings }: PlanInput, present: Life[], isEnding: boolean): { most: number; held?: string } {
  if (look.paused !== null) return { most: 0, held: `the pool is paused: ${look.paused}` };
  const waitMs = blockedMs(look);
  if (waitMs > 0) {
    const what =
      look.trouble?.until && Date.parse(look.trouble.until) > look.at.getTime()
        ? look.trouble.message
        : `the last ${look.wastedStarts} machines were of no use`;
    return { most: 0, held: `nothing is started for ${Math.ceil(waitMs / 1000)} s: ${what}` };
  }
  // After one that was of no use the next has to prove itself.
  if (look.wastedStarts > 0) {
    // What ends in this round may have been of no use as well: that is known in the next.
    const unproven = isEnding || present.some((life) => life.running === 0);
    return {
      most: unproven ? 0 : 1,
      held: `the last ${look.wastedStarts === 1 ? "machine was" : `${look.wastedStarts} machines were`} of no use, one is tried at a time`,
    };
  }
  return { most: settings.max };
}

/** For how long nothing may be started: a trouble with the provider, or machines that were of no use. */
export function blockedMs({ at, trouble, wastedStarts, wastedStartsAt }: Look): number {
  const troubleMs = trouble?.until ? Date.parse(trouble.until) - at.getTime() : 0;
  const pauseMs =
    wastedStarts < MAX_WASTED_STARTS
      ? 0
      : Math.min(VAIN_FIRST_MS * 2 ** Math.min(wastedStarts - MAX_WASTED_STARTS, 20), VAIN_MOST_MS);
  const vainMs = wastedStartsAt ? wastedStartsAt.getTime() + pauseMs - at.getTime() : 0;
  return Math.max(0, troubleMs, pauseMs > 0 ? vainMs : 0);
}

/** Free places, the warm ones first: to start what is there is sooner than to make something. */
function places({ settings, shunned }: PlanInput, open: Life[]): { slot: number; burst: boolean }[] {
  const taken = new Set(open.map(({ slot }) => slot));
  const all = Array.from({ length: Math.min(settings.max, settings.warm + settings.burst) }, (_, index) => ({
    slot: index + 1,
    burst: index >= settings.warm,
  }));
  return all.filter(({ slot }) => !taken.has(slot) && !shunned.has(slot));
}

function msSince(look: Look, date: Date | null): number {
  return date === null ? 0 : look.at.getTime() - date.getTime();
}

/** Its fate is known to the provider alone. */
function inDoubt(input: PlanInput, life: Life): boolean {
  return (
    life.leftAt !== null || life.retiredAt !== null || isUnconfirmed(input, life) || overdue(input, life) !== undefined
  );
}

function isUnconfirmed({ look, unanswered }: PlanInput, life: Life): boolean {
  if (life.startedAt !== null) return false;
  return msSince(look, life.askedAt) > UNCONFIRMED_MS || (unanswered.has(life.id) && blockedMs(look) === 0);
}

/** What it should have done by now and has not. */
function overdue({ look, settings }: PlanInput, life: Life): string | undefined {
  const { idleExitMs, minUptimeMs: stayMs, bootMs, graceMs } = settings;
  if (life.running > 0) return undefined;
  if (life.leftAt)
    return msSince(look, life.leftAt) > graceMs + PATIENCE_MS ? "its worker has left and it is still there" : undefined;
  if (!life.arrivedAt) {
    const limitMs = life.startedAt ? bootMs : bootMs + UNCONFIRMED_MS;
    return msSince(look, life.startedAt ?? life.askedAt) > limitMs ? "its worker never came" : undefined;
  }
  if (life.silentSince && msSince(look, life.silentSince) > graceMs + PATIENCE_MS)
    return "its worker has not been heard of since its lease ran out";
  const idleMs = life.idleSince ? msSince(look, life.idleSince) : 0;
  return idleMs > Math.max(idleExitMs, stayMs) + graceMs + PATIENCE_MS
    ? "it has nothing to do and does not leave"
    : undefined;
}

/** Lives against what is there. */
function tidy(input: PlanInput): Action[] {
  const { look, seen } = input;
  const byName = new Map((seen?.machines ?? []).map((machine) => [machine.name, machine]));
  const actions: Action[] = [];
  for (const life of look.lives) {
    const machine = byName.get(life.machine);
    const late = overdue(input, life);
    // An answer from before the machine was asked for says nothing about it, nor does one from while it was being started.
    const isSettled = life.startedAt !== null || isUnconfirmed(input, life);
    const tells =
      seen !== undefined && isSettled && msSince(look, later(life.askedAt, life.startedAt)) > seen.agoMs + SKEW_MS;
    if (seen && machine && isOver(machine) && (tells || belongs(machine, life))) {
      actions.push({ do: "end", life, machine, exit: machine.exit ?? {} });
    } else if (seen && !machine && tells && life.running === 0 && (life.startedAt !== null || late)) {
      // One with a job is alive, whatever list it is missing from: if it is not, its lease runs out.
      actions.push({ do: "end", life, exit: { reason: late ?? "it is not there any more" } });
    } else if (life.retiredAt || (late && seen)) {
      if (seen) actions.push({ do: "retire", life, ...(machine && { machine }), why: late ?? "it was to be ended" });
    } else if (machine && life.running === 0 && isStuck(input, machine)) {
      actions.push({ do: "retire", life, machine, why: `it has been ${machine.state} for too long` });
    } else if (machine && life.startedAt === null && !isOver(machine)) {
      actions.push({ do: "confirm", life, machine });
    } else if (seen && isUnconfirmed(input, life)) {
      actions.push({ do: "repeat", life });
    }
  }
  return actions;
}

function later(a: Date, b: Date | null): Date {
  return b && b > a ? b : a;
}

function isOver({ state }: SeenMachine): boolean {
  return state === "stopped" || state === "gone";
}

/** The end that the provider tells of is the end of this life, and not of one before. */
function belongs({ state, startedAt, endedAt }: SeenMachine, life: Life): boolean {
  if (life.burst && state === "gone") return true;
  const since = life.askedAt.getTime();
  return startedAt !== undefined && endedAt !== undefined && startedAt.getTime() >= since && endedAt.getTime() > since;
}

function isStuck({ look }: PlanInput, { state, since }: SeenMachine): boolean {
  return (
    (state === "starting" || state === "stopping") &&
    since !== undefined &&
    look.at.getTime() - since.getTime() > STUCK_MS
  );
}

/** Machines of ours without a life: what is left of a start whose answer was lost, of older settings, or somebody has started one by hand. */
function strays(input: PlanInput): Action[] {
  const { look, seen, settings, placeOf, strayMs } = input;
  // Whoever has a job is alive, whether there is a life to it or not.
  const known = new Set([...look.lives.map(({ machine }) => machine), ...look.working]);
  const actions: Action[] = [];
  for (const machine of seen?.machines ?? []) {
    const place = placeOf(machine.name);
    if (known.has(machine.name) || machine.state === "gone" || place === undefined) continue;
    const isWarm = place <= settings.warm && isWarmName(machine.name);
    if (machine.state === "stopped") {
      if (!isWarm) actions.push({ do: "remove", machine, place, why: "it is stopped and not of those that are kept" });
      else if (machine.stale) actions.push({ do: "remove", machine, place, why: "it was made with other settings" });
    } else if (strayMs(machine.name) > settings.bootMs + PATIENCE_MS) {
      // Its worker, if it had one, would have said so by now.
      actions.push({ do: "remove", machine, place, why: "it runs and has no worker that we know of" });
    }
  }
  return actions;
}

/** A burst machine's name ends in a number of its own. */
function isWarmName(name: string): boolean {
  return /-m\d+$/.test(name);
}

/** Warm machines that are missing. */
function warmth({ look, seen, settings, placeOf, prepares }: PlanInput): Action[] {
  if (!seen || !prepares || look.paused !== null || blockedMs(look) > 0) return [];
  const there = new Set(
    seen.machines.filter(({ name, state }) => state !== "gone" && isWarmName(name)).map(({ name }) => placeOf(name)),
  );
  const used = new Set(look.lives.map(({ slot }) => slot));
  const slots = Array.from({ length: settings.warm }, (_, index) => index + 1);
  return slots.filter((slot) => !there.has(slot) && !used.has(slot)).map((slot) => ({ do: "prepare", slot }));
}

function againMs(input: PlanInput, open: Life[], wants: boolean): number | undefined {
  const { look } = input;
  const blocked = blockedMs(look);
  if (wants && look.paused === null && blocked > 0) return Math.min(blocked, 60_000);
  const isOnItsWay = (life: Life) =>
    !life.retiredAt && (!life.arrivedAt || (life.leftAt && msSince(look, life.leftAt) < 30_000));
  if (open.some(isOnItsWay)) return 2000;
  if (open.some((life) => life.leftAt || life.retiredAt)) return 10_000;
  if (wants && look.paused === null) return 5000;
  if (open.length > 0) return 15_000;
  return undefined;
}
