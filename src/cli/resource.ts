// Lists and changes resources of the API, such as pools, limits and tokens.
import { InvalidInput } from "../errors.ts";
import { escapeLine } from "../text/escape.ts";
import type { ApiRequest } from "./api-client.ts";
import type { CommandContext } from "./command.ts";
import { type Column, printTable } from "./output/table.ts";

/** `field`: the field of the response that has the rows, if it is not the noun. */
export async function printResources<Row>(
  { flags, screen, api }: CommandContext,
  noun: string,
  columns: readonly Column<Row>[],
  emptyText: string,
  { field = noun, ...request }: Pick<ApiRequest, "query"> & { field?: string } = {},
): Promise<number> {
  const result = await (await api()).call("GET", `/v1/${noun}`, request);
  if (flags.json) {
    screen.json(result);
    return 0;
  }
  printTable(screen, result[field], columns, emptyText);
  if (result.cursor) screen.printStderr(`There are more: pass --cursor ${result.cursor}`);
  return 0;
}

/** Sends the request and prints `message` when it succeeded. */
export async function changeResource(
  { flags, screen, api }: CommandContext,
  method: "POST" | "PUT" | "DELETE",
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
