// What a worker can be told, checked and converted once.
import os from "node:os";
import path from "node:path";
import { type ArtifactStore, type Credentials, openStore } from "../artifacts/open-store.ts";
import { processEnvironment } from "../config.ts";
import type { DatabaseOptions } from "../db/database.ts";
import { InvalidInput } from "../errors.ts";
import type { SealKeys } from "../secrets/seal.ts";
import { type Duration, durationMs, limitMs } from "../time.ts";
import type { WebhookSenderOptions } from "../webhooks/options.ts";
import { type AnyImplementation, type Implementation, isImplementation } from "./attempt/implement.ts";
import { type FindSecret, Opener } from "./keeper/unseal.ts";
import type { CrashWish } from "./runner/fault-point.ts";

export interface WorkerOptions {
  /** postgres://…; a pooled one is fine. */
  url?: string;
  /** Past the pooler, for hints and for quick recovery after a crash. Default: `url`, if that is direct. False for neither. */
  directUrl?: string | false;
  schema?: string;
  /** Connections at most. Default 4. */
  connections?: number;
  /** Whose jobs. Default "default". */
  pool?: string;
  /** Jobs at once. Default: one per processor. */
  slots?: number;
  /** What implement() returned; or, for isolation "process", modules or directories of modules that export it. */
  pipelines: readonly AnyImplementation[] | string | readonly string[];
  /** "process": user code in a process of its own per slot. "none": in this one. Default: "process" for modules, "none" for code. */
  isolation?: "process" | "none";
  /** How it is called in the database and in logs. Default: host, pid and a random part. */
  name?: string;
  /** How long a claim lasts without a heartbeat. Default "15s". */
  lease?: Duration;
  /** From being told to stop to being killed. Default "5s". */
  grace?: Duration;
  /** The same for a job that was cancelled, which nobody waits for any more; never more than `grace`. Default "500ms". */
  cancelGrace?: Duration;
  /** How long a drain waits for jobs. Default "25s". */
  drainTimeout?: Duration;
  /** Ends by itself: after this long without a job. */
  idleExit?: Duration;
  /** It does not end for want of work before the process is so old: where a time is paid for at least. */
  minUptime?: Duration;
  /** The machine that it is alone on, by its name at the provider, which becomes its own. An orchestrator gives it: STILLWAKE_MACHINE. */
  machine?: string;
  /** Ends by itself: "empty" when nothing is left to do, "once" after one job, "registered" when the database knows its pipelines, without any job. */
  until?: "empty" | "once" | "registered";
  /** How often to look for work when no hints arrive. Default "1s". */
  poll?: Duration;
  /** How often to look although hints arrive. Default "5s". */
  pollWithHints?: Duration;
  /** Where artifacts are kept: file:… or s3://bucket/prefix?endpoint=…. */
  store?: string;
  storeCredentials?: Credentials;
  /** Opens the sealed parts of inputs, and seals those of children: "k2:base64,k1:base64", of which the first seals, or by name. */
  sealKeys?: SealKeys | string;
  /** Looks up what references in inputs stand for; undefined for a name it does not know. Default: STILLWAKE_SECRET_<NAME> of `env`. */
  secrets?: FindSecret;
  /** Below it each attempt has a directory of its own. Default: in the system's temporary directory. */
  scratch?: string;
  /** The user runners run as; needs the right to change to it. */
  runAs?: { uid: number; gid: number };
  /** Megabytes of JavaScript heap per runner. */
  heapMb?: number;
  /** Runners above the slots that stand in when one dies. Default 1. */
  spares?: number;
  /** A runner is replaced after so many jobs. Default 1000. */
  maxJobs?: number;
  /** What runners and commands are filtered from. Default: the environment of this process. */
  env?: Readonly<Record<string, string | undefined>>;
  /** How often the depth of the pool is read for the metrics. Default: never. */
  demandEvery?: Duration;
  /** Sends webhooks beside its jobs, and how. False leaves that to others. Default true. */
  webhooks?: boolean | WebhookSenderOptions;
  /** For tests, without isolation: whether the attempt dies before or after this step is kept. */
  crash?: CrashWish;
}

export interface WorkerSettings {
  database: DatabaseOptions;
  directUrl: string | undefined;
  pool: string;
  slots: number;
  implementations: Implementation[];
  files: string[];
  isolation: "process" | "none";
  name: string | undefined;
  spanMs: number;
  graceMs: number;
  cancelGraceMs: number;
  drainMs: number;
  idleExitMs: number;
  minUptimeMs: number;
  machine: string | undefined;
  until: WorkerOptions["until"];
  most: number;
  pollMs: number;
  pushedPollMs: number;
  store: ArtifactStore | undefined;
  scratchRoot: string;
  runAs: { uid: number; gid: number } | undefined;
  heapMb: number | undefined;
  spares: number;
  maxJobs: number;
  env: Readonly<Record<string, string | undefined>>;
  opener: Opener;
  /** Values that user code must not see in its environment. */
  secrets: string[];
  demandMs: number;
  webhooks: WebhookSenderOptions | undefined;
  crash: CrashWish | undefined;
}

const known =
  `url directUrl schema connections pool slots pipelines isolation name lease grace cancelGrace drainTimeout idleExit minUptime machine until poll
  pollWithHints store storeCredentials sealKeys secrets scratch runAs heapMb spares maxJobs env demandEvery webhooks crash`.split(
    /\s+/,
  );

export function readWorkerOptions(options: WorkerOptions): WorkerSettings {
  const unknown = Object.keys(options).find((key) => !known.includes(key));
  if (unknown) refuse(unknown, `There is no worker option "${unknown}"`, `Options: ${known.join(", ")}`);
  const { url, pool = "default", name, machine, until } = options;
  if (!url) refuse("url", "A worker needs the URL of its Postgres", "Pass url, or set STILLWAKE_DATABASE_URL");
  if (!/^[a-z0-9][a-z0-9_.:-]{0,99}$/.test(pool))
    refuse("pool", `${JSON.stringify(pool)} cannot name a pool`, "Use lower-case letters, digits and _ . : -");
  if (name !== undefined && !/^[\w.:@-]{1,100}$/.test(name))
    refuse("name", `${JSON.stringify(name)} cannot name a worker`, "Use 1 to 100 letters, digits and _ . : @ -");
  if (machine !== undefined && !/^[\w.:@-]{1,100}$/.test(machine))
    refuse("machine", `${JSON.stringify(machine)} cannot name a machine`, "Use 1 to 100 letters, digits and _ . : @ -");
  if (until !== undefined && !["empty", "once", "registered"].includes(until))
    refuse("until", `${JSON.stringify(until)} is no end`, 'Use "empty", "once" or "registered"');
  const { implementations, files } = readPipelines(options.pipelines);
  const isolation = options.isolation ?? (files.length > 0 ? "process" : "none");
  if (isolation === "process" && files.length === 0) {
    refuse(
      "isolation",
      "Code of this process cannot run in another",
      "Give pipelines as a module or a directory of modules",
    );
  }
  if (isolation === "none" && files.length > 0) {
    refuse(
      "isolation",
      'With isolation "none" pipelines are code, not files',
      "Import them and pass what implement() returned",
    );
  }
  const slots =
    until === "once" || until === "registered"
      ? 1
      : whole(options.slots ?? os.availableParallelism(), "slots", 1, 10_000);
  const spanMs = durationMs(options.lease ?? "15s", "lease");
  if (spanMs < 1000 || spanMs > 86_400_000)
    refuse("lease", `A lease of ${options.lease} is out of range`, "Use 1s to 1d");
  const graceMs = durationMs(options.grace ?? "5s", "grace");
  const env = options.env ?? processEnvironment();
  return {
    database: {
      url: url!,
      connections: whole(options.connections ?? 4, "connections", 1, 1000),
      ...(options.schema && { schema: options.schema }),
    },
    directUrl: options.directUrl === false ? undefined : (options.directUrl ?? url),
    pool,
    slots,
    implementations,
    files,
    isolation,
    name,
    spanMs,
    graceMs,
    cancelGraceMs: Math.min(graceMs, durationMs(options.cancelGrace ?? "500ms", "cancelGrace")),
    drainMs: durationMs(options.drainTimeout ?? "25s", "drainTimeout"),
    idleExitMs: limitMs(options.idleExit, "idleExit"),
    minUptimeMs: options.minUptime === undefined ? 0 : durationMs(options.minUptime, "minUptime"),
    machine,
    until,
    most: until === "once" ? 1 : Number.POSITIVE_INFINITY,
    pollMs: durationMs(options.poll ?? "1s", "poll"),
    pushedPollMs: durationMs(options.pollWithHints ?? "5s", "pollWithHints"),
    store: options.store === undefined ? undefined : openStore(options.store, options.storeCredentials),
    scratchRoot: path.resolve(options.scratch ?? path.join(os.tmpdir(), `stillwake-${os.userInfo().uid}`)),
    runAs: options.runAs,
    heapMb: options.heapMb === undefined ? undefined : whole(options.heapMb, "heapMb", 16, 1_000_000),
    spares: until === "registered" ? 0 : whole(options.spares ?? 1, "spares", 0, 100),
    maxJobs: whole(options.maxJobs ?? 1000, "maxJobs", 1, 1_000_000_000),
    env,
    opener: new Opener(options.sealKeys, options.secrets, env),
    secrets: secretsOf(url!, options),
    demandMs: limitMs(options.demandEvery, "demandEvery"),
    webhooks: readWebhooks(options.webhooks),
    crash: options.crash,
  };
}

function readPipelines(pipelines: WorkerOptions["pipelines"]): { implementations: Implementation[]; files: string[] } {
  const list = (typeof pipelines === "string" ? [pipelines] : (pipelines ?? [])) as readonly unknown[];
  if (!Array.isArray(list) || list.length === 0) {
    refuse("pipelines", "A worker needs pipelines", "Pass what implement() returned, or modules that export it");
  }
  if (list.every((one) => typeof one === "string")) return { implementations: [], files: list as string[] };
  if (!list.every(isImplementation))
    refuse(
      "pipelines",
      "pipelines has something that is no implementation",
      "Pass what implement(contract, function) returned",
    );
  const implementations = list as Implementation[];
  const names = implementations.map(({ pipeline }) => pipeline.name);
  const twice = names.find((one, place) => names.indexOf(one) !== place);
  if (twice) refuse("pipelines", `Pipeline "${twice}" is there twice`, "Leave one out");
  return { implementations, files: [] };
}

function readWebhooks(given: WorkerOptions["webhooks"] = true): WebhookSenderOptions | undefined {
  if (typeof given !== "boolean" && (typeof given !== "object" || given === null))
    refuse(
      "webhooks",
      "webhooks is neither true, false nor options",
      'Pass { allow: ["10.1.0.0/16"] }, or leave it out',
    );
  return given === true ? {} : given || undefined;
}

function secretsOf(url: string, { directUrl, storeCredentials, sealKeys = "" }: WorkerOptions): string[] {
  const urls = [url, ...(typeof directUrl === "string" ? [directUrl] : [])];
  // As it is, as it is written in a URL, and with the user before it: a short one cannot be looked for inside of other values.
  const passwords = urls.flatMap((one) => {
    const { username, password } = URL.canParse(one) ? new URL(one) : { username: "", password: "" };
    return password ? [decodeURIComponent(password), password, `${username}:${password}@`] : [];
  });
  const keys =
    typeof sealKeys === "string"
      ? sealKeys.split(",").map((pair) => pair.replace(/^[^:]*:/, ""))
      : Object.values(sealKeys.keys);
  const { secretAccessKey = "", sessionToken = "" } = storeCredentials ?? {};
  return [...urls, ...passwords, ...keys, secretAccessKey, sessionToken].filter(Boolean);
}

function whole(value: number, field: string, least: number, most: number): number {
  if (!Number.isInteger(value) || value < least || value > most) {
    refuse(field, `${field} ${JSON.stringify(value)} is not a whole number from ${least} to ${most}`, "Give one");
  }
  return value;
}

function refuse(field: string, message: string, remedy: string): never {
  throw new InvalidInput(message, { field, remedy });
}
