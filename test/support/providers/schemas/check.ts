// Our own condensed descriptions of the providers' APIs, and how traffic is held to them. Where the official descriptions are at hand, in ../shared/specs
// beside the project or in the folder that STILLWAKE_SPECS names, the same traffic is held to those too, and our descriptions are compared with them.
// The project has no copy of them: a clone without them makes do with the condensed ones.
import fs from "node:fs";
import path from "node:path";
import { Ajv, type ValidateFunction } from "ajv";
import formats from "ajv-formats";

/** A JSON Schema of the kinds that are used here. What has named properties has no others. */
export interface Schema {
  type?: string | string[];
  properties?: Record<string, Schema>;
  required?: readonly string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
  enum?: readonly unknown[];
  const?: unknown;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  maxLength?: number;
  anyOf?: Schema[];
  allOf?: Schema[];
  $ref?: string;
}

interface Operation {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** As "/apps/{app}/machines". */
  path: string;
  /** Names and their schemas, as strings; "metadata.*" stands for all that begin so. */
  query?: Record<string, Schema>;
  /** Query parameters that work but that the official description does not mention, with "metadata.*" as above. */
  beyond?: readonly string[];
  body?: Schema;
  /** By status; null for an empty body. Statuses that are not here are errors of the API's common kind. */
  answers: Record<number, Schema | null>;
  /** Why the official description does not have this operation. */
  absent?: string;
}

export interface Description {
  name: string;
  operations: Record<string, Operation>;
  /** What a refusal looks like. */
  errors: Schema;
  official: OfficialSource;
}

interface OfficialSource {
  file: string;
  kind: "openapi" | "discovery";
  /** What its paths have before ours, such as "/v2". */
  prefix?: string;
}

/** An official description in one shape, whatever it was written in. */
interface Official {
  operations: Map<string, { query: Record<string, Schema>; body?: Schema; answers: Record<string, Schema> }>;
  definitions: Record<string, Schema>;
}

const FOLDER = process.env.STILLWAKE_SPECS ?? path.resolve(import.meta.dirname, "../../../../../shared/specs");

/** What is wrong with traffic, named by operation and property. */
export interface Checker {
  /** Whether the official description is at hand. */
  official: boolean;
  request(operation: string, query: URLSearchParams, body: unknown): string[];
  answer(operation: string, status: number, body: unknown): string[];
}

const checkers = new WeakMap<Description, Checker>();

/** One for all fakes of a file: compiling takes longer than most tests. */
export function checkerOf(description: Description): Checker {
  const checker = checkers.get(description) ?? makeChecker(description);
  checkers.set(description, checker);
  return checker;
}

function makeChecker(description: Description): Checker {
  const official = readOfficial(description);
  const ajv = new Ajv({ strict: false, allErrors: true, validateSchema: false, logger: false });
  (formats as unknown as (ajv: Ajv) => void)(ajv);
  if (official) ajv.addSchema({ $id: "official", definitions: eachClosed(official.definitions) });
  const compiled = new Map<string, ValidateFunction>();
  const check = (key: string, schema: Schema, value: unknown): string[] => {
    const validate = compiled.get(key) ?? ajv.compile(closed(schema));
    compiled.set(key, validate);
    if (validate(value)) return [];
    return validate.errors!.map(
      ({ instancePath, message, params }) =>
        `${key}: ${instancePath || "/"} ${message}${params.additionalProperty ? ` "${params.additionalProperty}"` : ""}`,
    );
  };
  return {
    official: official !== undefined,
    request(name, query, body) {
      const operation = description.operations[name]!;
      const theirs = official?.operations.get(keyOf(operation, description));
      const wrong: string[] = [];
      for (const [key, value] of query) {
        const schema = named(operation.query ?? {}, key);
        if (!schema) wrong.push(`${name} request: the query has an unknown "${key}"`);
        else wrong.push(...check(`${name} request query ${key}`, schema, value));
        if (theirs && !beyond(operation, key)) {
          if (!theirs.query[key]) wrong.push(`${name} request, official: the query has an unknown "${key}"`);
          else
            wrong.push(
              ...check(`${name} request query ${key}, official`, theirs.query[key], typed(theirs.query[key], value)),
            );
        }
      }
      if (operation.body) wrong.push(...check(`${name} request`, operation.body, body));
      else if (body !== undefined) wrong.push(`${name} request: has a body`);
      if (theirs?.body && body !== undefined) wrong.push(...check(`${name} request, official`, theirs.body, body));
      return wrong;
    },
    answer(name, status, body) {
      const operation = description.operations[name]!;
      const ours = operation.answers[status];
      const wrong: string[] = [];
      if (ours === null) {
        if (body !== undefined) wrong.push(`${name} ${status}: has a body`);
      } else if (ours) wrong.push(...check(`${name} ${status}`, ours, body));
      else if (status >= 400) wrong.push(...check(`${name} error`, description.errors, body));
      else wrong.push(`${name} ${status}: no such answer is described`);
      const theirs = official?.operations.get(keyOf(operation, description))?.answers[status];
      if (theirs && body !== undefined) wrong.push(...check(`${name} ${status}, official`, theirs, body));
      return wrong;
    },
  };
}

/** What of our description the official one does not bear out. Undefined when the official one is not at hand. */
export function compare(description: Description): string[] | undefined {
  const official = readOfficial(description);
  if (!official) return undefined;
  const wrong: string[] = [];
  for (const [name, operation] of Object.entries(description.operations)) {
    if (operation.absent) continue;
    const theirs = official.operations.get(keyOf(operation, description));
    if (!theirs) {
      wrong.push(`${name}: there is no ${operation.method} ${operation.path}`);
      continue;
    }
    for (const [key, schema] of Object.entries(operation.query ?? {})) {
      if (operation.beyond?.includes(key)) continue;
      if (!theirs.query[key]) wrong.push(`${name}: the query knows no "${key}"`);
      else if (schema.enum && theirs.query[key].enum)
        wrong.push(...differences(`${name} query ${key}`, schema, theirs.query[key], official));
    }
    if (operation.body) {
      if (!theirs.body) wrong.push(`${name}: takes no body`);
      else wrong.push(...differences(`${name} body`, operation.body, theirs.body, official));
    }
    for (const [status, schema] of Object.entries(operation.answers)) {
      const answer = theirs.answers[status];
      if (schema && answer) wrong.push(...differences(`${name} ${status}`, schema, answer, official));
      else if (Number(status) < 300 && schema?.properties && !answer)
        wrong.push(`${name}: there is no answer ${status} with a body`);
    }
  }
  return wrong;
}

function differences(at: string, ours: Schema, given: Schema, official: Official): string[] {
  const theirs = resolved(given, official);
  const wrong: string[] = [];
  const types = (schema: Schema) => (schema.type === undefined ? [] : [schema.type].flat());
  for (const type of types(ours)) {
    const fits = [type, ...(type === "integer" ? ["number"] : [])].some((one) => types(theirs).includes(one));
    if (types(theirs).length > 0 && !fits) wrong.push(`${at}: is ${type} here and ${types(theirs).join(" or ")} there`);
  }
  const values = ours.const === undefined ? (ours.enum ?? []) : [ours.const];
  for (const value of values) {
    if (theirs.enum && !theirs.enum.includes(value)) wrong.push(`${at}: there is no ${JSON.stringify(value)}`);
  }
  const open = typeof theirs.additionalProperties === "object" ? theirs.additionalProperties : undefined;
  for (const [key, schema] of Object.entries(ours.properties ?? {})) {
    const property = theirs.properties?.[key] ?? open;
    // An object of which nothing is said may have anything in it.
    if (property) wrong.push(...differences(`${at}.${key}`, schema, property, official));
    else if (theirs.properties) wrong.push(`${at}: there is no "${key}"`);
  }
  if (ours.items && theirs.items) wrong.push(...differences(`${at}[]`, ours.items, theirs.items, official));
  if (typeof ours.additionalProperties === "object" && open)
    wrong.push(...differences(`${at}.*`, ours.additionalProperties, open, official));
  for (const one of ours.anyOf ?? []) wrong.push(...differences(at, one, theirs, official));
  return wrong;
}

/** With references followed and what stands in allOf put together. */
function resolved(schema: Schema, official: Official): Schema {
  if (schema.$ref) return resolved(official.definitions[schema.$ref.replace(DEFINED, "")]!, official);
  if (!schema.allOf) return schema;
  const parts = schema.allOf.map((part) => resolved(part, official));
  return Object.assign({}, ...parts, { properties: Object.assign({}, ...parts.map((part) => part.properties)) });
}

const DEFINED = "official#/definitions/";
const read = new Map<string, Official | undefined>();

function readOfficial({ official: { file, kind } }: Description): Official | undefined {
  const full = path.join(FOLDER, file);
  if (!read.has(file)) {
    const document = fs.existsSync(full) ? JSON.parse(fs.readFileSync(full, "utf8")) : undefined;
    read.set(file, document && (kind === "openapi" ? fromOpenApi(document) : fromDiscovery(document)));
  }
  return read.get(file);
}

// biome-ignore lint/suspicious/noExplicitAny: a document of whatever depth.
type Json = any;

function fromOpenApi(document: Json): Official {
  const operations: Official["operations"] = new Map();
  for (const [template, methods] of Object.entries<Json>(document.paths)) {
    for (const [method, one] of Object.entries<Json>(methods)) {
      if (!one.responses) continue;
      const parameters: Json[] = [...(methods.parameters ?? []), ...(one.parameters ?? [])];
      const content = (place: Json): Json => Object.values<Json>(place?.content ?? {})[0]?.schema;
      const body = content(one.requestBody);
      operations.set(`${method.toUpperCase()} ${nameless(template)}`, {
        query: Object.fromEntries(
          parameters.filter((one) => one.in === "query").map((one) => [one.name, plain(one.schema)]),
        ),
        ...(body && { body: plain(body) }),
        answers: Object.fromEntries(
          Object.entries<Json>(one.responses).flatMap(([status, answer]) =>
            content(answer) ? [[status, plain(content(answer))]] : [],
          ),
        ),
      });
    }
  }
  return { operations, definitions: eachPlain(document.components.schemas) };
}

function fromDiscovery(document: Json): Official {
  const operations: Official["operations"] = new Map();
  const common = Object.entries<Json>(document.parameters ?? {});
  const visit = (resources: Json): void => {
    for (const resource of Object.values<Json>(resources ?? {})) {
      for (const method of Object.values<Json>(resource.methods ?? {})) {
        const parameters = Object.entries<Json>(method.parameters ?? {}).filter(([, one]) => one.location === "query");
        const reference = (place: Json) => place && ({ $ref: DEFINED + place.$ref } as Schema);
        operations.set(`${method.httpMethod} ${nameless(`/${method.flatPath ?? method.path}`)}`, {
          query: Object.fromEntries([...common, ...parameters].map(([name, one]) => [name, plain(one)])),
          ...(method.request && { body: reference(method.request) }),
          answers: method.response ? { 200: reference(method.response) } : {},
        });
      }
      visit(resource.resources);
    }
  };
  visit(document.resources);
  return { operations, definitions: eachPlain(document.schemas) };
}

function eachPlain(schemas: Record<string, Json>): Record<string, Schema> {
  return Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, plain(schema)]));
}

/** JSON Schema of the dialects of OpenAPI 3.0 and of discovery documents. */
function plain(schema: Json): Schema {
  if (Array.isArray(schema)) return schema.map(plain) as Schema;
  if (!schema || typeof schema !== "object") return schema;
  const { description, default: _, example, nullable, $ref, id, location, required, format, ...rest } = schema;
  const result: Json = Object.fromEntries(
    Object.entries<Json>(rest)
      .filter(([key]) => !key.startsWith("x-") && key !== "enumDescriptions" && key !== "uniqueItems")
      .map(([key, value]) => [key, key === "properties" ? eachPlain(value) : plain(value)]),
  );
  if (Array.isArray(required)) result.required = required;
  if (format === "date-time") result.format = format;
  if (format === "int-or-string") delete result.type;
  if (result.type === "any") delete result.type;
  if (nullable && result.type) result.type = [result.type, "null"];
  if (typeof $ref === "string") result.$ref = DEFINED + $ref.split("/").at(-1);
  return result;
}

/** What has named properties and says nothing of others has none: a misspelt one must not pass. */
function closed(schema: Json): Json {
  if (Array.isArray(schema)) return schema.map(closed);
  if (!schema || typeof schema !== "object") return schema;
  const result = Object.fromEntries(
    Object.entries<Json>(schema).map(([key, value]) => [
      key,
      key === "properties" ? eachClosed(value) : key === "enum" || key === "const" ? value : closed(value),
    ]),
  );
  if (result.properties && !("additionalProperties" in result) && !result.allOf) result.additionalProperties = false;
  return result;
}

function eachClosed(schemas: Record<string, Json>): Record<string, Json> {
  return Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, closed(schema)]));
}

function keyOf({ method, path: template }: Operation, { official }: Description): string {
  return `${method} ${nameless((official.prefix ?? "") + template)}`;
}

function nameless(template: string): string {
  return template.replaceAll(/\{[^}]*\}/g, "{}").replace(/(.)\/$/, "$1");
}

function named(schemas: Record<string, Schema>, key: string): Schema | undefined {
  const pattern = Object.keys(schemas).find((one) => one.endsWith("*") && key.startsWith(one.slice(0, -1)));
  return schemas[key] ?? (pattern ? schemas[pattern] : undefined);
}

function beyond(operation: Operation, key: string): boolean {
  return (operation.beyond ?? []).some((one) => (one.endsWith("*") ? key.startsWith(one.slice(0, -1)) : one === key));
}

/** What a query's text stands for. */
function typed(schema: Schema, value: string): unknown {
  if (schema.type === "boolean") return value === "true" ? true : value === "false" ? false : value;
  if (schema.type === "integer" || schema.type === "number") return value === "" ? value : Number(value);
  return value;
}
