// job.exec(): runs one command without a shell, in a separate session. Its lines go to the job's log and to a loop that
// reads them, its failure becomes a sentence for people, and no process that it started survives an abort.
//
//   running ── exits ────────────────────────────▶ group killed ─▶ rest of the output read ─▶ settled
//      └── abort, timeout, silence, loop left ─▶ SIGTERM ── exits, or grace is over ─▶ tree killed ─┘
import { type ChildProcess, spawn } from "node:child_process";
import fs from "node:fs/promises";
import path from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { InvalidInput } from "../../errors.ts";
import { durationMs } from "../../time.ts";
import { MAX_TIMER_MS, withTimeout } from "../../timeout.ts";
import { killTree, PROCESS_TAG } from "../runner/process-tree.ts";
import {
  type ExecFailure,
  type FailureOptions,
  isSentenceKey,
  kindOfExit,
  toExecError,
  toStartError,
} from "./failure.ts";
import { type LineQueue, lineQueue } from "./lines.ts";
import { type OutputHost, type OutputOptions, type Reader, watchOutput } from "./output.ts";

export { ExecError } from "./failure.ts";

export interface ExecHost extends OutputHost {
  /** Aborts when the attempt is stopped: lease lost, cancel, timeout, drain. */
  signal: AbortSignal;
  /** The scratch directory of the attempt, created on first use; the default cwd. */
  scratch(): Promise<string>;
  /** Prefix of STILLWAKE_PROCESS_TAG; each command gets a unique tag below it. */
  processTag: string;
  /** The worker's environment; commands inherit only the variables in INHERITED. */
  env: Readonly<Record<string, string | undefined>>;
  /** Milliseconds from SIGTERM to SIGKILL. */
  graceMs: number;
  /** Called when the command has ended or did not start. */
  onEnd?(): void;
}

export interface ExecOptions extends OutputOptions, FailureOptions {
  /** Relative to the scratch directory, which is the default. */
  cwd?: string;
  /** Added to PATH, LANG, LC_ALL and TZ of the worker; HOME and TMPDIR are the scratch directory unless set here. */
  env?: Readonly<Record<string, string>>;
  /** Default: empty. */
  stdin?: string | Uint8Array | AsyncIterable<string | Uint8Array>;
  /** Exit codes that count as success. Default: [0]. */
  okCodes?: readonly number[];
}

export interface ExecResult {
  code: number;
  /** Complete, or its beginning and end with a line between them that counts what was omitted. */
  stdout: string;
  stderr: string;
  tookMs: number;
  bytesOut: number;
  /** Lines that exceeded the rate limit of the log. */
  linesOmitted: number;
}

/**
 * A promise of the result, and an iterable of the lines of stdout and stderr for one loop. The loop throws the same
 * error as the promise; leaving the loop early stops the command.
 */
export interface Exec extends Promise<ExecResult>, AsyncIterable<string> {}

const INHERITED = ["PATH", "LANG", "LC_ALL", "TZ"];
/** How much output a loop may have unread before the command is paused. */
const MAX_QUEUE_BYTES = 256 * 1024;

let startedCount = 0;

export function exec(host: ExecHost, command: string, args: readonly string[] = [], options: ExecOptions = {}): Exec {
  const reader: Reader = { onRoom: () => {} };
  const loopLeft = new AbortController();
  const runToEnd = async () => {
    try {
      return await run(host, command, args, options, reader, loopLeft.signal);
    } finally {
      host.onEnd?.();
    }
  };
  const result = runToEnd();
  const iterate = () => {
    if (reader.queue) {
      throw new InvalidInput("The lines of this command are already being read", {
        remedy: "Use one loop, or the stdout of the result",
      });
    }
    const queue = lineQueue({ maxSize: MAX_QUEUE_BYTES, onRoom: () => reader.onRoom() });
    reader.queue = queue;
    result.then(queue.end, queue.end);
    return readLines(queue, result, loopLeft);
  };
  return Object.assign(result, { [Symbol.asyncIterator]: iterate });
}

async function* readLines(queue: LineQueue, result: Promise<unknown>, loopLeft: AbortController) {
  try {
    for (let line = await queue.next(); line !== undefined; line = await queue.next()) yield line;
    await result;
  } finally {
    loopLeft.abort();
    await result.catch(() => {});
  }
}

/** Why a command is stopped: a kind of failure, or an error to rethrow unchanged. */
type StopCause = { kind: "timeout" | "silence" | "aborted" } | { thrown: unknown };

async function run(
  host: ExecHost,
  command: string,
  args: readonly string[],
  options: ExecOptions,
  reader: Reader,
  loopLeft: AbortSignal,
): Promise<ExecResult> {
  const { timeoutMs, silenceMs } = checkArguments(command, args, options);
  host.signal.throwIfAborted();
  const scratch = await host.scratch();
  const cwd = await checkDirectory(path.resolve(scratch, options.cwd ?? ""));
  host.signal.throwIfAborted();

  const startedAt = performance.now();
  const processTag = `${host.processTag}${++startedCount}.`;
  const child = spawnCommand(command, args, cwd, buildEnvironment(host, scratch, processTag, options), options);
  const exit: Pick<ExecFailure, "exitCode" | "signal"> = { exitCode: null, signal: null };
  const exited = new Promise<void>((resolve, reject) => {
    child.once("error", (error) => reject(toStartError(command, error, options)));
    child.once("exit", (exitCode, signal) => {
      Object.assign(exit, { exitCode, signal });
      resolve();
    });
  });

  const stopping = new AbortController();
  const stop = (cause: StopCause) => stopping.abort(cause);
  const stopped = new Promise<unknown>((resolve) => stopping.signal.addEventListener("abort", resolve));
  const done = new AbortController();
  const { signal } = done;
  const output = watchOutput(child, host, options, reader, (thrown) => stop({ thrown }));
  let result: ReturnType<typeof output.close>;
  const timer = timeoutMs ? setTimeout(stop, Math.min(timeoutMs, MAX_TIMER_MS), { kind: "timeout" }) : undefined;
  if (silenceMs) output.onSilence(silenceMs, () => stop({ kind: "silence" }));
  host.signal.addEventListener("abort", () => stop({ thrown: host.signal.reason }), { signal });
  loopLeft.addEventListener("abort", () => stop({ kind: "aborted" }), { signal });
  if (options.stdin !== undefined) writeStdin(child, options.stdin, signal).catch((thrown) => stop({ thrown }));
  try {
    await Promise.race([exited, stopped]);
    clearTimeout(timer);
    if (!stopping.signal.aborted) {
      signalGroup(child, "SIGKILL");
      await Promise.race([output.readRest(), stopped]);
    }
    if (stopping.signal.aborted) {
      output.resume();
      signalGroup(child, "SIGTERM");
      await withTimeout(exited, host.graceMs, undefined);
      await killTree(processTag, { roots: child.pid ? [child.pid] : [] });
      await output.readRest();
    }
  } finally {
    clearTimeout(timer);
    done.abort();
    result = output.close();
  }

  const cause = stopping.signal.reason as StopCause | undefined;
  if (cause && "thrown" in cause) throw cause.thrown;
  const { stdout, stderr, bytesOut, linesOmitted } = result;
  const { okCodes = [0] } = options;
  if (cause || exit.exitCode === null || !okCodes.includes(exit.exitCode)) {
    throw toExecError(command, { kind: cause?.kind ?? kindOfExit(exit), ...exit, stdout, stderr }, options);
  }
  return {
    code: exit.exitCode,
    stdout,
    stderr,
    tookMs: Math.round(performance.now() - startedAt),
    bytesOut,
    linesOmitted,
  };
}

function spawnCommand(
  command: string,
  args: readonly string[],
  cwd: string,
  env: Record<string, string>,
  options: ExecOptions,
): ChildProcess {
  const stdin = options.stdin === undefined ? "ignore" : "pipe";
  try {
    return spawn(command, args, { cwd, env, shell: false, detached: true, stdio: [stdin, "pipe", "pipe"] });
  } catch (error) {
    throw toStartError(command, error, options);
  }
}

/** An allow-list: the worker's environment contains secrets. The tag is last: options cannot override it. */
function buildEnvironment(
  host: ExecHost,
  scratch: string,
  processTag: string,
  { env }: ExecOptions,
): Record<string, string> {
  const inherited: Record<string, string> = {};
  for (const name of INHERITED) if (host.env[name] !== undefined) inherited[name] = host.env[name];
  return { ...inherited, HOME: scratch, TMPDIR: scratch, ...env, [PROCESS_TAG]: processTag };
}

/** A command may leave stdin unread; an error of the source is always thrown. */
async function writeStdin(
  child: ChildProcess,
  stdin: NonNullable<ExecOptions["stdin"]>,
  signal: AbortSignal,
): Promise<void> {
  if (!child.stdin) return;
  let sourceFailed = false;
  const source = async function* () {
    try {
      if (typeof stdin === "string" || stdin instanceof Uint8Array) yield stdin;
      else yield* stdin;
    } catch (error) {
      sourceFailed = true;
      throw error;
    }
  };
  try {
    await pipeline(Readable.from(source()), child.stdin, { signal });
  } catch (error) {
    const { code = "" } = error as { code?: string };
    const leftUnread = signal.aborted || ["EPIPE", "ECONNRESET", "ERR_STREAM_PREMATURE_CLOSE"].includes(code);
    if (sourceFailed || !leftUnread) throw error;
  }
}

function signalGroup({ pid }: ChildProcess, name: NodeJS.Signals): void {
  try {
    if (pid) process.kill(-pid, name);
  } catch {
    // The group is empty.
  }
}

async function checkDirectory(cwd: string): Promise<string> {
  const found = await fs.stat(cwd).catch(() => undefined);
  if (found?.isDirectory()) return cwd;
  throw new InvalidInput(`cwd ${cwd} ${found ? "is not a directory" : "does not exist"}`, {
    field: "cwd",
    remedy: "Create it first, or omit cwd to use the scratch directory of the job",
  });
}

const isText = (value: unknown): value is string => typeof value === "string" && !value.includes("\0");
const isFunction = (value: unknown) => typeof value === "function";
const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;
const isWhole = (value: unknown) => Number.isInteger(value) && (value as number) >= 0;

const rules: Record<keyof ExecOptions, [check: (value: unknown) => boolean, rule: string]> = {
  timeout: [(value) => durationMs(value as string, "timeout") > 0, "a positive duration"],
  silence: [(value) => durationMs(value as string, "silence") > 0, "a positive duration"],
  cwd: [isText, "a string without NUL"],
  env: [
    (value) => isObject(value) && Object.entries(value).every(([name, text]) => /^[^=\0]+$/.test(name) && isText(text)),
    "an object of strings without NUL; names must not contain = or NUL",
  ],
  on: [
    (value) => isFunction(value) || (isObject(value) && Object.keys(value).every(isSentenceKey)),
    'a function, or an object whose keys are exit codes, signals, "missing", "timeout", "silence", "oom", "signal" or "exit"',
  ],
  progress: [isFunction, "a function"],
  stdin: [
    (value) =>
      typeof value === "string" || (isObject(value) && (ArrayBuffer.isView(value) || Symbol.asyncIterator in value)),
    "a string, a Uint8Array or an async iterable of these",
  ],
  maxOutput: [isWhole, "a number of bytes"],
  log: [(value) => ["all", "stderr", "none"].includes(value as string), '"all", "stderr" or "none"'],
  level: [
    (value) => ["info", "success", "warning", "error"].includes(value as string),
    '"info", "success", "warning" or "error"',
  ],
  okCodes: [(value) => Array.isArray(value) && value.every(isWhole), "an array of exit codes"],
};

function checkArguments(
  command: unknown,
  args: unknown,
  options: ExecOptions,
): { timeoutMs: number; silenceMs: number } {
  if (!isText(command) || command === "") reject("command", "a string without NUL");
  if (!Array.isArray(args)) reject("args", "an array of strings");
  const invalid = args.findIndex((arg) => !isText(arg));
  if (invalid >= 0) reject(`args[${invalid}]`, "a string without NUL");
  if (!isObject(options)) reject("options", "an object");
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(rules, name)) {
      throw new InvalidInput(`Unknown option "${name}"`, {
        field: name,
        remedy: `Known options: ${Object.keys(rules).join(", ")}`,
      });
    }
    const [check, rule] = rules[name as keyof ExecOptions];
    if (value !== undefined && !check(value)) reject(name, rule);
  }
  const { timeout, silence } = options;
  return {
    timeoutMs: timeout === undefined ? 0 : durationMs(timeout, "timeout"),
    silenceMs: silence === undefined ? 0 : durationMs(silence, "silence"),
  };
}

/** Does not show the value: arguments and variables may contain secrets. */
function reject(field: string, rule: string): never {
  throw new InvalidInput(`${field} must be ${rule}`, { field, remedy: "Convert the value, or omit it" });
}
