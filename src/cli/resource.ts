// Lists and changes named resources of the API: pools, limits, breakers and schedules.
import { InvalidInput } from "../errors.ts";
import { escapeLine } from "../text/escape.ts";
import type { ApiRequest } from "./api-client.ts";
import type { CommandContext } from "./command.ts";
import { type Column, printTable } from "./output/table.ts";

export async function printResources<Row>(
  { flags, screen, api }: CommandContext,
  noun: string,
  columns: readonly Column<Row>[],
  emptyText: string,
): Promise<number> {
  const result = await (await api()).call("GET", `/v1/${noun}`);
  if (flags.json) screen.json(result);
  else printTable(screen, result[noun], columns, emptyText);
  return 0;
}

/** Sends the request and prints `message` when it succeeded. */
export async function changeResource(
  { flags, screen, api }: CommandContext,
  method: "POST" | "DELETE",
  path: string,
  message: string,
  request: ApiRequest = {},
): Promise<number> {
  const result = await (await api()).call(method, path, request);
  if (flags.json) screen.json(result);
  else screen.print(escapeLine(message));
  return 0;
}

export function requireName(
  noun: string,
  action: string,
  name: string | undefined,
  extra?: string,
): asserts name is string {
  if (name === undefined)
    throw new InvalidInput(`${noun} ${action} needs a name`, { remedy: `Write stillwake ${noun} ${action} <name>` });
  if (extra !== undefined)
    throw new InvalidInput(`Unexpected "${extra}" after ${noun} ${action} ${name}`, {
      remedy: `See stillwake ${noun} --help`,
    });
}
