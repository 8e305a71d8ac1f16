// The crew of runner processes: one per slot and one spare, warm between jobs. The keeper learns of the death of a runner at once, names its
// cause, ends what it left behind and hands its job back; the spare takes the next job while a new runner starts.
import { type ChildProcess, fork } from "node:child_process";
import os from "node:os";
import { fileURLToPath } from "node:url";
import { StillwakeError } from "../errors.ts";
import { backoffMs } from "../time.ts";
import type { Failure } from "../verbs.ts";
import type { Announcer } from "./announce.ts";
import { type Outcome, outcomeOfStop, type StopReason } from "./ends.ts";
import { lineRate, lineSplitter } from "./lines.ts";
import { oomKills } from "./memory.ts";
import { type FromRunner, serve, type ToRunner, thrownFrom } from "./pipe.ts";
import type { Assignment, Crew, PipelineFacts, Port, Run } from "./port.ts";
import { GUARD, killTree, startGuard } from "./process-tree.ts";

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
  runAs: { uid: number; gid: number } | undefined;
  /** Megabytes of JavaScript heap per runner. */
  heapMb: number | undefined;
  /** After so many jobs a runner is replaced by a fresh one. */
  mostJobs: number;
}

interface Task {
  assignment: Assignment;
  port: Port;
  stopping: StopReason | undefined;
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
  oomKills: number | undefined;
}

/** From the death of a runner to the start of its replacement, as long as a spare is ready. */
const FILL_MS = 250;
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
    const task: Task = { assignment, port, stopping: undefined, resolve, runner: undefined };
    this.#waiting.push(task);
    this.#assign();
    if (this.#waiting.length > 0) this.#fill();
    return {
      outcome,
      stop: (reason) => {
        task.stopping = reason;
        if (task.runner) say(task.runner, { say: "stop", reason });
        else this.#withdraw(task);
      },
      kill: async () => {
        if (task.runner) await this.#kill(task.runner);
        return true;
      },
    };
  }

  async stop(): Promise<void> {
    this.#stopped = true;
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
      say(runner, { say: "run", assignment: task.assignment });
    }
  }

  /** As many as there are slots and spares, not all at once: each start is work for a processor. */
  #fill(): void {
    const { slots, spares } = this.#options;
    const starting = [...this.#all].filter(({ ready }) => !ready).length;
    const wanted = Math.min(slots + spares - this.#all.size, Math.max(1, os.availableParallelism()) - starting);
    for (let count = 0; count < wanted && !this.#stopped; count++) this.#spawn();
  }

  #spawn(): void {
    const { env, runAs, heapMb, mark, files, pool, graceMs } = this.#options;
    const name = `r${++this.#born}`;
    const ownMark = `${mark}${name}.`;
    const child = fork(RUNNER_FILE, [], {
      env: { ...env, [GUARD]: ownMark },
      // A session of its own: the terminal's Ctrl-C does not reach it, and it can be ended as a whole.
      detached: true,
      stdio: ["ignore", "pipe", "pipe", "ipc"],
      execArgv: heapMb === undefined ? process.execArgv : [...process.execArgv, `--max-old-space-size=${heapMb}`],
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
      oomKills: oomKills(),
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
    say(runner, { say: "load", files, settings: { pool, graceMs, mark: ownMark, tickMs: 1000 } });
  }

  #hear(runner: Runner, message: FromRunner): void {
    if (message?.say === "ready") this.#isReady(runner, message.pipelines);
    else if (message?.say === "unready") this.#isUnready(runner, thrownFrom(message.refusal));
    else if (message?.say === "ended") this.#hasEnded(runner, message);
    else if (runner.task) void serve(message, runner.task.port, (answer) => say(runner, answer)).catch(() => {});
  }

  #isReady(runner: Runner, pipelines: PipelineFacts[]): void {
    if (runner.ready) return;
    runner.ready = true;
    this.#badStarts = 0;
    const tookMs = performance.now() - runner.bornAt;
    this.#options.announcer.announce({
      kind: "runner.started",
      runner: runner.name,
      pid: runner.child.pid ?? 0,
      tookMs,
    });
    this.#facts?.(pipelines.map(limitsBack));
    this.#facts = undefined;
    this.#idle.push(runner);
    this.#assign();
    this.#fill();
  }

  #isUnready(runner: Runner, error: Error): void {
    runner.lastWords = error.message;
    this.#unready?.(error);
    this.#unready = undefined;
    void this.#kill(runner);
  }

  #hasEnded(runner: Runner, { outcome, stray }: Extract<FromRunner, { say: "ended" }>): void {
    const { task } = runner;
    if (!task) return;
    runner.task = undefined;
    task.resolve(checked(outcome));
    if (stray || runner.jobs >= this.#options.mostJobs) {
      // Code that did not stop must not go on beside the next job.
      void this.#kill(runner);
      return;
    }
    this.#idle.push(runner);
    this.#assign();
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
    const failure = causeOf(runner, code, signal);
    if (!this.#stopped && !task?.stopping) {
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
    await killTree(runner.mark);
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
      const lines = lineSplitter({
        wanted: () => rate.ready(performance.now()),
        onLine: (line) => {
          if (stream === "stderr") runner.lastWords = `${runner.lastWords}${line}\n`.slice(-4000);
          if (!rate.take(line.length, performance.now())) return;
          const job = runner.task?.assignment.job;
          announcer.announce({ kind: "runner.output", runner: runner.name, stream, line, ...(job && { job }) });
        },
      });
      runner.child[stream]?.on("data", (chunk: Buffer) => lines.write(chunk));
      runner.child[stream]?.on("end", () => lines.end());
    }
  }
}

function say(runner: Runner, message: ToRunner): void {
  if (runner.child.connected) runner.child.send(message, () => {});
}

/** JSON has no Infinity. */
function limitsBack(facts: PipelineFacts): PipelineFacts {
  return {
    ...facts,
    timeoutMs: facts.timeoutMs ?? Number.POSITIVE_INFINITY,
    silenceMs: facts.silenceMs ?? Number.POSITIVE_INFINITY,
  };
}

/** User code can send what it likes. */
function checked(outcome: Outcome): Outcome {
  const kinds: Outcome["kind"][] = ["completed", "failed", "slept", "paused", "cancelled", "released", "replaced"];
  if (kinds.includes(outcome?.kind)) return outcome;
  return {
    kind: "failed",
    fatal: false,
    failure: { name: "Protocol", code: "PROTOCOL", message: "The runner sent no outcome" },
  };
}

function causeOf(runner: Runner, code: number | null, signal: NodeJS.Signals | null): Failure {
  const died = (reason: string, message: string): Failure => ({
    name: "RunnerDied",
    code: `RUNNER_${reason}`,
    message,
  });
  if (/heap out of memory|Allocation failed/i.test(runner.lastWords)) {
    return died("OOM", "The runner ran out of memory: its JavaScript heap was full");
  }
  const kills = oomKills();
  if (signal === "SIGKILL" && kills !== undefined && runner.oomKills !== undefined && kills > runner.oomKills) {
    return died("OOM", "The runner was killed by SIGKILL: the machine ran out of memory");
  }
  if (signal) return died("KILLED", `The runner was killed by ${signal}`);
  if (code === 137) return died("OOM", "The runner ended with exit code 137: killed, most often for want of memory");
  if (code === null) return died("START", `The runner could not be started: ${runner.lastWords}`);
  const words = runner.lastWords.trim().split("\n").at(-1);
  return died("EXITED", `The runner ended with exit code ${code}${words ? `: ${words.slice(0, 300)}` : ""}`);
}
