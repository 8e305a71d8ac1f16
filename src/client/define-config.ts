// defineConfig(): the typed content of stillwake.config.ts, checked for unknown keys.
import type { EnvOptions } from "../config.ts";
import type { Schedule } from "../contract/schedule.ts";
import { InvalidInput } from "../errors.ts";
import type { PoolOptions } from "../pool-options.ts";
import type { SealKeys } from "../secrets/seal.ts";
import { findClosest } from "../text/suggest.ts";
import type { Duration } from "../time.ts";
import type { Stillwake } from "./client.ts";

export interface StillwakeConfig {
  /** The database; STILLWAKE_DATABASE_URL and --url take precedence. */
  url?: string;
  directUrl?: string;
  schema?: string;
  /** Set when the pipelines are registered: by `stillwake register`, `worker`, `server`, `orchestrator` and `dev`. */
  // biome-ignore lint/suspicious/noExplicitAny: schedules of any input type.
  schedules?: readonly Schedule<any, any>[];
  /** Modules, or directories of modules, that export results of implement(). Relative to the file. */
  pipelines?: string | string[];
  pool?: string;
  slots?: number;
  name?: string;
  lease?: Duration;
  grace?: Duration;
  cancelGrace?: Duration;
  drainTimeout?: Duration;
  idleExit?: Duration;
  poll?: Duration;
  pollWithHints?: Duration;
  /** The artifact store: file:… or s3://bucket/prefix?endpoint=…. */
  store?: string;
  /** Unseals inputs, and seals those of children; STILLWAKE_SEAL_KEYS takes precedence. */
  sealKeys?: SealKeys | string;
  /** Looks up the values of secret references in inputs. Default: STILLWAKE_SECRET_<NAME>. */
  secrets?: (name: string, use: { pipeline: string; tenant: string | null; job: string }) => unknown;
  /** Which variables of the worker pipeline code gets: names, * at the end. Default: see "What user code can see" in docs/run/worker.md. */
  env?: EnvOptions;
  scratch?: string;
  runAs?: { uid: number; gid: number };
  heapMb?: number;
  spareRunners?: number;
  maxJobs?: number;
  connections?: number;
  /** How this worker sends webhooks; false to send none. */
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
  /** An address other than loopback exposes metrics and health to the network. */
  metricsHost?: string;
  logLevel?: string;
  /** The machines of each pool, for the orchestrator: see stillwake/orchestrator. */
  pools?: Readonly<Record<string, PoolOptions>>;
  /** A price table that replaces the built-in one: see the documentation of costs. */
  prices?: object;
  /** The project's part of `stillwake dev`, such as its tables and its web server. Called before the workers start, closed at exit. */
  dev?: (place: DevPlace) => DevPart | undefined | Promise<DevPart | undefined>;
}

/** What `stillwake dev` passes to the project's part. */
export interface DevPlace {
  /** The database URL, with the owner's login. */
  url: string;
  schema: string;
  /** Whether Postgres is the embedded one, which contains only data of `stillwake dev`. */
  embedded: boolean;
  /** The data directory of `stillwake dev`; a project may create a subdirectory. */
  dir: string;
  /** A client that also pokes the local machines. */
  stillwake: Stillwake;
  /** The API and the dashboard as a handler, for a web server that forwards requests. */
  fetch: (request: Request) => Response | Promise<Response>;
}

export interface DevPart {
  /** Added to the environment of the workers and so of the pipelines' code. */
  env?: Readonly<Record<string, string>>;
  /** Printed when everything is up, such as the project's URL. */
  lines?: readonly string[];
  close?: () => void | Promise<void>;
}

const known: (keyof StillwakeConfig)[] = [
  ..."url directUrl schema pipelines schedules pool slots name lease grace cancelGrace drainTimeout idleExit poll pollWithHints store sealKeys secrets env scratch".split(
    " ",
  ),
  ..."runAs heapMb spareRunners maxJobs connections webhooks metricsPort metricsHost logLevel pools prices dev".split(
    " ",
  ),
] as (keyof StillwakeConfig)[];

export function defineConfig(config: StillwakeConfig): StillwakeConfig {
  const unknown = Object.keys(config).find((key) => !known.includes(key as keyof StillwakeConfig));
  if (unknown) {
    const near = findClosest(unknown, known);
    throw new InvalidInput(`The configuration has an unknown key "${unknown}"`, {
      field: unknown,
      remedy: near ? `Did you mean "${near}"?` : `Keys: ${known.join(", ")}`,
    });
  }
  return Object.freeze({ ...config });
}
