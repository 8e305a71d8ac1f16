// How often a page refetches its data. One policy for all pages: fast while something changes and the page is used, slower when nothing
// changes, paused when the page is not used, off in a hidden tab. An open page must not keep a database from suspending.

export interface RefreshConditions {
  /** The tab is visible. */
  visible: boolean;
  /** Time since the last input on the page. */
  idleMs: number;
  /** The data can change without an action on this page: a job waits or runs. */
  changing: boolean;
  /** It changes within seconds: a machine starts, or is about to. */
  urgent?: boolean;
  /** Consecutive requests that the server did not answer. */
  failures: number;
  /** The interval in a hidden tab. Default: none. */
  hiddenMs?: number | undefined;
}

const URGENT_MS = 1_500;
const FAST_MS = 2_000;
const CALM_MS = 5_000;
const SLOW_MS = 15_000;
const SLOW_AFTER_MS = 60_000;
export const PAUSE_AFTER_MS = 10 * 60_000;

/** Milliseconds until the next fetch; false: not before the page is visible and used again. */
export function refreshInterval(conditions: RefreshConditions): number | false {
  const { visible, idleMs, changing, urgent, failures, hiddenMs } = conditions;
  if (!visible) return hiddenMs ?? false;
  if (idleMs > PAUSE_AFTER_MS) return false;
  if (failures > 0) return Math.min(FAST_MS * 2 ** (failures - 1), SLOW_MS);
  if (urgent) return URGENT_MS;
  if (changing) return FAST_MS;
  return idleMs > SLOW_AFTER_MS ? SLOW_MS : CALM_MS;
}
