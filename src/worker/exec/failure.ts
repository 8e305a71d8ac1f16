// Converts the failure of a command into an error with a sentence for people: one of the caller's, or a default. Called by exec.ts.
import os from "node:os";
import path from "node:path";
import { stripVTControlCharacters } from "node:util";
import { InvalidInput, StillwakeError, type StillwakeErrorOptions } from "../../errors.ts";
import type { Duration } from "../../time.ts";
import { withoutNul } from "./lines.ts";

export type ExecKind = "missing" | "timeout" | "silence" | "oom" | "signal" | "exit" | "aborted";

export interface ExecFailure {
  kind: ExecKind;
  exitCode: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

/** A sentence for people. `fatal` decides whether a retry is useless; by default the kind of failure does. */
type ExecSentence = string | { message: string; code?: string; fatal?: boolean };
type ExecExplain = (failure: ExecFailure) => ExecSentence | undefined;

export interface FailureOptions {
  /** Maximum duration of the command. */
  timeout?: Duration;
  /** Maximum time without output. */
  silence?: Duration;
  /** Sentences by exit code, by signal, or by "missing", "timeout", "silence", "oom", "signal" and "exit". */
  on?: ExecExplain | Readonly<Record<string, ExecSentence | ExecExplain>>;
}

/** A command failed. `stdout` and `stderr` are not enumerable: they may be too long to print with the error. */
export class ExecError extends StillwakeError implements ExecFailure {
  readonly kind: ExecKind;
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  declare readonly stdout: string;
  declare readonly stderr: string;

  constructor(code: string, message: string, failure: ExecFailure, options?: StillwakeErrorOptions) {
    super(code, message, options);
    this.kind = failure.kind;
    this.exitCode = failure.exitCode;
    this.signal = failure.signal;
    Object.defineProperty(this, "stdout", { value: failure.stdout });
    Object.defineProperty(this, "stderr", { value: failure.stderr });
  }
}

const kinds = ["missing", "timeout", "silence", "oom", "signal", "exit"];

export function isSentenceKey(key: string): boolean {
  return /^\d{1,3}$/.test(key) || key in os.constants.signals || kinds.includes(key);
}

/** A SIGKILL that we did not send usually means out of memory; shells and containers report 137. */
export function kindOfExit({ exitCode, signal }: Pick<ExecFailure, "exitCode" | "signal">): ExecKind {
  if (signal === "SIGKILL" || exitCode === 137) return "oom";
  return signal ? "signal" : "exit";
}

export function toExecError(command: string, failure: ExecFailure, options: FailureOptions): ExecError {
  const sentence = findSentence(failure, options.on);
  const { code, message, remedy, retryable = true } = describeFailure(path.basename(command), failure, options);
  if (sentence === undefined) return new ExecError(code, message, failure, { retryable, ...(remedy && { remedy }) });
  const custom = typeof sentence === "string" ? { message: sentence } : sentence;
  return new ExecError(custom.code ?? code, custom.message, failure, {
    retryable: custom.fatal === undefined ? retryable : !custom.fatal,
  });
}

/** The error of a command that could not be started. */
export function toStartError(command: string, error: unknown, options: FailureOptions): StillwakeError {
  const { code, message } = error as NodeJS.ErrnoException;
  const none = { exitCode: null, signal: null, stdout: "", stderr: "" };
  if (code === "ENOENT") return toExecError(command, { kind: "missing", ...none }, options);
  if (code === "EACCES") {
    return new ExecError(
      "EXEC_NOT_FOUND",
      `${command} is not executable by this user`,
      { kind: "missing", ...none },
      {
        remedy: "Make it executable, or run it with its interpreter",
        cause: error,
      },
    );
  }
  if (code === "E2BIG") {
    return new InvalidInput(`The arguments and the environment of ${command} are too long for the system`, {
      field: "args",
      remedy: "Pass them through stdin or a file",
      cause: error,
    });
  }
  return new ExecError(
    "EXEC_FAILED",
    `${command} could not be started: ${message}`,
    { kind: "exit", ...none },
    {
      retryable: true,
      cause: error,
    },
  );
}

function findSentence(failure: ExecFailure, on: FailureOptions["on"]): ExecSentence | undefined {
  if (on === undefined || failure.kind === "aborted") return undefined;
  if (typeof on === "function") return on(failure);
  const { kind, exitCode, signal } = failure;
  // A signal also matches its shell exit code, so that 137 covers both ways to run out of memory.
  const hasExited = kind === "oom" || kind === "signal" || kind === "exit";
  const exitKeys = [exitCode, signal, signal && 128 + os.constants.signals[signal]];
  for (const key of [...(hasExited ? exitKeys : []), kind]) {
    const entry = key !== null && Object.hasOwn(on, key) ? on[key] : undefined;
    if (entry !== undefined) return typeof entry === "function" ? entry(failure) : entry;
  }
  return undefined;
}

interface FailureText {
  code: string;
  message: string;
  remedy?: string;
  retryable?: boolean;
}

function describeFailure(
  name: string,
  { kind, exitCode, signal, stderr }: ExecFailure,
  options: FailureOptions,
): FailureText {
  switch (kind) {
    case "missing":
      return {
        code: "EXEC_NOT_FOUND",
        message: `${name} is not installed: not found on PATH`,
        remedy: "Install it where the worker runs, or pass its full path",
        retryable: false,
      };
    case "timeout":
      return {
        code: "EXEC_TIMEOUT",
        message: `${name} did not finish within ${options.timeout} and was stopped`,
        remedy: "Raise its timeout, or reduce its work",
      };
    case "silence":
      return {
        code: "EXEC_SILENT",
        message: `${name} wrote nothing for ${options.silence} and was stopped`,
        remedy: "Raise its silence if it works without output",
      };
    case "oom":
      return {
        code: "EXEC_OOM",
        message: `${name} was killed (${signal ?? `exit code ${exitCode}`}), most likely because memory ran out`,
        remedy: "Use a machine with more memory, or reduce the work of the command",
      };
    case "signal":
      return { code: "EXEC_SIGNAL", message: `${name} was terminated by ${signal}` };
    case "aborted":
      return { code: "EXEC_ABORTED", message: `${name} was stopped because the loop over its lines was left` };
    case "exit": {
      const line = firstLine(stderr);
      return { code: "EXEC_FAILED", message: `${name} failed with exit code ${exitCode}${line && `: ${line}`}` };
    }
  }
}

/** The first non-empty line, without color codes, at most 300 characters. */
function firstLine(text: string): string {
  const line = /\S[^\r\n]*/.exec(stripVTControlCharacters(text.slice(0, 64 * 1024)))?.[0].trimEnd() ?? "";
  const characters = [...withoutNul(line.slice(0, 1000))];
  return characters.length > 300 ? `${characters.slice(0, 299).join("")}…` : characters.join("");
}
