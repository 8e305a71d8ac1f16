// Waits for a condition in a test. The error names the condition and its last value.
import { setTimeout as delay } from "node:timers/promises";

export interface WaitForOptions {
  /** Time limit in milliseconds. */
  timeout?: number;
  /** Milliseconds between two checks. */
  interval?: number;
  /** The name of the condition, for the error. */
  what?: string;
}

type Falsy = false | 0 | "" | null | undefined;

/** Calls `condition` until it returns something truthy, and returns that. An error counts as not yet true. */
export async function waitFor<T>(
  condition: () => T | Promise<T>,
  { timeout = 10_000, interval = 10, what = "the condition" }: WaitForOptions = {},
): Promise<Exclude<T, Falsy>> {
  const deadline = Date.now() + timeout;
  let last: unknown;
  do {
    try {
      const value = await condition();
      if (value) return value as Exclude<T, Falsy>;
      last = value;
    } catch (error) {
      last = error;
    }
    await delay(interval);
  } while (Date.now() < deadline);
  const cause = last instanceof Error ? last : undefined;
  const value = cause ? cause.message : String(last);
  throw new Error(`Waited ${timeout} ms for ${what}; the last value was: ${value}`, cause && { cause });
}
