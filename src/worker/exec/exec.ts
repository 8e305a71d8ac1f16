// `job.exec`: one command, without a shell, in a session of its own. Its lines go to the job's log and to a loop that reads them, its failure
// becomes a sentence for people, and nothing it has started outlives an abort. The attempt provides the host.
//
//   running ── exits ────────────────────────────▶ group killed ─▶ rest of the output read ─▶ settled
//      └── abort, timeout, silence, loop left ─▶ SIGTERM ── exits, or grace is over ─▶ tree killed ─┘
import { type ChildProcess, spawn } from "node:child_process";
import fs from "node:fs/promises";
import path from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as delay } from "node:timers/promises";
import { InvalidInput } from "../../errors.ts";
import { durationMs } from "../../time.ts";
import { GUARD, killTree } from "../runner/process-tree.ts";
import { type ExecFailure, type FailureOptions, failed, isSentenceKey, kindOfExit, unstartable } from "./failure.ts";
import { type LineQueue, lineQueue } from "./lines.ts";
import { MAX_MS, type OutputHost, type OutputOptions, type Reader, watchOutput } from "./output.ts";

export { ExecError } from "./failure.ts";

export interface ExecHost extends OutputHost {
  /** Aborts when the attempt ends early: lease lost, cancel, timeout, drain. */
  signal: AbortSignal;
  /** The job's scratch directory, made on first use; the default cwd. */
  scratch(): Promise<string>;
  /** The mark for STILLWAKE_GUARD; each command gets one of its own below it. */
  mark: string;
  /** The environment that commands are given a part of, never the whole. */
  env: Readonly<Record<string, string | undefined>>;
  /** SIGTERM to SIGKILL, ms. */
  graceMs: number;
}

export interface ExecOptions extends OutputOptions, FailureOptions {
  /** Seen from the scratch directory, which is the default. */
  cwd?: string;
  /** Added to PATH, LANG, LC_ALL and TZ of the worker and to HOME and TMPDIR, which are the scratch directory. */
  env?: Readonly<Record<string, string>>;
  /** Without it, the command finds an empty stdin. */
  stdin?: string | Uint8Array | AsyncIterable<string | Uint8Array>;
  /** Exit codes that are success; 0 unless said. */
  okCodes?: readonly number[];
}

export interface ExecResult {
  code: number;
  /** Whole, or its beginning and end with a line between them that says what was left out. */
  stdout: string;
  stderr: string;
  tookMs: number;
  bytesOut: number;
  /** Lines that were too many for the log. */
  linesLeftOut: number;
}

/**
 * A promise of the result, and the lines of stdout and stderr for one loop that starts at once. The loop ends by throwing what the promise
 * rejects with; leaving it early ends the command.
 */
export interface Exec extends Promise<ExecResult>, AsyncIterable<string> {}

const INHERITED = ["PATH", "LANG", "LC_ALL", "TZ"];
/** How far a loop may be behind before the command has to wait for it. */
const QUEUE_BYTES = 256 * 1024;

let started = 0;

export function exec(host: ExecHost, command: string, args: readonly string[] = [], options: ExecOptions = {}): Exec {
  const reader: Reader = { onRoom: () => {} };
  const left = new AbortController();
  const outcome = run(host, command, args, options, reader, left.signal);
  const iterate = () => {
    if (reader.queue) {
      throw new InvalidInput("The lines of this command are being read already", {
        remedy: "Use one loop, or the stdout of the result",
      });
    }
    const queue = lineQueue({ most: QUEUE_BYTES, onRoom: () => reader.onRoom() });
    reader.queue = queue;
    outcome.then(queue.end, queue.end);
    return linesOf(queue, outcome, left);
  };
  return Object.assign(outcome, { [Symbol.asyncIterator]: iterate });
}

async function* linesOf(queue: LineQueue, outcome: Promise<unknown>, left: AbortController) {
  try {
    for (let line = await queue.next(); line !== undefined; line = await queue.next()) yield line;
    await outcome;
  } finally {
    left.abort();
    await outcome.catch(() => {});
  }
}

/** Why a command is being ended: a kind of failure, or what is to be thrown as it is. */
type Cause = { kind: "timeout" | "silence" | "aborted" } | { thrown: unknown };

async function run(
  host: ExecHost,
  command: string,
  args: readonly string[],
  options: ExecOptions,
  reader: Reader,
  left: AbortSignal,
): Promise<ExecResult> {
  const { timeoutMs, silenceMs } = judge(command, args, options);
  host.signal.throwIfAborted();
  const scratch = await host.scratch();
  const cwd = await directory(path.resolve(scratch, options.cwd ?? ""));
  host.signal.throwIfAborted();

  const began = performance.now();
  const mark = `${host.mark}${++started}.`;
  const child = start(command, args, cwd, environment(host, scratch, mark, options), options);
  const exit: Pick<ExecFailure, "exitCode" | "signal"> = { exitCode: null, signal: null };
  const exited = new Promise<void>((resolve, reject) => {
    child.once("error", (error) => reject(unstartable(command, error, options)));
    child.once("exit", (exitCode, signal) => {
      Object.assign(exit, { exitCode, signal });
      resolve();
    });
  });

  const stopping = new AbortController();
  const stop = (cause: Cause) => stopping.abort(cause);
  const stopped = new Promise<unknown>((resolve) => stopping.signal.addEventListener("abort", resolve));
  const done = new AbortController();
  const { signal } = done;
  const output = watchOutput(child, host, options, reader, (thrown) => stop({ thrown }));
  let result: ReturnType<typeof output.close>;
  const timer = timeoutMs ? setTimeout(stop, Math.min(timeoutMs, MAX_MS), { kind: "timeout" }) : undefined;
  if (silenceMs) output.whenQuiet(silenceMs, () => stop({ kind: "silence" }));
  host.signal.addEventListener("abort", () => stop({ thrown: host.signal.reason }), { signal });
  left.addEventListener("abort", () => stop({ kind: "aborted" }), { signal });
  if (options.stdin !== undefined) feed(child, options.stdin, signal).catch((thrown) => stop({ thrown }));
  try {
    await Promise.race([exited, stopped]);
    clearTimeout(timer);
    if (!stopping.signal.aborted) {
      signalGroup(child, "SIGKILL");
      await Promise.race([output.rest(), stopped]);
    }
    if (stopping.signal.aborted) {
      output.flow();
      signalGroup(child, "SIGTERM");
      await Promise.race([exited, delay(host.graceMs, undefined, { signal })]);
      await killTree(mark, { roots: child.pid ? [child.pid] : [] });
      await output.rest();
    }
  } finally {
    clearTimeout(timer);
    done.abort();
    result = output.close();
  }

  const cause = stopping.signal.reason as Cause | undefined;
  if (cause && "thrown" in cause) throw cause.thrown;
  const { stdout, stderr, bytesOut, linesLeftOut } = result;
  const { okCodes = [0] } = options;
  if (cause || exit.exitCode === null || !okCodes.includes(exit.exitCode)) {
    throw failed(command, { kind: cause?.kind ?? kindOfExit(exit), ...exit, stdout, stderr }, options);
  }
  return {
    code: exit.exitCode,
    stdout,
    stderr,
    tookMs: Math.round(performance.now() - began),
    bytesOut,
    linesLeftOut,
  };
}

function start(
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
    throw unstartable(command, error, options);
  }
}

/** An allow-list: what the worker knows, such as the database's URL, is none of a command's business. The mark comes last. */
function environment(host: ExecHost, scratch: string, mark: string, { env }: ExecOptions): Record<string, string> {
  const inherited: Record<string, string> = {};
  for (const name of INHERITED) if (host.env[name] !== undefined) inherited[name] = host.env[name];
  return { ...inherited, HOME: scratch, TMPDIR: scratch, ...env, [GUARD]: mark };
}

/** A command that reads only a part of its stdin is no error; a source that fails half-way is, whatever its code. */
async function feed(child: ChildProcess, stdin: NonNullable<ExecOptions["stdin"]>, signal: AbortSignal): Promise<void> {
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
    const unread = signal.aborted || ["EPIPE", "ECONNRESET", "ERR_STREAM_PREMATURE_CLOSE"].includes(code);
    if (sourceFailed || !unread) throw error;
  }
}

function signalGroup({ pid }: ChildProcess, name: NodeJS.Signals): void {
  try {
    if (pid) process.kill(-pid, name);
  } catch {
    // Nobody is left in it.
  }
}

async function directory(cwd: string): Promise<string> {
  const found = await fs.stat(cwd).catch(() => undefined);
  if (found?.isDirectory()) return cwd;
  throw new InvalidInput(`cwd ${cwd} ${found ? "is not a directory" : "does not exist"}`, {
    field: "cwd",
    remedy: "Make it first, or leave cwd out to use the scratch directory of the job",
  });
}

const isText = (value: unknown): value is string => typeof value === "string" && !value.includes("\0");
const isFunction = (value: unknown) => typeof value === "function";
const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;
const isWhole = (value: unknown) => Number.isInteger(value) && (value as number) >= 0;

const rules: Record<keyof ExecOptions, [check: (value: unknown) => boolean, rule: string]> = {
  timeout: [(value) => durationMs(value as string, "timeout") > 0, "longer than nothing"],
  silence: [(value) => durationMs(value as string, "silence") > 0, "longer than nothing"],
  cwd: [isText, "a text without NUL"],
  env: [
    (value) => isObject(value) && Object.entries(value).every(([name, text]) => /^[^=\0]+$/.test(name) && isText(text)),
    "an object of texts without NUL, by names without = and NUL",
  ],
  on: [
    (value) => isFunction(value) || (isObject(value) && Object.keys(value).every(isSentenceKey)),
    'a function, or an object by exit codes, signals, "missing", "timeout", "silence", "oom", "signal" and "exit"',
  ],
  progress: [isFunction, "a function"],
  stdin: [
    (value) =>
      typeof value === "string" || (isObject(value) && (ArrayBuffer.isView(value) || Symbol.asyncIterator in value)),
    "a text, a Uint8Array or an async iterable of these",
  ],
  maxOutput: [isWhole, "a number of bytes"],
  log: [(value) => ["all", "stderr", "none"].includes(value as string), '"all", "stderr" or "none"'],
  level: [(value) => ["info", "success", "warning", "error"].includes(value as string), "a level of the log"],
  okCodes: [(value) => Array.isArray(value) && value.every(isWhole), "a list of exit codes"],
};

function judge(command: unknown, args: unknown, options: ExecOptions): { timeoutMs: number; silenceMs: number } {
  if (!isText(command) || command === "") refuse("command", "a text without NUL");
  if (!Array.isArray(args)) refuse("args", "a list of texts");
  const wrong = args.findIndex((arg) => !isText(arg));
  if (wrong >= 0) refuse(`args[${wrong}]`, "a text without NUL");
  if (!isObject(options)) refuse("options", "an object");
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(rules, name)) {
      throw new InvalidInput(`Unknown option "${name}"`, {
        field: name,
        remedy: `Known options: ${Object.keys(rules).join(", ")}`,
      });
    }
    const [check, rule] = rules[name as keyof ExecOptions];
    if (value !== undefined && !check(value)) refuse(name, rule);
  }
  const { timeout, silence } = options;
  return {
    timeoutMs: timeout === undefined ? 0 : durationMs(timeout, "timeout"),
    silenceMs: silence === undefined ? 0 : durationMs(silence, "silence"),
  };
}

/** The value is not shown: arguments and variables may hold secrets. */
function refuse(field: string, rule: string): never {
  throw new InvalidInput(`${field} must be ${rule}`, { field, remedy: "Convert the value, or leave it out" });
}
