// What a JSON Schema asks for, as a tree of fields that a person can fill in. What cannot be said in fields becomes a place for JSON, part by part, so
// that every schema has a form. Pure: schema-form.tsx draws it, form-draft.ts holds what was typed.

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
export type Schema = { [word: string]: Json };

export interface Member {
  name: string;
  required: boolean;
  field: Field;
}

interface Common {
  title?: string;
  description?: string;
  /** What the server fills in where nothing is said. */
  default?: Json;
  nullable: boolean;
}

/** `sealed` are the paths of values that the server never sees in plain: keys joined by dots, * for every element. */
export function fieldOf(schema: Json | undefined, sealed: readonly string[] = []): Field {
  const root = isSchema(schema) ? schema : {};
  return read(schema, { root, sealed: sealed.map((path) => path.split(".")), at: [], depth: 0 });
}

interface Place {
  root: Schema;
  sealed: string[][];
  at: string[];
  depth: number;
}

/** Deeper than this nobody fills in a form; and a schema may be part of itself. */
const DEEPEST = 6;

function read(given: Json | undefined, place: Place): Field {
  const schema = resolve(given, place.root);
  if (schema === undefined) return { kind: "json", nullable: false };
  const common = commonOf(schema);
  if (place.sealed.some((path) => isSame(path, place.at))) return { ...common, kind: "sealed" };
  if (place.depth > DEEPEST) return { ...common, kind: "json" };
  const choices = alternatives(schema);
  if (choices) return anyOf(choices, common, place);
  if (Array.isArray(schema.allOf)) return allOf(schema, common, place);
  if (schema.const !== undefined) return { ...common, kind: "fixed", value: schema.const };
  if (Array.isArray(schema.enum)) {
    const options = schema.enum.filter((one) => one !== null);
    return { ...common, kind: "choice", options, nullable: options.length < schema.enum.length };
  }
  return { ...common, ...byType(schema, place) } as Field;
}

function byType(schema: Schema, place: Place): Partial<Field> {
  switch (schema.type) {
    case "string":
      return { kind: "text", ...picked(schema, { format: "", pattern: "", minLength: 0, maxLength: 0 }) };
    case "number":
    case "integer": {
      const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
      return {
        kind: "number",
        integer: schema.type === "integer",
        // Whole numbers come with the bounds of what a double holds exactly; nobody has to be told them.
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
      return group(schema, place);
    case "array":
      return list(schema, place);
    default:
      return { kind: "json" };
  }
}

function group(schema: Schema, place: Place): Partial<Field> {
  if (!isSchema(schema.properties) || isSchema(schema.additionalProperties)) return { kind: "json" };
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const members = Object.entries(schema.properties).map(([name, one]): Member => {
    const field = read(one, { ...place, at: [...place.at, name], depth: place.depth + 1 });
    return { name, field, required: required.has(name) };
  });
  // The database does not keep the order they were written in; what must be said comes first.
  return { kind: "group", members: [...members.filter((one) => one.required), ...members.filter((o) => !o.required)] };
}

function list(schema: Schema, place: Place): Partial<Field> {
  if (Array.isArray(schema.prefixItems) || !isSchema(schema.items)) return { kind: "json" };
  const item = read(schema.items, { ...place, at: [...place.at, "*"], depth: place.depth + 1 });
  const { minItems, maxItems } = schema;
  return {
    kind: "list",
    item,
    min: isNumber(minItems) ? minItems : 0,
    max: isNumber(maxItems) ? maxItems : Number.POSITIVE_INFINITY,
  };
}

/** The schemas of which one must hold. Several types are as many schemas. */
function alternatives(schema: Schema): Json[] | undefined {
  if (Array.isArray(schema.anyOf)) return schema.anyOf;
  if (Array.isArray(schema.oneOf)) return schema.oneOf;
  if (!Array.isArray(schema.type)) return undefined;
  const { title: _title, description: _description, default: _default, ...rest } = schema;
  return schema.type.map((type) => ({ ...rest, type }));
}

function anyOf(choices: Json[], common: Common, place: Place): Field {
  const given = choices.map((one) => resolve(one, place.root));
  const some = choices.filter((_, index) => given[index]?.type !== "null" && given[index]?.const !== null);
  const nullable = common.nullable || some.length < choices.length;
  const deeper = { ...place, depth: place.depth + 1 };
  if (some.length === 0) return { ...common, kind: "fixed", value: null };
  const fields = some.map((one) => read(one, deeper));
  if (fields.length === 1) return { ...fields[0]!, ...common, nullable: nullable || fields[0]!.nullable };
  if (fields.every((one) => one.kind === "fixed")) {
    return { ...common, nullable, kind: "choice", options: fields.map(({ value }) => value) };
  }
  return { ...common, nullable, kind: "variants", variants: fields };
}

/** Objects that must all hold are one object with the members of all; anything else is left to JSON. */
function allOf(schema: Schema, common: Common, place: Place): Field {
  const { allOf: _, ...own } = schema;
  const parts = [...(schema.allOf as Json[]).map((one) => resolve(one, place.root)), own];
  const plain = parts.filter((one) => one !== undefined && (isSchema(one.properties) || one.type !== undefined));
  if (plain.length === 1) return { ...read(plain[0], { ...place, depth: place.depth + 1 }), ...common };
  if (plain.length === 0 || !plain.every((one) => isSchema(one?.properties))) return { ...common, kind: "json" };
  const whole = {
    properties: Object.assign({}, ...plain.map((one) => one!.properties)),
    required: plain.flatMap((one) => (Array.isArray(one!.required) ? one!.required : [])),
  };
  return { ...common, ...group(whole, place) } as Field;
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

function commonOf({ title, description, default: given }: Schema): Common {
  return {
    nullable: false,
    ...(typeof title === "string" && { title }),
    ...(typeof description === "string" && { description }),
    ...(given !== undefined && { default: given }),
  };
}

/** Those words of a schema that have the type of the example. */
function picked(schema: Schema, examples: Record<string, string | number>): object {
  return Object.fromEntries(Object.entries(examples).flatMap(([word, example]) => entry(schema, word, typeof example)));
}

function entry(schema: Schema, word: string, type: string): [string, Json][] {
  const value = schema[word];
  return value !== undefined && typeof value === type ? [[word, value]] : [];
}

function isSame(path: string[], at: string[]): boolean {
  return path.length === at.length && path.every((step, index) => step === at[index] || step === "*");
}

function isNumber(value: Json | undefined): value is number {
  return typeof value === "number";
}

function isSchema(value: Json | undefined): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
