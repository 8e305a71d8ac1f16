// Following one job over HTTP, for as long as somebody looks on. Connections end: servers restart, laptops sleep, phones change networks. The place of the last line
// is kept, so that the next connection goes on there, and a line that comes twice is dropped by its number.
//
//   connecting -> live -> reconnecting -> live … -> over (the job has ended; reopen() when it was retried)
//   from anywhere -> refused (the token is none, or the job is not there)
import { eventReader } from "./sse.ts";
import { isHidden, onReturn } from "./surroundings.ts";
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
  /** A page that nobody has looked at for so long asks for nothing: who follows a job keeps its database awake. */
  unseen: 300_000,
};

/** What ends the following for good, as a sentence. */
class Refused extends Error {}

export class JobStream {
  readonly #options: StreamOptions;
  readonly #patience: typeof PATIENCE;
  #running: AbortController | undefined;
  #lastId: string | undefined;
  #lastSeq = 0n;
  #failures = 0;
  #token: string | undefined;
  #heardAt = 0;
  #hiddenSince: number | undefined;
  #hurry: (() => void) | undefined;

  constructor(options: StreamOptions) {
    this.#options = options;
    this.#patience = { ...PATIENCE, ...options.patience };
  }

  get isRunning(): boolean {
    return this.#running !== undefined;
  }

  /** Begins, or goes on where it was stopped. */
  start(): void {
    if (this.#running) return;
    const running = new AbortController();
    this.#running = running;
    const stopListening = onReturn(() => this.#lookAlive());
    void this.#follow(running.signal).finally(() => {
      stopListening();
      if (this.#running === running) this.#running = undefined;
    });
  }

  stop(): void {
    this.#running?.abort();
    this.#running = undefined;
  }

  /** Tries again after an end, for a job that was retried, or after a refusal. */
  reopen(): void {
    this.stop();
    this.#failures = 0;
    this.#token = undefined;
    this.start();
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { onConnection } = this.#options;
    onConnection("connecting", null);
    while (!signal.aborted) {
      while (this.#isUnseen() && !signal.aborted) await this.#pause(2 ** 31 - 1, signal);
      let wait: number | undefined;
      try {
        const answer = await this.#once(signal);
        if (signal.aborted) return;
        if (answer === "over") {
          onConnection("over", null);
          return;
        }
        wait = answer;
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused) {
          onConnection("refused", error.message);
          return;
        }
      }
      onConnection("reconnecting", this.#failures > 1 ? "The connection is lost. Trying again…" : null);
      await this.#pause(wait ?? this.#backoff(), signal);
    }
  }

  /** One connection. Answers "over", or after how long to come back when the server has said so. */
  async #once(signal: AbortSignal): Promise<"over" | number | undefined> {
    const { onConnection } = this.#options;
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
        this.#tell(told);
        over ||= told.event === "end";
      });
      const reader = response.body.getReader();
      onConnection("live", null);
      for (;;) {
        const { done, value } = await reader.read();
        if (done || signal.aborted) break;
        this.#heardAt = Date.now();
        // One that brought something was a good one, whatever comes after it.
        this.#failures = 0;
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
    this.#token ??= typeof token === "function" ? await token() : token;
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

  /** True for a stream to be read, false to come back as usual. */
  async #judge(response: Response): Promise<"over" | number | boolean> {
    const { status } = response;
    if (status === 200) return true;
    if (status === 204) return "over";
    if (status === 429 || status === 503) return retryAfterMs(response.headers.get("retry-after")) ?? false;
    if (status >= 500) return false;
    const problem = (await response.json().catch(() => null)) as Problem | null;
    if (status === 401 && typeof this.#options.token === "function" && this.#failures <= 2) {
      this.#token = undefined;
      return 0;
    }
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
      // What comes next may lie before what was told: the database has lost lines, and tells all it has.
      const next = BigInt(told.data.next);
      if (next <= this.#lastSeq) this.#lastSeq = next - 1n;
    } else if (told.event === "log" || told.event === "event") {
      const seq = BigInt(told.data.seq);
      if (seq <= this.#lastSeq) return;
      this.#lastSeq = seq;
    }
    if (told.id !== undefined) this.#lastId = told.id;
    onTold(told);
  }

  #backoff(): number {
    const { first, most } = this.#patience;
    return Math.min(most, first * 2 ** Math.max(0, this.#failures - 1)) * (0.5 + Math.random() / 2);
  }

  /** Over at once when somebody looks at the page again. */
  #pause(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const over = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", over);
        if (this.#hurry === over) this.#hurry = undefined;
        resolve();
      };
      const timer = setTimeout(over, ms);
      signal.addEventListener("abort", over);
      if (signal.aborted) over();
      else this.#hurry = over;
    });
  }

  #isUnseen(): boolean {
    this.#hiddenSince = isHidden() ? (this.#hiddenSince ?? Date.now()) : undefined;
    return this.#hiddenSince !== undefined && Date.now() - this.#hiddenSince >= this.#patience.unseen;
  }

  #lookAlive(): void {
    this.#hurry?.();
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
  return problem?.detail ?? `The server answered ${status}.`;
}

function retryAfterMs(header: string | null): number | undefined {
  if (header === null) return undefined;
  const ms = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 0), 300_000);
}
