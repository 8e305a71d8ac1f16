// Every flag there is, and how the arguments of one command are read. Which command takes which, and what for, stands in the tables of commands.
import { parseArgs } from "node:util";
import { InvalidInput } from "../errors.ts";
import { nearest } from "../text/suggest.ts";

const text = { type: "string" } as const;
const many = { type: "string", multiple: true } as const;
const yes = { type: "boolean" } as const;

/** A flag is of one kind wherever it is taken. */
const options = {
  // where
  server: text,
  token: text,
  url: text,
  "direct-url": text,
  schema: text,
  config: text,
  // how it is said
  json: yes,
  verbose: yes,
  help: { type: "boolean", short: "h" },
  version: { type: "boolean", short: "v" },
  // the worker, the server, dev
  pipelines: many,
  slots: text,
  lease: text,
  grace: text,
  "cancel-grace": text,
  "drain-timeout": text,
  "idle-exit": text,
  drain: many,
  once: yes,
  store: text,
  scratch: text,
  "metrics-port": text,
  "metrics-host": text,
  "log-level": text,
  port: text,
  host: text,
  origin: many,
  "no-auth": yes,
  enqueue: text,
  input: text,
  demo: yes,
  // machines
  "no-orchestrator": yes,
  same: yes,
  by: text,
  // the files of a deployment
  out: text,
  region: text,
  size: text,
  memory: text,
  warm: text,
  max: text,
  project: text,
  namespace: text,
  image: text,
  // what it costs
  month: text,
  jobs: text,
  minutes: text,
  provider: text,
  cpus: text,
  price: text,
  reuse: text,
  disk: text,
  free: yes,
  prices: text,
  period: text,
  // the database
  print: yes,
  realtime: yes,
  "realtime-claim": text,
  // jobs
  pipeline: text,
  pool: text,
  state: text,
  key: text,
  tenant: text,
  since: text,
  until: text,
  text: text,
  limit: text,
  cursor: text,
  all: yes,
  "idempotency-key": text,
  "on-conflict": text,
  delay: text,
  "expires-in": text,
  priority: text,
  attempts: text,
  webhook: text,
  wait: yes,
  follow: { type: "boolean", short: "f" },
  steps: yes,
  logs: yes,
  artifacts: yes,
  "from-start": yes,
  reason: text,
  // the rest
  for: text,
  count: text,
  span: text,
  ended: yes,
  endpoint: text,
  job: text,
  target: text,
  name: text,
  role: text,
  force: yes,
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

/** What a command takes, and the words of its help: "<n> about it" for one with a value. */
export type Taken = { readonly [Name in FlagName]?: string };

/** A flag that has a value elsewhere may be taken without one: its help then names none. */
export function takesValue(name: FlagName, about: string): boolean {
  return options[name].type === "string" && about.startsWith("<");
}

export function shortOf(name: FlagName): string | undefined {
  return (options[name] as { short?: string }).short;
}

/** The first word that is no flag and no value of one. */
export function findCommand(args: readonly string[]): string | undefined {
  const { tokens } = parseArgs({ args: [...args], options, strict: false, allowPositionals: true, tokens: true });
  return tokens.find((token) => token.kind === "positional")?.value;
}

/** What was given to a command that takes these flags. */
export function readFlags(args: readonly string[], command: string, taken: Taken): { flags: Flags; words: string[] } {
  const see = `See stillwake ${command ? `${command} ` : ""}--help`;
  const names = Object.keys(taken) as FlagName[];
  const known: FlagName[] = [...names, "help", "version"];
  const kind = (name: FlagName) =>
    name in taken && options[name].type === "string" && !takesValue(name, taken[name]!) ? yes : options[name];
  const given = Object.fromEntries(known.map((name) => [name, kind(name)]));
  const { tokens } = parseArgs({
    args: [...args],
    options: given,
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  for (const token of tokens) {
    if (token.kind !== "option" || known.includes(token.name as FlagName)) continue;
    const near = token.name.length > 1 ? nearest(token.name, known) : undefined;
    const list = names.map((name) => `--${name}`).join(", ") || "none";
    const takes = command ? `${command} takes ${list}` : "Give the command first";
    throw new InvalidInput(`Unknown option '${token.rawName}'${command && ` for ${command}`}`, {
      field: token.name,
      remedy: `${near ? `Did you mean --${near}?` : `${takes}.`} ${see}`,
    });
  }
  try {
    const { values, positionals } = parseArgs({ args: [...args], options: given, allowPositionals: true });
    const named = Object.entries(values).map(([name, value]) => [camel(name), value]);
    return { flags: Object.fromEntries(named) as Flags, words: command ? positionals.slice(1) : positionals };
  } catch (error) {
    throw new InvalidInput((error as Error).message.replaceAll("\n", " "), { remedy: see });
  }
}

function camel(name: string): string {
  return name.replaceAll(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
}
