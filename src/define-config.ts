// stillwake.config.ts: typed, checked for unknown keys with the nearest known one as a suggestion.
import { InvalidInput } from "./errors.ts";
import type { Duration } from "./time.ts";

export interface StillwakeConfig {
  /** The database; STILLWAKE_DATABASE_URL and --url go before it. */
  url?: string;
  directUrl?: string;
  schema?: string;
  /** Modules, or directories of modules, that export what implement() returned. Relative to the file. */
  pipelines?: string | string[];
  pool?: string;
  slots?: number;
  name?: string;
  lease?: Duration;
  grace?: Duration;
  cancelGrace?: Duration;
  drainLimit?: Duration;
  idleExit?: Duration;
  poll?: Duration;
  pollWithHints?: Duration;
  /** Where artifacts are kept: file:… or s3://bucket/prefix?endpoint=…. */
  store?: string;
  scratch?: string;
  runAs?: { uid: number; gid: number };
  heapMb?: number;
  spares?: number;
  mostJobs?: number;
  connections?: number;
  /** How webhooks are sent, and where to; false leaves that to others. */
  webhooks?:
    | false
    | {
        allowHttp?: boolean;
        ports?: number[];
        allow?: string[];
        concurrency?: number;
        timeout?: Duration;
        ca?: string;
      };
  metricsPort?: number;
  /** An address that is not this machine's own opens metrics and health to others. */
  metricsHost?: string;
  logLevel?: string;
}

const known: (keyof StillwakeConfig)[] = [
  ..."url directUrl schema pipelines pool slots name lease grace cancelGrace drainLimit idleExit poll pollWithHints store scratch".split(
    " ",
  ),
  ..."runAs heapMb spares mostJobs connections webhooks metricsPort metricsHost logLevel".split(" "),
] as (keyof StillwakeConfig)[];

export function defineConfig(config: StillwakeConfig): StillwakeConfig {
  const unknown = Object.keys(config).find((key) => !known.includes(key as keyof StillwakeConfig));
  if (unknown) {
    const nearest = known.map((key) => ({ key, far: distance(key, unknown) })).sort((a, b) => a.far - b.far)[0]!;
    throw new InvalidInput(`The configuration has an unknown key "${unknown}"`, {
      field: unknown,
      remedy: nearest.far <= 3 ? `Did you mean "${nearest.key}"?` : `Keys: ${known.join(", ")}`,
    });
  }
  return Object.freeze({ ...config });
}

/** How many letters have to change. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = row[j - 1]! + (a[i - 1]!.toLowerCase() === b[j - 1]!.toLowerCase() ? 0 : 1);
      next.push(Math.min(change, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}
