// Converts a JSON Schema to a tree of form fields. A part without a matching field kind becomes a JSON field, so every
// schema has a form. Pure functions; schema-form.tsx renders the fields.

export type Field = Common &
  (
    | { kind: "text"; format?: string; minLength?: number; maxLength?: number; pattern?: string }
    | { kind: "number"; integer: boolean; min?: number; max?: number; above?: number; below?: number }
    | { kind: "switch" }
    | { kind: "choice"; options: Json[] }
    | { kind: "fixed"; value: Json }
    | { kind: "group"; members: Member[] }
    | { kind: "list"; item: Field; min: number; max: number }
    | { kind: "variants"; variants: Field[] }
    | { kind: "sealed" }
    | { kind: "json" }
  );

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Schema = { [keyword: string]: Json };

export interface Member {
  name: string;
  required: boolean;
  field: Field;
}

interface Common {
  title?: string;
  description?: string;
  /** The server sets it if the field is omitted. */
  default?: Json;
  nullable: boolean;
}

/** `sealed`: the paths of sealed values: keys joined by dots, * for every list item. */
export function schemaToField(schema: Json | undefined, sealed: readonly string[] = []): Field {
  const root = isSchema(schema) ? schema : {};
  return toField(schema, { root, sealed: sealed.map((path) => path.split(".")), path: [], depth: 0 });
}

interface Position {
  root: Schema;
  sealed: string[][];
  path: string[];
  depth: number;
}

/** Deeper fields are JSON. A schema can contain itself. */
const MAX_DEPTH = 6;

function toField(value: Json | undefined, position: Position): Field {
  const schema = resolve(value, position.root);
  if (schema === undefined) return { kind: "json", nullable: false };
  const common = commonOf(schema);
  if (position.sealed.some((path) => matchesPath(path, position.path))) return { ...common, kind: "sealed" };
  if (position.depth > MAX_DEPTH) return { ...common, kind: "json" };
  const choices = alternatives(schema);
  if (choices) return anyOf(choices, common, position);
  if (Array.isArray(schema.allOf)) return allOf(schema, common, position);
  if (schema.const !== undefined) return { ...common, kind: "fixed", value: schema.const };
  if (Array.isArray(schema.enum)) {
    const options = schema.enum.filter((option) => option !== null);
    return { ...common, kind: "choice", options, nullable: options.length < schema.enum.length };
  }
  return { ...common, ...byType(schema, position) } as Field;
}

function byType(schema: Schema, position: Position): Partial<Field> {
  switch (schema.type) {
    case "string":
      return { kind: "text", ...pick(schema, { format: "", pattern: "", minLength: 0, maxLength: 0 }) };
    case "number":
    case "integer": {
      const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
      return {
        kind: "number",
        integer: schema.type === "integer",
        // Schemas of integers contain the bounds of safe integers, which are not worth showing.
        ...(isNumber(minimum) && Math.abs(minimum) < Number.MAX_SAFE_INTEGER && { min: minimum }),
        ...(isNumber(maximum) && Math.abs(maximum) < Number.MAX_SAFE_INTEGER && { max: maximum }),
        ...(isNumber(exclusiveMinimum) && { above: exclusiveMinimum }),
        ...(isNumber(exclusiveMaximum) && { below: exclusiveMaximum }),
      };
    }
    case "boolean":
      return { kind: "switch" };
    case "null":
      return { kind: "fixed", value: null };
    case "object":
      return group(schema, position);
    case "array":
      return list(schema, position);
    default:
      return { kind: "json" };
  }
}

function group(schema: Schema, position: Position): Partial<Field> {
  if (!isSchema(schema.properties) || isSchema(schema.additionalProperties)) return { kind: "json" };
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const members = Object.entries(schema.properties).map(([name, property]): Member => {
    const field = toField(property, { ...position, path: [...position.path, name], depth: position.depth + 1 });
    return { name, field, required: required.has(name) };
  });
  // The database does not preserve the order of properties. Required members first.
  return { kind: "group", members: members.sort((a, b) => Number(b.required) - Number(a.required)) };
}

function list(schema: Schema, position: Position): Partial<Field> {
  if (Array.isArray(schema.prefixItems) || !isSchema(schema.items)) return { kind: "json" };
  const item = toField(schema.items, { ...position, path: [...position.path, "*"], depth: position.depth + 1 });
  const { minItems, maxItems } = schema;
  return {
    kind: "list",
    item,
    min: isNumber(minItems) ? minItems : 0,
    max: isNumber(maxItems) ? maxItems : Number.POSITIVE_INFINITY,
  };
}

/** The schemas of anyOf or oneOf; a list of types is one schema for each type. */
function alternatives(schema: Schema): Json[] | undefined {
  if (Array.isArray(schema.anyOf)) return schema.anyOf;
  if (Array.isArray(schema.oneOf)) return schema.oneOf;
  if (!Array.isArray(schema.type)) return undefined;
  const { title: _title, description: _description, default: _default, ...rest } = schema;
  return schema.type.map((type) => ({ ...rest, type }));
}

function anyOf(choices: Json[], common: Common, position: Position): Field {
  const resolved = choices.map((choice) => resolve(choice, position.root));
  const notNull = choices.filter((_, index) => resolved[index]?.type !== "null" && resolved[index]?.const !== null);
  const nullable = common.nullable || notNull.length < choices.length;
  const deeper = { ...position, depth: position.depth + 1 };
  if (notNull.length === 0) return { ...common, kind: "fixed", value: null };
  const fields = notNull.map((choice) => toField(choice, deeper));
  if (fields.length === 1) return { ...fields[0]!, ...common, nullable: nullable || fields[0]!.nullable };
  if (fields.every((field) => field.kind === "fixed")) {
    return { ...common, nullable, kind: "choice", options: fields.map(({ value }) => value) };
  }
  return { ...common, nullable, kind: "variants", variants: fields };
}

/** Several objects become one object with the members of all; anything else is a JSON field. */
function allOf(schema: Schema, common: Common, position: Position): Field {
  const { allOf: _, ...own } = schema;
  const parts = [...(schema.allOf as Json[]).map((part) => resolve(part, position.root)), own];
  const typed = parts.filter((part) => part !== undefined && (isSchema(part.properties) || part.type !== undefined));
  if (typed.length === 1) return { ...toField(typed[0], { ...position, depth: position.depth + 1 }), ...common };
  if (typed.length === 0 || !typed.every((part) => isSchema(part?.properties))) return { ...common, kind: "json" };
  const merged = {
    properties: Object.assign({}, ...typed.map((part) => part!.properties)),
    required: typed.flatMap((part) => (Array.isArray(part!.required) ? part!.required : [])),
  };
  return { ...common, ...group(merged, position) } as Field;
}

function resolve(schema: Json | undefined, root: Schema, hops = 0): Schema | undefined {
  if (!isSchema(schema)) return undefined;
  const { $ref: reference, ...beside } = schema;
  if (typeof reference !== "string") return schema;
  if (hops > 20 || !reference.startsWith("#")) return undefined;
  let found: Json | undefined = root;
  for (const step of reference.slice(1).split("/").filter(Boolean)) {
    const name = decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~");
    found = isSchema(found) && Object.hasOwn(found, name) ? found[name] : undefined;
  }
  const reached = resolve(found, root, hops + 1);
  return reached && { ...reached, ...beside };
}

function commonOf({ title, description, default: value }: Schema): Common {
  return {
    nullable: false,
    ...(typeof title === "string" && { title }),
    ...(typeof description === "string" && { description }),
    ...(value !== undefined && { default: value }),
  };
}

/** The keywords of a schema whose values have the type of the example. */
function pick(schema: Schema, examples: Record<string, string | number>): object {
  return Object.fromEntries(
    Object.entries(examples).flatMap(([keyword, example]) => entry(schema, keyword, typeof example)),
  );
}

function entry(schema: Schema, keyword: string, type: string): [string, Json][] {
  const value = schema[keyword];
  return value !== undefined && typeof value === type ? [[keyword, value]] : [];
}

function matchesPath(pattern: string[], path: string[]): boolean {
  return pattern.length === path.length && pattern.every((step, index) => step === path[index] || step === "*");
}

function isNumber(value: Json | undefined): value is number {
  return typeof value === "number";
}

function isSchema(value: Json | undefined): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
