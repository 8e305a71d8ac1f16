// One of GitHub's budgets of calls: so many in a window, which opens with the first call after the last window has ended. Nobody's calls, no windows.
// The caller says what time it is, so that all that is done for one call happens at one moment and in one window.

export interface BudgetOptions {
  limit: number;
  windowMs: number;
}

export class Budget {
  limit: number;
  /** Of the present or the last window; 0 before the first one. */
  number = 0;
  readonly #windowMs: number;
  #endsAt = 0;
  #used = 0;

  constructor({ limit, windowMs }: BudgetOptions) {
    this.limit = limit;
    this.#windowMs = windowMs;
  }

  /** Opens a window if none is open. Answers its number. */
  enter(now: number): number {
    if (now >= this.#endsAt) {
      this.number += 1;
      this.#endsAt = now + this.#windowMs;
      this.#used = 0;
    }
    return this.number;
  }

  /** One call of the window that was entered. */
  spend(): void {
    this.#used += 1;
  }

  /** As GitHub tells it. Where no window is open, it is told as if one opened now. */
  state(now: number): { limit: number; used: number; remaining: number; reset: number } {
    const isOpen = now < this.#endsAt;
    const used = isOpen ? this.#used : 0;
    const endsAt = isOpen ? this.#endsAt : now + this.#windowMs;
    return { limit: this.limit, used, remaining: Math.max(0, this.limit - used), reset: Math.ceil(endsAt / 1000) };
  }
}
