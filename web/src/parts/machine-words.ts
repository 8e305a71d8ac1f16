// What is said of the machines of a pool: why one more is not started, how many there are against how many are wanted, and the places that they have. Pure, down
// to the words for numbers: pages show it, and make the text of strangers in it harmless.
import type { nouns } from "../api/nouns.ts";

type State = nouns.Machine["state"];

/** How often machines may be of no use in a row before the orchestrator waits longer and longer. */
const MAX_WASTED_STARTS = 3;

/** Troubles that pass by themselves are amber; for these somebody has to come. */
const grave = /^PROVIDER_(AUTH|REFUSED)$/;

export interface Held {
  tone: "amber" | "bad";
  /** A sentence without its stop. */
  what: string;
  why: string;
  until: string | null;
}

type Fleet = Pick<nouns.Pool, "name" | "machines" | "trouble" | "wastedStarts">;

/** What keeps machines of a pool from being started; undefined where nothing is known to. */
export function heldBack({ name, machines, trouble, wastedStarts }: Fleet): Held | undefined {
  if (machines === null) return undefined;
  if (trouble) {
    const { code, message, remedy, until } = trouble;
    const why = remedy !== null && !message.includes(remedy) ? `${message}: ${remedy}` : message;
    return { tone: grave.test(code) ? "bad" : "amber", what: "No machine can be started", why, until };
  }
  if (wastedStarts < MAX_WASTED_STARTS) return undefined;
  const what = `The last ${wastedStarts} machines ended without having done a job`;
  const why = `Look at how they ended. The next is tried after a while; at once with “stillwake resume --pool ${name}”, or when the settings of the pool change.`;
  return { tone: "bad", what, why, until: null };
}

type Demand = Fleet & Pick<nouns.Pool, "paused" | "claimable" | "wanted">;

/** A machine of the pool starts, or is about to. One that is kept from starting is nothing to wait for by the second. */
export function isStarting(pool: Demand): boolean {
  const { machines, paused, claimable, wanted } = pool;
  if (machines === null) return false;
  const lacking = claimable > 0 && machines.now < (wanted ?? 0);
  return machines.starting > 0 || (lacking && paused === null && heldBack(pool) === undefined);
}

export type Place = "up" | "idle" | "starting" | "going" | "stopped" | "free";

const placeOf: Record<Exclude<State, "ended">, Place> = {
  up: "up",
  idle: "idle",
  starting: "starting",
  leaving: "going",
  retiring: "going",
};

export const placeWords: Record<Place, string> = {
  up: "at work",
  idle: "idle",
  starting: "starting",
  going: "on their way out",
  stopped: "kept stopped",
  free: "more may be started",
};

const order: readonly Place[] = ["up", "idle", "starting", "going", "stopped", "free"];

/** One for each machine there is, then those that are kept stopped, then those that may still be made. */
export function placesOf(
  { warm, max }: Pick<NonNullable<nouns.Pool["machines"]>, "warm" | "max">,
  machines: readonly Pick<nouns.Machine, "state" | "machine">[],
): Place[] {
  const alive = machines.filter(({ state, machine }) => machine !== null && state !== "ended");
  const awake = alive.map(({ state }) => placeOf[state as Exclude<State, "ended">]);
  const kept = alive.filter(({ machine }) => !machine!.burst).length;
  const stopped = Math.max(0, Math.min(warm - kept, max - alive.length));
  const free = Math.max(0, max - alive.length - stopped);
  return [
    ...awake.sort((a, b) => order.indexOf(a) - order.indexOf(b)),
    ...Array<Place>(stopped).fill("stopped"),
    ...Array<Place>(free).fill("free"),
  ];
}

/** Each kind that there is, with how many of it. */
export function tally(places: readonly Place[]): [Place, number][] {
  return order.flatMap((kind) => {
    const many = places.filter((one) => one === kind).length;
    return many > 0 ? [[kind, many] as [Place, number]] : [];
  });
}

export const stateWords: Record<State, string> = {
  starting: "starting",
  up: "at work",
  idle: "idle",
  leaving: "leaving",
  retiring: "being stopped",
  ended: "ended",
};
