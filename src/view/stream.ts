// Following one job over HTTP, for as long as somebody looks on. Connections end: servers restart, laptops sleep, phones change networks. The place of the last line
// is kept, so that the next connection goes on there, and a line that comes twice is dropped by its number.
//
//   connecting -> live -> reconnecting -> live … -> over (the job has ended; reopen() when it was retried)
//   from anywhere -> refused (the token is none, or the job is not there; asked once more whenever somebody comes back to the page)

import { isHidden, onTurn } from "./page-visibility.ts";
import { plainLine } from "./plain.ts";
import { eventReader } from "./sse.ts";
import type { Problem, Told } from "./wire.ts";

export type Connection = "connecting" | "live" | "reconnecting" | "over" | "refused";

/** A token, or who gives one: asked again when the last has run out. */
export type TokenSource = string | (() => string | Promise<string>);

export interface StreamOptions {
  id: string;
  /** Where the server is, such as https://jobs.example.com. Default: where the page came from. */
  server?: string | undefined;
  /** Without one the cookie of the page is sent. */
  token?: TokenSource | undefined;
  onTold(told: Told): void;
  /** With a sentence for people where there is something to say. */
  onConnection(connection: Connection, sentence: string | null): void;
  fetch?: typeof globalThis.fetch | undefined;
  /** For tests: how long to wait, in milliseconds. */
  patience?: Partial<typeof PATIENCE> | undefined;
}

const PATIENCE = {
  first: 1000,
  most: 15_000,
  /** The server sends a comment every 15 seconds; three missed ones are a dead connection. */
  silence: 45_000,
  /** A page that nobody has looked at for so long asks for nothing: who follows a job keeps its database awake, and one of the six connections of a browser. */
  unseen: 20_000,
};

/** Tokens that a function gives one after the other and that all open nothing: then it has no better one. */
const MAX_TOKENS = 3;

/** What ends the following until somebody comes back or asks for it, as a sentence. */
class Refused extends Error {}

export class JobStream {
  readonly #options: StreamOptions;
  readonly #patience: typeof PATIENCE;
  #running: AbortController | undefined;
  #lastId: string | undefined;
  #lastSeq = 0n;
  #said: Connection | undefined;
  #known = false;
  #failures = 0;
  #unauthorized = 0;
  #missing = 0;
  #gapBefore: string | undefined;
  #token: string | undefined;
  #heardAt = 0;
  #hiddenSince: number | undefined;
  #unseenTimer: ReturnType<typeof setTimeout> | undefined;
  #hurry: (() => void) | undefined;

  constructor(options: StreamOptions) {
    this.#options = options;
    this.#patience = { ...PATIENCE, ...options.patience };
  }

  /** Begins, or goes on where it was stopped. */
  start(): void {
    if (this.#running) return;
    const running = new AbortController();
    this.#running = running;
    const stopListening = onTurn(() => this.#turn());
    running.signal.addEventListener("abort", stopListening);
    this.#turn();
    void this.#follow(running.signal).finally(() => {
      stopListening();
      if (this.#running === running) this.stop();
    });
  }

  stop(): void {
    clearTimeout(this.#unseenTimer);
    const running = this.#running;
    this.#running = undefined;
    running?.abort();
  }

  /** Tries again after an end, for a job that was retried, or after a refusal. */
  reopen(): void {
    this.stop();
    this.#failures = 0;
    this.#unauthorized = 0;
    this.#missing = 0;
    this.#token = undefined;
    this.start();
  }

  async #follow(signal: AbortSignal): Promise<void> {
    // One that was at its end most likely still is.
    if (this.#said !== "over") this.#say("connecting", null);
    while (!signal.aborted) {
      while (this.#isUnseen() && !signal.aborted) await this.#pause(undefined, signal);
      let wait: number | undefined;
      try {
        const answer = await this.#once(signal);
        if (signal.aborted) return;
        if (answer === "over") {
          this.#say("over", null);
          return;
        }
        wait = answer;
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused) {
          this.#say("refused", error.message);
          await this.#pause(undefined, signal);
          continue;
        }
      }
      this.#say("reconnecting", this.#failures > 1 ? "The connection is lost. Trying again…" : null);
      await this.#pause(wait ?? this.#backoff(), signal);
    }
  }

  #say(connection: Connection, sentence: string | null): void {
    this.#said = connection;
    this.#options.onConnection(connection, sentence);
  }

  /** One connection. Answers "over", or after how long to come back when the server has said so. */
  async #once(signal: AbortSignal): Promise<"over" | number | undefined> {
    const connection = new AbortController();
    const cut = () => connection.abort();
    signal.addEventListener("abort", cut);
    this.#heardAt = Date.now();
    const look = () => {
      if (Date.now() - this.#heardAt >= this.#patience.silence || this.#isUnseen()) cut();
    };
    const watch = setInterval(look, Math.min(this.#patience.silence / 3, this.#patience.unseen));
    this.#hurry = look;
    try {
      this.#failures += 1;
      const response = await this.#ask(connection.signal);
      const waits = await this.#judge(response);
      if (waits === "over" || typeof waits === "number") return waits;
      if (!waits || !response.body || signal.aborted) return undefined;
      let over = false;
      const take = eventReader((told) => {
        if (signal.aborted) return;
        // One that told something was a good one, whatever comes after it; bytes alone may come from anybody on the way.
        this.#failures = 0;
        this.#known = true;
        this.#tell(told);
        over ||= told.event === "end";
      });
      const reader = response.body.getReader();
      this.#say("live", null);
      for (;;) {
        const { done, value } = await reader.read();
        if (done || signal.aborted) break;
        this.#heardAt = Date.now();
        take(value);
        if (over) return "over";
      }
      return undefined;
    } finally {
      clearInterval(watch);
      signal.removeEventListener("abort", cut);
      // One that was stopped may come to its end after the next has begun.
      if (this.#hurry === look) this.#hurry = undefined;
      cut();
    }
  }

  async #ask(signal: AbortSignal): Promise<Response> {
    const { id, server = "", token } = this.#options;
    const ask = this.#options.fetch ?? globalThis.fetch;
    this.#token ??= typeof token === "function" ? await unlessCut(token(), signal) : token;
    return ask(addressOf(server, id, "/stream"), {
      headers: {
        accept: "text/event-stream",
        ...(this.#token !== undefined && { authorization: `Bearer ${this.#token}` }),
        ...(this.#lastId !== undefined && { "last-event-id": this.#lastId }),
      },
      credentials: this.#token === undefined ? "same-origin" : "omit",
      signal,
    });
  }

  /** True for a stream to be read, false to come back as usual. Only the server itself can refuse: what stands between may answer anything for a while. */
  async #judge(response: Response): Promise<"over" | number | boolean> {
    const { status } = response;
    const type = response.headers.get("content-type") ?? "";
    if (status === 204) return "over";
    if (status === 200 && type.startsWith("text/event-stream")) {
      this.#unauthorized = 0;
      this.#missing = 0;
      return true;
    }
    if (status === 429 || status === 503) return retryAfterMs(response.headers.get("retry-after")) ?? false;
    const isFunction = typeof this.#options.token === "function";
    if (status === 401 && isFunction) this.#token = undefined;
    if (![400, 401, 403, 404].includes(status) || !type.startsWith("application/problem+json")) return false;
    const problem = (await response.json()) as Problem;
    if (status === 401 && isFunction && ++this.#unauthorized < MAX_TOKENS) return 0;
    // A job that was there a moment ago is asked for once more: another server may have answered, or a replica that lags.
    if (status === 404 && this.#known && ++this.#missing < 2) return false;
    if (status === 400 && this.#lastId !== undefined) {
      // The place is not one of this job, as after the database was set up anew: everything is told again, and what is known is dropped by its number.
      this.#lastId = undefined;
      return 0;
    }
    throw new Refused(refusalOf(status, problem));
  }

  #tell(told: Told): void {
    const { onTold } = this.#options;
    if (told.event === "gap") {
      // A connection that was cut before the line behind it tells the same gap again.
      if (told.data.next === this.#gapBefore) return;
      this.#gapBefore = told.data.next;
      // What comes next may lie before what was told: the database has lost lines, and tells all it has.
      const next = BigInt(told.data.next);
      if (next <= this.#lastSeq) this.#lastSeq = next - 1n;
    } else if (told.event === "log" || told.event === "event") {
      const seq = BigInt(told.data.seq);
      if (seq <= this.#lastSeq) return;
      this.#lastSeq = seq;
      this.#gapBefore = undefined;
    }
    if (told.id !== undefined) this.#lastId = told.id;
    onTold(told);
  }

  #backoff(): number {
    const { first, most } = this.#patience;
    return Math.min(most, first * 2 ** Math.max(0, this.#failures - 1)) * (0.5 + Math.random() / 2);
  }

  /** Over at once when somebody looks at the page again; without a time only then. */
  #pause(ms: number | undefined, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const over = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", over);
        if (this.#hurry === over) this.#hurry = undefined;
        resolve();
      };
      const timer = ms === undefined ? undefined : setTimeout(over, ms);
      signal.addEventListener("abort", over);
      if (signal.aborted) over();
      else this.#hurry = over;
    });
  }

  #isUnseen(): boolean {
    return this.#hiddenSince !== undefined && Date.now() - this.#hiddenSince >= this.#patience.unseen;
  }

  /** Somebody has come to the page, or has left it. */
  #turn(): void {
    clearTimeout(this.#unseenTimer);
    if (isHidden()) {
      this.#hiddenSince ??= Date.now();
      // Timers may be a little early, and browsers let those of hidden pages wait.
      this.#unseenTimer = setTimeout(() => this.#hurry?.(), this.#patience.unseen + 10);
    } else {
      this.#hiddenSince = undefined;
      this.#hurry?.();
    }
  }
}

/** The address of a job, or of something of it. */
export function addressOf(server: string, id: string, rest = ""): string {
  return `${server.replace(/\/+$/, "")}/v1/jobs/${encodeURIComponent(id)}${rest}`;
}

function refusalOf(status: number, problem: Problem | null): string {
  if (status === 404) return "This job is not there, or no longer.";
  if (status === 401)
    return "This page is not allowed to show the job: its token is missing or has run out. Reload the page.";
  if (status === 403) return "This page is not allowed to show the job.";
  return typeof problem?.detail === "string" ? plainLine(problem.detail) : `The server answered ${status}.`;
}

/** Whoever gives tokens may never do so: that must not hold up the rest. */
function unlessCut<T>(given: T | Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    Promise.resolve(given).then(resolve, reject);
  });
}

function retryAfterMs(header: string | null): number | undefined {
  if (header === null) return undefined;
  const ms = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 0), 300_000);
}
