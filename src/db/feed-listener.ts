// The connection over which hints about followed jobs come in. Only a convenience: everything it brings is also found by looking. It is pinged,
// because a half-open socket looks like a quiet one, and replaced when it breaks; whoever owns it looks once more after each return.
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { lineStatements } from "./calls/feed.ts";
import { breakOf, destroy, hangUp } from "./connection.ts";
import { reconnectMs } from "./database.ts";

export interface FeedLineOptions {
  url: string;
  schema: string;
  /** Ids of jobs, or "*" for all. */
  onHint(payload: string): void;
  /** It listens, for the first time or again: what was said before was not heard. */
  onReady(): void;
  onLost(): void;
  pingMs?: number;
}

const ANSWER_MS = 3000;

export class FeedLine {
  readonly #options: FeedLineOptions;
  readonly #stopping = new AbortController();
  #ready = false;
  readonly #loop: Promise<void>;

  constructor(options: FeedLineOptions) {
    this.#options = options;
    this.#loop = this.#keepOpen();
  }

  get ready(): boolean {
    return this.#ready;
  }

  async close(): Promise<void> {
    this.#ready = false;
    this.#stopping.abort();
    await this.#loop;
  }

  async #keepOpen(): Promise<void> {
    const { signal } = this.#stopping;
    for (let failures = 0; !signal.aborted; failures++) {
      const began = performance.now();
      try {
        if (!(await this.#session())) return;
      } catch (error) {
        const wasReady = this.#ready;
        this.#ready = false;
        if (signal.aborted) return;
        if (wasReady) this.#options.onLost();
        if (performance.now() - began > 10_000) failures = 0;
        await this.#pause(wasReady && failures === 0 ? 5 : reconnectMs(error, failures, 5000));
      }
    }
  }

  /** One session from its beginning to its break, which it throws. Answers false when there will never be one, or none is wanted any more. */
  async #session(): Promise<boolean> {
    const { url, schema, onHint, onReady, pingMs = 5000 } = this.#options;
    const { signal } = this.#stopping;
    const { listen, pid, ping } = lineStatements(schema);
    const client = new pg.Client({
      connectionString: url,
      application_name: "stillwake feed",
      connectionTimeoutMillis: 5000,
      query_timeout: ANSWER_MS,
      keepAlive: true,
    });
    const broken = breakOf(client);
    client.on("notification", ({ payload }) => onHint(payload ?? ""));
    try {
      await client.connect();
      const { rows } = await client.query(pid);
      // A pooler invents the process id it gives to clients. A LISTEN would stay in a session that others use: better none.
      if (rows[0].pid !== (client as unknown as { processID: number }).processID) return false;
      await client.query(listen);
      if (signal.aborted) return false;
      this.#ready = true;
      onReady();
      for (;;) {
        await Promise.race([this.#pause(pingMs), broken]);
        if (signal.aborted) return false;
        await client.query(ping);
      }
    } finally {
      if (signal.aborted) await hangUp(client);
      else destroy(client);
    }
  }

  async #pause(ms: number): Promise<void> {
    await delay(ms, undefined, { signal: this.#stopping.signal }).catch(() => {});
  }
}
