// What user code holds while it runs: steps, commands, artifacts, words for people. One object per attempt; after its end every call throws.
import type pg from "pg";
import { type ScheduledFor, scheduledFor } from "../../client/job.ts";
import { type Duration, durationMs } from "../../time.ts";
import { type Exec, type ExecOptions, exec } from "../exec/exec.ts";
import { Redactor } from "../redact/redact.ts";
import type { Assignment, LogLine, Progress } from "../runner/port.ts";
import { type ContextHost, markOf } from "./context-host.ts";
import type { Judge } from "./failure.ts";
import { JobArtifacts } from "./job-artifacts.ts";
import { Lasting } from "./lasting.ts";
import type { LastingHost } from "./lasting-host.ts";
import { Dependencies } from "./limits-and-breakers.ts";
import { Journal } from "./log-writer.ts";
import { Asleep, type Outcome } from "./outcome.ts";
import type { Begin } from "./own-transaction.ts";
import type { Artifact, ArtifactProducer } from "./produce-artifact.ts";
import { Batch, Handle, type HandleHost, type Log, type StepHandle } from "./step-handle.ts";
import { attemptEnded, type StepOptions, type StepScope, Steps } from "./steps.ts";
import { txStep } from "./tx-step.ts";

export type StepFunction<Result> = (step: StepHandle) => Promise<Result> | Result;

const none: unknown[] = [];
const SHOWN_ARGUMENT =
  "An argument of a command carries a secret of this job: everybody on the machine can read it. Pass it in env or stdin";

export class JobContext extends Lasting {
  readonly id: string;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly key: string | null;
  readonly tenant: string | null;
  /** The slot it is for, when a schedule made it. */
  readonly schedule: ScheduledFor | null;
  readonly #host: ContextHost;
  readonly #assignment: Assignment;
  readonly #implementation: Judge;
  #mark: string | undefined;
  #secrets: Redactor | undefined;
  #steps: Steps | undefined;
  #journal: Journal | undefined;
  #log: Log | undefined;
  #scratch: Promise<string> | undefined;
  #artifacts: JobArtifacts | undefined;
  #asleep: Outcome | undefined;
  #sleeping: NodeJS.Timeout | undefined;
  #oversleep: (() => void) | undefined;
  #dependencies: Dependencies | undefined;
  #ended = false;

  constructor(host: ContextHost, assignment: Assignment, implementation: Judge) {
    super();
    this.#host = host;
    this.#assignment = assignment;
    this.#implementation = implementation;
    const { job, attempt, maxAttempts, key, tenant } = assignment;
    this.id = job;
    this.attempt = attempt;
    this.maxAttempts = maxAttempts;
    this.key = key;
    this.tenant = tenant;
    this.schedule = scheduledFor(assignment.origin);
    for (const value of assignment.secrets ?? none) this.redactor.register(value);
  }

  /** Aborts when the job is cancelled, its lease is lost, a limit is passed or the worker shuts down. */
  get signal(): AbortSignal {
    return this.#host.stop.signal;
  }

  /** Grows with every attempt at this job: for outside systems that refuse a replaced one. */
  get fencingToken(): bigint {
    return BigInt(this.#assignment.epoch);
  }

  get log(): Log {
    this.#log ??= this.#logOf(() => this.#steps?.current);
    return this.#log;
  }

  /** A part whose failure ends the attempt. Its result is kept: it never runs again after success. */
  step<Result>(name: string, run: StepFunction<Result>): Promise<Result>;
  step<Result>(name: string, options: StepOptions<NoInfer<Result>>, run: StepFunction<Result>): Promise<Result>;
  async step<Result>(
    name: string,
    options: StepOptions<Result> | StepFunction<Result>,
    run?: StepFunction<Result>,
  ): Promise<Result> {
    const steps = this.#begin();
    const [settings, work] = typeof options === "function" ? [{}, options] : [options, run!];
    return steps.critical(name, settings, (scope) => work(this.#handle(scope)));
  }

  /** A part the job can do without: when it fails a warning is logged, the result is undefined and the job carries its name in `missing`. */
  optional<Result>(name: string, run: StepFunction<Result>): Promise<Result | undefined>;
  optional<Result>(
    name: string,
    options: StepOptions<NoInfer<Result>>,
    run: StepFunction<Result>,
  ): Promise<Result | undefined>;
  async optional<Result>(
    name: string,
    options: StepOptions<Result> | StepFunction<Result>,
    run?: StepFunction<Result>,
  ): Promise<Result | undefined> {
    const steps = this.#begin();
    const [settings, work] = typeof options === "function" ? [{}, options] : [options, run!];
    return steps.optional(name, settings, (scope) => work(this.#handle(scope)));
  }

  /** A step whose rows and checkpoint commit together, in a transaction of yours: exactly once inside your Postgres. */
  tx<Result>(
    name: string,
    options: StepOptions<NoInfer<Result>>,
    pool: pg.Pool,
    run: (tx: pg.PoolClient, step: StepHandle) => Promise<Result> | Result,
  ): Promise<Result>;
  // biome-ignore lint/suspicious/noExplicitAny: in `(run) => db.transaction(run)` nothing tells the type of the library's transaction.
  tx<Result, Tx = any>(
    name: string,
    options: StepOptions<NoInfer<Result>>,
    begin: (run: (tx: Tx) => Promise<unknown>) => PromiseLike<unknown>,
    run: (tx: Tx, step: StepHandle) => Promise<Result> | Result,
  ): Promise<Result>;
  async tx<Result, Tx>(
    name: string,
    options: StepOptions<NoInfer<Result>>,
    begin: Begin<Tx>,
    run: (tx: Tx, step: StepHandle) => Promise<Result> | Result,
  ): Promise<Result> {
    const steps = this.#begin();
    const kept = await steps.begin(name);
    if (kept) return steps.resultOf(name, kept) as Result;
    const { port, crashPoint } = this.#host;
    const host = { port, crashPoint, assignment: this.#assignment, check: () => this.#check() };
    const once = (scope: StepScope) => {
      const handle = this.#handle(scope);
      return txStep<Tx, Result>(host, name, begin, (tx) => run(tx, handle));
    };
    const result = await steps.tell(name, options, async () => steps.within(name, options, once));
    steps.saved += 1;
    return result;
  }

  /** Sleeps durably: no slot is held, and the time that has passed is not slept again. Named like a step. */
  async sleep(name: string, time: Duration | Date): Promise<void> {
    this.#check();
    if (await this.#in().begin(name)) return;
    const when = time instanceof Date ? { until: time.toISOString() } : { forMs: durationMs(time, "sleep") };
    this.#fallAsleep({ kind: "slept", ...when, waitingFor: "time", step: name }, `The job sleeps in "${name}"`);
  }

  /** How far it is, as a fraction from 0 to 1 or as done of total, and in words. Say it as often as you like; it is thinned. */
  progress(value: number | { done: number; total: number }, sentence?: string): void {
    this.#check();
    const progress: Progress =
      typeof value === "number"
        ? { fraction: Math.min(Math.max(value, 0), 1) }
        : { done: value.done, total: value.total };
    if (sentence !== undefined) progress.sentence = sentence;
    this.#say(progress);
  }

  /** Runs a command without a shell, in a process group of its own. A promise of its result and an async iterator of its lines. */
  exec(command: string, args: readonly string[] = [], options: ExecOptions = {}): Exec {
    return this.#exec(this.log, () => this.signal, command, args, options);
  }

  /** A file of this job, whole or absent; when an earlier attempt made it and the store still has it, the producer is not called. */
  async artifact(name: string, producer: ArtifactProducer): Promise<Artifact> {
    this.#check();
    return this.#files().make(name, producer);
  }

  /** The path of an artifact's content in this attempt's scratch directory, to be read; fetched when another attempt made it. */
  async artifactFile(name: string): Promise<string> {
    this.#check();
    return this.#files().file(name);
  }

  /** A directory of this attempt alone, readable by nobody else and removed at its end. */
  async scratch(): Promise<string> {
    this.#check();
    this.#scratch ??= this.#host.port.scratch();
    return this.#scratch;
  }

  /** Never to be seen in logs, progress or failures of this job: a text, or an object all of whose leaves are meant. */
  secret(value: unknown): void {
    this.redactor.add(value);
  }

  /** Resolves when everything said so far is durable. */
  async flush(): Promise<void> {
    this.#check();
    this.#journal?.handOver();
    await this.#host.port.flush();
  }

  /** For the engine: how the attempt ends, given what the code returned or threw; then nothing more is accepted. @internal */
  end(outcome: Outcome): Outcome {
    if (outcome.kind === "completed" && this.#steps?.missing.length) outcome.missing = this.#steps.missing;
    this.#secrets?.hideEnd(outcome);
    this.#journal?.close();
    clearTimeout(this.#sleeping);
    this.#ended = true;
    // Nobody waited for a step of it: its code must not go on beside the next job.
    if (this.#steps?.end()) this.#host.onStray();
    return outcome;
  }

  /** What it took of shared budgets and did not use. @internal */
  giveBack(): Promise<void> | undefined {
    return this.#dependencies?.close();
  }

  /** The mark of its commands, if it has started any. @internal */
  get mark(): string | undefined {
    return this.#mark;
  }

  /** The outcome of a job that went to sleep. @internal */
  get asleep(): Outcome | undefined {
    return this.#asleep;
  }

  /** Resolves when its code goes on, a grace after the job went to sleep. @internal */
  overslept(): Promise<void> {
    return new Promise((resolve) => {
      this.#oversleep = resolve;
    });
  }

  /** The step this error came from. @internal */
  stepOf(error: unknown): string | undefined {
    return this.#steps?.stepOf(error);
  }

  /** For the engine's own lines. @internal */
  write(level: LogLine["level"], message: string, step?: string, data?: unknown): void {
    this.#in();
    this.#journal!.write(level, message, step, data);
  }

  protected needing(): Dependencies {
    this.#check();
    const end = (outcome: Outcome, words: string) => this.#fallAsleep(outcome, words);
    this.#dependencies ??= new Dependencies(this.#host.port, end, (text) => this.redactor.hide(text));
    return this.#dependencies;
  }

  protected lasting(): LastingHost {
    const steps = this.#begin();
    const { port, crashPoint, tracing, handOnAt = Number.POSITIVE_INFINITY } = this.#host;
    return {
      port,
      crashPoint,
      handOnAt,
      assignment: this.#assignment,
      steps,
      journal: this.#journal!,
      log: this.log,
      trace: () => tracing.inject(),
      check: () => this.#check(),
      mayWrite: () => this.#mayWrite(),
      progress: (progress) => this.#say(progress),
      batch: (scope, first, tx) => new Batch(scope, this.#handleHost(scope), first, tx),
      end: (outcome, words) => this.#fallAsleep(outcome, words),
    };
  }

  /**
   * Before a step. When the time of the attempt is over and nothing else of it is under way, the job is handed on; but one that has kept nothing yet would come
   * back as it is, again and again.
   */
  #begin(): Steps {
    this.#check();
    const steps = this.#in();
    const { handOnAt = Number.POSITIVE_INFINITY } = this.#host;
    if (performance.now() >= handOnAt && steps.saved > 0 && steps.current === undefined) {
      this.#fallAsleep({ kind: "released", reason: "handed_on" }, "The job is handed on");
    }
    return steps;
  }

  /** Results that this attempt has kept. @internal */
  get saved(): number {
    return this.#steps?.saved ?? 0;
  }

  #mayWrite(): void {
    const { reason } = this.#host.stop;
    if (reason?.stop.kind === "replaced") throw reason;
    if (this.#ended) throw attemptEnded(this.id);
  }

  /** The attempt is over, and its code is told by an error. It may catch that: no step under way is kept then, and it is not waited for for ever. */
  #fallAsleep(outcome: Outcome, words: string): never {
    this.#asleep = outcome;
    this.#steps?.end();
    clearTimeout(this.#sleeping);
    this.#sleeping = setTimeout(() => {
      this.#host.onStray();
      this.#oversleep?.();
    }, this.#host.graceMs);
    throw new Asleep(words);
  }

  #check(): void {
    this.#host.stop.throwIfStopped();
    if (this.#ended || this.#asleep) throw attemptEnded(this.id);
  }

  /** Steps and journal are made when they are first needed: a small job needs neither. */
  #in(): Steps {
    if (!this.#steps) {
      const { port, lingerMs } = this.#host;
      this.#journal = new Journal({ port, redactor: this.redactor, lingerMs });
      this.#steps = new Steps(this.#host, this.#assignment, this.#implementation, this.#journal);
    }
    return this.#steps;
  }

  #files(): JobArtifacts {
    this.#in();
    this.#artifacts ??= new JobArtifacts(this.#host.port, this.#journal!, this.#assignment, {
      signal: this.signal,
      scratch: () => this.scratch(),
      check: () => this.#check(),
    });
    return this.#artifacts;
  }

  /** What must not be seen of this job. @internal */
  get redactor(): Redactor {
    this.#secrets ??= this.#host.redactor ?? new Redactor();
    return this.#secrets;
  }

  #heard(): void {
    this.#steps?.heard();
    this.#host.port.alive();
  }

  #say(progress: Progress): void {
    this.#in();
    this.#heard();
    this.#journal!.progress(progress);
  }

  #logOf(step: () => string | undefined): Log {
    const write = (level: LogLine["level"]) => (message: string, data?: Record<string, unknown>) => {
      this.#check();
      this.#in();
      this.#heard();
      this.#journal!.write(level, message, step(), data);
    };
    return { info: write("info"), success: write("success"), warn: write("warning"), error: write("error") };
  }

  #handle(scope: StepScope): StepHandle {
    return new Handle(scope, this.#handleHost(scope));
  }

  #handleHost(scope: StepScope): HandleHost {
    return {
      log: () => this.#logOf(() => scope.name),
      progress: (value, sentence) => this.progress(value, sentence),
      scratch: () => this.scratch(),
      exec: (log, command, args, options) => this.#exec(log, () => scope.signal, command, args, options),
    };
  }

  #exec(log: Log, signal: () => AbortSignal, command: string, args: readonly string[], options: ExecOptions): Exec {
    this.#check();
    const { env, graceMs } = this.#host;
    if (this.#secrets && args.some((one) => this.#secrets?.finds(String(one)))) log.warn(SHOWN_ARGUMENT, { command });
    if (!this.#mark) {
      this.#mark = markOf(this.#host.mark, this.#assignment);
      this.#host.onExec?.();
    }
    return exec(
      {
        log: ({ level, message, data }) => log[level === "warning" ? "warn" : level](message, data),
        progress: (progress) => this.#say(progress),
        alive: () => this.#heard(),
        signal: signal(),
        scratch: () => this.scratch(),
        mark: this.#mark,
        env,
        graceMs,
      },
      command,
      args,
      options,
    );
  }
}
