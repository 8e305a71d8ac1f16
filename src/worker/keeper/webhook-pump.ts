// Runs a webhook sender inside a worker. Hints report new webhooks; without hints it checks after each job of this
// worker and at an interval.
import type { Database } from "../../db/database.ts";
import type { WebhookSenderOptions } from "../../webhooks/options.ts";
import { Sender } from "../../webhooks/sender.ts";
import type { WorkerEvents } from "../observe/events.ts";

export interface WebhookPumpOptions {
  database: Database;
  events: WorkerEvents;
  name: string;
  /** Undefined: this worker sends no webhooks. */
  webhooks: WebhookSenderOptions | undefined;
  hintsArrive(): boolean;
}

/** The interval without hints, and with them: hints are lost with connections. */
const CHECK_MS = 5000;
const CHECK_WITH_HINTS_MS = 60_000;
/** How long a worker that stops keeps sending: after it decided to stop, or after it was requested to. */
const OWN_STOP_MS = 20_000;
const REQUESTED_STOP_MS = 3000;
const ownReasons = new Set(["idle", "nothing is left to do", "after one job"]);

export class WebhookPump {
  readonly #sender: Sender | undefined;
  #started = false;

  constructor({ database, events, name, webhooks, hintsArrive }: WebhookPumpOptions) {
    if (!webhooks) return;
    const sender = new Sender(
      {
        database,
        name,
        onSent: (sent) => events.emit({ kind: "webhook", ...sent }),
        onError: (error) => events.emit({ kind: "claim.failed", message: `webhooks: ${(error as Error).message}` }),
      },
      webhooks,
    );
    this.#sender = sender;
    let checkedAt = performance.now();
    events.subscribe(({ kind }) => {
      if (!this.#started || (kind !== "attempt.ended" && kind !== "claim.empty")) return;
      // First, because it applies to every job of a busy worker.
      if (kind === "attempt.ended" && hintsArrive()) return;
      const now = performance.now();
      if (kind === "claim.empty" && now - checkedAt < (hintsArrive() ? CHECK_WITH_HINTS_MS : CHECK_MS)) return;
      checkedAt = now;
      sender.pokeSoon();
    });
  }

  start(): void {
    this.#started = true;
    this.#sender?.pokeSoon();
  }

  /** There are webhooks to send. */
  poke(): void {
    if (this.#started) this.#sender?.poke();
  }

  /** There may be webhooks to send: hints may have been missed. */
  check(): void {
    if (this.#started) this.#sender?.pokeSoon();
  }

  /** Sends due webhooks first, because no other sender may be running; longer if the worker decided to stop by itself. */
  async stop(reason: string, limitMs: number): Promise<void> {
    const deadline = performance.now() + limitMs;
    const flushMs = Math.min(limitMs, ownReasons.has(reason) ? OWN_STOP_MS : REQUESTED_STOP_MS);
    if (flushMs > 0 && this.#started) await this.#sender?.flush(flushMs);
    this.#started = false;
    await this.#sender?.stop(Math.max(1000, Math.min(deadline - performance.now(), OWN_STOP_MS)));
  }
}
