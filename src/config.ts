// The only place that reads the environment. Everything else is given plain values.
import { InvalidInput } from "./errors.ts";

export interface Config {
  /** DATABASE_URL or STILLWAKE_DATABASE_URL; without one, `stillwake dev` starts a Postgres of its own. */
  databaseUrl: string | undefined;
  /** STILLWAKE_DIRECT_URL: past the pooler, for hints and presence; the database's own without one. */
  directUrl: string | undefined;
  /** STILLWAKE_STORE: where artifacts are kept, file:… or s3://…; in `dir` without one. */
  store: string | undefined;
  /** STILLWAKE_STORE_ACCESS_KEY_ID, STILLWAKE_STORE_SECRET_ACCESS_KEY, STILLWAKE_STORE_SESSION_TOKEN, or those of AWS. */
  storeCredentials: { accessKeyId: string; secretAccessKey: string; sessionToken?: string } | undefined;
  /** STILLWAKE_SEAL_KEYS: "k2:base64,k1:base64", the first seals and all open. For enqueuers and workers, never for the server. */
  sealKeys: string | undefined;
  /** STILLWAKE_SECRET: signs and checks read tokens; several separated by commas, of which the first signs. */
  secret: string | undefined;
  /** STILLWAKE_SERVER: the server that commands ask instead of the database. */
  server: string | undefined;
  /** STILLWAKE_TOKEN: what they come in with. */
  token: string | undefined;
  /** STILLWAKE_SCHEMA. */
  schema: string;
  /** STILLWAKE_HOST: where `stillwake server` listens; this machine's own address without one. */
  host: string | undefined;
  /** STILLWAKE_PORT: where `stillwake server` and `stillwake dev` answer; the latter takes the next free port if it is taken. */
  port: number;
  /** STILLWAKE_MACHINE, _POOL, _SLOTS, _IDLE_EXIT, _STAY, _GRACE: what the orchestrator tells the worker of a machine. */
  machine: { name?: string; pool?: string; slots?: number; idleExit?: string; minUptime?: string; grace?: string };
  /** STILLWAKE_POKE_URL: who is told by HTTP that there is work, such as https://jobs.example.com/v1/poke. */
  pokeUrl: string | undefined;
  /** STILLWAKE_PRICES: a JSON file with price tables of your own. */
  prices: string | undefined;
  /** STILLWAKE_DIR: where `stillwake dev` keeps its data. */
  dir: string;
  /** NO_COLOR, or a terminal that can do nothing. */
  plain: true | undefined;
  /** A script of npm's started this. */
  underNpm: true | undefined;
}

export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const port = Number(env.STILLWAKE_PORT || 4700);
  if (!Number.isInteger(port) || port < 0 || port > 65535) {
    throw new InvalidInput(`STILLWAKE_PORT ${JSON.stringify(env.STILLWAKE_PORT)} is not a port`, {
      field: "STILLWAKE_PORT",
      remedy: "Use a whole number from 0 to 65535; 0 takes any free port",
    });
  }
  return Object.freeze({
    databaseUrl: env.STILLWAKE_DATABASE_URL || env.DATABASE_URL || undefined,
    directUrl: env.STILLWAKE_DIRECT_URL || undefined,
    store: env.STILLWAKE_STORE || undefined,
    storeCredentials: readCredentials(env),
    sealKeys: env.STILLWAKE_SEAL_KEYS || undefined,
    secret: env.STILLWAKE_SECRET || undefined,
    server: env.STILLWAKE_SERVER || undefined,
    token: env.STILLWAKE_TOKEN || undefined,
    schema: env.STILLWAKE_SCHEMA || "stillwake",
    host: env.STILLWAKE_HOST || undefined,
    port,
    machine: readMachine(env),
    pokeUrl: env.STILLWAKE_POKE_URL || undefined,
    prices: env.STILLWAKE_PRICES || undefined,
    dir: env.STILLWAKE_DIR || ".stillwake",
    plain: env.NO_COLOR || env.TERM === "dumb" ? true : undefined,
    underNpm: env.npm_lifecycle_event ? true : undefined,
  });
}

function readMachine(env: NodeJS.ProcessEnv): Config["machine"] {
  const name = env.STILLWAKE_MACHINE;
  const pool = env.STILLWAKE_POOL;
  const slots = env.STILLWAKE_SLOTS ? Number(env.STILLWAKE_SLOTS) : undefined;
  const { STILLWAKE_IDLE_EXIT: idleExit, STILLWAKE_MIN_UPTIME: minUptime, STILLWAKE_GRACE: grace } = env;
  return {
    ...(name && { name }),
    ...(pool && { pool }),
    ...(slots !== undefined && { slots }),
    ...(idleExit && { idleExit }),
    ...(minUptime && { minUptime }),
    ...(grace && { grace }),
  };
}

function readCredentials(env: NodeJS.ProcessEnv): Config["storeCredentials"] {
  const accessKeyId = env.STILLWAKE_STORE_ACCESS_KEY_ID || env.AWS_ACCESS_KEY_ID;
  const secretAccessKey = env.STILLWAKE_STORE_SECRET_ACCESS_KEY || env.AWS_SECRET_ACCESS_KEY;
  const sessionToken = env.STILLWAKE_STORE_SESSION_TOKEN || env.AWS_SESSION_TOKEN;
  if (!accessKeyId || !secretAccessKey) return undefined;
  return { accessKeyId, secretAccessKey, ...(sessionToken && { sessionToken }) };
}

/** What starts machines, for the process that does: the orchestrator. */
export interface ProviderConfig {
  /** GOOGLE_APPLICATION_CREDENTIALS: the path of a service account's key file. */
  googleCredentials: string | undefined;
  /** KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: the API of the cluster that this process runs in. */
  kubernetesHost: string | undefined;
  kubernetesPort: string | undefined;
}

export function readProviderConfig(env: NodeJS.ProcessEnv = process.env): ProviderConfig {
  return Object.freeze({
    googleCredentials: env.GOOGLE_APPLICATION_CREDENTIALS || undefined,
    kubernetesHost: env.KUBERNETES_SERVICE_HOST || undefined,
    kubernetesPort: env.KUBERNETES_SERVICE_PORT || undefined,
  });
}

/** What a reference in an input stands for: STILLWAKE_SECRET_<NAME>, in capitals and with _ for what is no letter or digit. */
export function secretFrom(env: Readonly<Record<string, string | undefined>>, name: string): string | undefined {
  return env[`STILLWAKE_SECRET_${name.toUpperCase().replaceAll(/[^A-Z0-9]/g, "_")}`] || undefined;
}

export interface FlyConfig {
  /** FLY_API_TOKEN, or FLY_ACCESS_TOKEN as their own tools call it. */
  token: string | undefined;
  /** FLY_APP_NAME: the app that this process itself runs in. */
  ownApp: string | undefined;
  /** FLY_IMAGE_REF: the image that this process itself was started from. */
  ownImage: string | undefined;
}

/** For machines on Fly, in the orchestrator's process. */
export function readFlyConfig(env: NodeJS.ProcessEnv = process.env): FlyConfig {
  return {
    token: env.FLY_API_TOKEN || env.FLY_ACCESS_TOKEN || undefined,
    ownApp: env.FLY_APP_NAME || undefined,
    ownImage: env.STILLWAKE_IMAGE || env.FLY_IMAGE_REF || undefined,
  };
}

/** What this process was started with: commands of jobs are given a few named parts of it. */
export function processEnvironment(): Readonly<Record<string, string | undefined>> {
  return process.env;
}

/** What starts machines: for the orchestrator's process alone. */
const starting =
  "FLY_(API|ACCESS)_TOKEN|FLY_API_HOSTNAME|GOOGLE_APPLICATION_CREDENTIALS|CLOUDSDK_.*|KUBECONFIG|KUBERNETES_.*";

/** Not for user code: the runtime's database and stores, and what starts machines. */
const kept = new RegExp(
  `^(STILLWAKE_(?!CRASH$).*|PG[A-Z]+|${starting}|AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|WEB_IDENTITY_TOKEN_FILE|CONTAINER_.*))$`,
);

/** Not for machines: what starts them, what lets into the server, and who this process is if it is on a machine itself. */
const own = new RegExp(
  `^(${starting}|STILLWAKE_(SECRET|TOKEN|SERVER|HOST|PORT|GUARD|MACHINE|POOL|SLOTS|IDLE_EXIT|STAY|GRACE))$`,
);

/** The environment of a machine that is a process on this one: what its worker needs, and nothing that starts another. */
export function machineEnvironment(
  env: Readonly<Record<string, string | undefined>> = process.env,
): Record<string, string> {
  const shown = Object.entries(env).filter(
    (entry): entry is [string, string] => !own.test(entry[0]) && entry[1] !== undefined,
  );
  return Object.fromEntries(shown);
}

/** The names of what runners must not see: known by name, or by a value that carries one of `secrets`, DATABASE_URL too when that is the runtime's. */
export function withheldNames(
  secrets: readonly string[],
  env: Readonly<Record<string, string | undefined>> = process.env,
): string[] {
  const carries = (value = "") =>
    secrets.some((secret) => (secret.length >= 8 ? value.includes(secret) : value === secret));
  return Object.keys(env).filter((name) => kept.test(name) || carries(env[name]));
}

/** The environment of runners: all of this process's but for the runtime's own credentials. */
export function runnerEnvironment(
  secrets: readonly string[],
  env: Readonly<Record<string, string | undefined>> = process.env,
): Record<string, string> {
  const withheld = new Set(withheldNames(secrets, env));
  const shown = Object.entries(env).filter(
    (entry): entry is [string, string] => !withheld.has(entry[0]) && entry[1] !== undefined,
  );
  return Object.fromEntries(shown);
}

/** What a module that was loaded before us may have brought back. */
export function forgetEnvironment(names: readonly string[]): void {
  for (const name of names) delete process.env[name];
}
