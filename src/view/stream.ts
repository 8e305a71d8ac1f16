// Follows one job over HTTP. Connections end: servers restart, laptops sleep, phones change networks. The id of the last
// event is kept, so that the next connection continues there; a line that arrives twice is dropped by its number.
//
//   connecting -> live -> reconnecting -> live … -> over (the job has settled; reopen() after a retry)
//   any state -> refused (invalid token, or no such job; tried again when the page becomes visible)
import { createEventParser } from "../text/sse.ts";
import { isHidden, onVisibilityChange } from "./page-visibility.ts";
import { escapeTextLine } from "./safe-text.ts";
import type { Problem, StreamEvent } from "./wire.ts";

export type Connection = "connecting" | "live" | "reconnecting" | "over" | "refused";

/** A token, or a function that returns one, called again when the last token has expired. */
export type TokenSource = string | (() => string | Promise<string>);

export interface StreamOptions {
  id: string;
  /** URL of the server, such as https://jobs.example.com. Default: the origin of the page. */
  server?: string | undefined;
  /** Default: the cookie of the page. */
  token?: TokenSource | undefined;
  onEvent(event: StreamEvent): void;
  /** `sentence` describes a problem for people. */
  onConnection(connection: Connection, sentence: string | null): void;
  fetch?: typeof globalThis.fetch | undefined;
  /** For tests, in milliseconds. */
  timing?: Partial<typeof TIMING> | undefined;
}

const TIMING = {
  initialRetry: 1000,
  maxRetry: 15_000,
  /** The server sends a comment every 15 seconds; after three missing ones the connection is considered dead. */
  silence: 45_000,
  /**
   * A page that has been hidden for this time disconnects: a follower keeps the database awake, and occupies one of the
   * browser's six connections to the server.
   */
  hidden: 20_000,
};

/** After this many rejected tokens in a row the token function has no valid one. */
const MAX_TOKENS = 3;

/** Stops the stream until the page becomes visible or reopen() is called. The message is a sentence for people. */
class Refused extends Error {}

export class JobStream {
  readonly #options: StreamOptions;
  readonly #timing: typeof TIMING;
  #running: AbortController | undefined;
  #lastId: string | undefined;
  #lastSeq = 0n;
  #connection: Connection | undefined;
  #wasFound = false;
  #failures = 0;
  #unauthorized = 0;
  #notFound = 0;
  #gapBefore: string | undefined;
  #token: string | undefined;
  #receivedAt = 0;
  #hiddenSince: number | undefined;
  #hiddenTimer: ReturnType<typeof setTimeout> | undefined;
  /** Ends the current pause, or checks the current connection. */
  #wake: (() => void) | undefined;

  constructor(options: StreamOptions) {
    this.#options = options;
    this.#timing = { ...TIMING, ...options.timing };
  }

  /** Starts, or continues after stop(). */
  start(): void {
    if (this.#running) return;
    const running = new AbortController();
    this.#running = running;
    const stopListening = onVisibilityChange(() => this.#updateVisibility());
    running.signal.addEventListener("abort", stopListening);
    this.#updateVisibility();
    void this.#follow(running.signal).finally(() => {
      stopListening();
      if (this.#running === running) this.stop();
    });
  }

  stop(): void {
    clearTimeout(this.#hiddenTimer);
    const running = this.#running;
    this.#running = undefined;
    running?.abort();
  }

  /** Connects again after the end, for a job that was retried, or after a refusal. */
  reopen(): void {
    this.stop();
    this.#failures = 0;
    this.#unauthorized = 0;
    this.#notFound = 0;
    this.#token = undefined;
    this.start();
  }

  async #follow(signal: AbortSignal): Promise<void> {
    // A job that was over most likely still is.
    if (this.#connection !== "over") this.#setConnection("connecting", null);
    while (!signal.aborted) {
      while (this.#isHiddenTooLong() && !signal.aborted) await this.#pause(undefined, signal);
      let retryMs: number | undefined;
      try {
        const result = await this.#connect(signal);
        if (signal.aborted) return;
        if (result === "over") {
          this.#setConnection("over", null);
          return;
        }
        retryMs = result;
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused) {
          this.#setConnection("refused", error.message);
          await this.#pause(undefined, signal);
          continue;
        }
      }
      this.#setConnection("reconnecting", this.#failures > 1 ? "Connection lost. Reconnecting…" : null);
      await this.#pause(retryMs ?? this.#backoffMs(), signal);
    }
  }

  #setConnection(connection: Connection, sentence: string | null): void {
    this.#connection = connection;
    this.#options.onConnection(connection, sentence);
  }

  /** One connection. Returns "over", or the retry time that the server asked for. */
  async #connect(signal: AbortSignal): Promise<"over" | number | undefined> {
    const connection = new AbortController();
    const disconnect = () => connection.abort();
    signal.addEventListener("abort", disconnect);
    this.#receivedAt = Date.now();
    const check = () => {
      if (Date.now() - this.#receivedAt >= this.#timing.silence || this.#isHiddenTooLong()) disconnect();
    };
    const timer = setInterval(check, Math.min(this.#timing.silence / 3, this.#timing.hidden));
    this.#wake = check;
    try {
      this.#failures += 1;
      const response = await this.#request(connection.signal);
      const result = await this.#readResponse(response);
      if (result === "over" || typeof result === "number") return result;
      if (!result || !response.body || signal.aborted) return undefined;
      let isOver = false;
      const parse = createEventParser((parsed) => {
        if (signal.aborted) return;
        // Only an event resets the backoff: other bytes may come from a proxy.
        this.#failures = 0;
        this.#wasFound = true;
        const event = parsed as StreamEvent;
        this.#handle(event);
        isOver ||= event.event === "end";
      });
      const reader = response.body.getReader();
      this.#setConnection("live", null);
      for (;;) {
        const { done, value } = await reader.read();
        if (done || signal.aborted) break;
        this.#receivedAt = Date.now();
        parse(value);
        if (isOver) return "over";
      }
      return undefined;
    } finally {
      clearInterval(timer);
      signal.removeEventListener("abort", disconnect);
      // A stopped connection may finish after the next one has started.
      if (this.#wake === check) this.#wake = undefined;
      disconnect();
    }
  }

  async #request(signal: AbortSignal): Promise<Response> {
    const { id, server = "", token } = this.#options;
    const fetch = this.#options.fetch ?? globalThis.fetch;
    this.#token ??= typeof token === "function" ? await untilAborted(token(), signal) : token;
    return fetch(jobUrl(server, id, "/stream"), {
      headers: {
        accept: "text/event-stream",
        ...(this.#token !== undefined && { authorization: `Bearer ${this.#token}` }),
        ...(this.#lastId !== undefined && { "last-event-id": this.#lastId }),
      },
      credentials: this.#token === undefined ? "same-origin" : "omit",
      signal,
    });
  }

  /**
   * Returns true for a stream, false to reconnect with backoff, or a retry time. Only a problem document of the server
   * itself is a refusal: a proxy may send any status for a while.
   */
  async #readResponse(response: Response): Promise<"over" | number | boolean> {
    const { status } = response;
    const type = response.headers.get("content-type") ?? "";
    if (status === 204) return "over";
    if (status === 200 && type.startsWith("text/event-stream")) {
      this.#unauthorized = 0;
      this.#notFound = 0;
      return true;
    }
    if (status === 429 || status === 503) return parseRetryAfter(response.headers.get("retry-after")) ?? false;
    const isFunction = typeof this.#options.token === "function";
    if (status === 401 && isFunction) this.#token = undefined;
    if (![400, 401, 403, 404].includes(status) || !type.startsWith("application/problem+json")) return false;
    const problem = (await response.json()) as Problem;
    if (status === 401 && isFunction && ++this.#unauthorized < MAX_TOKENS) return 0;
    // A job that existed is requested once more: the response may come from a lagging replica.
    if (status === 404 && this.#wasFound && ++this.#notFound < 2) return false;
    if (status === 400 && this.#lastId !== undefined) {
      // The event id is unknown, as after the database was recreated: start over; known lines are dropped by number.
      this.#lastId = undefined;
      return 0;
    }
    throw new Refused(formatProblem(status, problem));
  }

  #handle(event: StreamEvent): void {
    if (event.event === "gap") {
      // A connection that was lost before the next line repeats the gap.
      if (event.data.next === this.#gapBefore) return;
      this.#gapBefore = event.data.next;
      // The next line may be before the last one: the database has lost lines and sends all that it has.
      const next = BigInt(event.data.next);
      if (next <= this.#lastSeq) this.#lastSeq = next - 1n;
    } else if (event.event === "log" || event.event === "event") {
      const seq = BigInt(event.data.seq);
      if (seq <= this.#lastSeq) return;
      this.#lastSeq = seq;
      this.#gapBefore = undefined;
    }
    if (event.id !== undefined) this.#lastId = event.id;
    this.#options.onEvent(event);
  }

  #backoffMs(): number {
    const { initialRetry, maxRetry } = this.#timing;
    return Math.min(maxRetry, initialRetry * 2 ** Math.max(0, this.#failures - 1)) * (0.5 + Math.random() / 2);
  }

  /** Ends early when the page becomes visible; without a time only then. */
  #pause(ms: number | undefined, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const finish = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", finish);
        if (this.#wake === finish) this.#wake = undefined;
        resolve();
      };
      const timer = ms === undefined ? undefined : setTimeout(finish, ms);
      signal.addEventListener("abort", finish);
      if (signal.aborted) finish();
      else this.#wake = finish;
    });
  }

  #isHiddenTooLong(): boolean {
    return this.#hiddenSince !== undefined && Date.now() - this.#hiddenSince >= this.#timing.hidden;
  }

  #updateVisibility(): void {
    clearTimeout(this.#hiddenTimer);
    if (isHidden()) {
      this.#hiddenSince ??= Date.now();
      // Timers may fire a little early, and browsers throttle those of hidden pages.
      this.#hiddenTimer = setTimeout(() => this.#wake?.(), this.#timing.hidden + 10);
    } else {
      this.#hiddenSince = undefined;
      this.#wake?.();
    }
  }
}

/** The URL of a job, or of a part of it. */
export function jobUrl(server: string, id: string, rest = ""): string {
  return `${server.replace(/\/+$/, "")}/v1/jobs/${encodeURIComponent(id)}${rest}`;
}

function formatProblem(status: number, problem: Problem | null): string {
  if (status === 404) return "This job does not exist, or was pruned.";
  if (status === 401) return "This page may not show the job: its token is missing or has expired. Reload the page.";
  if (status === 403) return "This page may not show the job.";
  return typeof problem?.detail === "string" ? escapeTextLine(problem.detail) : `The server responded with ${status}.`;
}

/** A token function that never resolves must not block the stream. */
function untilAborted<T>(value: T | Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    Promise.resolve(value).then(resolve, reject);
  });
}

function parseRetryAfter(header: string | null): number | undefined {
  if (header === null) return undefined;
  const ms = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 0), 300_000);
}
