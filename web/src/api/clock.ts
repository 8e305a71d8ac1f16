// The time where the jobs are. Moments of jobs are the database's; a browser whose clock is minutes off would count from its own and show nonsense.

/** Clocks of one network differ by less, and the header of an answer has whole seconds. */
const SAME_MS = 3_000;

let ahead = 0;

/** How far the server's clock is ahead of this one, by an answer's Date header and the moments around it; nothing where that is within what cannot be told. */
export function aheadBy(date: string | null, askedAt: number, answeredAt: number): number | undefined {
  const told = date === null ? Number.NaN : Date.parse(date);
  if (Number.isNaN(told) || answeredAt - askedAt > SAME_MS) return undefined;
  const found = told + 500 - (askedAt + answeredAt) / 2;
  return Math.abs(found) < SAME_MS ? 0 : found;
}

export function learnClock(answer: Response, askedAt: number): void {
  const found = aheadBy(answer.headers.get("date"), askedAt, Date.now());
  // What is known already is not shaken by half a second.
  if (found !== undefined && Math.abs(found - ahead) >= SAME_MS / 2) ahead = found;
}

/** Now, as the server has it. */
export function serverNow(): number {
  return Date.now() + ahead;
}
