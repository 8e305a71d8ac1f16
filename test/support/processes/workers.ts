// Starts `stillwake worker` of the built package as a real process and reads its log, so that a test can wait for lines.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { onTestFinished } from "vitest";
import { waitFor } from "../../../src/testing/index.ts";
import { ROOT } from "./build.ts";

interface WorkerLine {
  level: number;
  event?: string;
  msg?: string;
  job?: string;
  [field: string]: unknown;
}

export interface WorkerProcess {
  pid: number;
  child: ChildProcess;
  lines: WorkerLine[];
  stderr(): string;
  /** Waits for a log line with this event, or that matches the function. */
  waitForLine(
    matches: string | ((line: WorkerLine) => boolean),
    options?: { from?: number; timeout?: number },
  ): Promise<WorkerLine>;
  /** Resolves with the exit code or the name of the signal. */
  exited: Promise<number | string>;
  signal(signal: NodeJS.Signals): void;
  /** The pids of its runners. */
  runners(): number[];
  scratch: string;
}

export interface StartWorkerOptions {
  url: string;
  pipelines?: string;
  args?: string[];
  env?: Record<string, string>;
  /** Runs it through another program, such as ["prlimit", "--as=…"]. */
  wrapper?: string[];
  /** Do not wait until it has started. */
  skipWait?: boolean;
}

const SCRIPT = path.join(ROOT, "test/fixtures/pipelines/script.mjs");

export async function startWorker(options: StartWorkerOptions): Promise<WorkerProcess> {
  const { url, pipelines = SCRIPT, args = [], env = {}, wrapper: through = [] } = options;
  const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-worker-"));
  const { PATH = "", HOME = "" } = process.env;
  const command = [
    ...through,
    process.execPath,
    path.join(ROOT, "dist/cli/index.js"),
    "worker",
    "--pipelines",
    pipelines,
    "--log-level",
    "debug",
    "--scratch",
    scratch,
    "--store",
    `file:${scratch}/artifacts`,
    ...args,
  ];
  const child = spawn(command[0]!, command.slice(1), {
    env: { PATH, HOME, STILLWAKE_DATABASE_URL: url, ...env },
    cwd: scratch,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const lines: WorkerLine[] = [];
  let rest = "";
  let stderr = "";
  child.stdout!.on("data", (data) => {
    const parts = `${rest}${data}`.split("\n");
    rest = parts.pop()!;
    for (const part of parts) if (part.startsWith("{")) lines.push(JSON.parse(part));
  });
  child.stderr!.on("data", (data) => (stderr += data));
  const ended = once(child, "exit").then(([code, signal]) => (signal ?? code) as number | string);
  const worker: WorkerProcess = {
    pid: child.pid!,
    child,
    lines,
    stderr: () => stderr,
    waitForLine: (matches, { from = 0, timeout = 20_000 } = {}) => {
      const test = typeof matches === "string" ? (line: WorkerLine) => line.event === matches : matches;
      return waitFor(
        () => {
          const found = lines.slice(from).find(test);
          if (!found && child.exitCode !== null)
            throw new Error(`The worker has exited (${child.exitCode}): ${stderr.slice(-2000)}`);
          return found;
        },
        { timeout, what: `the worker's log line ${matches}` },
      );
    },
    exited: ended,
    signal: (signal) => void child.kill(signal),
    runners: () => childrenOf(child.pid!),
    scratch,
  };
  onTestFinished(async () => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill("SIGCONT");
      child.kill("SIGKILL");
      await ended;
    }
    fs.rmSync(scratch, { recursive: true, force: true });
  });
  if (!options.skipWait) await worker.waitForLine("worker.started");
  return worker;
}

/** Runners are the only children of a worker that run Node. */
function childrenOf(pid: number): number[] {
  const ids = fs.readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
  return ids
    .split(" ")
    .filter(Boolean)
    .map(Number)
    .filter((id) => {
      try {
        return fs.readFileSync(`/proc/${id}/cmdline`, "utf8").includes("runner.js");
      } catch {
        return false;
      }
    });
}
