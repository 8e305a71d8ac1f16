// The table of all commands: the help, the completions and docs/reference/cli.md are made of it, and nothing else is accepted.
import type { Command } from "./command.ts";
import { costCommands } from "./cost-commands.ts";
import { flowCommands } from "./flow-commands.ts";
import { jobCommands } from "./job-commands.ts";
import { processCommands } from "./process-commands.ts";

export const commands: readonly Command[] = [...processCommands, ...jobCommands, ...costCommands, ...flowCommands];

export function commandOf(name: string): Command | undefined {
  return commands.find((command) => command.name === name);
}
