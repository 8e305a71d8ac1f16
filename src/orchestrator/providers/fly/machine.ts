// Converts a machine of Fly's API into a ListedMachine: its state, its times, and how it ended.
import type { Exit, ListedMachine, MachineState } from "../../provider.ts";
import { parseDate, signalName } from "../http.ts";
import { formatMemory } from "./size.ts";

/** The fields that are used. Any of them may be missing. */
export interface FlyMachine {
  id: string;
  name: string;
  state: string;
  region?: string;
  created_at?: string;
  updated_at?: string;
  host_status?: string;
  config?: FlyConfigRead;
  /** Replaces `config` while the host is unreachable. */
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
 * An unknown state counts as running: nothing is started instead of it, and nothing is removed. "created" is temporary,
 * because machines are launched when they are created; a machine that stays in it was never launched.
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

export function toState({ state }: FlyMachine): MachineState {
  return STATES[state] ?? "running";
}

/** It can never run and has to be removed before its name can be used again. */
export function isBroken({ state }: FlyMachine): boolean {
  return state === "failed" || state === "launch_failed";
}

/** An update counts as stuck after ten minutes instead of five. */
const UPDATE_GRACE_MS = 5 * 60_000;

export function toListedMachine(machine: FlyMachine, stale: boolean): ListedMachine {
  const state = toState(machine);
  const isTemporary = state === "starting" || state === "stopping";
  const since = isTemporary ? parseDate(machine.updated_at ?? machine.created_at) : undefined;
  const startedAt = parseDate(newestFirst(machine).find(({ status }) => status === "started")?.timestamp);
  const ended = state === "stopped" || state === "gone" ? readLastExit(machine) : undefined;
  return {
    name: machine.name,
    id: machine.id,
    state,
    ...(since && { since: machine.state === "updating" ? new Date(since.getTime() + UPDATE_GRACE_MS) : since }),
    ...(startedAt && { startedAt }),
    ...(ended?.at && { endedAt: ended.at }),
    ...(ended && { exit: ended.exit }),
    // A broken machine has to be replaced like one with older settings.
    ...((stale || isBroken(machine)) && { stale: true }),
  };
}

/** Its last exit, from its events. Undefined if there is none since the last start. */
export function readLastExit(machine: FlyMachine): { exit: Exit; at: Date | undefined } | undefined {
  const last = newestFirst(machine).find(({ type, status }) => type === "exit" || status === "started");
  const event = last?.request?.exit_event ?? last?.request?.MonitorEvent?.exit_event;
  if (last?.type !== "exit" || !event) {
    const gone = toState(machine) === "gone";
    if (!gone && !isBroken(machine)) return undefined;
    return {
      exit: { reason: `Fly reports state ${machine.state}` },
      at: gone ? parseDate(machine.updated_at) : undefined,
    };
  }
  const code = event.exit_code ?? event.guest_exit_code;
  const signal = signalName(event.guest_signal);
  const memoryMb = (machine.config ?? machine.incomplete_config)?.guest?.memory_mb;
  return {
    exit: {
      ...(code !== undefined && { code }),
      ...(signal && { signal }),
      ...(event.oom_killed && { oom: true }),
      ...(event.oom_killed && memoryMb !== undefined && { memory: formatMemory(memoryMb) }),
      ...(event.requested_stop && { requested: true }),
    },
    at: parseDate(event.exited_at ?? last.timestamp),
  };
}

function newestFirst({ events }: FlyMachine): FlyEvent[] {
  return [...(events ?? [])].sort((a, b) => (b.timestamp ?? 0) - (a.timestamp ?? 0));
}
