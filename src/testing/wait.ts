// Waiting for a condition in a test: one timeout, and a message that says what was awaited and what was seen last.
import { setTimeout as delay } from "node:timers/promises";

export interface WaitForOptions {
  /** Milliseconds until the wait is given up. */
  timeout?: number;
  /** Milliseconds between two looks. */
  interval?: number;
  /** What is awaited, for the message. */
  what?: string;
}

type Falsy = false | 0 | "" | null | undefined;

/** Calls `condition` until it returns something truthy, and returns that. An error it throws counts as not yet. */
export async function waitFor<T>(
  condition: () => T | Promise<T>,
  { timeout = 10_000, interval = 10, what = "the condition" }: WaitForOptions = {},
): Promise<Exclude<T, Falsy>> {
  const deadline = Date.now() + timeout;
  let seen: unknown;
  do {
    try {
      const value = await condition();
      if (value) return value as Exclude<T, Falsy>;
      seen = value;
    } catch (error) {
      seen = error;
    }
    await delay(interval);
  } while (Date.now() < deadline);
  const cause = seen instanceof Error ? seen : undefined;
  const last = cause ? cause.message : String(seen);
  throw new Error(`Waited ${timeout} ms for ${what}; the last answer was: ${last}`, cause && { cause });
}
