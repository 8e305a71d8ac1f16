// A second, independent implementation of cron for tests, based on the time zones of Intl. It shares nothing with
// sql/functions/flow/cron.sql; a cron is passed as sets of values, not as text.

export interface Spec {
  cron: string;
  minutes: number[];
  /** Absent: every hour, so that its occurrences form an interval. */
  hours?: number[];
  days?: number[];
  months?: number[];
  /** Sunday is 0. */
  weekdays?: number[];
}

export interface ExpectedOccurrence {
  occurrence: string;
  at: number;
}

/** A period in which a zone has a constant offset. */
export interface Regime {
  from: number;
  to: number;
  offset: number;
}

const DAY = 86_400_000;
const MINUTE = 60_000;

export function regimesOf(zone: string, from: number, to: number): Regime[] {
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone: zone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric",
  });
  const offsetAt = (at: number) => {
    const parts = Object.fromEntries(format.formatToParts(at).map(({ type, value }) => [type, Number(value)]));
    const { year, month, day, hour, minute, second } = parts as Record<string, number>;
    return Date.UTC(year!, month! - 1, day!, hour!, minute!, second!) - at;
  };
  const regimes: Regime[] = [{ from: Number.NEGATIVE_INFINITY, to: Number.POSITIVE_INFINITY, offset: offsetAt(from) }];
  for (let at = from; at < to; at += DAY / 2) {
    const last = regimes.at(-1)!;
    const offset = offsetAt(at + DAY / 2);
    if (offset === last.offset) continue;
    let [before, after] = [at, at + DAY / 2];
    while (after - before > 1000) {
      const middle = Math.floor((before + after) / 2000) * 1000;
      if (offsetAt(middle) === last.offset) before = middle;
      else after = middle;
    }
    last.to = after;
    regimes.push({ from: after, to: Number.POSITIVE_INFINITY, offset });
  }
  return regimes;
}

/** The occurrences after `from` and up to `to`, in order. The regimes must extend two days beyond both. */
export function expectedOccurrences(
  spec: Spec,
  regimes: readonly Regime[],
  from: number,
  to: number,
): ExpectedOccurrence[] {
  const occurrences: ExpectedOccurrence[] = [];
  const add = (occurrence: string, at: number) => {
    if (at > from && at <= to) occurrences.push({ occurrence, at });
  };
  for (let day = Math.floor(from / DAY) * DAY - 2 * DAY; day <= to + 2 * DAY; day += DAY) {
    if (!hasDay(spec, new Date(day))) continue;
    for (const hour of spec.hours ?? Array.from({ length: 24 }, (_, n) => n)) {
      for (const minute of spec.minutes) {
        // Local time, treated as UTC.
        const shown = day + (hour * 60 + minute) * MINUTE;
        const times = regimes.filter((regime) => {
          const at = shown - regime.offset;
          return at >= regime.from && at < regime.to;
        });
        const name = new Date(shown).toISOString().slice(0, 16);
        if (!spec.hours) for (const { offset } of times) add(name + offsetText(offset), shown - offset);
        else if (times.length > 0) add(name, shown - times[0]!.offset);
        else add(name, jumpOver(shown, regimes));
      }
    }
  }
  return occurrences.sort((a, b) => a.at - b.at || a.occurrence.localeCompare(b.occurrence));
}

function hasDay({ days, months, weekdays }: Spec, date: Date): boolean {
  if (months && !months.includes(date.getUTCMonth() + 1)) return false;
  const byDay = days?.includes(date.getUTCDate());
  const byWeekday = weekdays?.includes(date.getUTCDay());
  if (days && weekdays) return Boolean(byDay || byWeekday);
  return byDay ?? byWeekday ?? true;
}

function jumpOver(shown: number, regimes: readonly Regime[]): number {
  const jump = regimes.findIndex(({ to, offset }, index) => {
    const next = regimes[index + 1];
    return next !== undefined && to + offset <= shown && shown < next.from + next.offset;
  });
  return regimes[jump]!.to;
}

function offsetText(offset: number): string {
  const minutes = Math.abs(offset) / MINUTE;
  const two = (value: number) => String(value).padStart(2, "0");
  return `${offset < 0 ? "-" : "+"}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}
