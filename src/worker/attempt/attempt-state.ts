// The state of one attempt, shared by everything its job can call: steps, log writer, redactor, limits, artifacts,
// commands. runAttempt() creates and ends it; JobContext is what user code sees of it. Parts are created on first use,
// because a small job needs none of them and tens of thousands of jobs per second run in one process.
import { setImmediate } from "node:timers/promises";
import { withTimeout } from "../../timeout.ts";
import type { Tracing } from "../../tracing.ts";
import { type Exec, type ExecOptions, exec } from "../exec/exec.ts";
import { Redactor } from "../redact/redact.ts";
import type { FaultPoint } from "../runner/fault-point.ts";
import type { Assignment, LogLine, Port, Progress } from "../runner/port.ts";
import type { StopSignal } from "../runner/stop-signal.ts";
import type { FailurePolicy } from "./failure.ts";
import { JobArtifacts } from "./job-artifacts.ts";
import { LimitsAndBreakers } from "./limits-and-breakers.ts";
import { LogWriter } from "./log-writer.ts";
import { type Outcome, Suspended } from "./outcome.ts";
import type { Log } from "./step-handle.ts";
import { attemptEnded, Steps } from "./steps.ts";

/** What the process that runs an attempt provides: a runner, or the worker itself when pipelines run in process. */
export interface AttemptHost {
  port: Port;
  stop: StopSignal;
  tracing: Tracing;
  graceMs: number;
  /** How long log lines are collected before they are sent to the keeper. */
  lingerMs: number;
  /** The environment from which the variables of commands are selected. */
  env: Readonly<Record<string, string | undefined>>;
  /** Prefix of the tags by which the processes of this host are found; see attemptTag(). */
  processTag: string;
  /** Called before the first command starts. */
  onExec?(): void;
  /** Called when user code did not stop in time and still runs in this process. */
  onStray(): void;
  faultPoint?: FaultPoint | undefined;
  /** performance.now() from which the attempt releases its job: the time limit of a serverless platform. */
  releaseAt?: number;
  /** Shared with the process, which redacts its own output too. */
  redactor?: Redactor;
  /** Rejects with an error that user code threw outside of any call chain that could catch it. */
  uncaught?: Promise<never>;
  /** Variables of the worker that are not in this process's environment. */
  withheld?: readonly string[];
}

/** The tag of the commands that an attempt starts. */
export function attemptTag(processTag: string, { job, epoch }: Assignment): string {
  return `${processTag}${job.slice(-12)}-${epoch}.`;
}

/** A call of the job that takes time and must be awaited. */
interface OpenCall {
  /** As in a log line: "Step", "List", "Artifact". */
  kind: string;
  name: string;
}

const FLUSH_BEFORE_COMMIT_MS = 2000;

const SECRET_IN_ARGUMENT =
  "A command argument contains a secret of this job, and every process on the machine can read arguments. Pass it in env or stdin";

export class AttemptState {
  readonly host: AttemptHost;
  readonly assignment: Assignment;
  /** performance.now() from which the job is released at the next opportunity. */
  readonly releaseAt: number;
  readonly #policy: FailurePolicy;
  #redactor: Redactor | undefined;
  #steps: Steps | undefined;
  #logWriter: LogWriter | undefined;
  #log: Log | undefined;
  #limits: LimitsAndBreakers | undefined;
  #artifacts: JobArtifacts | undefined;
  #scratch: Promise<string> | undefined;
  #commandTag: string | undefined;
  #suspended: Outcome | undefined;
  #graceTimer: NodeJS.Timeout | undefined;
  #onGraceOver: (() => void) | undefined;
  #ended = false;
  /** Calls that have not returned yet. */
  #calls: Set<OpenCall> | undefined;
  #commands: Set<{ command: string }> | undefined;
  /** The function has returned, and this resolves when no call is open. */
  #onCallsDone: (() => void) | undefined;
  #callError: { error: unknown } | undefined;

  constructor(host: AttemptHost, assignment: Assignment, policy: FailurePolicy, releaseAt: number) {
    this.host = host;
    this.assignment = assignment;
    this.releaseAt = releaseAt;
    this.#policy = policy;
    this.#redactor = host.redactor;
    if (assignment.secrets) for (const value of assignment.secrets) this.redactor.register(value);
  }

  get signal(): AbortSignal {
    return this.host.stop.signal;
  }

  get steps(): Steps {
    this.#steps ??= new Steps(this.host, this.assignment, this.#policy, this.logWriter);
    return this.#steps;
  }

  get logWriter(): LogWriter {
    const { port, lingerMs } = this.host;
    this.#logWriter ??= new LogWriter({ port, redactor: this.redactor, lingerMs });
    return this.#logWriter;
  }

  get redactor(): Redactor {
    this.#redactor ??= new Redactor();
    return this.#redactor;
  }

  /** The log of the job: its lines belong to the step that was started last. */
  get log(): Log {
    this.#log ??= this.createLog(
      () => this.#steps?.current,
      () => this.assignment.epoch !== "1" && !this.#steps?.hasRun,
    );
    return this.#log;
  }

  /** The log of commands outside of steps, which run in every attempt: their lines are never repetitions. */
  get commandLog(): Log {
    return this.createLog(() => this.#steps?.current);
  }

  /** Checkpoints that this attempt has saved. */
  get savedCount(): number {
    return this.#steps?.savedCount ?? 0;
  }

  /** The outcome chosen by suspend(). */
  get suspended(): Outcome | undefined {
    return this.#suspended;
  }

  /** The tag of its commands, if it has started any. */
  get commandTag(): string | undefined {
    return this.#commandTag;
  }

  /** Throws when the attempt was stopped or has ended. */
  check(): void {
    this.host.stop.throwIfStopped();
    if (this.#ended || this.#suspended) throw attemptEnded(this.assignment.job);
  }

  /** Throws when nothing may be saved. A stopped attempt may save finished work; a replaced one may not. */
  checkMayWrite(): void {
    const { reason } = this.host.stop;
    if (reason?.stop.kind === "replaced") throw reason;
    if (this.#ended) throw attemptEnded(this.assignment.job);
  }

  /**
   * Called before a step. Past `releaseAt` it releases the job, if no step is running and at least one checkpoint was
   * saved: a job without progress would be released again and again.
   */
  beginStep(): Steps {
    this.check();
    const { steps } = this;
    if (performance.now() >= this.releaseAt && steps.savedCount > 0 && steps.current === undefined) {
      this.suspend({ kind: "released", reason: "released:time" }, "The job is released: its time limit is reached");
    }
    return steps;
  }

  /**
   * Ends the attempt with this outcome by throwing through user code. Code that catches the error cannot continue:
   * running steps are not saved, and after the grace period the attempt no longer waits for the code.
   */
  suspend(outcome: Outcome, message: string): never {
    this.#suspended = outcome;
    this.#steps?.end();
    clearTimeout(this.#graceTimer);
    this.#graceTimer = setTimeout(() => {
      this.host.onStray();
      this.#onGraceOver?.();
    }, this.host.graceMs);
    throw new Suspended(message);
  }

  /** Resolves when user code still runs after suspend() and the grace period. */
  whenAbandoned(): Promise<void> {
    return new Promise((resolve) => {
      this.#onGraceOver = resolve;
    });
  }

  limits(): LimitsAndBreakers {
    this.check();
    this.#limits ??= new LimitsAndBreakers(this);
    return this.#limits;
  }

  artifacts(): JobArtifacts {
    this.check();
    this.#artifacts ??= new JobArtifacts(this);
    return this.#artifacts;
  }

  async scratch(): Promise<string> {
    this.check();
    this.#scratch ??= this.host.port.scratch();
    return this.#scratch;
  }

  async flush(): Promise<void> {
    this.check();
    this.#logWriter?.flush();
    await this.host.port.flush();
  }

  /**
   * Stores the lines so far, because the checkpoint that a transaction is about to commit must not exist without them.
   * They are stored outside of the transaction: a rollback keeps them. A transaction that has locked the job itself,
   * for example with a signal to it, blocks these lines, so waiting would never end: after a timeout it commits without them.
   */
  async flushBeforeCommit(): Promise<void> {
    if (!this.#logWriter) return;
    this.#logWriter.flush();
    await withTimeout(this.host.port.flush(), FLUSH_BEFORE_COMMIT_MS, undefined);
  }

  /** `replays`: whether the code repeats what an earlier attempt has done; see LogWriter.write(). */
  createLog(step: () => string | undefined, replays = () => false): Log {
    const write = (level: LogLine["level"]) => (message: string, data?: Record<string, unknown>) => {
      this.check();
      this.recordActivity();
      const name = step();
      this.logWriter.write(level, message, name, data, name === undefined && replays());
    };
    return { info: write("info"), success: write("success"), warning: write("warning"), error: write("error") };
  }

  progress(value: number | { done: number; total: number }, sentence?: string): void {
    this.check();
    const progress: Progress =
      typeof value === "number"
        ? { fraction: Math.min(Math.max(value, 0), 1) }
        : { done: value.done, total: value.total };
    if (sentence !== undefined) progress.sentence = sentence;
    this.sendProgress(progress);
  }

  sendProgress(progress: Progress): void {
    this.recordActivity();
    this.logWriter.progress(progress);
  }

  /** Restarts the silence timers of the step and of the attempt. */
  recordActivity(): void {
    this.#steps?.recordActivity();
    this.host.port.reportAlive();
  }

  exec(log: Log, signal: () => AbortSignal, command: string, args: readonly string[], options: ExecOptions): Exec {
    this.check();
    const { env, graceMs } = this.host;
    const redactor = this.#redactor;
    if (redactor && args.some((arg) => redactor.containsSecret(String(arg))))
      log.warning(SECRET_IN_ARGUMENT, { command });
    if (!this.#commandTag) {
      this.#commandTag = attemptTag(this.host.processTag, this.assignment);
      this.host.onExec?.();
    }
    const running = { command: String(command) };
    this.#commands ??= new Set();
    this.#commands.add(running);
    return exec(
      {
        log: ({ level, message, data }) => log[level](message, data),
        progress: (progress) => this.sendProgress(progress),
        alive: () => this.recordActivity(),
        signal: signal(),
        scratch: () => this.scratch(),
        processTag: this.#commandTag,
        env,
        graceMs,
        onEnd: () => this.#commands?.delete(running),
      },
      command,
      args,
      options,
    );
  }

  /** Makes a call of user code, and knows it as open until it has returned. */
  async call<Result>(kind: string, name: string, run: () => Promise<Result> | Result): Promise<Result> {
    const call: OpenCall = { kind, name };
    this.#calls ??= new Set();
    this.#calls.add(call);
    try {
      return await run();
    } catch (error) {
      if (this.#onCallsDone) this.#callError ??= { error };
      throw error;
    } finally {
      this.#calls.delete(call);
      if (this.#calls.size === 0) this.#onCallsDone?.();
    }
  }

  /** Whether a call or a command of user code is running. */
  get hasOpenCalls(): boolean {
    return Boolean(this.#calls?.size || this.#commands?.size);
  }

  /**
   * User code has returned. Calls that it did not await are finished first, with a warning each: a completed job has no
   * unfinished step. Throws the error of such a call. Commands cannot be waited for, because a program that serves the
   * job may never end; they are reported and stopped with the attempt.
   */
  async finishCalls(): Promise<void> {
    while (this.#calls?.size) {
      for (const { kind, name } of this.#calls) {
        const message = `${kind} "${name}" was still running when the function returned. The job waits for it; add the missing await`;
        this.logWriter.write("warning", message, kind === "Step" ? name : undefined, { code: "NOT_AWAITED" });
      }
      await new Promise<void>((resolve) => {
        this.#onCallsDone = resolve;
      });
      if (this.#callError) throw this.#callError.error;
      // What follows a finished call may make the next one.
      await setImmediate();
    }
    for (const { command } of this.#commands ?? []) {
      const message = `Command ${command} was still running when the function returned, and is stopped. Await job.exec() if its work matters`;
      this.logWriter.write("warning", message, undefined, { code: "NOT_AWAITED" });
    }
  }

  /** The step that threw this error. */
  stepOf(error: unknown): string | undefined {
    return this.#steps?.stepOf(error);
  }

  /** Completes the outcome and closes the attempt: later calls of user code throw. */
  end(outcome: Outcome): Outcome {
    if (outcome.kind === "completed" && this.#steps?.missing.length) outcome.missing = this.#steps.missing;
    this.#redactor?.redactOutcome(outcome);
    this.#logWriter?.close();
    clearTimeout(this.#graceTimer);
    this.#ended = true;
    // User code did not await a step: it must not run beside the next job.
    if (this.#steps?.end()) this.host.onStray();
    return outcome;
  }

  /** Returns uses of limits that were granted and not used. */
  async returnLimits(): Promise<void> {
    await this.#limits?.close();
  }
}
