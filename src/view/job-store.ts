// The client-side state of one job: status, steps, progress and lines. A stream (stream.ts) fills it; views and React
// read it. Subscribers are called at most once per animation frame; the stream is open while there is a subscriber.
import { formatCount } from "../text/format.ts";
import { ProgressMeter } from "../text/progress-rate.ts";
import { onNextFrame } from "./page-visibility.ts";
import { formatEvent, formatOutcome } from "./sentences.ts";
import { emptySnapshot, type Line, NO_LINES, type Snapshot } from "./snapshot.ts";
import { StepList } from "./steps.ts";
import { type Connection, JobStream, type StreamOptions, type TokenSource } from "./stream.ts";
import type { EndEvent, FeedEvent, GapEvent, Level, LogEvent, StateEvent, StreamEvent } from "./wire.ts";

export interface JobStoreOptions extends Pick<StreamOptions, "id" | "server" | "token" | "fetch" | "timing"> {}

/** The connection outlives the last subscriber by this time: frameworks mount twice, and users switch between views. */
const LINGER_MS = 1000;
/** Rendering may take a quarter of the time: after a render of 10 ms the next one is at least 30 ms away. */
const REST_FACTOR = 3;
const MAX_REST_MS = 250;

export class JobStore {
  readonly id: string;
  readonly server: string;
  readonly token: TokenSource | undefined;
  readonly #stream: JobStream;
  readonly #subscribers = new Set<() => void>();
  readonly #progress = new ProgressMeter();
  readonly #steps = new StepList();
  #snapshot: Snapshot;
  #connection: Connection = "connecting";
  #problem: string | null = null;
  #job: Snapshot["job"] = null;
  #lines: Line[] = [];
  #version = 0;
  #counts = { ...NO_LINES };
  #latest: string | null = null;
  #end: EndEvent | null = null;
  #cancelFrame: (() => void) | undefined;
  #restUntil = 0;
  #linger: ReturnType<typeof setTimeout> | undefined;
  #isOpen = false;

  constructor(options: JobStoreOptions) {
    this.id = options.id;
    this.server = options.server ?? "";
    this.token = options.token;
    this.#snapshot = emptySnapshot(options.id);
    this.#stream = new JobStream({
      ...options,
      onEvent: (event) => this.receive(event),
      onConnection: (connection, sentence) => {
        this.#connection = connection;
        this.#problem = sentence;
        this.#change();
      },
    });
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    clearTimeout(this.#linger);
    this.#subscribers.add(listener);
    // Also after an end or a refusal: the job may have been retried, or the user has signed in.
    if (!this.#isOpen) this.#stream.reopen();
    this.#isOpen = true;
    return () => {
      this.#subscribers.delete(listener);
      if (this.#subscribers.size > 0) return;
      clearTimeout(this.#linger);
      this.#linger = setTimeout(() => this.close(), LINGER_MS);
    };
  };

  readonly getSnapshot = (): Snapshot => this.#snapshot;

  /** Connects again after the end or a refusal: the job may have been retried, or the user has signed in. */
  reopen(): void {
    this.#stream.reopen();
  }

  /** Closes the connection. The state is kept, and a new subscriber continues from there. */
  close(): void {
    clearTimeout(this.#linger);
    this.#isOpen = false;
    this.#stream.stop();
    if (!this.#cancelFrame) return;
    this.#cancelFrame();
    this.#cancelFrame = undefined;
    this.#publish();
  }

  /** Applies one event; called by the stream. */
  receive(event: StreamEvent): void {
    switch (event.event) {
      case "state":
        this.#applyState(event.data);
        break;
      case "progress":
        this.#progress.update(event.data);
        break;
      case "step":
        this.#steps.addSaved(event.data);
        break;
      case "log":
        this.#applyLog(event.data);
        break;
      case "event":
        this.#applyFeedEvent(event.data);
        break;
      case "gap":
        this.#applyGap(event.data);
        break;
      case "end":
        this.#applyEnd(event.data);
    }
    this.#change();
  }

  #applyState({ progress, ...job }: StateEvent): void {
    this.#job = job;
    // A retried job has no outcome any more.
    if (job.endedAt === null) this.#end = null;
    if (progress) this.#progress.update(progress);
    else this.#progress.reset();
  }

  #applyLog({ seq, at, epoch, level, step, message, data }: LogEvent): void {
    const { took_ms } = (typeof data === "object" && data !== null ? data : {}) as { took_ms?: unknown };
    const tookMs = typeof took_ms === "number" ? took_ms : null;
    this.#steps.addLine(this.#addLine("log", level, message, { seq, at, epoch, step, data, tookMs }));
    this.#latest = message;
  }

  #applyFeedEvent(event: FeedEvent): void {
    const { level, message } = formatEvent(event);
    const { seq, at, epoch, data, kind } = event;
    this.#addLine("event", level, message, { seq, at, epoch, data: data ?? null });
    const fromStart = (data as { from_start?: boolean } | null)?.from_start === true;
    if (kind === "restarted" || (kind === "retried" && fromStart)) this.#steps.dropBefore(at);
    else if (!ATTEMPT_CONTINUES.has(kind)) this.#steps.interrupt();
    this.#latest = null;
  }

  #applyGap({ after, next }: GapEvent): void {
    const last = this.#lines.findLast(({ seq }) => seq !== null)?.seq ?? "0";
    const startsOver = BigInt(next) <= BigInt(last);
    const missing = BigInt(next) - BigInt(after) - 1n;
    if (startsOver) {
      this.#lines = [];
      this.#counts = { ...NO_LINES };
      this.#steps.dropUnsaved();
    }
    const message = startsOver
      ? "The server lost lines that were shown here. The remaining lines follow."
      : missing === 1n
        ? "1 line is no longer stored."
        : `${missing > 0n ? `${formatCount(Number(missing))} lines` : "Some lines"} are no longer stored.`;
    this.#addLine("gap", "warning", message);
  }

  /** The outcome is not a line of the feed, but is shown as the last line of the log. */
  #applyEnd(end: EndEvent): void {
    this.#end = end;
    if (!this.#job || !end.state) return;
    this.#job = { ...this.#job, state: end.state };
    const last = this.#lines.at(-1);
    if (last?.kind === "end") return;
    const message = formatOutcome({ job: this.#job, end }, last?.level === "error" ? last.message : undefined);
    this.#addLine("end", OUTCOME_LEVELS[end.state] ?? "info", message, { at: this.#job.endedAt, data: end.failure });
  }

  #addLine(kind: Line["kind"], level: Level, message: string, rest: Partial<Line> = {}): Line {
    const no = this.#lines.length;
    const empty = { seq: null, at: null, epoch: null, step: null, data: null, tookMs: null };
    const line: Line = { ...empty, ...rest, no, kind, level, message };
    this.#lines.push(line);
    this.#counts[level] += 1;
    this.#version += 1;
    return line;
  }

  #change(): void {
    if (this.#subscribers.size === 0) {
      this.#publish();
      return;
    }
    this.#cancelFrame ??= onNextFrame(() => {
      this.#cancelFrame = undefined;
      const startedAt = performance.now();
      this.#publish();
      const endedAt = performance.now();
      this.#restUntil = endedAt + Math.min(MAX_REST_MS, (endedAt - startedAt) * REST_FACTOR);
    }, this.#restUntil - performance.now());
  }

  #publish(): void {
    this.#snapshot = {
      id: this.id,
      connection: this.#connection,
      problem: this.#problem,
      job: this.#job,
      steps: this.#steps.list(this.#job),
      progress: this.#progress.current,
      lines: this.#lines,
      version: this.#version,
      counts: { ...this.#counts },
      latest: this.#latest,
      end: this.#end,
    };
    for (const listener of [...this.#subscribers]) listener();
  }
}

const OUTCOME_LEVELS: Record<string, Level> = { completed: "success", failed: "error", cancelled: "warning" };

/** Events that do not end the attempt. */
const ATTEMPT_CONTINUES: ReadonlySet<string> = new Set([
  "signalled",
  "spawned",
  "adopted",
  "pause_requested",
  "cancel_requested",
  "resumed",
]);
