// One call of `stillwake`: finds the command, reads what was given to it, runs it, and says errors as people need them.
import { inspect } from "node:util";
import { readConfig } from "../config.ts";
import { InvalidInput, StillwakeError } from "../errors.ts";
import { nearest } from "../text/suggest.ts";
import type { Door } from "./api-client.ts";
import type { Call, Command } from "./command.ts";
import { commandOf, commands } from "./commands.ts";
import { findCommand, readFlags } from "./flags.ts";
import { Screen, type ScreenOptions } from "./output/screen.ts";

/** Given by tests; everybody else has the environment and the outputs of the process. */
export interface Around extends Pick<ScreenOptions, "out" | "talk"> {
  env?: NodeJS.ProcessEnv;
}

/** Answers the exit code: 0, 1 (it failed) or 2 (it was called wrongly). */
export async function main(args: readonly string[], around: Around = {}): Promise<number> {
  try {
    return await run(args, around);
  } catch (error) {
    new Screen(around).say(forPeople(error));
    return error instanceof InvalidInput ? 2 : 1;
  }
}

async function run(args: readonly string[], around: Around): Promise<number> {
  const print = (text: string) => new Screen(around).print(text);
  const name = findCommand(args);
  if (name === undefined) {
    const { flags } = readFlags(args, "", {});
    print(flags.version ? await ownVersion() : await help([]));
    return flags.help || flags.version ? 0 : 2;
  }
  if (name === "help") {
    print(await help(readFlags(args, "help", {}).words));
    return 0;
  }
  const command = known(name);
  const { flags, words } = readFlags(args, command.name, command.flags);
  if (flags.version || flags.help) {
    print(flags.version ? await ownVersion() : await help([command.name]));
    return 0;
  }
  checkWords(command, words);
  // Arguments can be read by everyone on the machine.
  if (flags.url || flags.directUrl || flags.token) process.title = `stillwake ${command.name}`;

  const config = readConfig(around.env);
  const screen = new Screen({ ...around, plain: Boolean(config.plain), verbose: Boolean(flags.verbose) });
  let door: Promise<Door> | undefined;
  const call: Call = {
    flags,
    words,
    config,
    screen,
    commands,
    door: () => (door ??= import("./api-client.ts").then(({ openDoor }) => openDoor(flags, config, screen))),
  };
  const runner = await command.load();
  try {
    return await runner(call);
  } finally {
    await door?.then(
      (opened) => opened.close(),
      () => {},
    );
  }
}

function known(name: string): Command {
  const command = commandOf(name);
  if (command) return command;
  const names = commands.map((one) => one.name);
  const near = nearest(name, names);
  throw new InvalidInput(`Unknown command "${name}"`, {
    remedy: `${near ? `Did you mean ${near}?` : `Commands: ${names.join(", ")}.`} See stillwake --help`,
  });
}

function checkWords({ name, words: [least, most], usage, acts }: Command, words: readonly string[]): void {
  const see = `See stillwake ${name} --help`;
  if (acts && words[0] !== undefined && least === 0 && !acts.includes(words[0])) {
    const near = nearest(words[0], acts);
    throw new InvalidInput(`Unexpected "${words[0]}" after ${name}`, {
      remedy: `${near ? `Did you mean ${near}?` : `There is: ${acts.join(", ")}.`} ${see}`,
    });
  }
  if (words.length > most)
    throw new InvalidInput(`Unexpected "${words[most]}" after ${[name, ...words.slice(0, most)].join(" ")}`, {
      remedy: see,
    });
  if (words.length >= least) return;
  throw new InvalidInput(`${name} needs more: stillwake ${name} ${usage[0]}`, { remedy: see });
}

async function help(words: readonly string[]): Promise<string> {
  const { helpOf, overview } = await import("./help.ts");
  return words[0] === undefined ? overview() : helpOf(known(words[0]));
}

async function ownVersion(): Promise<string> {
  return (await import("../version.ts")).version;
}

/** Our errors and those of Postgres say what is wrong; of any other the stack is needed. */
function forPeople(error: unknown): string {
  const { code, message } = error as { code?: string; message?: string };
  const told = error instanceof StillwakeError || /^[0-9A-Z]{5}$/.test(code ?? "");
  return told ? `${code}: ${message}` : inspect(error);
}
