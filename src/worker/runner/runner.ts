// A runner: the process that runs user code, one job at a time, warm between jobs. It has no database and no credentials; all it knows of a job
// comes over the pipe, and so does everything it wants to have written. It ends with its keeper.

import { forgetEnvironment, processEnvironment } from "../../config.ts";
import { loadTracing } from "../../tracing.ts";
import { factsOf, runAttempt } from "../attempt/attempt.ts";
import type { Implementation } from "../attempt/implement.ts";
import { Stopped } from "../attempt/outcome.ts";
import { Redactor } from "../redact/redact.ts";
import { crashByKill } from "./fault-point.ts";
import { type FromRunner, PipePort, type RunnerSettings, refusalOf, type ToRunner } from "./ipc.ts";
import { loadPipelines } from "./load-pipelines.ts";
import type { Assignment } from "./port.ts";
import { offspring, startedBySelf } from "./process-tree.ts";
import { StopSignal } from "./stop-signal.ts";

const send = (message: FromRunner): void => {
  // A keeper that is gone wants to hear nothing; the guard ends this process.
  if (process.connected) process.send!(message, undefined, undefined, () => {});
};

const tracing = await loadTracing();
const env = processEnvironment();
let implementations = new Map<string, Implementation>();
let settings: RunnerSettings;
let current: { run: number; port: PipePort; stop: StopSignal; fail(error: unknown): void } | undefined;
let stray = false;
/** What the modules have started when they were loaded, for all jobs. */
let residents: number[] = [];

/** Of the present job: what is printed goes to the worker's log, and the last of it into the failure of a job whose runner dies. */
let redactor = new Redactor();
for (const stream of [process.stdout, process.stderr]) {
  const write = stream.write.bind(stream) as (...values: unknown[]) => boolean;
  stream.write = (chunk: unknown, ...rest: unknown[]) =>
    write(typeof chunk === "string" ? redactor.hide(chunk) : chunk, ...rest);
}

process.on("message", (message: ToRunner) => {
  if (message.say === "load") void load(message);
  else if (message.say === "run") void run(message.run, message.assignment);
  else if (message.run !== current?.run) return;
  else if (message.say === "stop") {
    // First: what listens to the signal may take its time.
    send({ say: "heard", run: message.run });
    current.stop.stop(message.reason);
  } else current.port.answer(message);
});
process.on("disconnect", () => process.exit(1));
// The terminal's Ctrl-C is for the keeper, which tells its runners what to do.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
process.on("uncaughtException", (error) => {
  if (!current) throw error;
  stray = true;
  current.fail(error);
});
process.on("unhandledRejection", (error) => {
  // Work that was told to stop rejects late; that is how it stops.
  if (error instanceof Stopped) return;
  stray = true;
  if (current) current.fail(error);
  else console.error(error);
});

async function load(message: Extract<ToRunner, { say: "load" }>): Promise<void> {
  settings = message.settings;
  forgetEnvironment(message.withheld);
  try {
    const empty: string[] = [];
    const loaded = await loadPipelines(message.files, (file) => empty.push(file));
    implementations = new Map(loaded.map((one) => [one.pipeline.name, one]));
    residents = startedBySelf(settings.mark);
    send({ say: "ready", pipelines: loaded.map(factsOf), empty });
  } catch (error) {
    send({ say: "unready", refusal: refusalOf(error) });
  }
}

async function run(run: number, assignment: Assignment): Promise<void> {
  const port = new PipePort(run, send);
  const stop = new StopSignal();
  stray = false;
  redactor = new Redactor((value) => send({ say: "secret", run, value }));
  const tick = setInterval(() => send({ say: "alive", run }), settings.tickMs);
  let failed = false;
  const uncaught = new Promise<never>((_, reject) => {
    const fail = (error: unknown) => {
      failed = true;
      reject(error);
    };
    current = { run, port, stop, fail };
  });
  uncaught.catch(() => {});
  const { pool, graceMs, mark } = settings;
  const before = offspring();
  const host = {
    port,
    stop,
    tracing,
    pool,
    graceMs,
    lingerMs: 20,
    env,
    mark,
    crashPoint: crashByKill(env, assignment.attempt),
    onStray: () => (stray = true),
    uncaught,
    redactor,
  };
  const outcome = await runAttempt(implementations.get(assignment.pipeline)!, assignment, host);
  if (failed && outcome.kind === "failed") outcome.failure.code ??= "UNCAUGHT";
  const left = offspring() === before ? [] : startedBySelf(mark).filter((pid) => !residents.includes(pid));
  if (left.length > 0) {
    // Started past job.exec. It ends with this process, whose libraries may count on it.
    stray = true;
    const message = `Processes that were left behind are ended: ${left.length}`;
    port.log([{ level: "warning", message, at: 0 }]);
  }
  clearInterval(tick);
  current = undefined;
  send({ say: "ended", run, outcome, stray });
}
