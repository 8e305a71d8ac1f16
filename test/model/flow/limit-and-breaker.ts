// One limit and one breaker as plain values: what they grant and hold back, written from the documentation. Times are
// milliseconds since the game began; the bins of a limit are aligned to the wall clock, so the model knows its start.

export interface LimitSettings {
  max?: number;
  period?: number;
  concurrency?: number;
  learn?: boolean;
}

/** What a claim returned to a worker. */
export interface Handle {
  job: string;
  epoch: string;
  lease: string;
}

export interface Told {
  remaining?: number;
  limit?: number;
  reset_ms?: number;
  refused_ms?: number;
}

export interface Use {
  take: number;
  least: number;
  done: number;
  unused: number;
  told: Told | null;
  slack: number;
  /** The bin of the grant that `unused` belongs to. */
  bin: number | null;
}

export interface Grant {
  granted: number;
  waitUntil: number | null;
  bin: number | null;
}

interface Quota {
  free: number;
  until: number | null;
}

export const FOREVER = Number.POSITIVE_INFINITY;

/** How late a use may arrive at the other side. */
export function useWithin(period: number): number {
  return Math.min(Math.max(period * 0.02, 20), 2000);
}

export class Limit {
  readonly settings: LimitSettings;
  /** Uses by the end of their bin. */
  bins = new Map<number, number>();
  toldMax: number | null = null;
  remaining: number | null = null;
  resetAt: number | null = null;
  /** From this time on the next window may have begun: its end is reported in whole seconds. */
  turnAt: number | null = null;
  blockedUntil: number | null = null;
  /** Calls in flight, by job and lease. */
  holds = new Map<string, number>();

  constructor(settings: LimitSettings) {
    this.settings = settings;
  }

  get span(): number {
    return this.settings.period! + useWithin(this.settings.period!);
  }

  isUnknown(now: number): boolean {
    return this.settings.learn === true && (this.turnAt === null || this.turnAt <= now);
  }

  #isOver(now: number): boolean {
    return this.resetAt === null || this.resetAt <= now;
  }

  /** The uses that still count, oldest first. */
  counted(now: number): [bin: number, count: number][] {
    return [...this.bins]
      .filter(([bin, count]) => count > 0 && bin > now - this.span)
      .sort(([one], [other]) => one - other);
  }

  quota(now: number, outstanding: number, learn = this.settings.learn): Quota {
    const { max, concurrency } = this.settings;
    let free = FOREVER;
    let until: number | null = null;
    if (this.blockedUntil !== null && this.blockedUntil > now) return { free: 0, until: this.blockedUntil };
    if (max !== undefined) {
      const counted = this.counted(now);
      free = max - counted.reduce((sum, [, count]) => sum + count, 0);
      if (free <= 0) return { free: 0, until: counted[0]![0] + this.span };
    }
    if (learn && !this.#isOver(now) && this.remaining! <= 0) {
      free = 0;
      until = this.resetAt;
    } else if (learn && this.isUnknown(now)) free = Math.min(free, 1 - outstanding);
    else if (learn) free = Math.min(free, this.remaining! - outstanding);
    if (concurrency !== undefined) free = Math.min(free, concurrency - outstanding);
    return { free: Math.max(free, 0), until };
  }

  /** `holds`: whether the caller holds the lease. */
  use(
    now: number,
    origin: number,
    by: Handle,
    holds: boolean,
    isLive: (key: string) => boolean,
    use: Use,
  ): Grant | string {
    const { max, concurrency } = this.settings;
    if (use.take > 0 && ((max ?? FOREVER) < use.least || (concurrency ?? FOREVER) < use.least)) return "SW001";
    if (use.take > 0 && !holds) return "SW005";
    const key = `${by.job}/${by.lease}`;
    const held = (this.holds.get(key) ?? 0) - use.done - use.unused;
    if (held > 0) this.holds.set(key, held);
    else this.holds.delete(key);
    if (use.bin !== null && this.bins.has(use.bin))
      this.bins.set(use.bin, Math.max(0, this.bins.get(use.bin)! - use.unused));
    if (use.told) this.#hear(now, use.told);
    if (use.take === 0) return { granted: 0, waitUntil: null, bin: null };

    const outstanding = [...this.holds].reduce((sum, [each, count]) => sum + (isLive(each) ? count : 0), 0);
    const { free, until } = this.quota(now, outstanding);
    let granted = free >= use.least ? Math.min(use.take, free) : 0;
    // No caller needs fewer, and one has to go first.
    const enough = this.#isOver(now) || this.remaining! >= use.least;
    if (
      granted === 0 &&
      free === 1 &&
      this.isUnknown(now) &&
      enough &&
      this.quota(now, outstanding, false).free >= use.least
    )
      granted = use.least;
    if (granted === 0) return { granted, waitUntil: this.#waitFor(now, use.least, until), bin: null };
    if (this.settings.learn || concurrency !== undefined) this.holds.set(key, (this.holds.get(key) ?? 0) + granted);
    if (max === undefined) return { granted, waitUntil: null, bin: null };
    const bin = this.settings.period! / 128;
    const binEnd = Math.ceil((origin + now + use.slack) / bin) * bin - origin;
    this.bins.set(binEnd, (this.bins.get(binEnd) ?? 0) + granted);
    return { granted, waitUntil: null, bin: binEnd };
  }

  /** When enough uses have expired, or when the window ends. */
  #waitFor(now: number, least: number, until: number | null): number | null {
    const times = until === null ? [] : [until];
    if (this.remaining !== null && this.remaining < least && this.resetAt !== null && this.resetAt > now)
      times.push(this.resetAt);
    if (this.settings.max !== undefined) {
      let used = this.counted(now).reduce((sum, [, count]) => sum + count, 0);
      if (used + least > this.settings.max) {
        for (const [bin, count] of this.counted(now)) {
          used -= count;
          if (used + least > this.settings.max) continue;
          times.push(bin + this.span);
          break;
        }
      }
    }
    return times.length === 0 ? null : Math.max(...times);
  }

  /** Responses arrive in any order: within one window the lowest remaining count and the earliest end win. */
  #hear(now: number, told: Told): void {
    if ((told.refused_ms ?? 0) > 0)
      this.blockedUntil = Math.max(this.blockedUntil ?? Number.NEGATIVE_INFINITY, now + told.refused_ms!);
    if (!this.settings.learn) return;
    this.toldMax = told.limit ?? this.toldMax;
    const over = this.#isOver(now);
    if (told.remaining === undefined) {
      if (!over) return;
      this.remaining = FOREVER;
      this.resetAt = now + 60_000;
      this.turnAt = this.resetAt;
      return;
    }
    const reset = told.reset_ms === undefined ? null : now + Math.max(told.reset_ms, 100);
    if (over || (reset !== null && reset > this.resetAt! + 1500)) {
      this.remaining = told.remaining;
      this.resetAt = reset ?? now + 60_000;
      this.turnAt = this.resetAt - Math.min((this.resetAt - now) / 2, 2000);
    } else {
      this.remaining = Math.min(this.remaining!, told.remaining);
      const earlier = Math.max(this.resetAt! - (reset ?? FOREVER), 0);
      this.turnAt! -= earlier;
      this.resetAt! -= earlier;
    }
  }
}

export const breakerSettings = { failures: 2, pause: 10_000, growth: 3, max: 40_000 };

export class Breaker {
  failures = 0;
  /** Null: closed. */
  resumeAt: number | null = null;
  probes = 0;
  probe: { job: string; lease: string } | null = null;
  /** Opened by an operator. */
  byHand = false;

  isProbe(by: Handle): boolean {
    return this.probe?.job === by.job && this.probe.lease === by.lease;
  }

  /** How many jobs of a pipeline that depends on it may start. */
  quota(now: number, isProbing: boolean): number {
    if (this.resumeAt === null) return FOREVER;
    return this.resumeAt > now || isProbing ? 0 : 1;
  }

  /** Null: continue. Otherwise when to try again. */
  ask(now: number, by: Handle, holds: boolean, isProbing: boolean): number | string | null {
    if (this.resumeAt === null || this.isProbe(by)) return null;
    if (this.resumeAt > now) return Math.max(this.resumeAt, now + 1000);
    if (isProbing) return now + breakerSettings.pause;
    if (!holds) return "SW005";
    this.probe = { job: by.job, lease: by.lease };
    return null;
  }

  tell(now: number, by: Handle, succeeded: boolean): number | null {
    if (succeeded && !(this.byHand && this.resumeAt !== null && this.resumeAt > now)) this.close();
    if (succeeded) return this.resumeAt;
    if (this.resumeAt === null) {
      this.failures += 1;
      if (this.failures >= breakerSettings.failures) this.resumeAt = now + breakerSettings.pause;
    } else if (this.isProbe(by)) {
      this.probes += 1;
      const pause = Math.min(breakerSettings.pause * breakerSettings.growth ** this.probes, breakerSettings.max);
      this.resumeAt = Math.max(this.resumeAt, now + pause);
      this.probe = null;
    }
    return this.resumeAt;
  }

  open(now: number, forMs: number | null): void {
    this.resumeAt = forMs === null ? FOREVER : now + forMs;
    this.probe = null;
    this.byHand = true;
  }

  close(): void {
    this.failures = 0;
    this.resumeAt = null;
    this.probes = 0;
    this.probe = null;
    this.byHand = false;
  }
}
