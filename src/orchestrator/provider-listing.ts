// What a provider says there is. It is asked beside the rounds, so that one that is slow to answer holds up no other pool; an answer is used once, by a look that was
// taken after it: what is in the list and has no life then was reserved by nobody.
import type { Clock, Provider, SeenMachine } from "./provider.ts";

export interface ListingOptions {
  provider: Provider;
  clock: Clock;
  onAnswer(): void;
  onTrouble(error: unknown): void;
}

/** After a provider did not answer, with all its tries. */
const PAUSE_MS = 15_000;
/** How often a machine is looked at that runs and has no life: its worker may arrive any moment. */
const STRAY_MS = 30_000;

export class Listing {
  readonly #options: ListingOptions;
  #underway: Promise<void> | undefined;
  #answer: { machines: SeenMachine[]; askedAt: number; answeredAt: number } | undefined;
  #askAgainAt = Number.NEGATIVE_INFINITY;
  /** Since when machines have been seen without a life, by their name. */
  readonly #strays = new Map<string, number>();
  /** Somebody wants to know, whatever was known before. */
  wanted = true;
  /** When it was asked last. */
  askedAt = Number.NEGATIVE_INFINITY;

  constructor(options: ListingOptions) {
    this.#options = options;
  }

  get busy(): boolean {
    return this.#underway !== undefined;
  }

  async settled(): Promise<void> {
    await this.#underway;
  }

  /** Unless it is being asked already, or gave no answer a moment ago. */
  ask(): void {
    const { clock } = this.#options;
    if (this.#underway || clock.now() < this.#askAgainAt) return;
    this.askedAt = clock.now();
    this.#underway = this.#ask().finally(() => {
      this.#underway = undefined;
      if (this.#answer) this.#options.onAnswer();
    });
  }

  /** The answer, once, if it came before this moment; and how long ago it was asked for. */
  take(before: number): { machines: SeenMachine[]; agoMs: number } | undefined {
    const answer = this.#answer;
    if (!answer || answer.answeredAt > before) return undefined;
    this.#answer = undefined;
    return { machines: answer.machines, agoMs: this.#options.clock.now() - answer.askedAt };
  }

  /** Which of them have no life, or a job without one, as of the same moment. */
  note(machines: readonly SeenMachine[], known: ReadonlySet<string>): void {
    const strays = machines.filter(({ name, state }) => state !== "gone" && state !== "stopped" && !known.has(name));
    const names = new Set(strays.map(({ name }) => name));
    for (const name of this.#strays.keys()) if (!names.has(name)) this.#strays.delete(name);
    for (const name of names) if (!this.#strays.has(name)) this.#strays.set(name, this.#options.clock.now());
  }

  /** For how long a machine has been seen without a life. */
  strayMs(name: string): number {
    return this.#options.clock.now() - (this.#strays.get(name) ?? this.#options.clock.now());
  }

  /** It is time to ask again about machines without a life. */
  get isDue(): boolean {
    return this.#strays.size > 0 && this.#options.clock.now() - this.askedAt >= STRAY_MS;
  }

  /** When somebody has to come back because of it. */
  againMs(): number | undefined {
    const now = this.#options.clock.now();
    if (this.#underway) return undefined;
    if (this.wanted) return Math.max(this.#askAgainAt - now, 1000);
    return this.#strays.size > 0 ? Math.max(this.askedAt + STRAY_MS - now, 1000) : undefined;
  }

  async #ask(): Promise<void> {
    const { provider, clock, onTrouble } = this.#options;
    try {
      const machines = await provider.list();
      this.#answer = { machines, askedAt: this.askedAt, answeredAt: clock.now() };
      this.wanted = false;
    } catch (error) {
      this.#askAgainAt = clock.now() + PAUSE_MS;
      onTrouble(error);
    }
  }
}
