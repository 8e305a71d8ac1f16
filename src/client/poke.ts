// Says that there is work, to whoever starts machines: a function in this process, or a server by HTTP. Only ever a hint: the job is safe in Postgres before, and a
// poke that is lost is made up for by the watchdog. So it fails nobody, and nobody waits longer for it than its limit.
import { InvalidInput } from "../errors.ts";
import { type Duration, durationMs } from "../time.ts";

/** An orchestrator's poke(), or the address of a server that has one: https://jobs.example.com/v1/poke. */
export type PokeTarget = string | PokeOptions | (() => unknown);

export interface PokeOptions {
  url: string;
  token?: string;
  /** How long an enqueue waits for it at most. Default: 250ms. */
  limit?: Duration;
}

/** How long the request itself may take: nobody waits for it by then. */
const REQUEST_MS = 10_000;
/** After an enqueue in a transaction of the caller's, whose commit is not seen here: it is looked for in this time. */
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
      throw new InvalidInput(`poke ${JSON.stringify(url)} is not an address`, {
        field: "poke",
        remedy: "Use the address of a server, such as https://jobs.example.com/v1/poke, or a function",
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

  /** Something was committed. Calls while one is under way share the next: it is sent after their commit. */
  async poke(): Promise<void> {
    if (this.#underway) this.#next ??= this.#underway.then(() => this.#begin());
    const sent = this.#next ?? this.#begin();
    if (this.#limitMs === 0) return;
    let timer: NodeJS.Timeout | undefined;
    await Promise.race([sent, new Promise((resolve) => (timer = setTimeout(resolve, this.#limitMs)))]);
    clearTimeout(timer);
  }

  /** Something will be committed, by somebody else. The first of these moments is kept, those after it move with the last call. */
  pokeLater(): void {
    for (const [place, ms] of LATER_MS.entries()) {
      if (place === 0 && this.#later.has(ms)) continue;
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
