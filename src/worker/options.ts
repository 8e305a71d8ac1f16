// Options of a worker, checked and converted once into WorkerSettings.
import os from "node:os";
import path from "node:path";
import { type ArtifactStore, type Credentials, openStore } from "../artifacts/open-store.ts";
import { type EnvOptions, processEnvironment, type RuntimeSecrets } from "../config.ts";
import type { DatabaseOptions } from "../db/database.ts";
import { InvalidInput } from "../errors.ts";
import type { SealKeys } from "../secrets/seal.ts";
import { type Duration, durationMs, limitMs } from "../time.ts";
import { checkInteger, rejectUnknownOptions } from "../validate.ts";
import type { WebhookSenderOptions } from "../webhooks/options.ts";
import { type AnyImplementation, type Implementation, isImplementation } from "./attempt/implement.ts";
import { type FindSecret, Unsealer } from "./keeper/unseal.ts";
import type { ShouldCrash } from "./runner/fault-point.ts";

export interface WorkerOptions {
  /** postgres://…; may go through a pooler. */
  url?: string;
  /** A URL that bypasses the pooler, for hints and quick recovery. Default: `url`, if that is direct. False disables both. */
  directUrl?: string | false;
  schema?: string;
  /** Maximum number of connections. Default 4. */
  connections?: number;
  /** The only pool whose jobs it claims. Default: all pools of its pipelines. */
  pool?: string;
  /** Pools that it does not serve, because machines do, for example. */
  exceptPools?: readonly string[];
  /** Maximum number of concurrent jobs. Default: one per processor. */
  slots?: number;
  /** Results of implement(), or for isolation "process" modules, or directories of modules, that export them. */
  pipelines: readonly AnyImplementation[] | string | readonly string[];
  /** "process": user code runs in a separate process per slot. "none": in this one. Default: "process" for modules, else "none". */
  isolation?: "process" | "none";
  /** Its name in the database and in logs. Default: host, pid and a random part. */
  name?: string;
  /** How long a claim lasts without a heartbeat. Default "15s". */
  lease?: Duration;
  /** The time between a stop request and the kill of a job. Default "5s". */
  grace?: Duration;
  /** The same for a cancelled job; at most `grace`. Default "500ms". */
  cancelGrace?: Duration;
  /** How long a drain waits for running jobs. Default "25s". */
  drainTimeout?: Duration;
  /** Exit after this long without a job. */
  idleExit?: Duration;
  /** No idle exit before the process has this age, for platforms that bill a minimum time. */
  minUptime?: Duration;
  /**
   * The name, at the provider, of the machine it runs on alone; also becomes the worker's name. Set by the orchestrator: STILLWAKE_MACHINE.
   */
  machine?: string;
  /** Exit when: "empty": nothing is left to do; "once": after one job; "registered": its pipelines are registered, without any job. */
  until?: "empty" | "once" | "registered";
  /** Poll interval without hints. Default "1s". */
  poll?: Duration;
  /** Poll interval while hints arrive. Default "5s". */
  pollWithHints?: Duration;
  /** The artifact store: file:… or s3://bucket/prefix?endpoint=…. */
  store?: string;
  storeCredentials?: Credentials;
  /** Keys that unseal inputs and seal those of children: "k2:base64,k1:base64", where the first one seals, or an object. */
  sealKeys?: SealKeys | string;
  /** Looks up secret references in inputs; returns undefined for an unknown name. Default: STILLWAKE_SECRET_<NAME> of `env`. */
  secrets?: FindSecret;
  /** The parent of the scratch directories. Default: in the system's temporary directory. */
  scratch?: string;
  /** The user that runners run as; the worker needs permission to switch to it. */
  runAs?: { uid: number; gid: number };
  /** Megabytes of JavaScript heap per runner. */
  heapMb?: number;
  /** Extra runners that replace one that dies. Default 1. */
  spareRunners?: number;
  /** A runner is replaced after this number of jobs. Default 1000. */
  maxJobs?: number;
  /** Which variables user code gets, for isolation "process". Default: all but the runtime's own and credentials of stores and providers. */
  env?: EnvOptions;
  /** The environment that runners and commands get a filtered copy of. Default: that of this process. */
  environment?: Readonly<Record<string, string | undefined>>;
  /** How often the demand of the pool is read for the metrics. Default: never. */
  demandEvery?: Duration;
  /** Whether it also sends webhooks, and the options for that. Default true. */
  webhooks?: boolean | WebhookSenderOptions;
  /** For tests with isolation "none": whether the attempt dies before or after this step's checkpoint. */
  crash?: ShouldCrash;
}

export interface WorkerSettings {
  database: DatabaseOptions;
  directUrl: string | undefined;
  /** Undefined: all pools of its pipelines. */
  pool: string | undefined;
  exceptPools: readonly string[];
  slots: number;
  implementations: Implementation[];
  files: string[];
  isolation: "process" | "none";
  name: string | undefined;
  leaseMs: number;
  graceMs: number;
  cancelGraceMs: number;
  drainMs: number;
  idleExitMs: number;
  minUptimeMs: number;
  machine: string | undefined;
  until: WorkerOptions["until"];
  maxClaims: number;
  pollMs: number;
  pollWithHintsMs: number;
  store: ArtifactStore | undefined;
  scratchRoot: string;
  runAs: { uid: number; gid: number } | undefined;
  heapMb: number | undefined;
  spareRunners: number;
  maxJobs: number;
  env: EnvOptions;
  environment: Readonly<Record<string, string | undefined>>;
  unsealer: Unsealer;
  /** Values that are not left in the environment of user code. */
  secrets: RuntimeSecrets;
  demandMs: number;
  webhooks: WebhookSenderOptions | undefined;
  crash: ShouldCrash | undefined;
}

const known =
  `url directUrl schema connections pool exceptPools slots pipelines isolation name lease grace cancelGrace drainTimeout idleExit minUptime machine until poll
  pollWithHints store storeCredentials sealKeys secrets scratch runAs heapMb spareRunners maxJobs env environment demandEvery webhooks crash`.split(
    /\s+/,
  );

export function readWorkerOptions(options: WorkerOptions): WorkerSettings {
  rejectUnknownOptions(options, known, "Worker");
  const { url, name, machine, until } = options;
  // A machine belongs to one pool.
  const pool = options.pool ?? (machine === undefined ? undefined : "default");
  if (!url) reject("url", "A worker needs the URL of its Postgres", "Pass url, or set STILLWAKE_DATABASE_URL");
  if (pool !== undefined && !/^[a-z0-9][a-z0-9_.:-]{0,99}$/.test(pool))
    reject("pool", `${JSON.stringify(pool)} is not a valid pool name`, "Use lower-case letters, digits and _ . : -");
  if (name !== undefined && !/^[\w.:@-]{1,100}$/.test(name))
    reject("name", `${JSON.stringify(name)} is not a valid worker name`, "Use 1 to 100 letters, digits and _ . : @ -");
  if (machine !== undefined && !/^[\w.:@-]{1,100}$/.test(machine))
    reject(
      "machine",
      `${JSON.stringify(machine)} is not a valid machine name`,
      "Use 1 to 100 letters, digits and _ . : @ -",
    );
  if (until !== undefined && !["empty", "once", "registered"].includes(until))
    reject("until", `${JSON.stringify(until)} is not a valid value of until`, 'Use "empty", "once" or "registered"');
  const { implementations, files } = readPipelines(options.pipelines);
  const isolation = options.isolation ?? (files.length > 0 ? "process" : "none");
  if (isolation === "process" && files.length === 0) {
    reject(
      "isolation",
      'Isolation "process" cannot run code objects of this process',
      "Pass pipelines as a module or a directory of modules",
    );
  }
  if (isolation === "none" && files.length > 0) {
    reject(
      "isolation",
      'Isolation "none" needs code objects, not files',
      "Import the modules and pass the results of implement()",
    );
  }
  const slots =
    until === "once" || until === "registered"
      ? 1
      : checkInteger(options.slots ?? os.availableParallelism(), "slots", 1, 10_000);
  const leaseMs = durationMs(options.lease ?? "15s", "lease");
  if (leaseMs < 1000 || leaseMs > 86_400_000)
    reject("lease", `A lease of ${options.lease} is out of range`, "Use 1s to 1d");
  const graceMs = durationMs(options.grace ?? "5s", "grace");
  const environment = options.environment ?? processEnvironment();
  return {
    database: {
      url: url!,
      connections: checkInteger(options.connections ?? 4, "connections", 1, 1000),
      ...(options.schema && { schema: options.schema }),
    },
    directUrl: options.directUrl === false ? undefined : (options.directUrl ?? url),
    pool,
    exceptPools: options.exceptPools ?? [],
    slots,
    implementations,
    files,
    isolation,
    name,
    leaseMs,
    graceMs,
    cancelGraceMs: Math.min(graceMs, durationMs(options.cancelGrace ?? "500ms", "cancelGrace")),
    drainMs: durationMs(options.drainTimeout ?? "25s", "drainTimeout"),
    idleExitMs: limitMs(options.idleExit, "idleExit"),
    minUptimeMs: options.minUptime === undefined ? 0 : durationMs(options.minUptime, "minUptime"),
    machine,
    until,
    maxClaims: until === "once" ? 1 : Number.POSITIVE_INFINITY,
    pollMs: durationMs(options.poll ?? "1s", "poll"),
    pollWithHintsMs: durationMs(options.pollWithHints ?? "5s", "pollWithHints"),
    store: options.store === undefined ? undefined : openStore(options.store, options.storeCredentials),
    scratchRoot: path.resolve(options.scratch ?? path.join(os.tmpdir(), `stillwake-${os.userInfo().uid}`)),
    runAs: options.runAs,
    heapMb: options.heapMb === undefined ? undefined : checkInteger(options.heapMb, "heapMb", 16, 1_000_000),
    spareRunners: until === "registered" ? 0 : checkInteger(options.spareRunners ?? 1, "spareRunners", 0, 100),
    maxJobs: checkInteger(options.maxJobs ?? 1000, "maxJobs", 1, 1_000_000_000),
    env: readEnvOptions(options.env, isolation),
    environment,
    unsealer: new Unsealer(options.sealKeys, options.secrets, environment),
    secrets: collectSecrets(url!, options),
    demandMs: limitMs(options.demandEvery, "demandEvery"),
    webhooks: readWebhooks(options.webhooks),
    crash: options.crash,
  };
}

function readPipelines(pipelines: WorkerOptions["pipelines"]): { implementations: Implementation[]; files: string[] } {
  const list = (typeof pipelines === "string" ? [pipelines] : (pipelines ?? [])) as readonly unknown[];
  if (!Array.isArray(list) || list.length === 0) {
    reject("pipelines", "A worker needs pipelines", "Pass results of implement(), or modules that export them");
  }
  if (list.every((item) => typeof item === "string")) return { implementations: [], files: list as string[] };
  if (!list.every(isImplementation))
    reject(
      "pipelines",
      "pipelines contains a value that is not an implementation",
      "Pass results of implement(contract, function)",
    );
  const implementations = list as Implementation[];
  const names = implementations.map(({ pipeline }) => pipeline.name);
  const duplicate = names.find((name, index) => names.indexOf(name) !== index);
  if (duplicate) reject("pipelines", `Pipeline "${duplicate}" is listed twice`, "Remove one of them");
  return { implementations, files: [] };
}

function readWebhooks(webhooks: WorkerOptions["webhooks"] = true): WebhookSenderOptions | undefined {
  if (typeof webhooks !== "boolean" && (typeof webhooks !== "object" || webhooks === null))
    reject(
      "webhooks",
      "webhooks must be true, false or an object of options",
      'Pass { allow: ["10.1.0.0/16"] }, or leave it out',
    );
  return webhooks === true ? {} : webhooks || undefined;
}

function readEnvOptions(env: EnvOptions = {}, isolation: WorkerSettings["isolation"]): EnvOptions {
  if (typeof env !== "object" || env === null || Array.isArray(env))
    reject("env", "env must be an object of withhold and pass", 'Write env: { withhold: ["DATABASE_URL"] }');
  rejectUnknownOptions(env, ["withhold", "pass"], "Worker", "env");
  for (const key of ["withhold", "pass"] as const) {
    const names: unknown = env[key] ?? [];
    const invalid = Array.isArray(names) ? names.find((name) => !/^(\w+\*?|\*)$/.test(String(name))) : names;
    if (invalid !== undefined)
      reject(
        `env.${key}`,
        `env.${key} contains ${JSON.stringify(invalid)}, which is not the name of a variable`,
        `Write a list of names, such as ["DATABASE_URL", "PG*"]; * is allowed at the end`,
      );
  }
  if (isolation === "none" && (env.withhold || env.pass))
    reject(
      "env",
      'env has no effect with isolation "none": user code shares the process of the worker',
      "Pass pipelines as modules, or delete env",
    );
  return env;
}

function collectSecrets(url: string, { directUrl, storeCredentials, sealKeys = "" }: WorkerOptions): RuntimeSecrets {
  const keys =
    typeof sealKeys === "string"
      ? sealKeys.split(",").map((pair) => pair.replace(/^[^:]*:/, ""))
      : Object.values(sealKeys.keys);
  const { secretAccessKey = "", sessionToken = "" } = storeCredentials ?? {};
  return {
    databaseUrls: [url, ...(typeof directUrl === "string" ? [directUrl] : [])],
    others: [...keys, secretAccessKey, sessionToken].filter(Boolean),
  };
}

function reject(field: string, message: string, remedy: string): never {
  throw new InvalidInput(message, { field, remedy });
}
