// Pokes the orchestrator when there is new work: a function in this process, or a server over HTTP. It is only a hint: the job is durable
// before, and the watchdog makes up for a lost poke. So a poke fails no call, and no call waits for it longer than `limit`.
import { InvalidInput } from "../errors.ts";
import { type Duration, durationMs } from "../time.ts";
import { withTimeout } from "../timeout.ts";

/** An orchestrator's poke(), or the poke URL of a server with an orchestrator: https://jobs.example.com/v1/poke. */
export type PokeTarget = string | PokeOptions | (() => unknown);

export interface PokeOptions {
  url: string;
  token?: string;
  /** How long an enqueue waits for the poke at most. Default: 250ms. */
  limit?: Duration;
}

/** Timeout of the request itself, which may outlast the wait of the enqueue. */
const REQUEST_MS = 10_000;
/** After an enqueue in the caller's transaction, whose commit is not visible here: poke after these delays. */
const LATER_MS = [100, 1000, 5000];

export class Poker {
  readonly #send: () => Promise<unknown>;
  readonly #limitMs: number;
  #underway: Promise<unknown> | undefined;
  #next: Promise<unknown> | undefined;
  #later = new Map<number, NodeJS.Timeout>();

  constructor(target: PokeTarget) {
    if (typeof target === "function") {
      this.#limitMs = 0;
      this.#send = async () => target();
      return;
    }
    const { url, token, limit = "250ms" } = typeof target === "string" ? { url: target } : target;
    if (typeof url !== "string" || !URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
      throw new InvalidInput(`poke ${JSON.stringify(url)} is not a URL`, {
        field: "poke",
        remedy: "Use a server's URL, such as https://jobs.example.com/v1/poke, or a function",
      });
    }
    this.#limitMs = durationMs(limit, "poke.limit");
    this.#send = () =>
      fetch(url, {
        method: "POST",
        headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
        redirect: "error",
        signal: AbortSignal.timeout(REQUEST_MS),
      }).then((response) => response.body?.cancel());
  }

  /** Call after a commit. Calls while a request is in flight share the next one, which is sent after their commits. */
  async poke(): Promise<void> {
    if (this.#underway) this.#next ??= this.#underway.then(() => this.#begin());
    const sent = this.#next ?? this.#begin();
    if (this.#limitMs === 0) return;
    await withTimeout(sent, this.#limitMs, undefined);
  }

  /** Call when the caller will commit. The first delay runs from the first call, the others from the latest. */
  pokeLater(): void {
    for (const [index, ms] of LATER_MS.entries()) {
      if (index === 0 && this.#later.has(ms)) continue;
      clearTimeout(this.#later.get(ms));
      const timer = setTimeout(() => {
        this.#later.delete(ms);
        void this.poke();
      }, ms);
      timer.unref();
      this.#later.set(ms, timer);
    }
  }

  close(): void {
    for (const timer of this.#later.values()) clearTimeout(timer);
    this.#later.clear();
  }

  #begin(): Promise<unknown> {
    this.#next = undefined;
    const sent = Promise.resolve()
      .then(this.#send)
      .catch(() => {})
      .finally(() => {
        if (this.#underway === sent) this.#underway = undefined;
      });
    this.#underway = sent;
    return sent;
  }
}
