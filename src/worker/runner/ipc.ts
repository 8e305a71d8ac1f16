// The port as messages between keeper and runner. A runner can ask for a few named things, all about the job it was given; the keeper answers
// by number. Every message names the run it belongs to: what code of an earlier job still says must not be taken for the present one's. What
// comes from a runner is user code's to forge, so the keeper reads it as such.
import { InvalidInput, StillwakeError } from "../../errors.ts";
import type { Outcome, StopReason } from "../attempt/outcome.ts";
import { Stopped } from "../attempt/outcome.ts";
import type { Assignment, LogLine, PipelineFacts, Port, Progress, StepReport } from "./port.ts";

export type ToRunner =
  | { say: "load"; files: string[]; withheld: string[]; settings: RunnerSettings }
  | { say: "run"; run: number; assignment: Assignment }
  | { say: "stop"; run: number; reason: StopReason }
  | { say: "answer"; run: number; ask: number; value?: unknown; refusal?: Refusal };

export type FromRunner =
  | { say: "ready"; pipelines: PipelineFacts[]; empty: string[] }
  | { say: "unready"; refusal: Refusal }
  | { say: "ask"; run: number; ask: number; verb: Verb; values: unknown[] }
  | { say: "log"; run: number; lines: LogLine[]; progress?: Progress }
  | { say: "step"; run: number; started?: string; ended?: StepReport }
  | { say: "limit"; run: number; step: string; timeoutMs: number | null }
  | { say: "alive"; run: number }
  /** The job has registered a secret: what the runner prints past its own redactor is read by the keeper. */
  | { say: "secret"; run: number; value: unknown }
  /** It was told to stop, and its event loop turns. */
  | { say: "heard"; run: number }
  | { say: "ended"; run: number; outcome: Outcome; stray: boolean };

export interface RunnerSettings {
  pool: string;
  graceMs: number;
  mark: string;
  tickMs: number;
}

interface Refusal {
  name: string;
  message: string;
  code?: string;
  stop?: StopReason;
  retryable?: boolean;
}

/** What a runner may ask of its keeper. */
const verbs = [
  "leased",
  "checkpoints",
  "saveCheckpoint",
  "adopt",
  "flush",
  "scratch",
  "artifacts",
  "artifactIsThere",
  "storeArtifact",
  "fetchArtifact",
  "useLimit",
  "askBreaker",
  "tellBreaker",
  "spawn",
  "spawnState",
  "children",
  "lookForSignal",
  "takeSignal",
  "savePlace",
] as const;
type Verb = (typeof verbs)[number];

/** The runner's side, one for each run: every call is a message. */
export class PipePort implements Port {
  readonly #run: number;
  readonly #send: (message: FromRunner) => void;
  readonly #asked = new Map<number, { resolve(value: unknown): void; reject(error: unknown): void }>();
  #next = 1;
  #provenUntil = 0;

  constructor(run: number, send: (message: FromRunner) => void) {
    this.#run = run;
    this.#send = send;
  }

  answer({ ask, value, refusal }: Extract<ToRunner, { say: "answer" }>): void {
    const waiting = this.#asked.get(ask);
    this.#asked.delete(ask);
    if (refusal) waiting?.reject(thrownFrom(refusal));
    else waiting?.resolve(value);
  }

  /** The keeper is asked at most once a second; in between its last answer counts. */
  leased(): Promise<void> | undefined {
    if (performance.now() < this.#provenUntil) return undefined;
    return this.#ask("leased").then(() => {
      this.#provenUntil = performance.now() + 1000;
    });
  }

  checkpoints(): ReturnType<Port["checkpoints"]> {
    return this.#ask("checkpoints") as ReturnType<Port["checkpoints"]>;
  }

  saveCheckpoint(step: string, output: string, tookMs: number): ReturnType<Port["saveCheckpoint"]> {
    return this.#ask("saveCheckpoint", step, output, tookMs) as ReturnType<Port["saveCheckpoint"]>;
  }

  adopt(version: number, restart: boolean): Promise<void> {
    return this.#ask("adopt", version, restart) as Promise<void>;
  }

  flush(): Promise<void> {
    return this.#ask("flush") as Promise<void>;
  }

  scratch(): Promise<string> {
    return this.#ask("scratch") as Promise<string>;
  }

  artifacts(): ReturnType<Port["artifacts"]> {
    return this.#ask("artifacts") as ReturnType<Port["artifacts"]>;
  }

  artifactIsThere(artifact: Parameters<Port["artifactIsThere"]>[0]): Promise<boolean> {
    return this.#ask("artifactIsThere", artifact) as Promise<boolean>;
  }

  storeArtifact(artifact: Parameters<Port["storeArtifact"]>[0]): ReturnType<Port["storeArtifact"]> {
    return this.#ask("storeArtifact", artifact) as ReturnType<Port["storeArtifact"]>;
  }

  fetchArtifact(name: string): Promise<string> {
    return this.#ask("fetchArtifact", name) as Promise<string>;
  }

  useLimit(...values: Parameters<Port["useLimit"]>): ReturnType<Port["useLimit"]> {
    return this.#ask("useLimit", ...values) as ReturnType<Port["useLimit"]>;
  }

  askBreaker(...values: Parameters<Port["askBreaker"]>): ReturnType<Port["askBreaker"]> {
    return this.#ask("askBreaker", ...values) as ReturnType<Port["askBreaker"]>;
  }

  tellBreaker(...values: Parameters<Port["tellBreaker"]>): ReturnType<Port["tellBreaker"]> {
    return this.#ask("tellBreaker", ...values) as ReturnType<Port["tellBreaker"]>;
  }

  spawn(...values: Parameters<Port["spawn"]>): ReturnType<Port["spawn"]> {
    return this.#ask("spawn", ...values) as ReturnType<Port["spawn"]>;
  }

  spawnState(...values: Parameters<Port["spawnState"]>): ReturnType<Port["spawnState"]> {
    return this.#ask("spawnState", ...values) as ReturnType<Port["spawnState"]>;
  }

  children(...values: Parameters<Port["children"]>): ReturnType<Port["children"]> {
    return this.#ask("children", ...values) as ReturnType<Port["children"]>;
  }

  lookForSignal(...values: Parameters<Port["lookForSignal"]>): ReturnType<Port["lookForSignal"]> {
    return this.#ask("lookForSignal", ...values) as ReturnType<Port["lookForSignal"]>;
  }

  takeSignal(...values: Parameters<Port["takeSignal"]>): ReturnType<Port["takeSignal"]> {
    return this.#ask("takeSignal", ...values) as ReturnType<Port["takeSignal"]>;
  }

  savePlace(...values: Parameters<Port["savePlace"]>): ReturnType<Port["savePlace"]> {
    return this.#ask("savePlace", ...values) as ReturnType<Port["savePlace"]>;
  }

  log(lines: LogLine[], progress?: Progress): void {
    this.#send(progress ? { say: "log", run: this.#run, lines, progress } : { say: "log", run: this.#run, lines });
  }

  stepStarted(started: string): void {
    this.#send({ say: "step", run: this.#run, started });
  }

  limit(step: string, timeoutMs: number | null): void {
    this.#send({ say: "limit", run: this.#run, step, timeoutMs });
  }

  stepEnded(ended: StepReport): void {
    this.#send({ say: "step", run: this.#run, ended });
  }

  /** The ticks of the runner say it already. */
  alive(): void {}

  #ask(verb: Verb, ...values: unknown[]): Promise<unknown> {
    const ask = this.#next++;
    this.#send({ say: "ask", run: this.#run, ask, verb, values });
    return new Promise((resolve, reject) => this.#asked.set(ask, { resolve, reject }));
  }
}

/** The keeper's side: does what a message of the runner asks for, through the port of the job it runs. */
export async function serve(message: FromRunner, port: Port, answer: (message: ToRunner) => void): Promise<void> {
  switch (message.say) {
    case "alive":
      return port.alive();
    case "log":
      return port.log(linesFrom(message.lines), message.progress);
    case "step":
      if (message.started !== undefined) port.stepStarted(text(message.started));
      if (message.ended)
        port.stepEnded({ ...message.ended, step: text(message.ended.step), tookMs: Number(message.ended.tookMs) || 0 });
      return;
    case "limit":
      return port.limit(text(message.step), message.timeoutMs === null ? null : Number(message.timeoutMs) || 0);
    case "ask": {
      const { run, ask, verb, values } = message;
      try {
        if (!verbs.includes(verb)) throw new StillwakeError("PROTOCOL", `A runner cannot ask for "${verb}"`);
        const value = await (port[verb] as (...values: unknown[]) => unknown)(...values);
        answer({ say: "answer", run, ask, value });
      } catch (error) {
        answer({ say: "answer", run, ask, refusal: refusalOf(error) });
      }
    }
  }
}

export function refusalOf(error: unknown): Refusal {
  const { name, message, code, retryable } = error as StillwakeError;
  const refusal: Refusal = { name: name ?? "Error", message: message ?? String(error) };
  if (typeof code === "string") refusal.code = code;
  if (retryable) refusal.retryable = true;
  if (error instanceof Stopped) refusal.stop = error.stop;
  return refusal;
}

export function thrownFrom({ name, message, code, stop, retryable = false }: Refusal): Error {
  if (stop) return new Stopped(stop);
  // Its message has the remedy within.
  if (code === "INVALID_INPUT") return new InvalidInput(message);
  const error = code === undefined ? new Error(message) : new StillwakeError(code, message, { retryable });
  error.name = name;
  return error;
}

/** Times are those of another process: what matters is that they come in order. */
function linesFrom(lines: LogLine[]): LogLine[] {
  const now = performance.now();
  return lines.map(({ level, message, step, data }) => {
    const line: LogLine = { level, message: text(message), at: now };
    if (!["info", "success", "warning", "error"].includes(level)) line.level = "info";
    if (step !== undefined) line.step = text(step);
    if (data !== undefined) line.data = data;
    return line;
  });
}

function text(value: unknown): string {
  return typeof value === "string" ? value : String(value);
}
