// What the calls of lasting.ts need of the attempt they belong to.
import { InvalidInput } from "../../errors.ts";
import type { CrashPoint } from "../runner/fault-point.ts";
import type { Assignment, Port, Progress } from "../runner/port.ts";
import type { Journal } from "./log-writer.ts";
import type { Outcome } from "./outcome.ts";
import type { BatchHandle, Log } from "./step-handle.ts";
import type { StepScope, Steps } from "./steps.ts";

export interface LastingHost {
  readonly port: Port;
  readonly assignment: Assignment;
  readonly steps: Steps;
  readonly journal: Journal;
  readonly log: Log;
  readonly crashPoint: CrashPoint | undefined;
  /** performance.now() at which the attempt hands its job on. */
  readonly handOnAt: number;
  /** Of the present trace, for those it spawns. */
  trace(): Record<string, string> | undefined;
  /** Throws when the attempt has ended or was told to stop. */
  check(): void;
  /** Throws when nothing it writes counts: what is done is kept, whatever the attempt was told meanwhile. */
  mayWrite(): void;
  progress(progress: Progress): void;
  batch<Tx>(scope: StepScope, first: number, tx: Tx): BatchHandle<Tx>;
  /** Ends the attempt with this outcome. */
  end(outcome: Outcome, words: string): never;
}

/** A misspelt option would be ignored. */
export function checkOptions(options: object, known: readonly string[]): void {
  const unknown = Object.keys(options).find((key) => !known.includes(key));
  if (unknown === undefined) return;
  throw new InvalidInput(`Unknown option "${unknown}"`, {
    field: unknown,
    remedy: `Known options: ${known.join(", ")}`,
  });
}
