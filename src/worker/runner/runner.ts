// The main module of a runner process: runs user code, one job at a time, and stays warm between jobs. It has no
// database connection and no credentials: everything it reads and writes goes through its keeper. It exits with it.

import { databasePasswords, deleteEnvironment, processEnvironment } from "../../config.ts";
import { loadTracing } from "../../tracing.ts";
import { runAttempt, toLoadedPipeline } from "../attempt/attempt.ts";
import type { Implementation } from "../attempt/implement.ts";
import { Stopped } from "../attempt/outcome.ts";
import { Redactor, sharedForms } from "../redact/redact.ts";
import { faultPointByKill } from "./fault-point.ts";
import { type FromRunner, IpcPort, type RunnerSettings, serializeError, type ToRunner } from "./ipc.ts";
import { loadPipelines } from "./load-pipelines.ts";
import type { Assignment } from "./port.ts";
import { childrenFingerprint, listOwnProcesses } from "./process-tree.ts";
import { StopSignal } from "./stop-signal.ts";

const send = (message: FromRunner): void => {
  // Without a keeper there is no receiver, and the guardian kills this process.
  if (process.connected) process.send!(message, undefined, undefined, () => {});
};

const tracing = await loadTracing();
const env = processEnvironment();
let implementations = new Map<string, Implementation>();
let settings: RunnerSettings;
let withheld: string[] = [];
let current: { run: number; port: IpcPort; stop: StopSignal; fail(error: unknown): void } | undefined;
let stray = false;
/** Processes that the modules started when they were loaded; they serve all jobs. */
let residents: number[] = [];

/** Of the current job. Printed text goes to the worker's log, and its end into the failure of a job whose runner dies. */
const passwords = sharedForms(databasePasswords(env));
let redactor = new Redactor(passwords);
for (const stream of [process.stdout, process.stderr]) {
  const write = stream.write.bind(stream) as (...values: unknown[]) => boolean;
  stream.write = (chunk: unknown, ...rest: unknown[]) =>
    write(typeof chunk === "string" ? redactor.redact(chunk) : chunk, ...rest);
}

process.on("message", (message: ToRunner) => {
  if (message.kind === "load") void load(message);
  else if (message.kind === "run") void run(message.run, message.assignment);
  else if (message.run !== current?.run) return;
  else if (message.kind === "stop") {
    // Before the stop, because listeners of the signal may block.
    send({ kind: "stop-received", run: message.run });
    current.stop.stop(message.reason);
  } else current.port.receiveReply(message);
});
process.on("disconnect", () => process.exit(1));
// Ctrl-C in a terminal is for the keeper, which stops its runners.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
process.on("uncaughtException", (error) => {
  if (!current) throw error;
  stray = true;
  current.fail(error);
});
process.on("unhandledRejection", (error) => {
  // The rejection of stopped work may arrive late and is expected.
  if (error instanceof Stopped) return;
  stray = true;
  if (current) current.fail(error);
  else console.error(error);
});

async function load(message: Extract<ToRunner, { kind: "load" }>): Promise<void> {
  settings = message.settings;
  withheld = message.withheld;
  deleteEnvironment(withheld);
  try {
    const empty: string[] = [];
    const loaded = await loadPipelines(message.files, (file) => empty.push(file));
    implementations = new Map(loaded.map((implementation) => [implementation.pipeline.name, implementation]));
    residents = listOwnProcesses(settings.processTag);
    send({ kind: "ready", pipelines: loaded.map(toLoadedPipeline), empty });
  } catch (error) {
    send({ kind: "load-failed", error: serializeError(error) });
  }
}

async function run(run: number, assignment: Assignment): Promise<void> {
  const port = new IpcPort(run, send);
  const stop = new StopSignal();
  stray = false;
  redactor = new Redactor(passwords, (value) => send({ kind: "secret", run, value }));
  const tick = setInterval(() => send({ kind: "alive", run }), settings.tickMs);
  let failed = false;
  const uncaught = new Promise<never>((_, reject) => {
    const fail = (error: unknown) => {
      failed = true;
      reject(error);
    };
    current = { run, port, stop, fail };
  });
  uncaught.catch(() => {});
  const { graceMs, processTag } = settings;
  const before = childrenFingerprint();
  const host = {
    port,
    stop,
    tracing,
    graceMs,
    lingerMs: 20,
    env,
    processTag,
    faultPoint: faultPointByKill(env, assignment.attempt),
    onStray: () => (stray = true),
    uncaught,
    redactor,
    withheld,
  };
  const outcome = await runAttempt(implementations.get(assignment.pipeline)!, assignment, host);
  if (failed && outcome.kind === "failed") outcome.failure.code ??= "UNCAUGHT";
  const left =
    childrenFingerprint() === before ? [] : listOwnProcesses(processTag).filter((pid) => !residents.includes(pid));
  if (left.length > 0) {
    // Started without job.exec. They are killed together with this process, because its libraries may depend on them.
    stray = true;
    const message = `Killing processes that the job left behind: ${left.length}`;
    port.log([{ level: "warning", message, at: 0 }]);
  }
  clearInterval(tick);
  current = undefined;
  send({ kind: "ended", run, outcome, stray });
}
