// The direct connection of a long-lived process: hints of new work come in over it, and its session is the sign that the process lives.
// Only a convenience: everything it brings is also found by looking. It is pinged, because a half-open socket looks like a quiet one, and
// replaced when it breaks. Behind a pooler that shares sessions neither works, so that is noticed and said.
import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { directStatements } from "./calls/worker.ts";
import { breakOf, destroy, hangUp } from "./connection.ts";
import { reconnectMs } from "./database.ts";

export interface DirectOptions {
  url: string;
  schema: string;
  worker: string;
  pool: string;
  /** A pool with new work, or "@worker" when somebody changed his mind about one of its jobs. */
  onHint(payload: string): void;
  onReady(): void;
  onLost(error: Error): void;
  /** It will never work over this URL. */
  onUnavailable(why: string): void;
  pingMs?: number;
}

const ANSWER_MS = 3000;
/** The worker stays listed this long after it was last heard of; hints to nobody cost little. */
const LISTED = "2 minutes";
const RENEW_MS = 60_000;

export class DirectLine {
  readonly #options: DirectOptions;
  readonly #stopping = new AbortController();
  #presence = 0n;
  #loop: Promise<void> | undefined;

  constructor(options: DirectOptions) {
    this.#options = options;
  }

  /**
   * The key of the lock this session holds, with a minus when the session is over; null before the first. It grows with every session: a
   * heartbeat that was long on its way is told from a new one by it.
   */
  get presence(): string | null {
    return this.#presence === 0n ? null : String(this.#presence);
  }

  get ready(): boolean {
    return this.#presence > 0n;
  }

  open(): void {
    this.#loop ??= this.#keepOpen();
  }

  async close(): Promise<void> {
    this.#stopping.abort();
    if (this.ready) this.#presence = -this.#presence;
    await this.#loop;
  }

  async #keepOpen(): Promise<void> {
    for (let failures = 0; !this.#stopping.signal.aborted; failures++) {
      const began = performance.now();
      try {
        if (!(await this.#session())) return;
      } catch (error) {
        const wasReady = this.ready;
        if (wasReady) this.#presence = -this.#presence;
        if (this.#stopping.signal.aborted) return;
        if (wasReady) this.#options.onLost(error as Error);
        if (performance.now() - began > 10_000) failures = 0;
        await this.#pause(wasReady && failures === 0 ? 5 : reconnectMs(error, failures, 5000));
      }
    }
  }

  /** One session from its beginning to its break, which it throws. Answers false when there will never be one. */
  async #session(): Promise<boolean> {
    const { schema, worker, pool, onHint, onReady, onUnavailable, pingMs = 5000 } = this.#options;
    const { listen, present, renew, leave } = directStatements(schema);
    const client = this.#connect();
    let listed = false;
    const broken = breakOf(client);
    client.on("notification", ({ payload }) => onHint(payload ?? ""));
    try {
      await client.connect();
      if (this.#stopping.signal.aborted) return false;
      if (await this.#shared(client)) {
        onUnavailable("A pooler that shares sessions stands between: give directUrl for hints and quick recovery");
        return false;
      }
      const key = this.#presence < 0n ? 1n - this.#presence : randomBytes(8).readBigUInt64BE() >> 2n;
      await client.query(listen);
      listed = true;
      await client.query(renew, [worker, pool, LISTED]);
      await client.query(present, [String(key)]);
      if (this.#stopping.signal.aborted) return false;
      this.#presence = key;
      onReady();
      for (let renewedAt = performance.now(); ; ) {
        await Promise.race([this.#pause(pingMs), broken]);
        if (this.#stopping.signal.aborted) return false;
        if (performance.now() - renewedAt > RENEW_MS) {
          await client.query(renew, [worker, pool, LISTED]);
          renewedAt = performance.now();
        } else {
          await client.query("select 1");
        }
      }
    } finally {
      if (!this.#stopping.signal.aborted) destroy(client);
      else {
        // One after the other: an end with a statement under way would cut it off, and hints would be sent to nobody for minutes.
        if (listed) await client.query(leave, [worker]).catch(() => {});
        await hangUp(client);
      }
    }
  }

  #connect(): pg.Client {
    return new pg.Client({
      connectionString: this.#options.url,
      application_name: "stillwake direct",
      connectionTimeoutMillis: 5000,
      query_timeout: ANSWER_MS,
      keepAlive: true,
    });
  }

  /**
   * A pooler invents the process id it gives to clients. One that keeps a session per client is as good as none. One that shares shows what
   * another client has set, if the two meet in one session; under load they seldom do, so what counts in the end is whether a hint arrives.
   */
  async #shared(client: pg.Client): Promise<boolean> {
    const { rows } = await client.query("select pg_backend_pid() as pid, set_config('stillwake.probe', $1, false)", [
      this.#options.worker,
    ]);
    if (rows[0].pid === (client as unknown as { processID: number }).processID) return false;
    const other = this.#connect();
    other.on("error", () => {});
    try {
      await other.connect();
      const seen = await other.query("select current_setting('stillwake.probe', true) as probe");
      if (seen.rows[0].probe === this.#options.worker) return true;
      const channel = `stillwake_probe_${randomBytes(8).toString("hex")}`;
      const heard = new Promise<boolean>((resolve) => {
        client.on("notification", (hint) => hint.channel === channel && resolve(true));
      });
      await client.query(`listen ${channel}`);
      await other.query(`notify ${channel}`);
      const arrived = await Promise.race([heard, this.#pause(ANSWER_MS).then(() => false)]);
      await client.query(`unlisten ${channel}`);
      return !arrived;
    } finally {
      destroy(other);
    }
  }

  async #pause(ms: number): Promise<void> {
    await delay(ms, undefined, { signal: this.#stopping.signal }).catch(() => {});
  }
}
