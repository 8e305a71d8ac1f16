// A runner: the process that runs user code, one job at a time, warm between jobs. It has no database and no credentials; all it knows of a job
// comes over the pipe, and so does everything it wants to have written. It ends with its keeper.

import { processEnvironment } from "../config.ts";
import { loadTracing } from "../tracing.ts";
import { factsOf, runAttempt } from "./attempt.ts";
import { crashByKill } from "./crash-point.ts";
import { type Outcome, Stopped } from "./ends.ts";
import { failureOf } from "./failure.ts";
import type { Implementation } from "./implement.ts";
import { loadPipelines } from "./load.ts";
import { type FromRunner, PipePort, type RunnerSettings, refusalOf, type ToRunner } from "./pipe.ts";
import type { Assignment } from "./port.ts";
import { StopSignal } from "./stop-signal.ts";

const send = (message: FromRunner): void => {
  // A keeper that is gone wants to hear nothing; the guard ends this process.
  if (process.connected) process.send!(message, undefined, undefined, () => {});
};

const tracing = await loadTracing();
const port = new PipePort(send);
const env = processEnvironment();
let implementations = new Map<string, Implementation>();
let settings: RunnerSettings;
let current: { stop: StopSignal; fail(error: unknown): void } | undefined;
let stray = false;

process.on("message", (message: ToRunner) => {
  if (message.say === "load") void load(message);
  else if (message.say === "run") void run(message.assignment);
  else if (message.say === "stop") current?.stop.stop(message.reason);
  else port.answer(message);
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
  try {
    const loaded = await loadPipelines(message.files);
    implementations = new Map(loaded.map((one) => [one.pipeline.name, one]));
    send({ say: "ready", pipelines: loaded.map(factsOf) });
  } catch (error) {
    send({ say: "unready", refusal: refusalOf(error) });
  }
}

async function run(assignment: Assignment): Promise<void> {
  const stop = new StopSignal();
  stray = false;
  const tick = setInterval(() => send({ say: "alive" }), settings.tickMs);
  const failed = new Promise<Outcome>((resolve) => {
    const fail = (error: unknown) =>
      resolve({
        kind: "failed",
        failure: { ...failureOf(error), code: failureOf(error).code ?? "UNCAUGHT" },
        fatal: false,
      });
    current = { stop, fail };
  });
  const { pool, graceMs, mark } = settings;
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
  };
  const outcome = await Promise.race([runAttempt(implementations.get(assignment.pipeline)!, assignment, host), failed]);
  clearInterval(tick);
  current = undefined;
  send({ say: "ended", outcome, stray });
}
