// All flags of the program, and the parser of a command's arguments. The commands declare which flags they take.
import { parseArgs } from "node:util";
import { InvalidInput } from "../errors.ts";
import { findClosest } from "../text/suggest.ts";

const text = { type: "string" } as const;
const list = { type: "string", multiple: true } as const;
const flag = { type: "boolean" } as const;

/** A flag has the same type in every command. */
const options = {
  // connection
  server: text,
  token: text,
  url: text,
  "direct-url": text,
  schema: text,
  config: text,
  // output
  json: flag,
  verbose: flag,
  help: { type: "boolean", short: "h" },
  version: { type: "boolean", short: "v" },
  // worker, server, dev
  pipelines: list,
  slots: text,
  lease: text,
  grace: text,
  "cancel-grace": text,
  "drain-timeout": text,
  "idle-exit": text,
  drain: list,
  once: flag,
  store: text,
  withhold: text,
  pass: text,
  scratch: text,
  "metrics-port": text,
  "metrics-host": text,
  "log-level": text,
  port: text,
  host: text,
  origin: list,
  "trust-proxy": text,
  "no-auth": flag,
  enqueue: text,
  input: text,
  demo: flag,
  // init
  "dry-run": flag,
  "no-install": flag,
  // machines
  "no-orchestrator": flag,
  same: flag,
  by: text,
  // deploy
  out: { type: "string", short: "o" },
  region: text,
  size: text,
  memory: text,
  warm: text,
  max: text,
  project: text,
  namespace: text,
  image: text,
  // cost
  month: text,
  jobs: text,
  minutes: text,
  provider: text,
  cpus: text,
  price: text,
  reuse: text,
  disk: text,
  free: flag,
  prices: text,
  period: text,
  // migrate
  print: flag,
  realtime: flag,
  "realtime-claim": text,
  // import
  map: list,
  "skip-invalid": flag,
  "no-keys": flag,
  "no-schedules": flag,
  from: text,
  "source-schema": text,
  prefix: text,
  // jobs
  pipeline: text,
  pool: text,
  state: text,
  key: text,
  tenant: text,
  parent: text,
  since: text,
  until: text,
  text: text,
  limit: text,
  cursor: text,
  all: flag,
  "idempotency-key": text,
  "on-conflict": text,
  delay: text,
  "expires-in": text,
  "max-priority": text,
  priority: text,
  attempts: text,
  webhook: text,
  wait: flag,
  follow: { type: "boolean", short: "f" },
  steps: flag,
  logs: flag,
  artifacts: flag,
  "from-start": flag,
  reason: text,
  // schedules
  cron: text,
  zone: text,
  overlap: text,
  "catch-up": text,
  // others
  for: text,
  count: text,
  span: text,
  ended: flag,
  endpoint: text,
  job: text,
  target: text,
  name: text,
  role: text,
  force: flag,
} as const;

export type FlagName = keyof typeof options;

type Camel<Name extends string> = Name extends `${infer First}-${infer Rest}`
  ? `${First}${Capitalize<Camel<Rest>>}`
  : Name;
type ValueOf<Option> = Option extends { multiple: true }
  ? string[]
  : Option extends { type: "string" }
    ? string
    : boolean;

export type Flags = { [Name in FlagName as Camel<Name>]?: ValueOf<(typeof options)[Name]> };

/** The flags of a command with their help: "<n> description" for one with a value, "description" for one without. */
export type FlagHelp = { readonly [Name in FlagName]?: string };

/** A string flag takes no value in a command whose help names none, such as --attempts of `job`. */
export function takesValue(name: FlagName, help: string): boolean {
  return options[name].type === "string" && help.startsWith("<");
}

export function shortFlag(name: FlagName): string | undefined {
  return (options[name] as { short?: string }).short;
}

/** The first positional argument. */
export function findCommandName(argv: readonly string[]): string | undefined {
  const { tokens } = parseArgs({ args: [...argv], options, strict: false, allowPositionals: true, tokens: true });
  return tokens.find((token) => token.kind === "positional")?.value;
}

/** Parses the arguments of a command that takes these flags. */
export function readFlags(argv: readonly string[], command: string, taken: FlagHelp): { flags: Flags; args: string[] } {
  const seeHelp = `See stillwake ${command ? `${command} ` : ""}--help`;
  const names = Object.keys(taken) as FlagName[];
  const known: FlagName[] = [...names, "help", "version"];
  const typeOf = (name: FlagName) =>
    name in taken && options[name].type === "string" && !takesValue(name, taken[name]!) ? flag : options[name];
  const accepted = Object.fromEntries(known.map((name) => [name, typeOf(name)]));
  const { tokens } = parseArgs({
    args: [...argv],
    options: accepted,
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  for (const token of tokens) {
    if (token.kind !== "option" || known.includes(token.name as FlagName)) continue;
    const closest = token.name.length > 1 ? findClosest(token.name, known) : undefined;
    const allowed = names.map((name) => `--${name}`).join(", ") || "none";
    const takes = command ? `${command} takes ${allowed}` : "Put the command first";
    throw new InvalidInput(`Unknown option '${token.rawName}'${command && ` for ${command}`}`, {
      field: token.name,
      remedy: `${closest ? `Did you mean --${closest}?` : `${takes}.`} ${seeHelp}`,
    });
  }
  try {
    const { values, positionals } = parseArgs({ args: [...argv], options: accepted, allowPositionals: true });
    const flags = Object.entries(values).map(([name, value]) => [toCamelCase(name), value]);
    return { flags: Object.fromEntries(flags) as Flags, args: command ? positionals.slice(1) : positionals };
  } catch (error) {
    throw new InvalidInput((error as Error).message.replaceAll("\n", " "), { remedy: seeHelp });
  }
}

function toCamelCase(name: string): string {
  return name.replaceAll(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
}
