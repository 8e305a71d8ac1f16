// JSON among the arguments: itself, in a file (@file), or on the standard input (-).
import fs from "node:fs";
import { InvalidInput } from "../errors.ts";

/** Undefined when there is no such word. */
export function jsonOf(word: string | undefined, field: string): unknown {
  if (word === undefined) return undefined;
  const text =
    word === "-" ? fs.readFileSync(0, "utf8") : word.startsWith("@") ? contentOf(word.slice(1), field) : word;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new InvalidInput(`The ${field} is not JSON: ${(error as Error).message}`, {
      field,
      remedy: `Quote it for your shell: '{"name":"world"}'; or write @file, or - for the standard input`,
    });
  }
}

function contentOf(file: string, field: string): string {
  try {
    return fs.readFileSync(file, "utf8");
  } catch (error) {
    throw new InvalidInput(`The ${field} cannot be read from ${file}: ${(error as { code?: string }).code}`, {
      field,
      remedy: "Check the path after the @",
    });
  }
}

export function numberOf(word: string | undefined, field: string): number | undefined {
  if (word === undefined) return undefined;
  if (/^-?\d{1,15}$/.test(word)) return Number(word);
  throw new InvalidInput(`--${field} ${JSON.stringify(word)} is not a whole number`, {
    field,
    remedy: `Write --${field} 10`,
  });
}
