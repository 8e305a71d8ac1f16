// Variables of one system, all of whose names begin alike. Which there are stands in the settings of each, which alone read the environment.
import type { GitLimits } from "./git/limits.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

export interface Variables {
  text(name: string, fallback: string): string;
  /** Above 0. */
  number(name: string, fallback: number): number;
  /** Said in seconds, answered in milliseconds, and so is the fallback said. */
  seconds(name: string, fallback: number): number;
  /** Separated by commas; none unless said. */
  list(name: string): string[];
}

const GB = 2 ** 30;

/** `prefix`: "EXTRACTION" of EXTRACTION_CACHE, which is then asked for as "CACHE". */
export function variablesOf(prefix: string, env: Environment): Variables {
  const text = (name: string, fallback: string) => env[`${prefix}_${name}`] || fallback;
  const number = (name: string, fallback: number) => {
    const given = env[`${prefix}_${name}`];
    if (!given) return fallback;
    const value = Number(given);
    if (Number.isFinite(value) && value > 0) return value;
    throw new Error(`${prefix}_${name} is "${given}" and should be a number above 0`);
  };
  return {
    text,
    number,
    seconds: (name, fallback) => number(name, fallback) * 1000,
    list: (name) =>
      text(name, "")
        .split(",")
        .map((one) => one.trim())
        .filter(Boolean),
  };
}

export function gitLimitsOf({ number, seconds }: Variables, cloneSeconds: number): GitLimits {
  return {
    cloneBytes: number("CLONE_GB", 5) * GB,
    cloneMs: seconds("CLONE_SECONDS", cloneSeconds),
    slowBytes: number("SLOW_BYTES", 1000),
    slowSeconds: number("SLOW_SECONDS", 60),
  };
}
