// A dedicated connection that LISTENs on one channel. Feed readers use it directly, workers through worker-presence.ts.
// Hints are an optimization: polling finds the same changes. The connection is pinged, because a half-open socket looks
// like a quiet one, and reconnected with back-off when it is lost.
import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import { closeConnection, connectionLost, destroyConnection } from "./connection.ts";
import { reconnectMs } from "./database.ts";
import { clientFor } from "./hosts.ts";

export interface ListenerOptions {
  url: string;
  applicationName: string;
  channel: string;
  /**
   * "refuse" gives up behind any pooler: a LISTEN would stay in a session that other clients use. "probe" accepts a
   * pooler that keeps one session per client.
   */
  pooler: "refuse" | "probe";
  onHint(payload: string): void;
  /** LISTEN is in effect, for the first time or again; hints sent before it are missed. */
  onReady(): void;
  onLost(error: Error): void;
  /** A pooler that shares sessions was found; the listener does not retry. */
  onUnavailable?(reason: string): void;
  /** Runs after LISTEN and before onReady. */
  onListening?(client: pg.Client): Promise<void>;
  /** Runs every `pingMs` instead of `select 1`. */
  ping?(client: pg.Client): Promise<unknown>;
  /** Runs on a session that is being closed after LISTEN was sent. */
  onClosing?(client: pg.Client): Promise<unknown>;
  pingMs?: number;
}

const RESPONSE_TIMEOUT_MS = 3000;

export class Listener {
  readonly #options: ListenerOptions;
  readonly #stopping = new AbortController();
  #ready = false;
  #readySince = 0;
  #loop: Promise<void> | undefined;

  constructor(options: ListenerOptions) {
    this.#options = options;
  }

  get ready(): boolean {
    return this.#ready;
  }

  /** How long the current session has been ready; 0 without one. */
  get readyForMs(): number {
    return this.#ready ? performance.now() - this.#readySince : 0;
  }

  open(): void {
    this.#loop ??= this.#keepOpen();
  }

  async close(): Promise<void> {
    this.#ready = false;
    this.#stopping.abort();
    await this.#loop;
  }

  async #keepOpen(): Promise<void> {
    const { signal } = this.#stopping;
    for (let failures = 0; !signal.aborted; failures++) {
      const startedAt = performance.now();
      try {
        if (!(await this.#session())) return;
      } catch (error) {
        const wasReady = this.#ready;
        this.#ready = false;
        if (signal.aborted) return;
        if (wasReady) this.#options.onLost(error as Error);
        if (performance.now() - startedAt > 10_000) failures = 0;
        await this.#pause(wasReady && failures === 0 ? 5 : reconnectMs(error, failures, 5000));
      }
    }
  }

  /** One connection until it is lost, which throws. Returns false when no further session is wanted or possible. */
  async #session(): Promise<boolean> {
    const { channel, onHint, onReady, onUnavailable, onListening, ping, onClosing, pingMs = 5000 } = this.#options;
    const { signal } = this.#stopping;
    const client = this.#connection();
    let listening = false;
    const lost = connectionLost(client);
    client.on("notification", ({ payload }) => onHint(payload ?? ""));
    try {
      await client.connect();
      if (signal.aborted) return false;
      if (await this.#sharesSessions(client)) {
        onUnavailable?.("A pooler that shares sessions is in between: set directUrl for hints and quick recovery");
        return false;
      }
      await client.query(`listen "${channel}"`);
      listening = true;
      await onListening?.(client);
      if (signal.aborted) return false;
      this.#ready = true;
      this.#readySince = performance.now();
      onReady();
      for (;;) {
        await Promise.race([this.#pause(pingMs), lost]);
        if (signal.aborted) return false;
        await (ping ? ping(client) : client.query("select 1"));
      }
    } finally {
      if (!signal.aborted) destroyConnection(client);
      else {
        // In sequence: closing the connection would cut off a statement in flight.
        if (listening) await onClosing?.(client).catch(() => {});
        await closeConnection(client);
      }
    }
  }

  #connection(): pg.Client {
    const { Client, connectionString } = clientFor(this.#options.url);
    return new Client({
      connectionString,
      application_name: this.#options.applicationName,
      connectionTimeoutMillis: 5000,
      query_timeout: RESPONSE_TIMEOUT_MS,
      keepAlive: true,
    });
  }

  /**
   * A shared session shows a setting of one client to another, if the two happen to get the same one. Under load they
   * seldom do, so the deciding test is whether a notification arrives.
   */
  async #sharesSessions(client: pg.Client): Promise<boolean> {
    if (!(await isPooled(client))) return false;
    if (this.#options.pooler === "refuse") return true;
    const probe = randomBytes(8).toString("hex");
    await client.query("select set_config('stillwake.probe', $1, false)", [probe]);
    const other = this.#connection();
    other.on("error", () => {});
    try {
      await other.connect();
      const { rows } = await other.query("select current_setting('stillwake.probe', true) as probe");
      if (rows[0].probe === probe) return true;
      const channel = `stillwake_probe_${probe}`;
      const arrived = new Promise<boolean>((resolve) => {
        client.on("notification", (hint) => hint.channel === channel && resolve(true));
      });
      await client.query(`listen ${channel}`);
      await other.query(`notify ${channel}`);
      const delivered = await Promise.race([arrived, this.#pause(RESPONSE_TIMEOUT_MS).then(() => false)]);
      await client.query(`unlisten ${channel}`);
      return !delivered;
    } finally {
      destroyConnection(other);
    }
  }

  async #pause(ms: number): Promise<void> {
    await delay(ms, undefined, { signal: this.#stopping.signal }).catch(() => {});
  }
}

/** A pooler invents the process id that it reports to clients at connect. */
export async function isPooled(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query("select pg_backend_pid() as pid");
  return rows[0].pid !== (client as unknown as { processID: number }).processID;
}
