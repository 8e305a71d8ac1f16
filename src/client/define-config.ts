// stillwake.config.ts: typed, checked for unknown keys with the nearest known one as a suggestion.

import { InvalidInput } from "../errors.ts";
import type { SealKeys } from "../secrets/seal.ts";
import { nearest } from "../text/suggest.ts";
import type { Duration } from "../time.ts";
import type { Stillwake } from "./client.ts";

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
  drainTimeout?: Duration;
  idleExit?: Duration;
  poll?: Duration;
  pollWithHints?: Duration;
  /** Where artifacts are kept: file:… or s3://bucket/prefix?endpoint=…. */
  store?: string;
  /** What opens, and for children seals, the sealed parts of inputs; STILLWAKE_SEAL_KEYS goes before it. */
  sealKeys?: SealKeys | string;
  /** Looks up what references in inputs stand for. Default: STILLWAKE_SECRET_<NAME>. */
  secrets?: (name: string, use: { pipeline: string; tenant: string | null; job: string }) => unknown;
  scratch?: string;
  runAs?: { uid: number; gid: number };
  heapMb?: number;
  spares?: number;
  maxJobs?: number;
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
  /** The machines of each pool, for whoever starts them: see stillwake/orchestrator. */
  pools?: Readonly<Record<string, PoolConfig>>;
  /** Prices instead of those that come with this version: a table as in the documentation of costs. */
  prices?: object;
  /** The project's own part of `stillwake dev`, such as its tables and its web server: called before the workers start, closed with the rest. */
  dev?: (place: DevPlace) => DevPart | undefined | Promise<DevPart | undefined>;
}

/** What `stillwake dev` has when the project's own part is started. */
export interface DevPlace {
  /** The database, by the login that owns it. */
  url: string;
  schema: string;
  /** The Postgres is the one that `stillwake dev` has started, and holds nothing but what was made here. */
  embedded: boolean;
  /** Where `stillwake dev` keeps its data; a project may have a folder of its own in there. */
  dir: string;
  /** Enqueues, and wakes the machines. */
  stillwake: Stillwake;
  /** The API and the dashboard as a handler, for a web server that passes requests on. */
  fetch: (request: Request) => Response | Promise<Response>;
}

export interface DevPart {
  /** Added to the environment of the workers, and so of the pipelines' code. */
  env?: Readonly<Record<string, string>>;
  /** Said when all is up: where the project is to be found, say. */
  lines?: readonly string[];
  close?: () => void | Promise<void>;
}

/** PoolOptions of stillwake/orchestrator, which checks them. */
interface PoolConfig {
  provider: (context: never) => unknown;
  slots?: number;
  warm?: number;
  max?: number;
  burst?: number;
  idleExit?: Duration;
  grace?: Duration;
  boot?: Duration;
  price?: number;
  disk?: number;
  larger?: string;
}

const known: (keyof StillwakeConfig)[] = [
  ..."url directUrl schema pipelines pool slots name lease grace cancelGrace drainTimeout idleExit poll pollWithHints store sealKeys secrets scratch".split(
    " ",
  ),
  ..."runAs heapMb spares maxJobs connections webhooks metricsPort metricsHost logLevel pools prices dev".split(" "),
] as (keyof StillwakeConfig)[];

export function defineConfig(config: StillwakeConfig): StillwakeConfig {
  const unknown = Object.keys(config).find((key) => !known.includes(key as keyof StillwakeConfig));
  if (unknown) {
    const near = nearest(unknown, known);
    throw new InvalidInput(`The configuration has an unknown key "${unknown}"`, {
      field: unknown,
      remedy: near ? `Did you mean "${near}"?` : `Keys: ${known.join(", ")}`,
    });
  }
  return Object.freeze({ ...config });
}
