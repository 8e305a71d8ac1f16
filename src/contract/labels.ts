// The key and the tenant of a job as paths of its input. They are stored with the pipeline, so that they hold for every caller:
// sql/functions/jobs/labels.sql computes the same texts for callers without the contract.
import { InvalidInput } from "../errors.ts";

/** Depth of the longest path that the compiler checks. */
type MaxDepth = 4;

type Leaf = string | number | boolean | Date | null | undefined;

/** The paths of an input that lead to a text, a number or a boolean: "projectId", "repo.owner". Any text for an unknown input. */
export type LabelPath<Input, Depth extends 1[] = []> = unknown extends Input
  ? string
  : Input extends Leaf | readonly unknown[] | ((...args: never) => unknown)
    ? never
    : Depth["length"] extends MaxDepth
      ? never
      : {
          [Name in keyof Input & string]-?: NonNullable<Input[Name]> extends Leaf
            ? Name
            : `${Name}.${LabelPath<NonNullable<Input[Name]>, [...Depth, 1]>}`;
        }[keyof Input & string];

/** As a method, so that a pipeline of one input type can be passed where any pipeline is accepted. */
export type LabelFunction<Input> = { compute(input: Input): string | null | undefined }["compute"];

const pathRule = /^[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*$/;

/** stillwake.register_pipeline() has the same rules. */
export function checkLabelPaths(
  pipeline: string,
  field: "key" | "tenant",
  label: unknown,
  sealed: readonly string[] = [],
): void {
  if (label === undefined || typeof label === "function") return;
  const paths = Array.isArray(label) ? label : [label];
  const isPath = (path: unknown) => typeof path === "string" && path.length <= 200 && pathRule.test(path);
  if (paths.length < 1 || paths.length > 5 || !paths.every(isPath)) {
    throw new InvalidInput(`${field} ${JSON.stringify(label)} of pipeline "${pipeline}" is not valid`, {
      field,
      remedy: 'Pass a path of the input such as "projectId" or "repo.owner", up to 5 paths, or a function of the input',
    });
  }
  const hidden = paths.find((path) => sealed.some((other) => overlaps(path, other)));
  if (hidden === undefined) return;
  throw new InvalidInput(`${field} of pipeline "${pipeline}" cannot be read from ${hidden}, which is sealed`, {
    field,
    remedy: "Name another field: the key and the tenant of a job are stored in plain text",
  });
}

/** Refuses a path that no input can have, where the JSON Schema of the stored input says so: only plain objects do. */
export function rejectUnknownPaths(pipeline: string, field: "key" | "tenant", label: unknown, schema: unknown): void {
  for (const path of labelPaths(label) ?? []) {
    let fields = knownFields(schema);
    for (const name of path.split(".")) {
      if (!fields) break;
      if (!Object.hasOwn(fields, name)) {
        throw new InvalidInput(`${field} of pipeline "${pipeline}" names "${path}", which its input does not have`, {
          field,
          remedy: `Name a field of the input schema: ${Object.keys(fields).join(", ")}`,
        });
      }
      fields = knownFields(fields[name]);
    }
  }
}

/** The properties of an object without any others; undefined for every other schema, such as unions and records. */
function knownFields(schema: unknown): Record<string, unknown> | undefined {
  const { type, properties, additionalProperties, ...rest } = (schema ?? {}) as Record<string, unknown>;
  const isOpen = ["allOf", "anyOf", "oneOf", "$ref", "patternProperties"].some((word) => word in rest);
  if (type !== "object" || additionalProperties !== false || isOpen) return undefined;
  return properties as Record<string, unknown> | undefined;
}

/** Whether one path is the other, or leads into it. */
function overlaps(path: string, sealed: string): boolean {
  const names = sealed.split(".");
  return path.split(".").every((name, index) => index >= names.length || names[index] === name || names[index] === "*");
}

/** The paths of a label; undefined for a function, and for none. */
export function labelPaths(label: unknown): readonly string[] | undefined {
  if (typeof label === "string") return [label];
  return Array.isArray(label) ? label : undefined;
}

/**
 * The label of an input; null without any value at the paths. Several values are joined by "/", with a backslash before each
 * "/" and backslash of a value; a missing one is empty. `at` is the path of the input in errors.
 */
export function readLabel(
  paths: readonly string[],
  input: unknown,
  field: "key" | "tenant",
  at: string,
): string | null {
  const parts = paths.map((path) => readPart(path, input, field, at));
  if (parts.every((part) => part === null)) return null;
  if (parts.length === 1) return parts[0]!;
  return parts.map((part) => part?.replaceAll(/[\\/]/g, "\\$&") ?? "").join("/");
}

function readPart(path: string, input: unknown, field: "key" | "tenant", at: string): string | null {
  const json = JSON.stringify(readPath(path, input));
  const value: unknown = json === undefined ? null : JSON.parse(json);
  if (value === null) return null;
  if (typeof value === "number") return toDecimal(json);
  if (typeof value === "boolean") return json;
  if (typeof value === "string" && value !== "") return value;
  const is = value === "" ? "an empty text" : Array.isArray(value) ? "an array" : "an object";
  throw new InvalidInput(`${at}.${path} cannot be the ${field}: it is ${is}`, {
    field: `${at}.${path}`,
    remedy: `Pass a text, a number, a boolean or null there, or pass the option ${field}`,
  });
}

/** The value at the path of what JSON.stringify(input) would write. */
function readPath(path: string, input: unknown): unknown {
  let value = input;
  for (const name of path.split(".")) {
    const { toJSON } = (value ?? {}) as { toJSON?: unknown };
    if (typeof toJSON === "function") value = toJSON.call(value, "");
    if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
    if (!Object.prototype.propertyIsEnumerable.call(value, name)) return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

/** A number without an exponent, as jsonb writes it. */
function toDecimal(json: string): string {
  const parts = /^(-?)(\d)(?:\.(\d+))?e([+-]\d+)$/.exec(json);
  if (!parts) return json;
  const [, sign, whole, fraction = "", exponent] = parts;
  const digits = `${whole}${fraction}`;
  const shift = Number(exponent);
  return shift < 0 ? `${sign}0.${"0".repeat(-shift - 1)}${digits}` : `${sign}${digits.padEnd(shift + 1, "0")}`;
}
