// The messages between a keeper and a runner process. A runner may call the methods listed below, all bound to the job
// it was assigned; the keeper replies by call number. Every message carries the number of its run, so that late code of
// an earlier job cannot act for the current one. User code can forge any message, so the keeper validates them.
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { isInteger } from "../../validate.ts";
import type { Outcome, StopReason } from "../attempt/outcome.ts";
import { Stopped } from "../attempt/outcome.ts";
import type { Assignment, LoadedPipeline, LogLine, Port, Progress, StepReport } from "./port.ts";

export type ToRunner =
  | { kind: "load"; files: string[]; withheld: string[]; settings: RunnerSettings }
  | { kind: "run"; run: number; assignment: Assignment }
  | { kind: "stop"; run: number; reason: StopReason }
  | { kind: "reply"; run: number; call: number; value?: unknown; error?: SerializedError };

export type FromRunner =
  | { kind: "ready"; pipelines: LoadedPipeline[]; empty: string[] }
  | { kind: "load-failed"; error: SerializedError }
  | { kind: "call"; run: number; call: number; method: Method; values: unknown[] }
  | { kind: "log"; run: number; lines: LogLine[]; progress?: Progress }
  | { kind: "step"; run: number; started?: string; ended?: StepReport }
  | { kind: "step-timeout"; run: number; step: string; timeoutMs: number | null }
  | { kind: "alive"; run: number }
  /** The job registered a secret: the keeper redacts what the runner prints past its own redactor. */
  | { kind: "secret"; run: number; value: unknown }
  /** The stop request was received, so the event loop is not blocked. */
  | { kind: "stop-received"; run: number }
  | { kind: "ended"; run: number; outcome: Outcome; stray: boolean };

export interface RunnerSettings {
  graceMs: number;
  processTag: string;
  tickMs: number;
}

interface SerializedError {
  name: string;
  message: string;
  code?: string;
  stop?: StopReason;
  retryable?: boolean;
}

/** The methods of the port that a runner may call. */
const methods = [
  "confirmLease",
  "checkpoints",
  "saveCheckpoint",
  "adopt",
  "flush",
  "scratch",
  "artifacts",
  "artifactExists",
  "storeArtifact",
  "fetchArtifact",
  "useLimit",
  "checkBreaker",
  "reportBreakerResult",
  "spawn",
  "spawnState",
  "children",
  "findSignal",
  "takeSignal",
  "savePosition",
] as const;
type Method = (typeof methods)[number];

/** The runner's side, one per run: every call becomes a message. */
export class IpcPort implements Port {
  readonly #run: number;
  readonly #send: (message: FromRunner) => void;
  readonly #calls = new Map<number, { resolve(value: unknown): void; reject(error: unknown): void }>();
  #nextCall = 1;
  #leaseProvenUntil = 0;

  readonly checkpoints = this.#remote("checkpoints");
  readonly saveCheckpoint = this.#remote("saveCheckpoint");
  readonly adopt = this.#remote("adopt");
  readonly flush = this.#remote("flush");
  readonly scratch = this.#remote("scratch");
  readonly artifacts = this.#remote("artifacts");
  readonly artifactExists = this.#remote("artifactExists");
  readonly storeArtifact = this.#remote("storeArtifact");
  readonly fetchArtifact = this.#remote("fetchArtifact");
  readonly useLimit = this.#remote("useLimit");
  readonly checkBreaker = this.#remote("checkBreaker");
  readonly reportBreakerResult = this.#remote("reportBreakerResult");
  readonly spawn = this.#remote("spawn");
  readonly spawnState = this.#remote("spawnState");
  readonly children = this.#remote("children");
  readonly findSignal = this.#remote("findSignal");
  readonly takeSignal = this.#remote("takeSignal");
  readonly savePosition = this.#remote("savePosition");

  constructor(run: number, send: (message: FromRunner) => void) {
    this.#run = run;
    this.#send = send;
  }

  receiveReply({ call, value, error }: Extract<ToRunner, { kind: "reply" }>): void {
    const waiting = this.#calls.get(call);
    this.#calls.delete(call);
    if (error) waiting?.reject(deserializeError(error));
    else waiting?.resolve(value);
  }

  /** The keeper is queried at most once a second. */
  confirmLease(): Promise<void> | undefined {
    if (performance.now() < this.#leaseProvenUntil) return undefined;
    return this.#call("confirmLease").then(() => {
      this.#leaseProvenUntil = performance.now() + 1000;
    });
  }

  log(lines: LogLine[], progress?: Progress): void {
    this.#send(progress ? { kind: "log", run: this.#run, lines, progress } : { kind: "log", run: this.#run, lines });
  }

  stepStarted(started: string): void {
    this.#send({ kind: "step", run: this.#run, started });
  }

  setStepTimeout(step: string, timeoutMs: number | null): void {
    this.#send({ kind: "step-timeout", run: this.#run, step, timeoutMs });
  }

  stepEnded(ended: StepReport): void {
    this.#send({ kind: "step", run: this.#run, ended });
  }

  /** Nothing to send: the runner sends "alive" at an interval. */
  reportAlive(): void {}

  #remote<M extends Method>(method: M): Port[M] {
    return ((...values: unknown[]) => this.#call(method, ...values)) as Port[M];
  }

  #call(method: Method, ...values: unknown[]): Promise<unknown> {
    const call = this.#nextCall++;
    this.#send({ kind: "call", run: this.#run, call, method, values });
    return new Promise((resolve, reject) => this.#calls.set(call, { resolve, reject }));
  }
}

/** The keeper's side: applies a message of the runner to the port of the job it runs. */
export async function handleMessage(
  message: FromRunner,
  port: Port,
  reply: (message: ToRunner) => void,
): Promise<void> {
  switch (message.kind) {
    case "alive":
      return port.reportAlive();
    case "log":
      return port.log(readLines(message.lines), message.progress);
    case "step":
      if (message.started !== undefined) port.stepStarted(String(message.started));
      if (message.ended) {
        const { ended } = message;
        port.stepEnded({ ...ended, step: String(ended.step), tookMs: Number(ended.tookMs) || 0 });
      }
      return;
    case "step-timeout":
      return port.setStepTimeout(
        String(message.step),
        message.timeoutMs === null ? null : Number(message.timeoutMs) || 0,
      );
    case "call": {
      const { run, call, method, values } = message;
      try {
        if (!methods.includes(method)) throw new StillwakeError("PROTOCOL", `A runner cannot call "${method}"`);
        const value = await (port[method] as (...values: unknown[]) => unknown)(...values);
        reply({ kind: "reply", run, call, value });
      } catch (error) {
        reply({ kind: "reply", run, call, error: serializeError(error) });
      }
    }
  }
}

export function serializeError(error: unknown): SerializedError {
  const { name, message, code, retryable } = error as StillwakeError;
  const serialized: SerializedError = { name: name ?? "Error", message: message ?? String(error) };
  if (typeof code === "string") serialized.code = code;
  if (retryable) serialized.retryable = true;
  if (error instanceof Stopped) serialized.stop = error.stop;
  return serialized;
}

export function deserializeError({ name, message, code, stop, retryable = false }: SerializedError): Error {
  if (stop) return new Stopped(stop);
  // The message includes the remedy.
  if (code === "INVALID_INPUT") return new InvalidInput(message);
  const error = code === undefined ? new Error(message) : new StillwakeError(code, message, { retryable });
  error.name = name;
  return error;
}

/** Lines get the time of receipt: the clock of another process is not comparable, and only the order matters. */
function readLines(lines: LogLine[]): LogLine[] {
  const now = performance.now();
  return lines.map(({ level, message, step, data, replayed }) => {
    const line: LogLine = { level, message: String(message), at: now };
    if (!["info", "success", "warning", "error"].includes(level)) line.level = "info";
    if (step !== undefined) line.step = String(step);
    if (data !== undefined) line.data = data;
    if (isInteger(replayed, 1, Number.MAX_SAFE_INTEGER)) line.replayed = replayed;
    return line;
  });
}
