// An execution of a Cloud Run job as the orchestrator sees it: whose machine it is, what state it is in, how it ended.
import type { Exit, SeenMachine } from "../../provider.ts";
import { dateOf, memoryOf, signalOf } from "../api-values.ts";

/** What is read of an execution. All of it is theirs and may be missing. */
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

/** What is read of a task: an execution of ours has one. */
export interface TaskResult {
  lastAttemptResult?: { exitCode?: number; termSignal?: number; status?: { message?: string } };
}

/** The environment is the only thing that a call of :run can mark an execution with. */
export function markOf(execution: Execution, name: string): string | undefined {
  for (const { env } of execution.template?.containers ?? []) {
    const found = env?.find((one) => one.name === name);
    if (found) return found.value;
  }
  return undefined;
}

/** As "jobs/<job>/executions/<execution>", which is what its machine's id is. */
export function idOf({ name }: Execution): string {
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

/** `isStale`: whether its container is another than one would be made now. */
export function seen(execution: Execution, machine: string, isStale: (container: Container) => boolean): SeenMachine {
  const condition = completed(execution);
  const created = dateOf(execution.createTime);
  const started = dateOf(execution.startTime);
  const common = {
    name: machine,
    id: idOf(execution),
    ...(started && { startedAt: started }),
    ...((execution.template?.containers ?? []).some(isStale) && { stale: true }),
  };
  if (isFinished(execution)) {
    const ended = dateOf(execution.completionTime ?? condition?.lastTransitionTime ?? execution.deleteTime);
    const exit = exitOf(execution);
    return { ...common, state: "gone", ...(ended && { endedAt: ended }), ...(exit && { exit }) };
  }
  if (execution.conditions?.some(({ executionReason }) => executionReason === "CANCELLING")) {
    const since = dateOf(condition?.lastTransitionTime) ?? created;
    return { ...common, state: "stopping", ...(since && { since }) };
  }
  if ((execution.runningCount ?? 0) > 0) return { ...common, state: "running" };
  return { ...common, state: "starting", ...(created && { since: created }) };
}

/** How its task ended, which the execution itself only tells in a sentence. */
export function exitOfTask(execution: Execution, { lastAttemptResult: result }: TaskResult): Exit {
  const said = result?.status?.message ?? "";
  if (isOutOfMemory(said)) return outOfMemory(execution, result?.exitCode);
  return {
    ...(result?.exitCode !== undefined && { code: result.exitCode }),
    ...(result?.termSignal && { signal: signalOf(result.termSignal) ?? `signal ${result.termSignal}` }),
    ...(said !== "" && { reason: said.slice(0, 300) }),
  };
}

/** Undefined where only its task knows. */
function exitOf(execution: Execution): Exit | undefined {
  const conditions = execution.conditions ?? [];
  const condition = completed(execution);
  if (condition?.state === "CONDITION_SUCCEEDED") return { code: 0 };
  const cancelled = conditions.some(
    ({ executionReason: why }) => why === "CANCELLED" || why === "CANCELLING" || why === "DELETED",
  );
  if (cancelled || execution.deleteTime !== undefined) return { requested: true, reason: "it was cancelled" };
  const said = conditions.map(({ message }) => message ?? "").find(isOutOfMemory);
  return said === undefined ? undefined : outOfMemory(execution);
}

/** "Memory limit of 512 MiB exceeded with 530 MiB used" and its relatives. */
function isOutOfMemory(said: string): boolean {
  return /memory limit\b.*\bexceeded|out[ -]of[ -]memory|exceeded\b.*\bmemory limit/i.test(said);
}

function outOfMemory(execution: Execution, code?: number): Exit {
  const limit = execution.template?.containers?.[0]?.resources?.limits?.memory;
  const memory = limit && memoryOf(limit);
  return { oom: true, ...(code !== undefined && { code }), ...(memory && { memory }) };
}

function completed(execution: Execution): Condition | undefined {
  return execution.conditions?.find(({ type }) => type === "Completed");
}
