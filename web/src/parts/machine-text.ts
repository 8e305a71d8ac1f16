// The machines of a pool as text: why none is started, and one square per machine. Pure functions; pages escape the
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

type Fleet = Pick<api.Pool, "name" | "machines" | "providerError" | "wastedStarts">;

/** What prevents the start of machines for a pool; undefined if nothing does. */
export function startProblem({ name, machines, providerError, wastedStarts }: Fleet): StartProblem | undefined {
  if (machines === null) return undefined;
  if (providerError) {
    const { code, message, remedy, until } = providerError;
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
export type MachineSquare = "up" | "idle" | "starting" | "stopping" | "stopped" | "free";

const squareOf: Record<Exclude<State, "ended">, MachineSquare> = {
  up: "up",
  idle: "idle",
  starting: "starting",
  leaving: "stopping",
  retiring: "stopping",
  lost: "stopping",
};

export const squareLabels: Record<MachineSquare, string> = {
  up: "busy",
  idle: "idle",
  starting: "starting",
  stopping: "stopping",
  stopped: "kept stopped",
  free: "not started",
};

const order: readonly MachineSquare[] = ["up", "idle", "starting", "stopping", "stopped", "free"];

/** The machines that exist, then those that are kept stopped, then those that may still be created. */
export function machineSquares(
  { warm, max }: Pick<NonNullable<api.Pool["machines"]>, "warm" | "max">,
  machines: readonly Pick<api.Machine, "state" | "machine">[],
): MachineSquare[] {
  const existing = machines.filter(({ state, machine }) => machine !== null && state !== "ended");
  const squares = existing.map(({ state }) => squareOf[state as Exclude<State, "ended">]);
  const kept = existing.filter(({ machine }) => !machine!.burst).length;
  const stopped = Math.max(0, Math.min(warm - kept, max - existing.length));
  const free = Math.max(0, max - existing.length - stopped);
  return [
    ...squares.sort((a, b) => order.indexOf(a) - order.indexOf(b)),
    ...Array<MachineSquare>(stopped).fill("stopped"),
    ...Array<MachineSquare>(free).fill("free"),
  ];
}

export function countSquares(squares: readonly MachineSquare[]): [MachineSquare, number][] {
  return order.flatMap((kind) => {
    const number = squares.filter((square) => square === kind).length;
    return number > 0 ? [[kind, number] as [MachineSquare, number]] : [];
  });
}

export const machineStateLabels: Record<State, string> = {
  starting: "starting",
  up: "busy",
  idle: "idle",
  leaving: "draining",
  retiring: "stopping",
  lost: "lost",
  ended: "ended",
};
