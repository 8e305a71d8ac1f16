// What a running command writes: into the job's log, thinned when it is too much; into the progress; to the loop that reads its lines, at
// that loop's pace; and its beginning and end for the result. Here is known how long it has been quiet. Called by exec.ts.
import type { ChildProcess } from "node:child_process";
import { counted, type LineQueue, lineRate, lineSplitter, outputKeeper } from "./lines.ts";

type Level = "info" | "success" | "warning" | "error";
type ExecProgress = { fraction?: number; done?: number; total?: number; sentence?: string };

export interface OutputHost {
  log(line: { level: Level; message: string; data?: Record<string, unknown> }): void;
  progress(value: ExecProgress): void;
  /** Evidence that the work lives. */
  alive(): void;
}

export interface OutputOptions {
  /** Reads progress from a line; undefined for other lines. A line it understands is not logged. */
  progress?: (line: string) => ExecProgress | undefined;
  /** Bytes of stdout, and of stderr, kept for the result: half from the beginning, half from the end. 1 MB unless said. */
  maxOutput?: number;
  /** Whose lines go to the job's log; "all" unless said. */
  log?: "all" | "stderr" | "none";
  /** Of the lines in the log; "info" unless said. */
  level?: Level;
}

/** The loop's side of a command. */
export interface Reader {
  queue?: LineQueue;
  /** Set here, called by the queue. */
  onRoom(): void;
}

export interface Output {
  /** Calls `act` once when nothing has been written for so long. The time a loop makes the command wait does not count. */
  whenQuiet(ms: number, act: () => void): void;
  /** From now on the command waits for no loop: it is being ended, and lines that find the queue full are dropped. */
  flow(): void;
  /** After the exit: resolves when all has been read that the command has written. */
  rest(): Promise<void>;
  close(): { stdout: string; stderr: string; bytesOut: number; linesLeftOut: number };
}

/** The log keeps 16 KB of a line, and the words "… (123 bytes left out)" must be within. */
const LINE_BYTES = 16 * 1024 - 64;
const LOG_RATE = { perSecond: 200, burst: 1000, bytesPerSecond: 1024 * 1024 };
const SAY_LEFT_OUT_MS = 1000;
/** After the exit only a daemon can hold the pipes open. What the command wrote is in them by then, and no pipe holds more than this. */
const LINGER_MS = 250;
const LINGER_BYTES = 1024 * 1024;
/** The longest a timer can wait, 24 days. */
export const MAX_MS = 2 ** 31 - 1;

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
  const quiet = quietWatch();
  let now = 0;
  let bytesOut = 0;
  let paused = false;
  let flowing = false;

  let leftOut = 0;
  let linesLeftOut = 0;
  let saying: NodeJS.Timeout | undefined;
  const sayLeftOut = () => {
    saying = undefined;
    if (leftOut > 0) host.log({ level: "info", message: `… ${counted(leftOut, "line")} left out` });
    leftOut = 0;
  };
  const leaveOut = (lines: number) => {
    leftOut += lines;
    linesLeftOut += lines;
    saying ??= setTimeout(sayLeftOut, SAY_LEFT_OUT_MS);
  };

  const setPaused = (value: boolean) => {
    if (paused === value) return;
    paused = value;
    for (const stream of streams) value ? stream?.pause() : stream?.resume();
    if (value) quiet.hold();
    else quiet.go();
  };
  reader.onRoom = () => setPaused(false);

  const watch = (stream: ChildProcess["stdout"], logged: boolean) => {
    // Each stream has a rate of its own, so that a flood on stdout does not hide the reason on stderr.
    const rate = lineRate(LOG_RATE);
    const keeper = outputKeeper({ headBytes: Math.ceil(maxOutput / 2), tailBytes: Math.floor(maxOutput / 2) });
    const splitter = lineSplitter({
      maxLine: LINE_BYTES,
      wanted: () => reader.queue !== undefined || progress !== undefined || (logged && rate.ready(now)),
      onBytes: (bytes) => (bytesOut += bytes),
      onSkipped: (lines) => logged && leaveOut(lines),
      onLine(text) {
        const { queue } = reader;
        if (queue && !(flowing && queue.full())) queue.push(text);
        if (queue?.full() && !flowing) setPaused(true);
        const understood = progress?.(text);
        if (understood) host.progress(understood);
        else if (!logged || text.trim() === "") return;
        else if (rate.take(Buffer.byteLength(text), now)) host.log({ level, message: text });
        else leaveOut(1);
      },
    });
    // A throw of the caller's own functions must not come out of a stream, where nobody could catch it.
    const guarded = (act: () => void) => {
      try {
        act();
      } catch (error) {
        onThrown(error);
      }
    };
    stream?.on("data", (chunk: Buffer) => {
      now = performance.now();
      quiet.heard();
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
    whenQuiet: quiet.start,
    flow() {
      flowing = true;
      setPaused(false);
    },
    rest() {
      const before = bytesOut;
      const lingered = new Promise<void>((resolve) => {
        quiet.start(LINGER_MS, resolve);
        for (const stream of streams) stream?.on("data", () => bytesOut - before > LINGER_BYTES && resolve());
      });
      return Promise.race([closed, lingered]);
    },
    close() {
      quiet.stop();
      for (const stream of streams) stream?.destroy();
      stdout.end();
      stderr.end();
      clearTimeout(saying);
      sayLeftOut();
      return { stdout: stdout.text(), stderr: stderr.text(), bytesOut, linesLeftOut };
    },
  };
}

/** One timer for "nothing was heard for so long". */
function quietWatch() {
  let current: { ms: number; act: () => void } | undefined;
  let timer: NodeJS.Timeout | undefined;
  let held = false;
  let heard = 0;
  const arm = () => {
    clearTimeout(timer);
    if (current && !held) timer = setTimeout(check, Math.min(current.ms, MAX_MS));
  };
  // When this process was busy for longer than the limit, the timer comes first although there is something to read: it is read before
  // the immediate runs.
  const check = () => {
    const before = heard;
    const asked = current;
    setImmediate(() => {
      if (current !== asked || held) return;
      if (heard !== before) return arm();
      current = undefined;
      asked?.act();
    });
  };
  return {
    start(ms: number, act: () => void) {
      current = { ms, act };
      arm();
    },
    heard() {
      heard++;
      timer?.refresh();
    },
    hold() {
      held = true;
      clearTimeout(timer);
    },
    go() {
      held = false;
      arm();
    },
    stop() {
      current = undefined;
      clearTimeout(timer);
    },
  };
}
