// The machines of a pool as text: why none is started, and the slots for machines. Pure functions; pages escape the
// untrusted text in what they return.
import type { api } from "../api/resources.ts";

type State = api.Machine["state"];

/** After this number of consecutive machines without a job the orchestrator delays the next start. */
const MAX_WASTED_STARTS = 3;

/** Problems that do not pass without a change by the operator. */
const needsOperator = /^PROVIDER_(AUTH|REFUSED)$/;

export interface StartProblem {
  tone: "amber" | "bad";
  /** A sentence without a full stop. */
  what: string;
  why: string;
  until: string | null;
}

type Fleet = Pick<api.Pool, "name" | "machines" | "trouble" | "wastedStarts">;

/** What prevents the start of machines for a pool; undefined if nothing does. */
export function startProblem({ name, machines, trouble, wastedStarts }: Fleet): StartProblem | undefined {
  if (machines === null) return undefined;
  if (trouble) {
    const { code, message, remedy, until } = trouble;
    const why = remedy !== null && !message.includes(remedy) ? `${message}: ${remedy}` : message;
    return { tone: needsOperator.test(code) ? "bad" : "amber", what: "No machine can be started", why, until };
  }
  if (wastedStarts < MAX_WASTED_STARTS) return undefined;
  const what = `The last ${wastedStarts} machines ended without running a job`;
  const why = `Check how they ended. The next start is delayed. “stillwake resume --pool ${name}” or a change of the pool's settings starts one at once.`;
  return { tone: "bad", what, why, until: null };
}

type Demand = Fleet & Pick<api.Pool, "paused" | "claimable" | "wanted">;

/** A machine of the pool is starting, or about to. */
export function isStarting(pool: Demand): boolean {
  const { machines, paused, claimable, wanted } = pool;
  if (machines === null) return false;
  const isLacking = claimable > 0 && machines.now < (wanted ?? 0);
  return machines.starting > 0 || (isLacking && paused === null && startProblem(pool) === undefined);
}

/** One machine that exists, is kept stopped, or may be created. */
export type MachineSlot = "up" | "idle" | "starting" | "stopping" | "stopped" | "free";

const slotOf: Record<Exclude<State, "ended">, MachineSlot> = {
  up: "up",
  idle: "idle",
  starting: "starting",
  leaving: "stopping",
  retiring: "stopping",
};

export const slotLabels: Record<MachineSlot, string> = {
  up: "busy",
  idle: "idle",
  starting: "starting",
  stopping: "stopping",
  stopped: "kept stopped",
  free: "not started",
};

const order: readonly MachineSlot[] = ["up", "idle", "starting", "stopping", "stopped", "free"];

/** The machines that exist, then those that are kept stopped, then those that may still be created. */
export function machineSlots(
  { warm, max }: Pick<NonNullable<api.Pool["machines"]>, "warm" | "max">,
  machines: readonly Pick<api.Machine, "state" | "machine">[],
): MachineSlot[] {
  const existing = machines.filter(({ state, machine }) => machine !== null && state !== "ended");
  const slots = existing.map(({ state }) => slotOf[state as Exclude<State, "ended">]);
  const kept = existing.filter(({ machine }) => !machine!.burst).length;
  const stopped = Math.max(0, Math.min(warm - kept, max - existing.length));
  const free = Math.max(0, max - existing.length - stopped);
  return [
    ...slots.sort((a, b) => order.indexOf(a) - order.indexOf(b)),
    ...Array<MachineSlot>(stopped).fill("stopped"),
    ...Array<MachineSlot>(free).fill("free"),
  ];
}

export function countSlots(slots: readonly MachineSlot[]): [MachineSlot, number][] {
  return order.flatMap((kind) => {
    const number = slots.filter((slot) => slot === kind).length;
    return number > 0 ? [[kind, number] as [MachineSlot, number]] : [];
  });
}

export const machineStateLabels: Record<State, string> = {
  starting: "starting",
  up: "busy",
  idle: "idle",
  leaving: "draining",
  retiring: "stopping",
  ended: "ended",
};
