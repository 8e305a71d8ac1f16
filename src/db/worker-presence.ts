// The direct connection of a worker: hints of new work arrive on it, and an advisory lock held by its session shows
// that the worker is alive. A lock that disappears lets other workers recover its jobs before their leases expire.
import { randomBytes } from "node:crypto";
import type pg from "pg";
import { presenceStatements } from "./calls/worker.ts";
import { Listener } from "./listener.ts";

export interface WorkerPresenceOptions {
  url: string;
  schema: string;
  worker: string;
  /** The pools whose hints it receives. */
  pools(): readonly string[];
  /** A pool with new work, "@worker" when a cancel or pause of one of its jobs was requested, or "#webhooks". */
  onHint(payload: string): void;
  onReady(): void;
  onLost(error: Error): void;
  /** This URL cannot carry hints: a pooler shares its sessions. */
  onUnavailable(reason: string): void;
  pingMs?: number;
}

/** How long the worker stays listed as a listener after its last renewal; a hint without a listener costs little. */
const LISTED_FOR = "2 minutes";
const RENEW_MS = 60_000;

export class WorkerPresence {
  readonly #options: WorkerPresenceOptions;
  readonly #listener: Listener;
  #key = 0n;
  #nextKey = 0n;
  #renewedAt = 0;

  constructor(options: WorkerPresenceOptions) {
    this.#options = options;
    const { url, schema, worker, onHint, onReady, onLost, onUnavailable, pingMs } = options;
    this.#listener = new Listener({
      url,
      applicationName: "stillwake direct",
      channel: `${schema}.hint`,
      pooler: "probe",
      onHint,
      onReady: () => {
        this.#key = this.#nextKey;
        onReady();
      },
      onLost,
      onUnavailable,
      onListening: (client) => this.#register(client),
      ping: (client) =>
        performance.now() - this.#renewedAt > RENEW_MS ? this.#renew(client) : client.query("select 1"),
      onClosing: (client) => client.query(presenceStatements(schema).leave, [worker]),
      ...(pingMs !== undefined && { pingMs }),
    });
  }

  /**
   * The key of the lock that this session holds; negative once the session is over, null before the first. It grows
   * with every session, which tells a delayed heartbeat from a new one.
   */
  get presence(): string | null {
    if (this.#key === 0n) return null;
    return String(this.ready ? this.#key : -this.#key);
  }

  get ready(): boolean {
    return this.#listener.ready;
  }

  /** How long this worker has been connected without interruption. */
  get readyForMs(): number {
    return this.#listener.readyForMs;
  }

  open(): void {
    this.#listener.open();
  }

  close(): Promise<void> {
    return this.#listener.close();
  }

  async #register(client: pg.Client): Promise<void> {
    this.#nextKey = this.#key === 0n ? randomBytes(8).readBigUInt64BE() >> 2n : this.#key + 1n;
    // First, because a listener without its presence counts as lost.
    await client.query(presenceStatements(this.#options.schema).hold, [String(this.#nextKey)]);
    await this.#renew(client);
  }

  async #renew(client: pg.Client): Promise<void> {
    const { schema, worker, pools } = this.#options;
    const { renew } = presenceStatements(schema);
    for (const pool of pools()) await client.query(renew, [worker, pool, LISTED_FOR, String(this.#nextKey)]);
    this.#renewedAt = performance.now();
  }
}
