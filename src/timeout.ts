// A time limit for a promise. Free of Node, so that a browser bundle can include it.

/** The longest delay that a timer accepts. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Resolves like `promise`, or after `ms` with `fallback`; a function as `fallback` throws the error of the timeout. The
 * work behind the promise is not cancelled.
 */
export function withTimeout<T>(promise: Promise<T>, ms: number, fallback: T | (() => never)): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<T | (() => never)>((resolve) => {
    timer = setTimeout(() => resolve(fallback), Math.min(Math.max(ms, 0), MAX_TIMER_MS));
  }).then((value) => (typeof value === "function" ? (value as () => never)() : value));
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}
