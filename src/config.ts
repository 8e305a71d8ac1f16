// Reads the environment: the only file that does. Everything else receives plain values.
import fs from "node:fs";
import { parseEnv } from "node:util";
import { InvalidInput } from "./errors.ts";

export interface Config {
  /** DATABASE_URL or STILLWAKE_DATABASE_URL; without one, `stillwake dev` starts an embedded Postgres. */
  databaseUrl: string | undefined;
  /** STILLWAKE_DIRECT_URL: bypasses the pooler, for hints and presence. Default: the database URL. */
  directUrl: string | undefined;
  /** STILLWAKE_STORE: the artifact store, file:… or s3://…. Default: in `dir`. */
  store: string | undefined;
  /** STILLWAKE_STORE_ACCESS_KEY_ID, _SECRET_ACCESS_KEY and _SESSION_TOKEN, or the AWS variables. */
  storeCredentials: { accessKeyId: string; secretAccessKey: string; sessionToken?: string } | undefined;
  /** STILLWAKE_SEAL_KEYS: "k2:base64,k1:base64"; the first key seals, all unseal. For clients and workers, not the server. */
  sealKeys: string | undefined;
  /** STILLWAKE_SECRET: signs and verifies read tokens; separated by commas, the first signs. */
  secret: string | undefined;
  /** STILLWAKE_SERVER: the server that commands call instead of the database. */
  server: string | undefined;
  /** STILLWAKE_TOKEN: the token for that server. */
  token: string | undefined;
  /** STILLWAKE_SCHEMA. */
  schema: string;
  /** STILLWAKE_HOST: the address `stillwake server` listens on. Default: loopback. */
  host: string | undefined;
  /** STILLWAKE_TRUST_PROXY: how many proxies in front of `stillwake server` append to X-Forwarded-For. Default 0. */
  trustProxy: string | undefined;
  /** STILLWAKE_PORT of `stillwake server` and `stillwake dev`; the latter uses the next free port if it is taken. */
  port: number;
  /** STILLWAKE_MACHINE, _POOL, _SLOTS, _IDLE_EXIT, _MIN_UPTIME, _GRACE: set by the orchestrator for a machine's worker. */
  machine: { name?: string; pool?: string; slots?: number; idleExit?: string; minUptime?: string; grace?: string };
  /** STILLWAKE_POKE_URL: receives an HTTP request when there is new work, such as https://jobs.example.com/v1/poke. */
  pokeUrl: string | undefined;
  /** STILLWAKE_PRICES: a JSON file with custom price tables. */
  prices: string | undefined;
  /** STILLWAKE_DIR: the data directory of `stillwake dev`. */
  dir: string;
  /** NO_COLOR is set, or TERM is "dumb". */
  plain: true | undefined;
  /** The process was started by an npm script. */
  underNpm: true | undefined;
  /** npm_config_user_agent: the package manager that started the process. */
  userAgent: string | undefined;
}

export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const port = Number(env.STILLWAKE_PORT || 4700);
  if (!Number.isInteger(port) || port < 0 || port > 65535) {
    throw new InvalidInput(`STILLWAKE_PORT ${JSON.stringify(env.STILLWAKE_PORT)} is not a port`, {
      field: "STILLWAKE_PORT",
      remedy: "Use a whole number from 0 to 65535; 0 selects any free port",
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
    trustProxy: env.STILLWAKE_TRUST_PROXY || undefined,
    port,
    machine: readMachine(env),
    pokeUrl: env.STILLWAKE_POKE_URL || undefined,
    prices: env.STILLWAKE_PRICES || undefined,
    dir: env.STILLWAKE_DIR || ".stillwake",
    plain: env.NO_COLOR || env.TERM === "dumb" ? true : undefined,
    underNpm: env.npm_lifecycle_event ? true : undefined,
    userAgent: env.npm_config_user_agent || undefined,
  });
}

/** A file of settings, and the variables that were added from it. */
export interface EnvFile {
  file: string;
  names: string[];
}

/**
 * Adds the variables of ./.env.local, then those of ./.env, that are not set to the environment of this process. Both hold for an
 * application in the same directory too.
 */
export function loadEnvFiles(env: NodeJS.ProcessEnv = process.env): EnvFile[] {
  const hasToken = Boolean(env.STILLWAKE_TOKEN);
  return [".env.local", ".env"]
    .map((file) => ({ file, names: loadEnvFile(file, env, hasToken) }))
    .filter(({ names }) => names.length > 0);
}

function loadEnvFile(file: string, env: NodeJS.ProcessEnv, hasToken: boolean): string[] {
  let text: string;
  try {
    text = fs.readFileSync(file, "utf8");
  } catch (error) {
    const { code } = error as { code?: string };
    if (code === "ENOENT") return [];
    throw new InvalidInput(`${file} cannot be read: ${code}`, { remedy: "Check the file and its permissions" });
  }
  const values = parseEnv(text) as Record<string, string>;
  const added = Object.keys(values).filter(
    // A file in an untrusted directory must not redirect a token to another host.
    (name) => env[name] === undefined && !(name === "STILLWAKE_SERVER" && hasToken),
  );
  for (const name of added) env[name] = values[name];
  return added;
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

/** Provider settings, for the orchestrator's process. */
export interface ProviderConfig {
  /** GOOGLE_APPLICATION_CREDENTIALS: the path of a service account's key file. */
  googleCredentials: string | undefined;
  /** KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: the API of the cluster this process runs in. */
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

/** The value of a secret reference: STILLWAKE_SECRET_<NAME>, in capitals, with _ for all but letters and digits. */
export function readSecret(env: Readonly<Record<string, string | undefined>>, name: string): string | undefined {
  return env[`STILLWAKE_SECRET_${name.toUpperCase().replaceAll(/[^A-Z0-9]/g, "_")}`] || undefined;
}

export interface FlyConfig {
  /** FLY_API_TOKEN, or FLY_ACCESS_TOKEN as Fly's tools name it. */
  token: string | undefined;
  /** FLY_APP_NAME: the app this process runs in. */
  ownApp: string | undefined;
  /** STILLWAKE_IMAGE or FLY_IMAGE_REF: the image this process was started from. */
  ownImage: string | undefined;
}

/** Fly settings, for the orchestrator's process. */
export function readFlyConfig(env: NodeJS.ProcessEnv = process.env): FlyConfig {
  return {
    token: env.FLY_API_TOKEN || env.FLY_ACCESS_TOKEN || undefined,
    ownApp: env.FLY_APP_NAME || undefined,
    ownImage: env.STILLWAKE_IMAGE || env.FLY_IMAGE_REF || undefined,
  };
}

/** The environment of this process, from which commands of jobs get selected variables. */
export function processEnvironment(): Readonly<Record<string, string | undefined>> {
  return process.env;
}

/** Provider credentials: for the orchestrator's process alone. */
const providerVariables =
  "FLY_(API|ACCESS)_TOKEN|FLY_API_HOSTNAME|GOOGLE_APPLICATION_CREDENTIALS|CLOUDSDK_.*|KUBECONFIG|KUBERNETES_.*";

/** Withheld from pipeline code by default: settings of the runtime, and credentials of its store and of providers. */
const runtimeVariables = new RegExp(
  `^(STILLWAKE_(?!CRASH$).*|${providerVariables}|AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|WEB_IDENTITY_TOKEN_FILE|CONTAINER_.*))$`,
);

/** Not passed to machines: provider credentials, server credentials, and the identity of the machine this runs on. */
const orchestratorVariables = new RegExp(
  `^(${providerVariables}|STILLWAKE_(SECRET|TOKEN|SERVER|HOST|PORT|PROCESS_TAG|MACHINE|POOL|SLOTS|IDLE_EXIT|MIN_UPTIME|GRACE))$`,
);

/** The environment of a local machine (a child process): what its worker needs, without provider credentials. */
export function machineEnvironment(
  env: Readonly<Record<string, string | undefined>> = process.env,
): Record<string, string> {
  const passed = Object.entries(env).filter(
    (entry): entry is [string, string] => !orchestratorVariables.test(entry[0]) && entry[1] !== undefined,
  );
  return Object.fromEntries(passed);
}

/** Which variables of the worker pipeline code gets. A name may end with *; of several matches the longest decides, then `withhold`. */
export interface EnvOptions {
  /** Not passed, such as ["DATABASE_URL", "PG*"]. */
  withhold?: readonly string[];
  /** Passed although they are withheld by default, such as ["AWS_*"]. */
  pass?: readonly string[];
}

/** What a worker was configured with and pipeline code must not find in another variable. */
export interface RuntimeSecrets {
  databaseUrls: readonly string[];
  /** Seal keys, and the secrets of the store. */
  others: readonly string[];
}

/**
 * Names of the variables that runners do not get: by `options`, by name, or because the value contains a secret of the runtime. DATABASE_URL
 * is passed by default, even if it is the runtime's; its login is then no secret in other variables.
 */
export function withheldNames(
  { databaseUrls, others }: RuntimeSecrets,
  options: EnvOptions,
  env: Readonly<Record<string, string | undefined>> = process.env,
): string[] {
  const passedUrl = ruleFor("DATABASE_URL", options) === "withhold" ? "" : (env.DATABASE_URL ?? "");
  const logins = databaseUrls.filter((url) => url !== passedUrl && !hasSameLogin(url, passedUrl)).flatMap(secretsOfUrl);
  return Object.keys(env).filter((name) => {
    const rule = ruleFor(name, options);
    if (rule !== undefined) return rule === "withhold";
    const value = env[name] ?? "";
    return runtimeVariables.test(name) || containsOne(value, name === "DATABASE_URL" ? others : [...others, ...logins]);
  });
}

/** The environment of runners: `env` without the withheld variables. */
export function runnerEnvironment(
  withheld: readonly string[],
  env: Readonly<Record<string, string | undefined>> = process.env,
): Record<string, string> {
  const passed = Object.entries(env).filter(
    (entry): entry is [string, string] => !withheld.includes(entry[0]) && entry[1] !== undefined,
  );
  return Object.fromEntries(passed);
}

/** Database passwords in an environment, to be redacted. A short one, or an ordinary word, only as a part of a URL. */
export function databasePasswords(env: Readonly<Record<string, string | undefined>>): string[] {
  const inUrls = Object.values(env).filter((value) => /^postgres(ql)?:\/\//i.test(value ?? ""));
  const passwords = inUrls.flatMap((url) => {
    const { raw, decoded } = loginOf(url!) ?? {};
    if (!raw) return [];
    return isDistinct(raw) ? [raw, decoded!] : [`:${raw}@`];
  });
  return [...passwords, ...(isDistinct(env.PGPASSWORD ?? "") ? [env.PGPASSWORD!] : [])];
}

function isDistinct(password: string): boolean {
  return password.length >= 8 && !/^[a-z]{1,15}$/i.test(password);
}

function ruleFor(name: string, { withhold = [], pass = [] }: EnvOptions): "withhold" | "pass" | undefined {
  const longestMatch = (patterns: readonly string[]) =>
    Math.max(-1, ...patterns.map((text) => matchLength(name, text)));
  const [withheld, passed] = [longestMatch(withhold), longestMatch(pass)];
  if (withheld < 0 && passed < 0) return undefined;
  return passed > withheld ? "pass" : "withhold";
}

/** -1 without a match. */
function matchLength(name: string, pattern: string): number {
  if (name === pattern) return Number.POSITIVE_INFINITY;
  return pattern.endsWith("*") && name.startsWith(pattern.slice(0, -1)) ? pattern.length - 1 : -1;
}

function containsOne(value: string, secrets: readonly string[]): boolean {
  return secrets.some((secret) => (secret.length >= 8 ? value.includes(secret) : value === secret));
}

/** The URL, and its password: plain, URL-encoded, and with the user in front, because a short one alone is not searched for inside values. */
function secretsOfUrl(url: string): string[] {
  const { user, raw, decoded } = loginOf(url) ?? {};
  return raw ? [url, decoded!, raw, `${user}:${raw}@`] : [url];
}

function hasSameLogin(one: string, other: string): boolean {
  const [first, second] = [loginOf(one), loginOf(other)];
  return first?.raw !== undefined && first.user === second?.user && first.decoded === second.decoded;
}

function loginOf(url: string): { user: string; raw: string; decoded: string } | undefined {
  // Of several hosts the first: the login is the same for all.
  const single = url.replace(/^([a-z]+:\/\/(?:[^/?#]*@)?[^/?#@,]*),[^/?#@]*/i, "$1");
  if (!URL.canParse(single)) return undefined;
  const { username, password } = new URL(single);
  return password ? { user: username, raw: password, decoded: decodePassword(password) } : undefined;
}

function decodePassword(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * The environment of a package manager that installs another project: without the settings of an npm that started this
 * process, except for where packages come from, and without NODE_ENV, which would leave out development dependencies.
 */
export function installEnvironment(env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  const kept = /^npm_config_(registry|cache|cafile|userconfig|globalconfig|.*proxy|.*offline|strict_ssl)$/i;
  return Object.fromEntries(
    Object.entries(env).filter(([name]) => name !== "NODE_ENV" && (!/^npm_/i.test(name) || kept.test(name))),
  );
}

/** Removes variables that another module (a .env loader, for example) may have set again. */
export function deleteEnvironment(names: readonly string[]): void {
  for (const name of names) delete process.env[name];
}
