// Every flag of every command, read in one place.
import { parseArgs } from "node:util";
import { InvalidInput } from "../errors.ts";

const text = { type: "string" } as const;
const yes = { type: "boolean" } as const;

const options = {
  url: text,
  "direct-url": text,
  schema: text,
  print: yes,
  json: yes,
  config: text,
  pool: text,
  slots: text,
  pipelines: { type: "string", multiple: true },
  name: text,
  lease: text,
  grace: text,
  "cancel-grace": text,
  "drain-limit": text,
  "idle-exit": text,
  drain: yes,
  once: yes,
  store: text,
  scratch: text,
  "metrics-port": text,
  "metrics-host": text,
  "log-level": text,
  help: { type: "boolean", short: "h" },
  version: { type: "boolean", short: "v" },
} as const;

export interface Flags {
  url?: string;
  directUrl?: string;
  schema?: string;
  print?: boolean;
  json?: boolean;
  config?: string;
  pool?: string;
  slots?: string;
  pipelines?: string[];
  name?: string;
  lease?: string;
  grace?: string;
  cancelGrace?: string;
  drainLimit?: string;
  idleExit?: string;
  drain?: boolean;
  once?: boolean;
  store?: string;
  scratch?: string;
  metricsPort?: string;
  metricsHost?: string;
  logLevel?: string;
  help?: boolean;
  version?: boolean;
}

export function readFlags(): { flags: Flags; command: string | undefined; rest: string[] } {
  try {
    const { values, positionals } = parseArgs({ allowPositionals: true, options });
    const [command, ...rest] = positionals;
    const named = Object.entries(values).map(([name, value]) => [
      name.replaceAll(/-(\w)/g, (_, letter: string) => letter.toUpperCase()),
      value,
    ]);
    return { flags: Object.fromEntries(named) as Flags, command, rest };
  } catch (error) {
    throw new InvalidInput((error as Error).message, { remedy: "See stillwake --help" });
  }
}
