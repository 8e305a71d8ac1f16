// What a command is: a row of a table. Its code is loaded when it is called, so that `stillwake --version` and completions stay quick.
import type { Config } from "../config.ts";
import type { Door } from "./api-client.ts";
import type { Flags, Taken } from "./flags.ts";
import type { Screen } from "./output/screen.ts";

/** One call of a command. */
export interface Call {
  flags: Flags;
  /** What stands after the command. */
  words: string[];
  config: Config;
  screen: Screen;
  /** The whole table, for what is made of it. */
  commands: readonly Command[];
  /** The way to the API, opened when it is asked for and closed after the command. */
  door(): Promise<Door>;
}

/** Answers the exit code. */
export type Runner = (call: Call) => Promise<number>;

export interface Command {
  name: string;
  /** Under which heading of the help it stands. */
  group: "Run" | "Jobs" | "Look" | "Steer" | "Access" | "Start";
  summary: string;
  /** What follows its name, one line for each way to call it. */
  usage: readonly string[];
  /** How many words it takes. */
  words: readonly [least: number, most: number];
  /** Words that may come first, such as "pause" of schedules. */
  acts?: readonly string[];
  flags: Taken;
  /** The arguments after `stillwake`, and what they do. */
  examples: readonly (readonly [args: string, does: string])[];
  load(): Promise<Runner>;
}

/** Of every command that speaks to the database itself. */
export const databaseFlags = {
  url: "<url> the database (default: STILLWAKE_DATABASE_URL or DATABASE_URL)",
  schema: '<name> the schema (default: STILLWAKE_SCHEMA or "stillwake")',
} as const satisfies Taken;

/** Of every command that speaks to the API, at a server or in this process. */
export const doorFlags = {
  server: "<url> a Stillwake server (default: STILLWAKE_SERVER); without one the database is asked itself",
  token: "<token> for the server; better STILLWAKE_TOKEN: others on this machine can read arguments",
  ...databaseFlags,
  json: "what the API answers, for programs",
  verbose: "say whom it asks, on the standard error output",
} as const satisfies Taken;
