// One call of `stillwake`: finds the command, parses its arguments, runs it and prints errors.
import { inspect } from "node:util";
import { loadEnvFiles, readConfig } from "../config.ts";
import { fromDatabase, InvalidInput, StillwakeError } from "../errors.ts";
import { findClosest } from "../text/suggest.ts";
import type { ApiClient } from "./api-client.ts";
import type { Command, CommandContext } from "./command.ts";
import { findCommandName, readFlags } from "./flags.ts";
import { Screen, type ScreenOptions } from "./output/screen.ts";

/** Set by tests. Default: the environment and the standard streams of the process. */
export interface MainOptions extends Pick<ScreenOptions, "stdout" | "stderr"> {
  env?: NodeJS.ProcessEnv;
}

/** Returns the exit code: 0, 1 (failed) or 2 (invalid arguments). */
export async function main(argv: readonly string[], options: MainOptions = {}): Promise<number> {
  try {
    return await run(argv, options);
  } catch (error) {
    new Screen(options).printStderr(formatError(error));
    return error instanceof InvalidInput ? 2 : 1;
  }
}

async function run(argv: readonly string[], options: MainOptions): Promise<number> {
  const print = (text: string) => new Screen(options).print(text);
  const name = findCommandName(argv);
  if (name === undefined) {
    const { flags } = readFlags(argv, "", {});
    print(flags.version ? await readVersion() : await help());
    return flags.help || flags.version ? 0 : 2;
  }
  if (name === "help") {
    print(await help(readFlags(argv, "help", {}).args[0]));
    return 0;
  }
  const command = await requireCommand(name);
  const { flags, args } = readFlags(argv, command.name, command.flags);
  if (flags.version || flags.help) {
    print(flags.version ? await readVersion() : await help(command.name));
    return 0;
  }
  checkArgs(command, args);
  // Other users of this machine can read the arguments of a process.
  if (flags.url || flags.directUrl || flags.token) process.title = `stillwake ${command.name}`;

  const envFiles = options.env ? [] : loadEnvFiles();
  const config = readConfig(options.env);
  const screen = new Screen({ ...options, plain: Boolean(config.plain), verbose: Boolean(flags.verbose) });
  let client: Promise<ApiClient> | undefined;
  const { commands } = await import("./commands.ts");
  const context: CommandContext = {
    flags,
    args,
    config,
    envFiles,
    screen,
    commands,
    api: () => (client ??= import("./api-client.ts").then(({ openApiClient }) => openApiClient(flags, config, screen))),
  };
  try {
    return await command.run(context);
  } finally {
    await client?.then(
      (opened) => opened.close(),
      () => {},
    );
  }
}

async function requireCommand(name: string): Promise<Command> {
  const { commands, findCommand } = await import("./commands.ts");
  const command = findCommand(name);
  if (command) return command;
  const names = commands.map((known) => known.name);
  const closest = findClosest(name, names);
  throw new InvalidInput(`Unknown command "${name}"`, {
    remedy: `${closest ? `Did you mean ${closest}?` : `Commands: ${names.join(", ")}.`} See stillwake --help`,
  });
}

function checkArgs({ name, args: [min, max], usage, subcommands }: Command, args: readonly string[]): void {
  const seeHelp = `See stillwake ${name} --help`;
  if (subcommands && args[0] !== undefined && min === 0 && !subcommands.includes(args[0])) {
    const closest = findClosest(args[0], subcommands);
    throw new InvalidInput(`Unexpected "${args[0]}" after ${name}`, {
      remedy: `${closest ? `Did you mean ${closest}?` : `Allowed: ${subcommands.join(", ")}.`} ${seeHelp}`,
    });
  }
  if (args.length > max)
    throw new InvalidInput(`Unexpected "${args[max]}" after ${[name, ...args.slice(0, max)].join(" ")}`, {
      remedy: seeHelp,
    });
  if (args.length < min)
    throw new InvalidInput(`${name} needs more arguments: stillwake ${name} ${usage[0]}`, { remedy: seeHelp });
}

async function help(name?: string): Promise<string> {
  const { commandHelp, overview } = await import("./help.ts");
  return name === undefined ? overview() : commandHelp(await requireCommand(name));
}

async function readVersion(): Promise<string> {
  return (await import("../version.ts")).version;
}

/** Errors of Stillwake and of Postgres explain themselves; any other error needs its stack. */
function formatError(thrown: unknown): string {
  const error = fromDatabase(thrown);
  const { code, message } = error as { code?: string; message?: string };
  const isExpected = error instanceof StillwakeError || /^[0-9A-Z]{5}$/.test(code ?? "");
  return isExpected ? `${code}: ${message}` : inspect(error);
}
