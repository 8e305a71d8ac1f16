// One job as a page knows it: how it stands, its steps, its pace, its lines. Filled by a stream (stream.ts), read by views and by React. Whoever subscribes is told at
// most once per picture that is drawn, however much comes in; the stream is open as long as somebody is subscribed.
import { Pace } from "./pace.ts";
import { onNextFrame } from "./page-visibility.ts";
import { emptySnapshot, type Line, NONE, type Snapshot } from "./snapshot.ts";
import { StepList } from "./steps.ts";
import { type Connection, JobStream, type StreamOptions, type TokenSource } from "./stream.ts";
import type { EndTold, EventTold, GapTold, Level, LogTold, StateTold, Told } from "./wire.ts";
import { count, ending, eventSentence } from "./words.ts";

export interface JobStoreOptions extends Pick<StreamOptions, "id" | "server" | "token" | "fetch" | "patience"> {}

/** A page that changes hands (a framework that mounts twice, a walk from one view to the next) keeps the connection for so long. */
const LINGER_MS = 1000;
/** Showing may take a quarter of the time; the rest belongs to what comes in, and to whoever scrolls meanwhile. */
const REST = 3;
const MAX_REST_MS = 250;

export class JobStore {
  readonly id: string;
  readonly server: string;
  readonly token: TokenSource | undefined;
  readonly #stream: JobStream;
  readonly #subscribers = new Set<() => void>();
  readonly #pace = new Pace();
  readonly #steps = new StepList();
  #snapshot: Snapshot;
  #connection: Connection = "connecting";
  #problem: string | null = null;
  #job: Snapshot["job"] = null;
  #lines: Line[] = [];
  #version = 0;
  #counts = { ...NONE };
  #latest: string | null = null;
  #end: EndTold | null = null;
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
      onTold: (told) => this.tell(told),
      onConnection: (connection, sentence) => {
        this.#connection = connection;
        this.#problem = sentence;
        this.#change();
      },
    });
  }

  readonly subscribe = (call: () => void): (() => void) => {
    clearTimeout(this.#linger);
    this.#subscribers.add(call);
    // Also after an end or a refusal: while nobody looked the job may have been retried, or somebody has signed in.
    if (!this.#isOpen) this.#stream.reopen();
    this.#isOpen = true;
    return () => {
      this.#subscribers.delete(call);
      if (this.#subscribers.size > 0) return;
      clearTimeout(this.#linger);
      this.#linger = setTimeout(() => this.close(), LINGER_MS);
    };
  };

  readonly getSnapshot = (): Snapshot => this.#snapshot;

  /** Looks again at a job that has ended or was refused: it may have been retried, or somebody has signed in. */
  reopen(): void {
    this.#stream.reopen();
  }

  /** Ends the connection. What is known stays, and who subscribes again goes on from there. */
  close(): void {
    clearTimeout(this.#linger);
    this.#isOpen = false;
    this.#stream.stop();
    if (!this.#cancelFrame) return;
    this.#cancelFrame();
    this.#cancelFrame = undefined;
    this.#publish();
  }

  /** Takes in one event. The stream calls it. */
  tell(told: Told): void {
    switch (told.event) {
      case "state":
        this.#takeState(told.data);
        break;
      case "progress":
        this.#pace.tell(told.data);
        break;
      case "step":
        this.#steps.keep(told.data);
        break;
      case "log":
        this.#takeLog(told.data);
        break;
      case "event":
        this.#takeEvent(told.data);
        break;
      case "gap":
        this.#takeGap(told.data);
        break;
      case "end":
        this.#takeEnd(told.data);
    }
    this.#change();
  }

  #takeState({ progress, ...job }: StateTold): void {
    this.#job = job;
    // A job that was retried has an end no longer.
    if (job.endedAt === null) this.#end = null;
    if (progress) this.#pace.tell(progress);
    else this.#pace.forget();
  }

  #takeLog({ seq, at, epoch, level, step, message, data }: LogTold): void {
    const { took_ms } = (typeof data === "object" && data !== null ? data : {}) as { took_ms?: unknown };
    const tookMs = typeof took_ms === "number" ? took_ms : null;
    const line: Line = { no: this.#lines.length, kind: "log", seq, at, epoch, level, step, message, data, tookMs };
    this.#add(line);
    this.#steps.hear(line);
    this.#latest = message;
  }

  #takeEvent(event: EventTold): void {
    const { level, message } = eventSentence(event);
    const { seq, at, epoch, data, kind } = event;
    this.#add({
      no: this.#lines.length,
      kind: "event",
      seq,
      at,
      epoch,
      level,
      step: null,
      message,
      data: data ?? null,
      tookMs: null,
    });
    const fromStart = (data as { from_start?: boolean } | null)?.from_start === true;
    if (kind === "restarted" || (kind === "retried" && fromStart)) this.#steps.forgetBefore(at);
    else if (!QUIET.has(kind)) this.#steps.interrupt();
    this.#latest = null;
  }

  #takeGap({ after, next }: GapTold): void {
    const last = this.#lines.findLast(({ seq }) => seq !== null)?.seq ?? "0";
    const anew = BigInt(next) <= BigInt(last);
    const missing = BigInt(next) - BigInt(after) - 1n;
    if (anew) {
      this.#lines = [];
      this.#counts = { ...NONE };
      this.#steps.forget();
    }
    const message = anew
      ? "The server has lost lines that were shown here. What follows is what it has."
      : `${missing > 0n ? `${count(Number(missing))} lines` : "Some lines"} of this place are no longer kept.`;
    this.#add({
      no: this.#lines.length,
      kind: "gap",
      seq: null,
      at: null,
      epoch: null,
      level: "warning",
      step: null,
      message,
      data: null,
      tookMs: null,
    });
  }

  /** The end is no line of the feed, but the person who reads the log wants to read it there. */
  #takeEnd(end: EndTold): void {
    this.#end = end;
    if (!this.#job || !end.state) return;
    this.#job = { ...this.#job, state: end.state };
    const last = this.#lines.at(-1);
    if (last?.kind === "end") return;
    this.#add({
      no: this.#lines.length,
      kind: "end",
      seq: null,
      at: this.#job.endedAt,
      epoch: null,
      level: ENDS[end.state] ?? "info",
      step: null,
      message: ending({ job: this.#job, end }, last?.level === "error" ? last.message : undefined),
      data: end.failure,
      tookMs: null,
    });
  }

  #add(line: Line): void {
    this.#lines.push(line);
    this.#counts[line.level] += 1;
    this.#version += 1;
  }

  #change(): void {
    if (this.#subscribers.size === 0) {
      this.#publish();
      return;
    }
    this.#cancelFrame ??= onNextFrame(() => {
      this.#cancelFrame = undefined;
      const began = performance.now();
      this.#publish();
      const ended = performance.now();
      this.#restUntil = ended + Math.min(MAX_REST_MS, (ended - began) * REST);
    }, this.#restUntil - performance.now());
  }

  #publish(): void {
    this.#snapshot = {
      id: this.id,
      connection: this.#connection,
      problem: this.#problem,
      job: this.#job,
      steps: this.#steps.seen(this.#job),
      progress: this.#pace.now,
      lines: this.#lines,
      version: this.#version,
      counts: { ...this.#counts },
      latest: this.#latest,
      end: this.#end,
    };
    for (const call of [...this.#subscribers]) call();
  }
}

const ENDS: Record<string, Level> = { completed: "success", failed: "error", cancelled: "warning" };

/** Events at which the attempt goes on. */
const QUIET: ReadonlySet<string> = new Set([
  "signalled",
  "spawned",
  "adopted",
  "pause_requested",
  "cancel_requested",
  "resumed",
]);
