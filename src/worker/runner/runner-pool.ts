// The pool of runner processes: one per slot plus spare runners, warm between jobs. When a runner dies, the pool names the cause, kills the
// processes it left behind and reports its job as lost; a spare takes the next job while a new runner starts.
import { type ChildProcess, fork } from "node:child_process";
import os from "node:os";
import { fileURLToPath } from "node:url";
import { databasePasswords } from "../../config.ts";
import { StillwakeError } from "../../errors.ts";
import { oomKills } from "../../memory.ts";
import { backoffMs } from "../../time.ts";
import { type Outcome, outcomeOfStop, type StopReason } from "../attempt/outcome.ts";
import { counted, lineRate, lineSplitter } from "../exec/lines.ts";
import type { WorkerEvents } from "../observe/events.ts";
import { Redactor, sharedForms } from "../redact/redact.ts";
import type { SecretForms } from "../redact/secret-forms.ts";
import { deserializeError, type FromRunner, handleMessage, type ToRunner } from "./ipc.ts";
import type { Assignment, LoadedPipeline, Port, Run, Runners } from "./port.ts";
import { killTree, PROCESS_TAG, startGuard } from "./process-tree.ts";
import { checkOutcome, describeExit, restoreInfinity } from "./runner-exit.ts";

export interface RunnerPoolOptions {
  events: WorkerEvents;
  files: string[];
  slots: number;
  /** Runners beyond the slots, ready to replace one that died. */
  spareRunners: number;
  processTag: string;
  graceMs: number;
  /** The environment of runners, without the withheld variables. */
  env: Record<string, string>;
  /** Names of variables to delete again after loading, in case a preloaded module restores them. */
  withheld: string[];
  runAs: { uid: number; gid: number } | undefined;
  /** Megabytes of JavaScript heap per runner. */
  heapMb: number | undefined;
  /** The number of jobs after which a runner is replaced. */
  maxJobs: number;
}

interface RunningAttempt {
  assignment: Assignment;
  port: Port;
  stopping: StopReason | undefined;
  /** Called when the runner has received the stop request. */
  onStopReceived: () => void;
  resolve(outcome: Outcome): void;
  runner: Runner | undefined;
}

interface Runner {
  name: string;
  processTag: string;
  child: ChildProcess;
  startedAt: number;
  ready: boolean;
  jobs: number;
  attempt: RunningAttempt | undefined;
  /** The end of its stderr, where V8 reports why it died. */
  stderrTail: string;
  /** For the secrets of its job and of the previous one, whose output may still be in the pipe. */
  redactors: [current: Redactor, previous: Redactor];
  oomKills: number | undefined;
  /** Killed by this pool. */
  dismissed: boolean;
}

/** The delay before a dead runner is replaced while a spare is ready. */
const REPLACE_DELAY_MS = 250;
const STDERR_TAIL_CHARS = 8000;
const RUNNER_FILE = fileURLToPath(new URL("runner.js", import.meta.url));

export class RunnerPool implements Runners {
  readonly #options: RunnerPoolOptions;
  readonly #all = new Set<Runner>();
  readonly #idle: Runner[] = [];
  readonly #waiting: RunningAttempt[] = [];
  readonly #guard: { close(): Promise<void> };
  readonly #passwords: SecretForms | undefined;
  #onLoaded: ((pipelines: LoadedPipeline[]) => void) | undefined;
  #onLoadFailed: ((error: Error) => void) | undefined;
  #started = 0;
  #failedStarts = 0;
  #stopped = false;

  constructor(options: RunnerPoolOptions) {
    this.#options = options;
    this.#guard = startGuard(options.processTag);
    this.#passwords = sharedForms(databasePasswords(options.env));
  }

  /** The first runner reports the pipelines; the others start after it. */
  async start(): Promise<LoadedPipeline[]> {
    const loaded = new Promise<LoadedPipeline[]>((resolve, reject) => {
      this.#onLoaded = resolve;
      this.#onLoadFailed = reject;
    });
    this.#spawn();
    try {
      const pipelines = await loaded;
      this.#fill();
      return pipelines;
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  run(assignment: Assignment, port: Port): Run {
    let resolve: (outcome: Outcome) => void = () => {};
    const outcome = new Promise<Outcome>((settle) => {
      resolve = settle;
    });
    const onStopReceived = () => {};
    const attempt: RunningAttempt = {
      assignment,
      port,
      stopping: undefined,
      onStopReceived,
      resolve,
      runner: undefined,
    };
    this.#waiting.push(attempt);
    this.#assign();
    if (this.#waiting.length > 0) this.#fill();
    return {
      outcome,
      stop: (reason) => {
        attempt.stopping = reason;
        const received = new Promise<void>((settle) => {
          attempt.onStopReceived = settle;
        });
        if (attempt.runner) send(attempt.runner, { kind: "stop", run: attempt.runner.jobs, reason });
        else this.#withdraw(attempt);
        return received;
      },
      kill: async () => {
        if (attempt.runner) await this.#kill(attempt.runner);
        return true;
      },
    };
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    // start() may still be waiting for the first runner.
    this.#onLoadFailed?.(new StillwakeError("STOPPED", "The worker was stopped before its first runner was ready"));
    await Promise.all([...this.#all].map((runner) => this.#kill(runner)));
    await killTree(this.#options.processTag);
    await this.#guard.close();
  }

  /** Stopped before a runner was free for it. */
  #withdraw(attempt: RunningAttempt): void {
    const index = this.#waiting.indexOf(attempt);
    if (index < 0) return;
    this.#waiting.splice(index, 1);
    attempt.resolve(outcomeOfStop(attempt.stopping!));
  }

  #assign(): void {
    while (this.#waiting.length > 0 && this.#idle.length > 0) {
      // The most recently used runner has the warmest caches.
      const runner = this.#idle.pop()!;
      const attempt = this.#waiting.shift()!;
      attempt.runner = runner;
      runner.attempt = attempt;
      runner.jobs += 1;
      runner.stderrTail = "";
      runner.redactors = [new Redactor(this.#passwords), runner.redactors[0]];
      for (const secret of attempt.assignment.secrets ?? []) runner.redactors[0].register(secret);
      send(runner, { kind: "run", run: runner.jobs, assignment: attempt.assignment });
    }
  }

  /** Starts missing runners, at most one per processor at a time, because a start keeps a processor busy. */
  #fill(): void {
    const { slots, spareRunners } = this.#options;
    const starting = [...this.#all].filter(({ ready }) => !ready).length;
    const missing = Math.min(slots + spareRunners - this.#all.size, Math.max(1, os.availableParallelism()) - starting);
    for (let count = 0; count < missing && !this.#stopped; count++) {
      try {
        this.#spawn();
      } catch {
        // The system cannot start another process now.
        setTimeout(() => this.#fill(), backoffMs(this.#failedStarts++, 100, 10_000)).unref();
        return;
      }
    }
  }

  #spawn(): void {
    const { env, withheld, runAs, heapMb, files, graceMs } = this.#options;
    const name = `r${++this.#started}`;
    const processTag = `${this.#options.processTag}${name}.`;
    const child = fork(RUNNER_FILE, [], {
      env: { ...env, [PROCESS_TAG]: processTag },
      // A separate session: Ctrl-C in a terminal does not reach it, and it can be killed as a group.
      detached: true,
      stdio: ["ignore", "pipe", "pipe", "ipc"],
      execArgv: [...execArguments(), ...(heapMb === undefined ? [] : [`--max-old-space-size=${heapMb}`])],
      ...runAs,
    });
    const runner: Runner = {
      name,
      processTag,
      child,
      startedAt: performance.now(),
      ready: false,
      jobs: 0,
      attempt: undefined,
      stderrTail: "",
      redactors: [new Redactor(this.#passwords), new Redactor(this.#passwords)],
      oomKills: oomKills(),
      dismissed: false,
    };
    this.#all.add(runner);
    this.#readOutput(runner);
    child.on("message", (message: FromRunner) => this.#receive(runner, message));
    child.once("error", (error) => {
      runner.stderrTail = error.message;
      if (child.pid === undefined) void this.#onExit(runner, null, null);
    });
    child.once("exit", (code, signal) => {
      // Its last messages may still be in the pipe.
      if (!child.connected) return void this.#onExit(runner, code, signal);
      const late = setTimeout(() => void this.#onExit(runner, code, signal), 200);
      child.once("disconnect", () => {
        clearTimeout(late);
        void this.#onExit(runner, code, signal);
      });
    });
    send(runner, { kind: "load", files, withheld, settings: { graceMs, processTag, tickMs: 1000 } });
  }

  /** User code can forge any message: an invalid one kills this runner and affects no other job. */
  #receive(runner: Runner, message: FromRunner): void {
    try {
      this.#handle(runner, message);
    } catch (error) {
      runner.stderrTail = `It sent an invalid message: ${(error as Error).message}`;
      this.#killNow(runner);
    }
  }

  #handle(runner: Runner, message: FromRunner): void {
    if (message?.kind === "ready") this.#onReady(runner, message.pipelines, message.empty);
    else if (message?.kind === "load-failed") this.#onFailedLoad(runner, deserializeError(message.error));
    else if (message?.run !== runner.jobs || !runner.attempt) return;
    else if (message.kind === "ended") this.#onEnded(runner, message);
    else if (message.kind === "stop-received") runner.attempt.onStopReceived();
    else if (message.kind === "secret") runner.redactors[0].register(message.value);
    else void handleMessage(message, runner.attempt.port, (reply) => send(runner, reply)).catch(() => {});
  }

  #onReady(runner: Runner, pipelines: LoadedPipeline[], emptyModules: string[]): void {
    if (runner.ready) return;
    const { events } = this.#options;
    const restored = pipelines.map(restoreInfinity);
    runner.ready = true;
    this.#failedStarts = 0;
    events.emit({
      kind: "runner.started",
      runner: runner.name,
      pid: runner.child.pid ?? 0,
      tookMs: performance.now() - runner.startedAt,
    });
    if (this.#onLoaded) for (const file of emptyModules) events.emit({ kind: "module.empty", file });
    this.#onLoaded?.(restored);
    this.#onLoaded = undefined;
    // First in the list, because assignment takes the last: runners that have worked already are warmer.
    this.#idle.unshift(runner);
    this.#assign();
    this.#fill();
  }

  #onFailedLoad(runner: Runner, error: Error): void {
    if (runner.ready) throw error;
    runner.stderrTail = error.message;
    this.#onLoadFailed?.(error);
    this.#onLoadFailed = undefined;
    this.#killNow(runner);
  }

  #onEnded(runner: Runner, { outcome, stray }: Extract<FromRunner, { kind: "ended" }>): void {
    const { attempt } = runner;
    if (!attempt) return;
    runner.attempt = undefined;
    if (stray || runner.jobs >= this.#options.maxJobs) {
      // Code that did not stop must not run beside the next job or the next attempt of this one.
      runner.dismissed = true;
      void this.#kill(runner)
        .catch(() => {})
        .then(() => attempt.resolve(checkOutcome(outcome)));
      return;
    }
    attempt.resolve(checkOutcome(outcome));
    this.#idle.push(runner);
    this.#assign();
  }

  #killNow(runner: Runner): void {
    void this.#kill(runner).catch(() => runner.child.kill("SIGKILL"));
  }

  async #kill(runner: Runner): Promise<void> {
    this.#removeIdle(runner);
    const exited = runner.child.exitCode !== null || runner.child.signalCode !== null || runner.child.pid === undefined;
    const exit = exited ? undefined : new Promise((resolve) => runner.child.once("exit", resolve));
    await killTree(runner.processTag, runner.child.pid === undefined ? {} : { roots: [runner.child.pid] });
    runner.child.kill("SIGKILL");
    await exit;
  }

  #removeIdle(runner: Runner): void {
    const index = this.#idle.indexOf(runner);
    if (index >= 0) this.#idle.splice(index, 1);
  }

  async #onExit(runner: Runner, code: number | null, signal: NodeJS.Signals | null): Promise<void> {
    if (!this.#all.delete(runner)) return;
    this.#removeIdle(runner);
    const { attempt } = runner;
    runner.attempt = undefined;
    const failure = describeExit({ ...runner, stderrTail: redact(runner, runner.stderrTail) }, code, signal);
    if (!this.#stopped && !attempt?.stopping && !runner.dismissed) {
      this.#options.events.emit({
        kind: "runner.died",
        runner: runner.name,
        pid: runner.child.pid ?? 0,
        code,
        signal,
        cause: failure.code!.toLowerCase().replace("runner_", ""),
        ...(attempt && { job: attempt.assignment.job }),
      });
    }
    // No process of the old attempt may run when the next one starts.
    await killTree(runner.processTag).catch(() => {});
    attempt?.resolve(attempt.stopping ? outcomeOfStop(attempt.stopping) : { kind: "lost", failure });
    if (this.#stopped) return;
    if (!runner.ready) {
      this.#onLoadFailed?.(new StillwakeError("RUNNER_START", `A runner could not start: ${failure.message}`));
      await new Promise((resolve) => setTimeout(resolve, backoffMs(this.#failedStarts++, 100, 10_000)));
    }
    // The spare that takes over runs undisturbed first: a start keeps a processor busy for a quarter of a second.
    if (this.#idle.length > 0) setTimeout(() => this.#fill(), REPLACE_DELAY_MS).unref();
    else this.#fill();
  }

  /** Output of user code goes to the process log, rate-limited so that a flood costs the keeper little. */
  #readOutput(runner: Runner): void {
    const { events } = this.#options;
    for (const stream of ["stdout", "stderr"] as const) {
      const rate = lineRate({ perSecond: 100, burst: 500, bytesPerSecond: 256 * 1024 });
      let omitted = 0;
      let timer: NodeJS.Timeout | undefined;
      const print = (line: string) => {
        const job = runner.attempt?.assignment.job;
        events.emit({
          kind: "runner.output",
          runner: runner.name,
          stream,
          line: redact(runner, line),
          ...(job && { job }),
        });
      };
      const printOmitted = () => {
        clearTimeout(timer);
        timer = undefined;
        if (omitted > 0) print(`… ${counted(omitted, "line")} omitted`);
        omitted = 0;
      };
      const omit = (count: number) => {
        omitted += count;
        timer ??= setTimeout(printOmitted, 1000).unref();
      };
      const lines = lineSplitter({
        wanted: () => rate.ready(performance.now()),
        onSkipped: omit,
        onLine: (line) => {
          if (rate.take(line.length, performance.now())) print(line);
          else omit(1);
        },
      });
      runner.child[stream]?.on("data", (chunk: Buffer) => {
        // Omitted lines too: the end of a flood may name the cause of death.
        if (stream === "stderr") {
          const end = chunk.toString("utf8", Math.max(0, chunk.length - STDERR_TAIL_CHARS));
          runner.stderrTail = (runner.stderrTail + end).slice(-STDERR_TAIL_CHARS);
        }
        lines.write(chunk);
      });
      runner.child[stream]?.on("end", () => {
        lines.end();
        printOmitted();
      });
    }
  }
}

/** The Node options of this process without --env-file, because such files contain credentials. */
function execArguments(): string[] {
  return process.execArgv.filter(
    (option, index, all) => !/^--env-file/.test(option) && !/^--env-file[^=]*$/.test(all[index - 1] ?? ""),
  );
}

function redact({ redactors: [current, previous] }: Runner, text: string): string {
  return previous.redact(current.redact(text));
}

function send(runner: Runner, message: ToRunner): void {
  if (runner.child.connected) runner.child.send(message, () => {});
}
