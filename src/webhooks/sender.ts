// Sends webhooks: claims those that are due, posts them, records the results. Every worker runs one; createSender()
// runs one without a worker.
//
//   poke, pokeSoon or the next due time -> claim for the free slots -> post each -> record the results in batches -> claim again
//
// With nothing to send it sends no queries until it is poked. Delivery is at least once: if a sender dies between the
// receiver's response and the record, its claim expires and another sender sends the same bytes under the same id.
import { randomBytes } from "node:crypto";
import os from "node:os";
import {
  type ClaimedWebhook,
  claimWebhooks,
  settleWebhooks,
  type WebhookResult,
  type WebhookState,
  webhooksDueInMs,
} from "../db/calls/webhooks.ts";
import { Database, type DatabaseOptions } from "../db/database.ts";
import { MAX_TIMER_MS, withTimeout } from "../timeout.ts";
import { readSenderOptions, type SenderSettings, type WebhookSenderOptions } from "./options.ts";
import type { PostResult } from "./request.ts";
import { signWebhook } from "./signature.ts";

/** A recorded delivery attempt; "lost" when another sender has claimed the webhook since. */
export interface SentWebhook {
  id: string;
  endpoint: string;
  attempt: number;
  state: WebhookState | "lost";
  status: number | null;
  error: string | null;
  tookMs: number;
}

export interface SenderHost {
  database: Database;
  name: string;
  onSent?(sent: SentWebhook): void;
  /** A query failed; it is retried. */
  onError?(error: unknown): void;
}

interface Delivery {
  claimed: ClaimedWebhook;
  result: PostResult;
  tookMs: number;
}

/** Added to the time limit of a delivery attempt, for its record. */
const RECORD_MS = 45_000;
/** Back-off when a webhook is due but cannot be claimed: its lane is full, or another sender has it. */
const BACKOFF_MS = 200;
const MAX_BACKOFF_MS = 5000;
const POKE_SOON_MS = 250;

export class Sender {
  readonly #host: SenderHost;
  readonly #settings: SenderSettings;
  readonly #inFlight = new Map<string, ClaimedWebhook>();
  #unrecorded: Delivery[] = [];
  #recording: Promise<void> | undefined;
  /** One query round at a time, and the one requested after it: claim, or only query the next due time. */
  #round: Promise<void> | undefined;
  #nextRound: "claim" | "check" | undefined;
  #timer: NodeJS.Timeout | undefined;
  #pokeTimer: NodeJS.Timeout | undefined;
  #emptyClaims = 0;
  /** The number of webhooks claimed in this iteration of flush(). */
  #claimed = 0;
  /** The lane of the last claim; the next claim starts after it. */
  #afterLane = "";
  /** More webhooks are due than slots were free. */
  #more = false;
  #stopped = false;
  #onChange: (() => void)[] = [];

  constructor(host: SenderHost, options: WebhookSenderOptions = {}) {
    this.#host = host;
    this.#settings = readSenderOptions(options);
  }

  /** The number of deliveries in flight or not recorded yet. */
  get active(): number {
    return this.#inFlight.size;
  }

  start(): this {
    this.poke();
    return this;
  }

  /** There are webhooks to send. */
  poke(): void {
    void this.#startRound("claim");
  }

  /** There may be webhooks to send. Calls within a short time share one query. */
  pokeSoon(): void {
    if (this.#stopped) return;
    this.#pokeTimer ??= setTimeout(() => {
      this.#pokeTimer = undefined;
      void this.#startRound("check");
    }, POKE_SOON_MS).unref();
  }

  /** Sends everything that is due now, until the limit. */
  async flush(limitMs: number): Promise<void> {
    const deadline = performance.now() + limitMs;
    do {
      this.#claimed = 0;
      // A query to an unreachable database would take longer than the limit.
      await withTimeout(this.#startRound("claim"), deadline - performance.now(), undefined);
      await this.#waitUntilIdle(deadline - performance.now());
      // A due webhook that cannot be claimed is left to the sender that has it.
    } while (this.#claimed > 0 && performance.now() < deadline && !this.#stopped);
  }

  /** Stops claiming; deliveries in flight are finished and recorded, within the limit. */
  async stop(limitMs = this.#settings.timeoutMs + 5000): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#pokeTimer);
    await this.#waitUntilIdle(limitMs);
    this.#settings.poster.close();
  }

  /** A request during a round starts another one after it, because the running query may not see the new webhook. */
  #startRound(kind: "claim" | "check"): Promise<void> {
    if (this.#round) {
      if (this.#nextRound !== "claim") this.#nextRound = kind;
      return this.#round;
    }
    this.#round = (kind === "claim" ? this.#claim() : this.#check()).finally(() => {
      const next = this.#nextRound;
      this.#round = this.#nextRound = undefined;
      if (next && !this.#stopped) void this.#startRound(next);
      this.#notifyChange();
    });
    return this.#round;
  }

  async #claim(): Promise<void> {
    const { concurrency, timeoutMs, crash } = this.#settings;
    const { database, name } = this.#host;
    const limit = concurrency - this.#inFlight.size;
    this.#more = limit <= 0;
    if (this.#stopped || limit <= 0) return;
    // Failing lanes get at most half of the slots, so that dead receivers cannot block the others.
    const failing = [...this.#inFlight.values()].filter(({ failing }) => failing).length;
    crash("claiming");
    try {
      const claimed = await claimWebhooks(database, {
        sender: name,
        limit,
        failing: Math.max(0, Math.ceil(concurrency / 2) - failing),
        spanMs: timeoutMs + RECORD_MS,
        after: this.#afterLane,
      });
      if (claimed.length > 0) crash("claimed");
      this.#afterLane = claimed.at(-1)?.lane ?? "";
      if (claimed.length > 0) this.#emptyClaims = 0;
      this.#claimed += claimed.length;
      if (this.#stopped) return await this.#release(claimed);
      for (const webhook of claimed) void this.#send(webhook, performance.now());
      this.#more = claimed.length === limit;
      if (this.#more) return;
      const inMs = await webhooksDueInMs(database);
      this.#more = inMs !== null && inMs <= 0;
      this.#pokeIn(this.#more ? Math.min(BACKOFF_MS * 2 ** this.#emptyClaims++, MAX_BACKOFF_MS) : inMs);
    } catch (error) {
      this.#onError(error);
    }
  }

  async #check(): Promise<void> {
    if (this.#stopped) return;
    try {
      const inMs = await webhooksDueInMs(this.#host.database);
      if (inMs !== null && inMs <= 0) this.#nextRound = "claim";
      else this.#pokeIn(inMs);
    } catch (error) {
      this.#onError(error);
    }
  }

  #onError(error: unknown): void {
    if (!this.#stopped) this.#host.onError?.(error);
    this.#pokeIn(MAX_BACKOFF_MS);
  }

  /** Claimed while stopping: released without counting an attempt. */
  async #release(claimed: ClaimedWebhook[]): Promise<void> {
    const { database, name } = this.#host;
    if (claimed.length === 0) return;
    await settleWebhooks(
      database,
      claimed.map(({ id, epoch }) => ({ id, epoch, sender: name, released: true })),
    );
  }

  /** Null: no webhook is waiting, so the next query follows a poke. */
  #pokeIn(ms: number | null): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (ms === null || this.#stopped) return;
    this.#timer = setTimeout(() => this.poke(), Math.min(Math.max(ms, 1), MAX_TIMER_MS));
  }

  async #send(claimed: ClaimedWebhook, claimedAt: number): Promise<void> {
    const { poster, timeoutMs, crash } = this.#settings;
    this.#inFlight.set(claimed.id, claimed);
    const startedAt = performance.now();
    let result: PostResult;
    try {
      const { id, url, body, headers, secrets, now } = claimed;
      // The database's clock at the claim, which all senders share, plus the time since.
      const timestamp = Math.floor(now + (startedAt - claimedAt) / 1000);
      const signature = await signWebhook(secrets, id, timestamp, body);
      const signed = { "webhook-id": id, "webhook-timestamp": String(timestamp), "webhook-signature": signature };
      const onWritten = () => crash("written");
      result = await poster.post({ url, body, headers: { ...headers, ...signed }, timeoutMs, onWritten });
    } catch {
      result = { error: "FAILED" };
    }
    crash("answered");
    this.#unrecorded.push({ claimed, result, tookMs: performance.now() - startedAt });
    this.#recording ??= this.#record().finally(() => {
      this.#recording = undefined;
      this.#notifyChange();
    });
  }

  /** Records all finished deliveries with one statement, until none is left. */
  async #record(): Promise<void> {
    const { database, name, onSent } = this.#host;
    for (let batch = this.#takeBatch(); batch.length > 0; batch = this.#takeBatch()) {
      const records = batch.map(({ claimed: { id, epoch }, result, tookMs }): WebhookResult => {
        const { status, error, response, retryAfter } = result;
        return {
          id,
          epoch,
          sender: name,
          took_ms: tookMs,
          ...(status !== undefined && { status }),
          ...(error !== undefined && { error }),
          ...(response !== undefined && { response }),
          ...(retryAfter !== undefined && { retry_after: retryAfter }),
        };
      });
      let states = new Map<string, WebhookState | "lost">();
      try {
        states = new Map((await settleWebhooks(database, records)).map(({ id, state }) => [id, state]));
        this.#settings.crash("recorded");
      } catch (error) {
        // Not recorded: the claims expire, and the webhooks are sent again.
        this.#onError(error);
      }
      for (const { claimed } of batch) this.#inFlight.delete(claimed.id);
      for (const { claimed, result, tookMs } of batch) {
        try {
          onSent?.({
            id: claimed.id,
            endpoint: claimed.endpoint,
            attempt: claimed.attempt,
            state: states.get(claimed.id) ?? "lost",
            status: result.status ?? null,
            error: result.error ?? null,
            tookMs,
          });
        } catch (error) {
          this.#onError(error);
        }
      }
      // Slots are free again. A failed webhook has a new due time, and a delivered one no longer expires.
      if (this.#more) void this.#startRound("claim");
      else if (this.#inFlight.size === 0 || [...states.values()].includes("pending")) void this.#startRound("check");
    }
  }

  #takeBatch(): Delivery[] {
    return this.#unrecorded.splice(0, 200);
  }

  async #waitUntilIdle(limitMs: number): Promise<void> {
    const idle = async () => {
      while (this.#inFlight.size > 0 || this.#recording || this.#round) {
        await new Promise<void>((resolve) => this.#onChange.push(resolve));
      }
    };
    await withTimeout(idle(), limitMs, undefined);
  }

  #notifyChange(): void {
    for (const resolve of this.#onChange.splice(0)) resolve();
  }
}

export interface StandaloneSender extends AsyncDisposable {
  /** There are webhooks to send. */
  poke(): void;
  /** Sends everything that is due now. */
  flush(limitMs?: number): Promise<void>;
  stop(): Promise<void>;
}

export type CreateSenderOptions = WebhookSenderOptions &
  Pick<DatabaseOptions, "url" | "pool" | "schema" | "retryTimeout"> & {
    /** Its name in deliveries. Default: host, pid and a random part. */
    name?: string;
    onSent?: (sent: SentWebhook) => void;
    /** Called with errors that prevent sending, such as an unreachable database. */
    onError?: (error: unknown) => void;
  };

/** A sender without a worker. Call poke() after jobs have ended: by itself it only sends at known due times. */
export function createSender(options: CreateSenderOptions): StandaloneSender {
  const { url, pool, schema, retryTimeout = "forever", name, onSent, onError, ...settings } = options;
  const database = new Database({
    ...(url && { url }),
    ...(pool && { pool }),
    ...(schema && { schema }),
    connections: 2,
    retryTimeout,
  });
  const host = { database, name: name ?? `${os.hostname()}-${process.pid}-${randomBytes(3).toString("hex")}` };
  const sender = new Sender({ ...host, ...(onSent && { onSent }), ...(onError && { onError }) }, settings).start();
  const stop = async () => {
    await sender.stop();
    await database.close();
  };
  return {
    poke: () => sender.poke(),
    flush: (limitMs = 60_000) => sender.flush(limitMs),
    stop,
    [Symbol.asyncDispose]: stop,
  };
}
