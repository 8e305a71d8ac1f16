// What a step function holds: like the job, but its lines, its signal and its commands are those of the step.
import type { Exec, ExecOptions } from "../exec/exec.ts";
import type { StepScope } from "./steps.ts";

export interface Log {
  info(message: string, data?: Record<string, unknown>): void;
  success(message: string, data?: Record<string, unknown>): void;
  warn(message: string, data?: Record<string, unknown>): void;
  error(message: string, data?: Record<string, unknown>): void;
}

/** The handle a step function is given: like the job, but its lines and limits are those of the step. */
export interface StepHandle extends StepScope {
  readonly log: Log;
  progress(value: number | { done: number; total: number }, sentence?: string): void;
  exec(command: string, args?: readonly string[], options?: ExecOptions): Exec;
  scratch(): Promise<string>;
}

export interface HandleHost {
  log(): Log;
  progress: StepHandle["progress"];
  scratch: StepHandle["scratch"];
  exec(log: Log, command: string, args: readonly string[], options: ExecOptions): Exec;
}

/** The handle of a batch of job.each(). */
export interface BatchHandle<Tx = undefined> extends StepHandle {
  /** The number of the first item of the batch, counted from 0. */
  readonly first: number;
  /** With the option `tx`: the transaction. */
  readonly tx: Tx;
}

export class Handle implements StepHandle {
  readonly name: string;
  readonly #scope: StepScope;
  readonly #host: HandleHost;
  #log: Log | undefined;

  constructor(scope: StepScope, host: HandleHost) {
    this.name = scope.name;
    this.#scope = scope;
    this.#host = host;
  }

  get signal(): AbortSignal {
    return this.#scope.signal;
  }

  get idempotencyKey(): string {
    return this.#scope.idempotencyKey;
  }

  get fencingToken(): bigint {
    return this.#scope.fencingToken;
  }

  get log(): Log {
    this.#log ??= this.#host.log();
    return this.#log;
  }

  // Made when they are asked for, so that `({ exec, log }) => …` works and a step that uses none pays for none.
  get progress(): StepHandle["progress"] {
    return (value, sentence) => this.#host.progress(value, sentence);
  }

  get exec(): StepHandle["exec"] {
    return (command, args = [], options = {}) => this.#host.exec(this.log, command, args, options);
  }

  get scratch(): StepHandle["scratch"] {
    return () => this.#host.scratch();
  }
}

export class Batch<Tx> extends Handle implements BatchHandle<Tx> {
  readonly first: number;
  readonly tx: Tx;

  constructor(scope: StepScope, host: HandleHost, first: number, tx: Tx) {
    super(scope, host);
    this.first = first;
    this.tx = tx;
  }
}
