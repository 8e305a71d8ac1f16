// How often a page looks again. One law for all pages: quick while something moves and somebody looks, slower when nothing does and slower still when nobody
// touches it, and not at all in a hidden tab. An open dashboard must not be what keeps a database awake.

export interface Watching {
  /** The tab can be seen. */
  visible: boolean;
  /** Since somebody last touched the page. */
  untouchedMs: number;
  /** Something shown can change by itself: a job waits or runs. */
  moving: boolean;
  /** It changes from second to second: a machine starts, or is about to. */
  fleeting?: boolean;
  /** How often in a row the server did not answer. */
  failures: number;
}

const FLEETING_MS = 1_500;
const QUICK_MS = 2_000;
const CALM_MS = 5_000;
const SLOW_MS = 15_000;
const CALM_AFTER_MS = 60_000;
export const REST_AFTER_MS = 10 * 60_000;

/** False: not until somebody looks or touches. */
export function refreshMs({ visible, untouchedMs, moving, fleeting, failures }: Watching): number | false {
  if (!visible) return false;
  if (untouchedMs > REST_AFTER_MS) return false;
  if (failures > 0) return Math.min(QUICK_MS * 2 ** (failures - 1), SLOW_MS);
  if (fleeting) return FLEETING_MS;
  if (moving) return QUICK_MS;
  return untouchedMs > CALM_AFTER_MS ? SLOW_MS : CALM_MS;
}
