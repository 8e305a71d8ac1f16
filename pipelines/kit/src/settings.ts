// Reads environment variables with the prefix of one system. Each system's settings.ts lists its variables.
import type { GitLimits } from "./git/limits.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

export interface Variables {
  text(name: string, fallback: string): string;
  /** Above 0. */
  number(name: string, fallback: number): number;
  /** The variable and the fallback are in seconds, the result is in milliseconds. */
  seconds(name: string, fallback: number): number;
  /** Separated by commas; empty by default. */
  list(name: string): string[];
}

const GB = 2 ** 30;

/** With the prefix "EXTRACTION", `text("CACHE", …)` reads EXTRACTION_CACHE. */
export function readVariables(prefix: string, env: Environment): Variables {
  const text = (name: string, fallback: string) => env[`${prefix}_${name}`] || fallback;
  const number = (name: string, fallback: number) => {
    const setting = env[`${prefix}_${name}`];
    if (!setting) return fallback;
    const value = Number(setting);
    if (Number.isFinite(value) && value > 0) return value;
    throw new Error(`${prefix}_${name} is "${setting}" but must be a number above 0`);
  };
  return {
    text,
    number,
    seconds: (name, fallback) => number(name, fallback) * 1000,
    list: (name) =>
      text(name, "")
        .split(",")
        .map((entry) => entry.trim())
        .filter(Boolean),
  };
}

/** The settings of a sample, except where `env` has its own; lists contain the entries of both, those of `env` first. */
export function preferOwnSettings(sample: Record<string, string>, env: Environment): Record<string, string> {
  const merged = Object.entries(sample).map(([name, value]) => {
    const own = env[name];
    if (!own) return [name, value];
    return [name, /_(MIRRORS|ALLOW_ADDRESSES)$/.test(name) ? `${own},${value}` : own];
  });
  return Object.fromEntries(merged);
}

export function readGitLimits({ number, seconds }: Variables, cloneSeconds: number): GitLimits {
  return {
    cloneBytes: number("CLONE_GB", 5) * GB,
    cloneMs: seconds("CLONE_SECONDS", cloneSeconds),
    slowBytes: number("SLOW_BYTES", 1000),
    slowSeconds: number("SLOW_SECONDS", 60),
  };
}
