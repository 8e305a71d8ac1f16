// One of GitHub's rate limits: a number of calls per window. A window opens with the first call after the last one ended. The
// caller passes the time, so that everything about one call happens in one window.

export interface QuotaOptions {
  limit: number;
  windowMs: number;
}

export class Quota {
  limit: number;
  /** Number of the current or last window; 0 before the first one. */
  windowNumber = 0;
  readonly #windowMs: number;
  #endsAt = 0;
  #used = 0;

  constructor({ limit, windowMs }: QuotaOptions) {
    this.limit = limit;
    this.#windowMs = windowMs;
  }

  /** Opens a window if none is open, and returns its number. */
  openWindow(now: number): number {
    if (now >= this.#endsAt) {
      this.windowNumber += 1;
      this.#endsAt = now + this.#windowMs;
      this.#used = 0;
    }
    return this.windowNumber;
  }

  /** Counts one call in the current window. */
  spend(): void {
    this.#used += 1;
  }

  /** In GitHub's format. Without an open window, as if one opened now. */
  state(now: number): { limit: number; used: number; remaining: number; reset: number } {
    const isOpen = now < this.#endsAt;
    const used = isOpen ? this.#used : 0;
    const endsAt = isOpen ? this.#endsAt : now + this.#windowMs;
    return { limit: this.limit, used, remaining: Math.max(0, this.limit - used), reset: Math.ceil(endsAt / 1000) };
  }
}
