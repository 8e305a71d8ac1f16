// Distributes the output of a running command: to the job's log at a limited rate, to its progress, to the loop that
// reads its lines, and into the result. Detects silence. Called by exec.ts.
import type { ChildProcess } from "node:child_process";
import { MAX_TIMER_MS } from "../../timeout.ts";
import { counted, type LineQueue, lineRate, lineSplitter, outputKeeper } from "./lines.ts";

type Level = "info" | "success" | "warning" | "error";
type ExecProgress = { fraction?: number; done?: number; total?: number; sentence?: string };

export interface OutputHost {
  log(line: { level: Level; message: string; data?: Record<string, unknown> }): void;
  progress(value: ExecProgress): void;
  /** Reports that the command is active. */
  alive(): void;
}

export interface OutputOptions {
  /** Parses progress from a line; undefined for other lines. A parsed line is not logged. */
  progress?: (line: string) => ExecProgress | undefined;
  /** Bytes of stdout, and of stderr, kept for the result: half from the beginning, half from the end. Default: 1 MB. */
  maxOutput?: number;
  /** Which lines go to the job's log. Default: "all". */
  log?: "all" | "stderr" | "none";
  /** Level of the log lines. Default: "info". */
  level?: Level;
}

/** The loop that reads the lines, if there is one. */
export interface Reader {
  queue?: LineQueue;
  /** Set by watchOutput(), called by the queue. */
  onRoom(): void;
}

export interface Output {
  /** Calls `act` once after `ms` without output. Time in which a slow loop pauses the command does not count. */
  onSilence(ms: number, act: () => void): void;
  /** Stops pausing for a slow loop, because the command is stopped: a full queue drops lines. */
  resume(): void;
  /** After the exit: resolves when all output of the command has been read. */
  readRest(): Promise<void>;
  close(): { stdout: string; stderr: string; bytesOut: number; linesOmitted: number };
}

/** The log stores 16 KB of a line, including the suffix "… (123 bytes omitted)". */
const MAX_LINE_BYTES = 16 * 1024 - 64;
const LOG_RATE = { perSecond: 200, burst: 1000, bytesPerSecond: 1024 * 1024 };
const REPORT_OMITTED_MS = 1000;
/** After the exit only a daemon can hold the pipes open. A pipe holds at most this much unread output. */
const LINGER_MS = 250;
const LINGER_BYTES = 1024 * 1024;

export function watchOutput(
  child: ChildProcess,
  host: OutputHost,
  options: OutputOptions,
  reader: Reader,
  onThrown: (error: unknown) => void,
): Output {
  const { progress, maxOutput = 1024 * 1024, log = "all", level = "info" } = options;
  const streams = [child.stdout, child.stderr];
  const closed = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const silence = silenceWatch();
  let now = 0;
  let bytesOut = 0;
  let paused = false;
  let neverPause = false;

  let omitted = 0;
  let linesOmitted = 0;
  let reportTimer: NodeJS.Timeout | undefined;
  const reportOmitted = () => {
    reportTimer = undefined;
    if (omitted > 0) host.log({ level: "info", message: `… ${counted(omitted, "line")} omitted` });
    omitted = 0;
  };
  const leaveOut = (lines: number) => {
    omitted += lines;
    linesOmitted += lines;
    reportTimer ??= setTimeout(reportOmitted, REPORT_OMITTED_MS);
  };

  const setPaused = (value: boolean) => {
    if (paused === value) return;
    paused = value;
    for (const stream of streams) value ? stream?.pause() : stream?.resume();
    if (value) silence.pause();
    else silence.resume();
  };
  reader.onRoom = () => setPaused(false);

  const watch = (stream: ChildProcess["stdout"], logged: boolean) => {
    // A separate rate per stream, so that a flood on stdout does not hide the error on stderr.
    const rate = lineRate(LOG_RATE);
    const keeper = outputKeeper({ headBytes: Math.ceil(maxOutput / 2), tailBytes: Math.floor(maxOutput / 2) });
    const splitter = lineSplitter({
      maxLine: MAX_LINE_BYTES,
      wanted: () => reader.queue !== undefined || progress !== undefined || (logged && rate.ready(now)),
      onBytes: (bytes) => (bytesOut += bytes),
      onSkipped: (lines) => logged && leaveOut(lines),
      onLine(text) {
        const { queue } = reader;
        if (queue && !(neverPause && queue.full())) queue.push(text);
        if (queue?.full() && !neverPause) setPaused(true);
        const parsed = progress?.(text);
        if (parsed) host.progress(parsed);
        else if (!logged || text.trim() === "") return;
        else if (rate.take(Buffer.byteLength(text), now)) host.log({ level, message: text });
        else leaveOut(1);
      },
    });
    // An error thrown by the caller's functions inside a stream event could not be caught.
    const guarded = (act: () => void) => {
      try {
        act();
      } catch (error) {
        onThrown(error);
      }
    };
    stream?.on("data", (chunk: Buffer) => {
      now = performance.now();
      silence.recordOutput();
      guarded(() => {
        host.alive();
        keeper.write(chunk);
        splitter.write(chunk);
      });
    });
    stream?.on("error", () => {});
    return { text: keeper.text, end: () => guarded(splitter.end) };
  };
  const stdout = watch(child.stdout, log === "all");
  const stderr = watch(child.stderr, log !== "none");

  return {
    onSilence: silence.start,
    resume() {
      neverPause = true;
      setPaused(false);
    },
    readRest() {
      const before = bytesOut;
      const lingered = new Promise<void>((resolve) => {
        silence.start(LINGER_MS, resolve);
        for (const stream of streams) stream?.on("data", () => bytesOut - before > LINGER_BYTES && resolve());
      });
      return Promise.race([closed, lingered]);
    },
    close() {
      silence.stop();
      for (const stream of streams) stream?.destroy();
      stdout.end();
      stderr.end();
      clearTimeout(reportTimer);
      reportOmitted();
      return { stdout: stdout.text(), stderr: stderr.text(), bytesOut, linesOmitted };
    },
  };
}

/** One timer that fires after a time without output. */
function silenceWatch() {
  let current: { ms: number; act: () => void } | undefined;
  let timer: NodeJS.Timeout | undefined;
  let paused = false;
  let outputs = 0;
  const arm = () => {
    clearTimeout(timer);
    if (current && !paused) timer = setTimeout(check, Math.min(current.ms, MAX_TIMER_MS));
  };
  // If this process was busy for longer than the limit, the timer fires although unread output exists. That output is
  // read before the immediate runs.
  const check = () => {
    const outputsBefore = outputs;
    const expired = current;
    setImmediate(() => {
      if (current !== expired || paused) return;
      if (outputs !== outputsBefore) return arm();
      current = undefined;
      expired?.act();
    });
  };
  return {
    start(ms: number, act: () => void) {
      current = { ms, act };
      arm();
    },
    recordOutput() {
      outputs++;
      timer?.refresh();
    },
    pause() {
      paused = true;
      clearTimeout(timer);
    },
    resume() {
      paused = false;
      arm();
    },
    stop() {
      current = undefined;
      clearTimeout(timer);
    },
  };
}
