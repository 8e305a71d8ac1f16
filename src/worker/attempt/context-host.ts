// What an attempt is run with: by a runner process or by a worker's own.
import type { Tracing } from "../../tracing.ts";
import type { Redactor } from "../redact/redact.ts";
import type { CrashPoint } from "../runner/fault-point.ts";
import type { Assignment, Port } from "../runner/port.ts";
import type { StopSignal } from "../runner/stop-signal.ts";

export interface ContextHost {
  port: Port;
  stop: StopSignal;
  tracing: Tracing;
  graceMs: number;
  lingerMs: number;
  /** What commands are filtered from. */
  env: Readonly<Record<string, string | undefined>>;
  /** Of whoever runs the attempt; the mark of the attempt's commands begins with it. */
  mark: string;
  /** Before the first command is started. */
  onExec?(): void;
  onStray(): void;
  crashPoint?: CrashPoint | undefined;
  /** performance.now() from which the attempt hands its job on as soon as it can: what serverless platforms leave it. */
  handOnAt?: number;
  /** Where this process writes for itself, it hides the job's secrets too. */
  redactor?: Redactor;
}

/** What the commands of an attempt are known by. */
export function markOf(mark: string, { job, epoch }: Assignment): string {
  return `${mark}${job.slice(-12)}-${epoch}.`;
}
