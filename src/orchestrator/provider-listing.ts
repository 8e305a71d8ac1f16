// Lists the machines of a provider outside the orchestrator's rounds, so that a slow provider does not delay other pools. A list is used
// once, with a snapshot taken after it: a listed machine without a life in that snapshot is a stray.
import type { Clock, ListedMachine, Provider } from "./provider.ts";

export interface ProviderListingOptions {
  provider: Provider;
  clock: Clock;
  onListed(): void;
  onFailed(error: unknown): void;
}

/** Pause after list() failed with all its retries. */
const PAUSE_MS = 15_000;
/** How often the list is repeated while a machine runs without a life: its worker may register at any moment. */
const STRAY_MS = 30_000;

export class ProviderListing {
  readonly #options: ProviderListingOptions;
  #pending: Promise<void> | undefined;
  #listed: { machines: ListedMachine[]; requestedAt: number; listedAt: number } | undefined;
  #retryAt = Number.NEGATIVE_INFINITY;
  /** Since when a machine is listed without a life, by its name. */
  readonly #strays = new Map<string, number>();
  /** A new list is needed in any case. */
  wanted = true;
  /** Time of the last request. */
  requestedAt = Number.NEGATIVE_INFINITY;

  constructor(options: ProviderListingOptions) {
    this.#options = options;
  }

  get busy(): boolean {
    return this.#pending !== undefined;
  }

  async settled(): Promise<void> {
    await this.#pending;
  }

  /** Requests a list, unless a request is pending or has just failed. */
  request(): void {
    const { clock } = this.#options;
    if (this.#pending || clock.now() < this.#retryAt) return;
    this.requestedAt = clock.now();
    this.#pending = this.#list().finally(() => {
      this.#pending = undefined;
      if (this.#listed) this.#options.onListed();
    });
  }

  /** Returns the list once, if it arrived before the given time, and how long ago it was requested. */
  take(before: number): { machines: ListedMachine[]; agoMs: number } | undefined {
    const listed = this.#listed;
    if (!listed || listed.listedAt > before) return undefined;
    this.#listed = undefined;
    return { machines: listed.machines, agoMs: this.#options.clock.now() - listed.requestedAt };
  }

  /** `known`: machines with a life or a job, from a snapshot taken after the list. */
  noteStrays(machines: readonly ListedMachine[], known: ReadonlySet<string>): void {
    const strays = machines.filter(({ name, state }) => state !== "gone" && state !== "stopped" && !known.has(name));
    const names = new Set(strays.map(({ name }) => name));
    for (const name of this.#strays.keys()) if (!names.has(name)) this.#strays.delete(name);
    for (const name of names) if (!this.#strays.has(name)) this.#strays.set(name, this.#options.clock.now());
  }

  /** For how long a machine has been listed without a life. */
  strayMs(name: string): number {
    return this.#options.clock.now() - (this.#strays.get(name) ?? this.#options.clock.now());
  }

  /** Machines without a life need a new list. */
  get isDue(): boolean {
    return this.#strays.size > 0 && this.#options.clock.now() - this.requestedAt >= STRAY_MS;
  }

  /** When the orchestrator has to run a round for the list. */
  checkAgainMs(): number | undefined {
    const now = this.#options.clock.now();
    if (this.#pending) return undefined;
    if (this.wanted) return Math.max(this.#retryAt - now, 1000);
    return this.#strays.size > 0 ? Math.max(this.requestedAt + STRAY_MS - now, 1000) : undefined;
  }

  async #list(): Promise<void> {
    const { provider, clock, onFailed } = this.#options;
    try {
      const machines = await provider.list();
      this.#listed = { machines, requestedAt: this.requestedAt, listedAt: clock.now() };
      this.wanted = false;
    } catch (error) {
      this.#retryAt = clock.now() + PAUSE_MS;
      onFailed(error);
    }
  }
}
