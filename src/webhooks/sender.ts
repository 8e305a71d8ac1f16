// Sends what is in the outbox: claims webhooks that are due, posts them, records what came of it. Every worker has one, and it can run alone.
//
//   poke, nudge, the next one's time -> look: claim for the free places -> post each -> record those that are done, together -> look again
//
// Idle means silent: with nothing to send it asks nothing until it is told that there may be something. At least once: a sender that dies between
// the receiver's answer and its record leaves a claim that runs out, and the next one sends the same bytes under the same id.
import { randomBytes } from "node:crypto";
import os from "node:os";
import {
  type ClaimedWebhook,
  claimWebhooks,
  settleWebhooks,
  type WebhookRecord,
  type WebhookState,
  webhooksDueIn,
} from "../db/calls/webhooks.ts";
import { Database, type DatabaseOptions } from "../db/database.ts";
import { readSenderOptions, type SenderSettings, type WebhookSenderOptions } from "./options.ts";
import type { Answer } from "./request.ts";
import { signWebhook } from "./signature.ts";

/** Told of every try that was recorded; "lost" when somebody else has the webhook by now. */
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
  /** The database refused or could not be asked; it is asked again. */
  onTrouble?(error: unknown): void;
}

interface Done {
  claimed: ClaimedWebhook;
  answer: Answer;
  tookMs: number;
}

/** Beyond the time limit of a try: for its record. */
const RECORD_MS = 45_000;
/** How long to wait when something is due and not to be had: its lane is full, or another sender has it. */
const VAIN_MS = 200;
const VAIN_MOST_MS = 5000;
const NUDGE_MS = 250;
/** The longest a Node timer can be. */
const FOREVER_MS = 2 ** 31 - 1;

export class Sender {
  readonly #host: SenderHost;
  readonly #settings: SenderSettings;
  readonly #trying = new Map<string, ClaimedWebhook>();
  #done: Done[] = [];
  #recording: Promise<void> | undefined;
  /** One turn at a time, and what is wanted after it: to look for something to send, or only to ask when there will be. */
  #turning: Promise<void> | undefined;
  #next: "look" | "ask" | undefined;
  #timer: NodeJS.Timeout | undefined;
  #nudge: NodeJS.Timeout | undefined;
  #vain = 0;
  /** Claimed since flush() last looked. */
  #taken = 0;
  #after = "";
  /** Something is due that there was no place for. */
  #more = false;
  #stopped = false;
  #quiet: (() => void)[] = [];

  constructor(host: SenderHost, options: WebhookSenderOptions = {}) {
    this.#host = host;
    this.#settings = readSenderOptions(options);
  }

  /** Tries under way or not recorded yet. */
  get active(): number {
    return this.#trying.size;
  }

  start(): this {
    this.poke();
    return this;
  }

  /** There is something to send. */
  poke(): void {
    void this.#turn("look");
  }

  /** There may be something to send: asks, soon and once, however often it is told. */
  nudge(): void {
    if (this.#stopped) return;
    this.#nudge ??= setTimeout(() => {
      this.#nudge = undefined;
      void this.#turn("ask");
    }, NUDGE_MS).unref();
  }

  /** Sends everything that is due now, and gives up after the limit. */
  async flush(limitMs: number): Promise<void> {
    const until = performance.now() + limitMs;
    do {
      this.#taken = 0;
      // A database that went away without a word would be waited for longer than that.
      await within(until - performance.now(), this.#turn("look"));
      await this.#becomesQuiet(until - performance.now());
      // What is due and not to be had is left to whoever has it.
    } while (this.#taken > 0 && performance.now() < until && !this.#stopped);
  }

  /** Claims no more; what is under way is finished and recorded, within the limit. */
  async stop(limitMs = this.#settings.timeoutMs + 5000): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#nudge);
    await this.#becomesQuiet(limitMs);
    this.#settings.poster.close();
  }

  /** Whoever comes in the midst of a turn has another one after it: what is being answered may be older than what he knows. */
  #turn(wanted: "look" | "ask"): Promise<void> {
    if (this.#turning) {
      if (this.#next !== "look") this.#next = wanted;
      return this.#turning;
    }
    this.#turning = (wanted === "look" ? this.#look() : this.#ask()).finally(() => {
      const next = this.#next;
      this.#turning = this.#next = undefined;
      if (next && !this.#stopped) void this.#turn(next);
      this.#tellQuiet();
    });
    return this.#turning;
  }

  async #look(): Promise<void> {
    const { concurrency, timeoutMs, crash } = this.#settings;
    const { database, name } = this.#host;
    const limit = concurrency - this.#trying.size;
    this.#more = limit <= 0;
    if (this.#stopped || limit <= 0) return;
    // Lanes that fail hold at most half of the places: however many receivers are dead, the others have the rest.
    const slow = [...this.#trying.values()].filter(({ failing }) => failing).length;
    crash("claiming");
    try {
      const claimed = await claimWebhooks(database, {
        sender: name,
        limit,
        failing: Math.max(0, Math.ceil(concurrency / 2) - slow),
        spanMs: timeoutMs + RECORD_MS,
        after: this.#after,
      });
      if (claimed.length > 0) crash("claimed");
      this.#after = claimed.at(-1)?.lane ?? "";
      if (claimed.length > 0) this.#vain = 0;
      this.#taken += claimed.length;
      if (this.#stopped) return await this.#giveBack(claimed);
      for (const one of claimed) void this.#send(one, performance.now());
      this.#more = claimed.length === limit;
      if (this.#more) return;
      const inMs = await webhooksDueIn(database);
      this.#more = inMs !== null && inMs <= 0;
      this.#wakeIn(this.#more ? Math.min(VAIN_MS * 2 ** this.#vain++, VAIN_MOST_MS) : inMs);
    } catch (error) {
      this.#trouble(error);
    }
  }

  async #ask(): Promise<void> {
    if (this.#stopped) return;
    try {
      const inMs = await webhooksDueIn(this.#host.database);
      if (inMs !== null && inMs <= 0) this.#next = "look";
      else this.#wakeIn(inMs);
    } catch (error) {
      this.#trouble(error);
    }
  }

  /** Nothing is known: the next question may be answered. */
  #trouble(error: unknown): void {
    if (!this.#stopped) this.#host.onTrouble?.(error);
    this.#wakeIn(VAIN_MOST_MS);
  }

  /** Claimed while it was told to stop: not tried, so not counted. */
  async #giveBack(claimed: ClaimedWebhook[]): Promise<void> {
    const { database, name } = this.#host;
    if (claimed.length === 0) return;
    await settleWebhooks(
      database,
      claimed.map(({ id, epoch }) => ({ id, epoch, sender: name, released: true })),
    );
  }

  /** Null: nothing waits, so nothing is asked until somebody says so. */
  #wakeIn(ms: number | null): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (ms === null || this.#stopped) return;
    this.#timer = setTimeout(() => this.poke(), Math.min(Math.max(ms, 1), FOREVER_MS));
  }

  async #send(claimed: ClaimedWebhook, claimedAt: number): Promise<void> {
    const { poster, timeoutMs, crash } = this.#settings;
    this.#trying.set(claimed.id, claimed);
    const began = performance.now();
    let answer: Answer;
    try {
      const { id, url, body, headers, secrets, now } = claimed;
      // The database's clock, which all senders share, and what has passed since it was asked.
      const timestamp = Math.floor(now + (began - claimedAt) / 1000);
      const signature = await signWebhook(secrets, id, timestamp, body);
      const signed = { "webhook-id": id, "webhook-timestamp": String(timestamp), "webhook-signature": signature };
      const onWritten = () => crash("written");
      answer = await poster.post({ url, body, headers: { ...headers, ...signed }, timeoutMs, onWritten });
    } catch {
      answer = { error: "FAILED" };
    }
    crash("answered");
    this.#done.push({ claimed, answer, tookMs: performance.now() - began });
    this.#recording ??= this.#record().finally(() => {
      this.#recording = undefined;
      this.#tellQuiet();
    });
  }

  /** All that are done by then with one statement. */
  async #record(): Promise<void> {
    const { database, name, onSent } = this.#host;
    for (let done = this.#take(); done.length > 0; done = this.#take()) {
      const records = done.map(({ claimed: { id, epoch }, answer, tookMs }): WebhookRecord => {
        const { status, error, response, retryAfter } = answer;
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
        // Not recorded: the claims run out, and they are sent again.
        this.#trouble(error);
      }
      for (const { claimed } of done) this.#trying.delete(claimed.id);
      for (const { claimed, answer, tookMs } of done) {
        try {
          onSent?.({
            id: claimed.id,
            endpoint: claimed.endpoint,
            attempt: claimed.attempt,
            state: states.get(claimed.id) ?? "lost",
            status: answer.status ?? null,
            error: answer.error ?? null,
            tookMs,
          });
        } catch (error) {
          this.#trouble(error);
        }
      }
      // What waited for a place has one now. What failed comes back, and what was delivered no longer runs out.
      if (this.#more) void this.#turn("look");
      else if (this.#trying.size === 0 || [...states.values()].includes("pending")) void this.#turn("ask");
    }
  }

  #take(): Done[] {
    return this.#done.splice(0, 200);
  }

  async #becomesQuiet(limitMs: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const over = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, Math.max(0, limitMs));
    });
    const quiet = async () => {
      while (this.#trying.size > 0 || this.#recording || this.#turning) {
        await new Promise<void>((resolve) => this.#quiet.push(resolve));
      }
    };
    await Promise.race([quiet(), over]);
    clearTimeout(timer);
  }

  #tellQuiet(): void {
    for (const resolve of this.#quiet.splice(0)) resolve();
  }
}

export interface StandaloneSender extends AsyncDisposable {
  /** There is something to send. */
  poke(): void;
  /** Sends everything that is due now. */
  flush(limitMs?: number): Promise<void>;
  stop(): Promise<void>;
}

export type CreateSenderOptions = WebhookSenderOptions &
  Pick<DatabaseOptions, "url" | "pool" | "schema" | "patience"> & {
    /** How it is called in deliveries. Default: host, pid and a random part. */
    name?: string;
    onSent?: (sent: SentWebhook) => void;
    /** Told of what keeps it from sending, such as a database that is away. */
    onTrouble?: (error: unknown) => void;
  };

/** A sender without a worker. Poke it when jobs have ended; by itself it only knows what is due later. */
export function createSender(options: CreateSenderOptions): StandaloneSender {
  const { url, pool, schema, patience = "forever", name, onSent, onTrouble, ...settings } = options;
  const database = new Database({
    ...(url && { url }),
    ...(pool && { pool }),
    ...(schema && { schema }),
    connections: 2,
    patience,
  });
  const host = { database, name: name ?? `${os.hostname()}-${process.pid}-${randomBytes(3).toString("hex")}` };
  const sender = new Sender({ ...host, ...(onSent && { onSent }), ...(onTrouble && { onTrouble }) }, settings).start();
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

async function within(ms: number, turn: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, Math.max(ms, 0));
  });
  await Promise.race([turn, late]);
  clearTimeout(timer);
}
