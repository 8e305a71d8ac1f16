// Converts an execution of a Cloud Run job into a ListedMachine: its machine, its state, how it ended.
import type { Exit, ListedMachine } from "../../provider.ts";
import { formatMemoryLimit, parseDate, signalName } from "../http.ts";

/** The fields that are used. Any of them may be missing. */
export interface Execution {
  name: string;
  createTime?: string;
  startTime?: string;
  completionTime?: string;
  deleteTime?: string;
  runningCount?: number;
  conditions?: Condition[];
  template?: { containers?: Container[] };
}

export interface Container {
  image?: string;
  env?: { name: string; value?: string }[];
  resources?: { limits?: Record<string, string> };
}

interface Condition {
  type?: string;
  state?: string;
  message?: string;
  lastTransitionTime?: string;
  executionReason?: string;
}

/** The fields that are used of a task. Each of our executions has one task. */
export interface TaskResult {
  lastAttemptResult?: { exitCode?: number; termSignal?: number; status?: { message?: string } };
}

/** The environment is the only place where :run can tag an execution. */
export function readEnv(execution: Execution, name: string): string | undefined {
  for (const { env } of execution.template?.containers ?? []) {
    const found = env?.find((variable) => variable.name === name);
    if (found) return found.value;
  }
  return undefined;
}

/** "jobs/<job>/executions/<execution>". */
export function toMachineId({ name }: Execution): string {
  return name.slice(name.indexOf("jobs/"));
}

export function isFinished(execution: Execution): boolean {
  const ended = completed(execution)?.state;
  return (
    execution.completionTime !== undefined ||
    execution.deleteTime !== undefined ||
    ended === "CONDITION_SUCCEEDED" ||
    ended === "CONDITION_FAILED"
  );
}

/** `isStale`: whether a container differs from the current settings. */
export function toListedMachine(
  execution: Execution,
  machine: string,
  isStale: (container: Container) => boolean,
): ListedMachine {
  const condition = completed(execution);
  const created = parseDate(execution.createTime);
  const started = parseDate(execution.startTime);
  const common = {
    name: machine,
    id: toMachineId(execution),
    ...(started && { startedAt: started }),
    ...((execution.template?.containers ?? []).some(isStale) && { stale: true }),
  };
  if (isFinished(execution)) {
    const ended = parseDate(execution.completionTime ?? condition?.lastTransitionTime ?? execution.deleteTime);
    const exit = exitOf(execution);
    return { ...common, state: "gone", ...(ended && { endedAt: ended }), ...(exit && { exit }) };
  }
  if (execution.conditions?.some(({ executionReason }) => executionReason === "CANCELLING")) {
    const since = parseDate(condition?.lastTransitionTime) ?? created;
    return { ...common, state: "stopping", ...(since && { since }) };
  }
  if ((execution.runningCount ?? 0) > 0) return { ...common, state: "running" };
  return { ...common, state: "starting", ...(created && { since: created }) };
}

/** How its task ended. The execution itself has only a message. */
export function readTaskExit(execution: Execution, { lastAttemptResult: result }: TaskResult): Exit {
  const message = result?.status?.message ?? "";
  if (isOutOfMemory(message)) return outOfMemory(execution, result?.exitCode);
  return {
    ...(result?.exitCode !== undefined && { code: result.exitCode }),
    ...(result?.termSignal && { signal: signalName(result.termSignal) ?? `signal ${result.termSignal}` }),
    ...(message !== "" && { reason: message.slice(0, 300) }),
  };
}

/** Undefined if only the task has the exit. */
function exitOf(execution: Execution): Exit | undefined {
  const conditions = execution.conditions ?? [];
  const condition = completed(execution);
  if (condition?.state === "CONDITION_SUCCEEDED") return { code: 0 };
  const cancelled = conditions.some(
    ({ executionReason: reason }) => reason === "CANCELLED" || reason === "CANCELLING" || reason === "DELETED",
  );
  if (cancelled || execution.deleteTime !== undefined) return { requested: true, reason: "it was cancelled" };
  const oomMessage = conditions.map(({ message }) => message ?? "").find(isOutOfMemory);
  return oomMessage === undefined ? undefined : outOfMemory(execution);
}

/** "Memory limit of 512 MiB exceeded with 530 MiB used" and similar messages. */
function isOutOfMemory(message: string): boolean {
  return /memory limit\b.*\bexceeded|out[ -]of[ -]memory|exceeded\b.*\bmemory limit/i.test(message);
}

function outOfMemory(execution: Execution, code?: number): Exit {
  const limit = execution.template?.containers?.[0]?.resources?.limits?.memory;
  const memory = limit && formatMemoryLimit(limit);
  return { oom: true, ...(code !== undefined && { code }), ...(memory && { memory }) };
}

function completed(execution: Execution): Condition | undefined {
  return execution.conditions?.find(({ type }) => type === "Completed");
}
