// A machine as Fly's API tells of it, read into what the orchestrator knows: its state, its times, and how it ended.
import os from "node:os";
import type { Exit, MachineState, SeenMachine } from "../../provider.ts";
import { memoryWords } from "./size.ts";

/** What we read of their answers. Everything may be missing: what is not there is not concluded from. */
export interface FlyMachine {
  id: string;
  name: string;
  state: string;
  region?: string;
  created_at?: string;
  updated_at?: string;
  host_status?: string;
  config?: FlyConfigRead;
  /** Instead of `config`, while the host does not answer. */
  incomplete_config?: FlyConfigRead;
  events?: FlyEvent[];
}

interface FlyConfigRead {
  env?: Record<string, string>;
  metadata?: Record<string, string>;
  guest?: { memory_mb?: number };
}

interface FlyEvent {
  type?: string;
  status?: string;
  timestamp?: number;
  request?: { exit_event?: ExitEvent; MonitorEvent?: { exit_event?: ExitEvent } };
}

interface ExitEvent {
  exit_code?: number;
  guest_exit_code?: number;
  guest_signal?: number;
  oom_killed?: boolean;
  requested_stop?: boolean;
  exited_at?: string;
}

/**
 * What their states mean to us. One that is not here, because it is new, counts as running: nothing is started in its place, and nothing of it is thrown away.
 * "created" should pass: all that we make is to be launched at once, and what stays there was made by half.
 */
const STATES: Record<string, MachineState> = {
  created: "starting",
  creating: "starting",
  starting: "starting",
  restarting: "starting",
  updating: "starting",
  replacing: "starting",
  started: "running",
  suspending: "stopping",
  stopping: "stopping",
  destroying: "stopping",
  stopped: "stopped",
  suspended: "stopped",
  failed: "stopped",
  launch_failed: "stopped",
  destroyed: "gone",
  replaced: "gone",
  migrated: "gone",
};

export function stateOf({ state }: FlyMachine): MachineState {
  return STATES[state] ?? "running";
}

/** It is there and will never run: it has to go before there can be another of its name. */
export function isBroken({ state }: FlyMachine): boolean {
  return state === "failed" || state === "launch_failed";
}

/** An update may last ten minutes before it counts as stuck, where all else has five. */
const UPDATE_GRACE_MS = 5 * 60_000;

export function seen(machine: FlyMachine, stale: boolean): SeenMachine {
  const state = stateOf(machine);
  const passing = state === "starting" || state === "stopping";
  const since = passing ? timeOf(machine.updated_at ?? machine.created_at) : undefined;
  const startedAt = timeOf(newestFirst(machine).find(({ status }) => status === "started")?.timestamp);
  const ended = state === "stopped" || state === "gone" ? endOf(machine) : undefined;
  return {
    name: machine.name,
    id: machine.id,
    state,
    ...(since && { since: machine.state === "updating" ? new Date(since.getTime() + UPDATE_GRACE_MS) : since }),
    ...(startedAt && { startedAt }),
    ...(ended?.at && { endedAt: ended.at }),
    ...(ended && { exit: ended.exit }),
    // What is broken is of no more use than what was made with other settings.
    ...((stale || isBroken(machine)) && { stale: true }),
  };
}

/** Its last end, from its events. Undefined when they tell of none since it was last started. */
export function endOf(machine: FlyMachine): { exit: Exit; at: Date | undefined } | undefined {
  const last = newestFirst(machine).find(({ type, status }) => type === "exit" || status === "started");
  const told = last?.request?.exit_event ?? last?.request?.MonitorEvent?.exit_event;
  if (last?.type !== "exit" || !told) {
    const gone = stateOf(machine) === "gone";
    if (!gone && !isBroken(machine)) return undefined;
    return { exit: { reason: `Fly says: ${machine.state}` }, at: gone ? timeOf(machine.updated_at) : undefined };
  }
  const code = told.exit_code ?? told.guest_exit_code;
  const signal = signalName(told.guest_signal);
  const memoryMb = (machine.config ?? machine.incomplete_config)?.guest?.memory_mb;
  return {
    exit: {
      ...(code !== undefined && { code }),
      ...(signal && { signal }),
      ...(told.oom_killed && { oom: true }),
      ...(told.oom_killed && memoryMb !== undefined && { memory: memoryWords(memoryMb) }),
      ...(told.requested_stop && { requested: true }),
    },
    at: timeOf(told.exited_at ?? last.timestamp),
  };
}

function newestFirst({ events }: FlyMachine): FlyEvent[] {
  return [...(events ?? [])].sort((a, b) => (b.timestamp ?? 0) - (a.timestamp ?? 0));
}

function signalName(number: number | undefined): string | undefined {
  return Object.entries(os.constants.signals).find(([, value]) => value === number)?.[0];
}

function timeOf(value: string | number | undefined): Date | undefined {
  const date = value === undefined ? undefined : new Date(value);
  return date && !Number.isNaN(date.getTime()) ? date : undefined;
}
