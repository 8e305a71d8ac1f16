// The argument of a step function: like the job, but its log lines, signal and commands belong to the step.
import type { Exec, ExecOptions } from "../exec/exec.ts";
import type { AttemptState } from "./attempt-state.ts";
import type { StepScope } from "./steps.ts";

export interface Log {
  info(message: string, data?: Record<string, unknown>): void;
  success(message: string, data?: Record<string, unknown>): void;
  warning(message: string, data?: Record<string, unknown>): void;
  error(message: string, data?: Record<string, unknown>): void;
}

/** The argument of a step function: like the job, but its log lines and limits belong to the step. */
export interface StepHandle extends StepScope {
  readonly log: Log;
  progress(value: number | { done: number; total: number }, sentence?: string): void;
  exec(command: string, args?: readonly string[], options?: ExecOptions): Exec;
  scratch(): Promise<string>;
}

/** The second argument of the function of job.each(). */
export interface BatchHandle<Tx = undefined> extends StepHandle {
  /** Index of the first item of the batch in the whole list, from 0. */
  readonly first: number;
  /** With the option `tx`: the transaction. */
  readonly tx: Tx;
}

export class Handle implements StepHandle {
  readonly name: string;
  readonly #scope: StepScope;
  readonly #attempt: AttemptState;
  #log: Log | undefined;

  constructor(scope: StepScope, attempt: AttemptState) {
    this.name = scope.name;
    this.#scope = scope;
    this.#attempt = attempt;
  }

  get signal(): AbortSignal {
    return this.#scope.signal;
  }

  get idempotencyKey(): string {
    return this.#scope.idempotencyKey;
  }

  get fencingToken(): number {
    return this.#scope.fencingToken;
  }

  get log(): Log {
    this.#log ??= this.#attempt.createLog(() => this.logStep);
    return this.#log;
  }

  /** The step that its log lines belong to. */
  protected get logStep(): string {
    return this.name;
  }

  // Getters that return closures: `({ exec, log }) => …` works, and a step that uses none of them creates none.
  get progress(): StepHandle["progress"] {
    return (value, sentence) => this.#attempt.progress(value, sentence);
  }

  get exec(): StepHandle["exec"] {
    return (command, args = [], options = {}) =>
      this.#attempt.exec(this.log, () => this.signal, command, args, options);
  }

  get scratch(): StepHandle["scratch"] {
    return () => this.#attempt.scratch();
  }
}

export class Batch<Tx> extends Handle implements BatchHandle<Tx> {
  readonly first: number;
  readonly tx: Tx;
  readonly #list: string;

  constructor(scope: StepScope, attempt: AttemptState, list: string, first: number, tx: Tx) {
    super(scope, attempt);
    this.first = first;
    this.tx = tx;
    this.#list = list;
  }

  /** A batch has no checkpoint: as a step, it would look unfinished for ever. */
  protected override get logStep(): string {
    return this.#list;
  }
}
