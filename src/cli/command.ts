// The type of a command, and the flags that commands share. Each file in commands/ declares its commands beside their
// code; commands.ts collects them.
import type { Config, EnvFile } from "../config.ts";
import type { ApiClient } from "./api-client.ts";
import type { FlagHelp, Flags } from "./flags.ts";
import type { Screen } from "./output/screen.ts";

/** What a command runs with. */
export interface CommandContext {
  flags: Flags;
  /** Positional arguments after the command name. */
  args: string[];
  config: Config;
  /** The variables that come from ./.env. */
  envFiles: readonly EnvFile[];
  screen: Screen;
  /** All commands, for completion. */
  commands: readonly Command[];
  /** Opens the API client on the first call; main.ts closes it after the command. */
  api(): Promise<ApiClient>;
}

export interface Command {
  name: string;
  /** The heading of the help that lists it. */
  group: "Get started" | "Run" | "Jobs" | "Inspect" | "Control" | "Access";
  summary: string;
  /** What follows the name, one entry per form of the call. */
  usage: readonly string[];
  /** The number of positional arguments. */
  args: readonly [min: number, max: number];
  /** Allowed values of the first argument, such as "pause" of schedules. */
  subcommands?: readonly string[];
  flags: FlagHelp;
  /** Arguments after `stillwake`, with an explanation. */
  examples: readonly (readonly [args: string, explanation: string])[];
  /** Returns the exit code. Imports heavy modules (database, server, worker, orchestrator) when called, not before. */
  run(context: CommandContext): Promise<number>;
}

/** Flags of every command that connects to the database. */
export const databaseFlags = {
  url: "<url> the database (default: STILLWAKE_DATABASE_URL or DATABASE_URL)",
  schema: '<name> the schema (default: STILLWAKE_SCHEMA or "stillwake")',
} as const satisfies FlagHelp;

/** Flags of every command that calls the API, on a server or in this process. */
export const apiFlags = {
  server: "<url> a Stillwake server (default: STILLWAKE_SERVER); without one, the database is used directly",
  token: "<token> for the server; prefer STILLWAKE_TOKEN: other users of this machine can read arguments",
  ...databaseFlags,
  json: "print the JSON of the API",
  verbose: "print which server or database is used, on stderr",
} as const satisfies FlagHelp;

export const configHelp = "<file> instead of ./stillwake.config.{ts,mts,js,mjs}";
export const pipelinesHelp = "<path> a module, or a directory of modules, that export implement(…); repeatable";
export const storeHelp =
  "<url> artifacts: file:<dir> or s3://<bucket>/<prefix>?endpoint=<url> (default: STILLWAKE_STORE)";
export const directUrlHelp = "<url> bypasses the pooler (default: STILLWAKE_DIRECT_URL, or the database URL)";
