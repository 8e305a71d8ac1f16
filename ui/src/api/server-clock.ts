// The server's time. Timestamps of jobs are the database's: a browser clock that is minutes off would show wrong ages.

/** Smaller differences are ignored: a Date header has whole seconds, and a response takes time. */
const TOLERANCE_MS = 3_000;

let offset = 0;

/**
 * How far the server's clock is ahead of this one, from a Date header and the times before and after the request.
 * Undefined if it is unknown, 0 if it is within the tolerance.
 */
export function clockOffset(date: string | null, sentAt: number, receivedAt: number): number | undefined {
  const serverTime = date === null ? Number.NaN : Date.parse(date);
  if (Number.isNaN(serverTime) || receivedAt - sentAt > TOLERANCE_MS) return undefined;
  const difference = serverTime + 500 - (sentAt + receivedAt) / 2;
  return Math.abs(difference) < TOLERANCE_MS ? 0 : difference;
}

export function learnServerClock(response: Response, sentAt: number): void {
  const found = clockOffset(response.headers.get("date"), sentAt, Date.now());
  // Responses differ by fractions of a second; shown times must not jump with them.
  if (found !== undefined && Math.abs(found - offset) >= TOLERANCE_MS / 2) offset = found;
}

export function serverNow(): number {
  return Date.now() + offset;
}
