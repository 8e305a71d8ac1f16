// The sender of a worker: what its jobs, and those of others, have to tell goes out beside the work. It hears of new webhooks by hints; without
// them it asks when a job of this worker has ended, and now and then.
import type { Database } from "../../db/database.ts";
import type { WebhookSenderOptions } from "../../webhooks/options.ts";
import { Sender } from "../../webhooks/sender.ts";
import type { Announcer } from "../observe/events.ts";

export interface TellsOptions {
  database: Database;
  announcer: Announcer;
  name: string;
  /** Undefined: others send. */
  webhooks: WebhookSenderOptions | undefined;
  /** Whether hints arrive. */
  pushed(): boolean;
}

/** How often to ask although nobody has said anything: hints are lost with connections. */
const ASK_MS = 5000;
const PUSHED_ASK_MS = 60_000;
/** How long a worker that leaves sends what is due: by itself, or because it was told to. */
const LAST_MS = 20_000;
const TOLD_MS = 3000;
const byItself = new Set(["idle", "nothing is left to do", "after one job"]);

export class Tells {
  readonly #sender: Sender | undefined;
  #begun = false;

  constructor({ database, announcer, name, webhooks, pushed }: TellsOptions) {
    if (!webhooks) return;
    const sender = new Sender(
      {
        database,
        name,
        onSent: (sent) => announcer.announce({ kind: "webhook", ...sent }),
        onTrouble: (error) =>
          announcer.announce({ kind: "claim.failed", message: `webhooks: ${(error as Error).message}` }),
      },
      webhooks,
    );
    this.#sender = sender;
    let askedAt = performance.now();
    announcer.subscribe(({ kind }) => {
      if (!this.#begun || (kind !== "attempt.ended" && kind !== "claim.empty")) return;
      // First, because it is so for every job of a busy worker.
      if (kind === "attempt.ended" && pushed()) return;
      const now = performance.now();
      if (kind === "claim.empty" && now - askedAt < (pushed() ? PUSHED_ASK_MS : ASK_MS)) return;
      askedAt = now;
      sender.nudge();
    });
  }

  begin(): void {
    this.#begun = true;
    this.#sender?.nudge();
  }

  /** A hint. */
  poke(): void {
    if (this.#begun) this.#sender?.poke();
  }

  /** Hints may have gone by unheard. */
  ask(): void {
    if (this.#begun) this.#sender?.nudge();
  }

  /** What is due is sent first, for a while: nobody else may be here for what the last jobs have to tell. Longer when nobody waits for the end. */
  async end(reason: string, patienceMs: number): Promise<void> {
    const until = performance.now() + patienceMs;
    const limitMs = Math.min(patienceMs, byItself.has(reason) ? LAST_MS : TOLD_MS);
    if (limitMs > 0 && this.#begun) await this.#sender?.flush(limitMs);
    this.#begun = false;
    await this.#sender?.stop(Math.max(1000, Math.min(until - performance.now(), LAST_MS)));
  }
}
