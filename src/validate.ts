// Checks of options that several modules share; they throw InvalidInput with the field and a remedy.
// Free of Node, because contracts use them in web bundles.
import { InvalidInput } from "./errors.ts";

/** `owner` starts the message, such as `Limit "github"`; `part` is the path of a nested object, such as "retry". */
export function rejectUnknownOptions(
  options: object | undefined,
  known: readonly string[],
  owner = "",
  part = "",
): void {
  if (options !== undefined && (typeof options !== "object" || Array.isArray(options))) {
    const name = part || "options";
    throw new InvalidInput(`${owner ? `${owner}: ` : ""}${name} must be an object, not ${describeValue(options)}`, {
      field: name,
      remedy: `Pass an object with some of these: ${known.join(", ")}`,
    });
  }
  const unknown = Object.keys(options ?? {}).find((key) => !known.includes(key));
  if (unknown === undefined) return;
  const field = part ? `${part}.${unknown}` : unknown;
  throw new InvalidInput(owner ? `${owner} has an unknown option "${field}"` : `Unknown option "${field}"`, {
    field,
    remedy: `Known options${part && ` of ${part}`}: ${known.join(", ")}`,
  });
}

/** `owner` names what has the schema, such as `Pipeline "scan"`. */
export function checkStandardSchema(schema: unknown, field: string, owner: string): void {
  const { validate } = (schema as { "~standard"?: { validate?: unknown } } | null | undefined)?.["~standard"] ?? {};
  if (schema === undefined || typeof validate === "function") return;
  throw new InvalidInput(`The ${field} of ${owner} is not a Standard Schema`, {
    field,
    remedy: "Pass a Standard Schema, such as z.object({ … }) of zod, or undefined for any value",
  });
}

function describeValue(value: unknown): string {
  return typeof value === "function" ? "a function" : (JSON.stringify(value) ?? String(value)).slice(0, 100);
}

export function isInteger(value: unknown, min: number, max: number): value is number {
  return Number.isInteger(value) && (value as number) >= min && (value as number) <= max;
}

export function checkInteger(value: unknown, field: string, min: number, max: number): number {
  if (isInteger(value, min, max)) return value;
  throw new InvalidInput(`${field} must be a whole number from ${min} to ${max}, not ${String(value)}`, {
    field,
    remedy: "Choose a value within that range",
  });
}

/** A copy without the properties that are undefined: options and bodies as `exactOptionalPropertyTypes` wants them. */
export function withoutUndefined<T extends object>(
  value: T | undefined,
): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const defined = Object.entries(value ?? {}).filter(([, property]) => property !== undefined);
  return Object.fromEntries(defined) as { [K in keyof T]?: Exclude<T[K], undefined> };
}
