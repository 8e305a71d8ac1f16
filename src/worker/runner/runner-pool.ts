// The crew of runner processes: one per slot and one spare, warm between jobs. The keeper learns of the death of a runner at once, names its
// cause, ends what it left behind and hands its job back; the spare takes the next job while a new runner starts.
import { type ChildProcess, fork } from "node:child_process";
import os from "node:os";
import { fileURLToPath } from "node:url";
import { StillwakeError } from "../../errors.ts";
import { backoffMs } from "../../time.ts";
import { type Outcome, outcomeOfStop, type StopReason } from "../attempt/outcome.ts";
import { counted, lineRate, lineSplitter } from "../exec/lines.ts";
import type { Announcer } from "../observe/events.ts";
import { Redactor } from "../redact/redact.ts";
import { type FromRunner, serve, type ToRunner, thrownFrom } from "./ipc.ts";
import { oomKills } from "./memory.ts";
import type { Assignment, Crew, PipelineFacts, Port, Run } from "./port.ts";
import { GUARD, killTree, startGuard } from "./process-tree.ts";
import { causeOf, checked, limitsBack } from "./runner-exit.ts";

export interface RunnersOptions {
  announcer: Announcer;
  files: string[];
  pool: string;
  slots: number;
  /** Runners above the slots, ready to stand in for one that died. */
  spares: number;
  mark: string;
  graceMs: number;
  /** What runners may see: no database, no provider. */
  env: Record<string, string>;
  /** The names of what they may not see, should a preloaded module bring it back. */
  withheld: string[];
  runAs: { uid: number; gid: number } | undefined;
  /** Megabytes of JavaScript heap per runner. */
  heapMb: number | undefined;
  /** After so many jobs a runner is replaced by a fresh one. */
  maxJobs: number;
}

interface Task {
  assignment: Assignment;
  port: Port;
  stopping: StopReason | undefined;
  /** Called when the runner has heard that it is to stop. */
  heard: () => void;
  resolve(outcome: Outcome): void;
  runner: Runner | undefined;
}

interface Runner {
  name: string;
  mark: string;
  child: ChildProcess;
  bornAt: number;
  ready: boolean;
  jobs: number;
  task: Task | undefined;
  /** The end of what it wrote to stderr: V8 says there what it died of. */
  lastWords: string;
  /** The secrets of its job, and of the one before: what that printed may still be in the pipe. */
  hidden: [now: Redactor, before: Redactor];
  oomKills: number | undefined;
  /** Its end was decided here. */
  dismissed: boolean;
}

/** From the death of a runner to the start of its replacement, as long as a spare is ready. */
const FILL_MS = 250;
const MAX_WORDS = 8000;
const RUNNER_FILE = fileURLToPath(new URL("runner.js", import.meta.url));

export class Runners implements Crew {
  readonly #options: RunnersOptions;
  readonly #all = new Set<Runner>();
  readonly #idle: Runner[] = [];
  readonly #waiting: Task[] = [];
  readonly #guard: { close(): Promise<void> };
  #facts: ((facts: PipelineFacts[]) => void) | undefined;
  #unready: ((error: Error) => void) | undefined;
  #born = 0;
  #badStarts = 0;
  #stopped = false;

  constructor(options: RunnersOptions) {
    this.#options = options;
    this.#guard = startGuard(options.mark);
  }

  /** The first runner says what pipelines there are; the others start behind it. */
  async start(): Promise<PipelineFacts[]> {
    const facts = new Promise<PipelineFacts[]>((resolve, reject) => {
      this.#facts = resolve;
      this.#unready = reject;
    });
    this.#spawn();
    try {
      const found = await facts;
      this.#fill();
      return found;
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
    const task: Task = { assignment, port, stopping: undefined, heard: () => {}, resolve, runner: undefined };
    this.#waiting.push(task);
    this.#assign();
    if (this.#waiting.length > 0) this.#fill();
    return {
      outcome,
      stop: (reason) => {
        task.stopping = reason;
        const heard = new Promise<void>((settle) => {
          task.heard = settle;
        });
        if (task.runner) say(task.runner, { say: "stop", run: task.runner.jobs, reason });
        else this.#withdraw(task);
        return heard;
      },
      kill: async () => {
        if (task.runner) await this.#kill(task.runner);
        return true;
      },
    };
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    // Whoever waits for the first runner waits in vain.
    this.#unready?.(new StillwakeError("STOPPED", "The worker was stopped before its first runner was ready"));
    await Promise.all([...this.#all].map((runner) => this.#kill(runner)));
    await killTree(this.#options.mark);
    await this.#guard.close();
  }

  /** A job that was told to stop before a runner was free for it. */
  #withdraw(task: Task): void {
    const place = this.#waiting.indexOf(task);
    if (place < 0) return;
    this.#waiting.splice(place, 1);
    task.resolve(outcomeOfStop(task.stopping!));
  }

  #assign(): void {
    while (this.#waiting.length > 0 && this.#idle.length > 0) {
      // The one that worked last is the warmest.
      const runner = this.#idle.pop()!;
      const task = this.#waiting.shift()!;
      task.runner = runner;
      runner.task = task;
      runner.jobs += 1;
      runner.lastWords = "";
      runner.hidden = [new Redactor(), runner.hidden[0]];
      for (const secret of task.assignment.secrets ?? []) runner.hidden[0].register(secret);
      say(runner, { say: "run", run: runner.jobs, assignment: task.assignment });
    }
  }

  /** As many as there are slots and spares, not all at once: each start is work for a processor. */
  #fill(): void {
    const { slots, spares } = this.#options;
    const starting = [...this.#all].filter(({ ready }) => !ready).length;
    const wanted = Math.min(slots + spares - this.#all.size, Math.max(1, os.availableParallelism()) - starting);
    for (let count = 0; count < wanted && !this.#stopped; count++) {
      try {
        this.#spawn();
      } catch {
        // No room for another process now.
        setTimeout(() => this.#fill(), backoffMs(this.#badStarts++, 100, 10_000)).unref();
        return;
      }
    }
  }

  #spawn(): void {
    const { env, withheld, runAs, heapMb, mark, files, pool, graceMs } = this.#options;
    const name = `r${++this.#born}`;
    const ownMark = `${mark}${name}.`;
    const child = fork(RUNNER_FILE, [], {
      env: { ...env, [GUARD]: ownMark },
      // A session of its own: the terminal's Ctrl-C does not reach it, and it can be ended as a whole.
      detached: true,
      stdio: ["ignore", "pipe", "pipe", "ipc"],
      execArgv: [...shownArguments(), ...(heapMb === undefined ? [] : [`--max-old-space-size=${heapMb}`])],
      ...runAs,
    });
    const runner: Runner = {
      name,
      mark: ownMark,
      child,
      bornAt: performance.now(),
      ready: false,
      jobs: 0,
      task: undefined,
      lastWords: "",
      hidden: [new Redactor(), new Redactor()],
      oomKills: oomKills(),
      dismissed: false,
    };
    this.#all.add(runner);
    this.#readOutput(runner);
    child.on("message", (message: FromRunner) => this.#hear(runner, message));
    child.once("error", (error) => {
      runner.lastWords = error.message;
      if (child.pid === undefined) void this.#died(runner, null, null);
    });
    child.once("exit", (code, signal) => {
      // What it said last may still be in the pipe.
      if (!child.connected) return void this.#died(runner, code, signal);
      const late = setTimeout(() => void this.#died(runner, code, signal), 200);
      child.once("disconnect", () => {
        clearTimeout(late);
        void this.#died(runner, code, signal);
      });
    });
    say(runner, { say: "load", files, withheld, settings: { pool, graceMs, mark: ownMark, tickMs: 1000 } });
  }

  /** User code can send what it likes: what makes no sense costs it its runner, and nobody else anything. */
  #hear(runner: Runner, message: FromRunner): void {
    try {
      this.#heed(runner, message);
    } catch (error) {
      runner.lastWords = `It sent what no runner sends: ${(error as Error).message}`;
      this.#end(runner);
    }
  }

  #heed(runner: Runner, message: FromRunner): void {
    if (message?.say === "ready") this.#isReady(runner, message.pipelines, message.empty);
    else if (message?.say === "unready") this.#isUnready(runner, thrownFrom(message.refusal));
    else if (message?.run !== runner.jobs || !runner.task) return;
    else if (message.say === "ended") this.#hasEnded(runner, message);
    else if (message.say === "heard") runner.task.heard();
    else if (message.say === "secret") runner.hidden[0].register(message.value);
    else void serve(message, runner.task.port, (answer) => say(runner, answer)).catch(() => {});
  }

  #isReady(runner: Runner, pipelines: PipelineFacts[], empty: string[]): void {
    if (runner.ready) return;
    const facts = pipelines.map(limitsBack);
    runner.ready = true;
    this.#badStarts = 0;
    this.#options.announcer.announce({
      kind: "runner.started",
      runner: runner.name,
      pid: runner.child.pid ?? 0,
      tookMs: performance.now() - runner.bornAt,
    });
    if (this.#facts) for (const file of empty) this.#options.announcer.announce({ kind: "module.empty", file });
    this.#facts?.(facts);
    this.#facts = undefined;
    // Behind those that have worked already.
    this.#idle.unshift(runner);
    this.#assign();
    this.#fill();
  }

  #isUnready(runner: Runner, error: Error): void {
    if (runner.ready) throw error;
    runner.lastWords = error.message;
    this.#unready?.(error);
    this.#unready = undefined;
    this.#end(runner);
  }

  #hasEnded(runner: Runner, { outcome, stray }: Extract<FromRunner, { say: "ended" }>): void {
    const { task } = runner;
    if (!task) return;
    runner.task = undefined;
    if (stray || runner.jobs >= this.#options.maxJobs) {
      // Code that did not stop must not go on beside the next job, nor beside the next attempt of this one.
      runner.dismissed = true;
      void this.#kill(runner)
        .catch(() => {})
        .then(() => task.resolve(checked(outcome)));
      return;
    }
    task.resolve(checked(outcome));
    this.#idle.push(runner);
    this.#assign();
  }

  #end(runner: Runner): void {
    void this.#kill(runner).catch(() => runner.child.kill("SIGKILL"));
  }

  async #kill(runner: Runner): Promise<void> {
    this.#leave(runner);
    const gone = runner.child.exitCode !== null || runner.child.signalCode !== null || runner.child.pid === undefined;
    const ended = gone ? undefined : new Promise((resolve) => runner.child.once("exit", resolve));
    await killTree(runner.mark, runner.child.pid === undefined ? {} : { roots: [runner.child.pid] });
    runner.child.kill("SIGKILL");
    await ended;
  }

  #leave(runner: Runner): void {
    const place = this.#idle.indexOf(runner);
    if (place >= 0) this.#idle.splice(place, 1);
  }

  async #died(runner: Runner, code: number | null, signal: NodeJS.Signals | null): Promise<void> {
    if (!this.#all.delete(runner)) return;
    this.#leave(runner);
    const { task } = runner;
    runner.task = undefined;
    const failure = causeOf({ ...runner, lastWords: hide(runner, runner.lastWords) }, code, signal);
    if (!this.#stopped && !task?.stopping && !runner.dismissed) {
      this.#options.announcer.announce({
        kind: "runner.died",
        runner: runner.name,
        pid: runner.child.pid ?? 0,
        code,
        signal,
        cause: failure.code!.toLowerCase().replace("runner_", ""),
        ...(task && { job: task.assignment.job }),
      });
    }
    // Nothing of the old attempt may be at work when the next one begins.
    await killTree(runner.mark).catch(() => {});
    if (task) task.resolve(task.stopping ? outcomeOfStop(task.stopping) : { kind: "lost", failure });
    if (this.#stopped) return;
    if (!runner.ready) {
      this.#unready?.(new StillwakeError("RUNNER_START", `A runner could not start: ${failure.message}`));
      await new Promise((resolve) => setTimeout(resolve, backoffMs(this.#badStarts++, 100, 10_000)));
    }
    // The spare that takes over has the processors to itself first: a start keeps one of them busy for a quarter of a second.
    if (this.#idle.length > 0) setTimeout(() => this.#fill(), FILL_MS).unref();
    else this.#fill();
  }

  /** What user code prints goes to the process log, thinned; a flood costs the keeper next to nothing. */
  #readOutput(runner: Runner): void {
    const { announcer } = this.#options;
    for (const stream of ["stdout", "stderr"] as const) {
      const rate = lineRate({ perSecond: 100, burst: 500, bytesPerSecond: 256 * 1024 });
      let leftOut = 0;
      let saying: NodeJS.Timeout | undefined;
      const print = (line: string) => {
        const job = runner.task?.assignment.job;
        announcer.announce({
          kind: "runner.output",
          runner: runner.name,
          stream,
          line: hide(runner, line),
          ...(job && { job }),
        });
      };
      const sayLeftOut = () => {
        clearTimeout(saying);
        saying = undefined;
        if (leftOut > 0) print(`… ${counted(leftOut, "line")} left out`);
        leftOut = 0;
      };
      const leaveOut = (count: number) => {
        leftOut += count;
        saying ??= setTimeout(sayLeftOut, 1000).unref();
      };
      const lines = lineSplitter({
        wanted: () => rate.ready(performance.now()),
        onSkipped: leaveOut,
        onLine: (line) => {
          if (rate.take(line.length, performance.now())) print(line);
          else leaveOut(1);
        },
      });
      runner.child[stream]?.on("data", (chunk: Buffer) => {
        // Also of what is left out: the end of a flood may be the cause of death.
        if (stream === "stderr")
          runner.lastWords = (runner.lastWords + chunk.toString("utf8", Math.max(0, chunk.length - MAX_WORDS))).slice(
            -MAX_WORDS,
          );
        lines.write(chunk);
      });
      runner.child[stream]?.on("end", () => {
        lines.end();
        sayLeftOut();
      });
    }
  }
}

/** What this process was started with but for files of variables: they are where credentials come from. */
function shownArguments(): string[] {
  return process.execArgv.filter(
    (one, place, all) => !/^--env-file/.test(one) && !/^--env-file[^=]*$/.test(all[place - 1] ?? ""),
  );
}

function hide({ hidden: [now, before] }: Runner, text: string): string {
  return before.hide(now.hide(text));
}

function say(runner: Runner, message: ToRunner): void {
  if (runner.child.connected) runner.child.send(message, () => {});
}
