// Validates requests and responses against condensed schemas of the providers' APIs. If the official schemas are available, in
// ../shared/specs beside the project or in STILLWAKE_SPECS, the traffic is validated against those too, and the condensed
// schemas are compared with them. The project contains no copy of the official ones.
import fs from "node:fs";
import path from "node:path";
import { Ajv, type ValidateFunction } from "ajv";
import formats from "ajv-formats";

/** The subset of JSON Schema that is used here. An object with named properties allows no others. */
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
  /** Such as "/apps/{app}/machines". */
  path: string;
  /** Schemas by parameter name; "metadata.*" matches a prefix. */
  query?: Record<string, Schema>;
  /** Query parameters that work but are missing in the official schema; "metadata.*" as above. */
  undocumented?: readonly string[];
  body?: Schema;
  /** By status; null for an empty body. Other statuses have the common error schema. */
  responses: Record<number, Schema | null>;
  /** Why the official schema lacks this operation. */
  absent?: string;
}

export interface Description {
  name: string;
  operations: Record<string, Operation>;
  /** The common error schema. */
  errors: Schema;
  official: OfficialSource;
}

interface OfficialSource {
  file: string;
  kind: "openapi" | "discovery";
  /** Prefix of the official paths, such as "/v2". */
  prefix?: string;
}

/** An official schema in a common form. */
interface Official {
  operations: Map<string, { query: Record<string, Schema>; body?: Schema; responses: Record<string, Schema> }>;
  definitions: Record<string, Schema>;
}

const FOLDER = process.env.STILLWAKE_SPECS ?? path.resolve(import.meta.dirname, "../../../../../shared/specs");

/** Returns problems by operation and property. */
export interface Checker {
  /** Whether the official schema is available. */
  official: boolean;
  request(operation: string, query: URLSearchParams, body: unknown): string[];
  response(operation: string, status: number, body: unknown): string[];
}

const checkers = new WeakMap<Description, Checker>();

/** Cached, because compiling takes longer than most tests. */
export function getChecker(description: Description): Checker {
  const checker = checkers.get(description) ?? createChecker(description);
  checkers.set(description, checker);
  return checker;
}

function createChecker(description: Description): Checker {
  const official = readOfficial(description);
  const ajv = new Ajv({ strict: false, allErrors: true, validateSchema: false, logger: false });
  (formats as unknown as (ajv: Ajv) => void)(ajv);
  if (official) ajv.addSchema({ $id: "official", definitions: closeAll(official.definitions) });
  const compiled = new Map<string, ValidateFunction>();
  const check = (key: string, schema: Schema, value: unknown): string[] => {
    const validate = compiled.get(key) ?? ajv.compile(close(schema));
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
      const officialOperation = official?.operations.get(keyOf(operation, description));
      const problems: string[] = [];
      for (const [key, value] of query) {
        const schema = findSchema(operation.query ?? {}, key);
        if (!schema) problems.push(`${name} request: the query has an unknown "${key}"`);
        else problems.push(...check(`${name} request query ${key}`, schema, value));
        if (officialOperation && !isUndocumented(operation, key)) {
          if (!officialOperation.query[key])
            problems.push(`${name} request, official: the query has an unknown "${key}"`);
          else
            problems.push(
              ...check(
                `${name} request query ${key}, official`,
                officialOperation.query[key],
                parseQueryValue(officialOperation.query[key], value),
              ),
            );
        }
      }
      if (operation.body) problems.push(...check(`${name} request`, operation.body, body));
      else if (body !== undefined) problems.push(`${name} request: has a body`);
      if (officialOperation?.body && body !== undefined)
        problems.push(...check(`${name} request, official`, officialOperation.body, body));
      return problems;
    },
    response(name, status, body) {
      const operation = description.operations[name]!;
      const ours = operation.responses[status];
      const problems: string[] = [];
      if (ours === null) {
        if (body !== undefined) problems.push(`${name} ${status}: has a body`);
      } else if (ours) problems.push(...check(`${name} ${status}`, ours, body));
      else if (status >= 400) problems.push(...check(`${name} error`, description.errors, body));
      else problems.push(`${name} ${status}: undocumented response`);
      const officialOperation = official?.operations.get(keyOf(operation, description))?.responses[status];
      if (officialOperation && body !== undefined)
        problems.push(...check(`${name} ${status}, official`, officialOperation, body));
      return problems;
    },
  };
}

/** Differences between the condensed and the official schema. Undefined if the official one is not available. */
export function compareWithOfficial(description: Description): string[] | undefined {
  const official = readOfficial(description);
  if (!official) return undefined;
  const problems: string[] = [];
  for (const [name, operation] of Object.entries(description.operations)) {
    if (operation.absent) continue;
    const officialOperation = official.operations.get(keyOf(operation, description));
    if (!officialOperation) {
      problems.push(`${name}: there is no ${operation.method} ${operation.path}`);
      continue;
    }
    for (const [key, schema] of Object.entries(operation.query ?? {})) {
      if (operation.undocumented?.includes(key)) continue;
      if (!officialOperation.query[key]) problems.push(`${name}: the query knows no "${key}"`);
      else if (schema.enum && officialOperation.query[key].enum)
        problems.push(...differences(`${name} query ${key}`, schema, officialOperation.query[key], official));
    }
    if (operation.body) {
      if (!officialOperation.body) problems.push(`${name}: takes no body`);
      else problems.push(...differences(`${name} body`, operation.body, officialOperation.body, official));
    }
    for (const [status, schema] of Object.entries(operation.responses)) {
      const response = officialOperation.responses[status];
      if (schema && response) problems.push(...differences(`${name} ${status}`, schema, response, official));
      else if (Number(status) < 300 && schema?.properties && !response)
        problems.push(`${name}: no response ${status} with a body`);
    }
  }
  return problems;
}

function differences(at: string, ours: Schema, unresolved: Schema, official: Official): string[] {
  const theirs = resolve(unresolved, official);
  const problems: string[] = [];
  const types = (schema: Schema) => (schema.type === undefined ? [] : [schema.type].flat());
  for (const type of types(ours)) {
    const fits = [type, ...(type === "integer" ? ["number"] : [])].some((one) => types(theirs).includes(one));
    if (types(theirs).length > 0 && !fits)
      problems.push(`${at}: is ${type} here and ${types(theirs).join(" or ")} there`);
  }
  const values = ours.const === undefined ? (ours.enum ?? []) : [ours.const];
  for (const value of values) {
    if (theirs.enum && !theirs.enum.includes(value)) problems.push(`${at}: there is no ${JSON.stringify(value)}`);
  }
  const open = typeof theirs.additionalProperties === "object" ? theirs.additionalProperties : undefined;
  for (const [key, schema] of Object.entries(ours.properties ?? {})) {
    const property = theirs.properties?.[key] ?? open;
    // An object without properties may contain anything.
    if (property) problems.push(...differences(`${at}.${key}`, schema, property, official));
    else if (theirs.properties) problems.push(`${at}: there is no "${key}"`);
  }
  if (ours.items && theirs.items) problems.push(...differences(`${at}[]`, ours.items, theirs.items, official));
  if (typeof ours.additionalProperties === "object" && open)
    problems.push(...differences(`${at}.*`, ours.additionalProperties, open, official));
  for (const variant of ours.anyOf ?? []) problems.push(...differences(at, variant, theirs, official));
  return problems;
}

/** Resolves references and merges allOf. */
function resolve(schema: Schema, official: Official): Schema {
  if (schema.$ref) return resolve(official.definitions[schema.$ref.replace(DEFINED, "")]!, official);
  if (!schema.allOf) return schema;
  const parts = schema.allOf.map((part) => resolve(part, official));
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

// biome-ignore lint/suspicious/noExplicitAny: a document of any depth.
type Json = any;

function fromOpenApi(document: Json): Official {
  const operations: Official["operations"] = new Map();
  for (const [template, methods] of Object.entries<Json>(document.paths)) {
    for (const [method, one] of Object.entries<Json>(methods)) {
      if (!one.responses) continue;
      const parameters: Json[] = [...(methods.parameters ?? []), ...(one.parameters ?? [])];
      const content = (part: Json): Json => Object.values<Json>(part?.content ?? {})[0]?.schema;
      const body = content(one.requestBody);
      operations.set(`${method.toUpperCase()} ${normalizePath(template)}`, {
        query: Object.fromEntries(
          parameters.filter((one) => one.in === "query").map((one) => [one.name, toJsonSchema(one.schema)]),
        ),
        ...(body && { body: toJsonSchema(body) }),
        responses: Object.fromEntries(
          Object.entries<Json>(one.responses).flatMap(([status, response]) =>
            content(response) ? [[status, toJsonSchema(content(response))]] : [],
          ),
        ),
      });
    }
  }
  return { operations, definitions: toJsonSchemas(document.components.schemas) };
}

function fromDiscovery(document: Json): Official {
  const operations: Official["operations"] = new Map();
  const common = Object.entries<Json>(document.parameters ?? {});
  const visit = (resources: Json): void => {
    for (const resource of Object.values<Json>(resources ?? {})) {
      for (const method of Object.values<Json>(resource.methods ?? {})) {
        const parameters = Object.entries<Json>(method.parameters ?? {}).filter(([, one]) => one.location === "query");
        const reference = (part: Json) => part && ({ $ref: DEFINED + part.$ref } as Schema);
        operations.set(`${method.httpMethod} ${normalizePath(`/${method.flatPath ?? method.path}`)}`, {
          query: Object.fromEntries([...common, ...parameters].map(([name, one]) => [name, toJsonSchema(one)])),
          ...(method.request && { body: reference(method.request) }),
          responses: method.response ? { 200: reference(method.response) } : {},
        });
      }
      visit(resource.resources);
    }
  };
  visit(document.resources);
  return { operations, definitions: toJsonSchemas(document.schemas) };
}

function toJsonSchemas(schemas: Record<string, Json>): Record<string, Schema> {
  return Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, toJsonSchema(schema)]));
}

/** Converts the dialects of OpenAPI 3.0 and of discovery documents into JSON Schema. */
function toJsonSchema(schema: Json): Schema {
  if (Array.isArray(schema)) return schema.map(toJsonSchema) as Schema;
  if (!schema || typeof schema !== "object") return schema;
  const { description, default: _, example, nullable, $ref, id, location, required, format, ...rest } = schema;
  const result: Json = Object.fromEntries(
    Object.entries<Json>(rest)
      .filter(([key]) => !key.startsWith("x-") && key !== "enumDescriptions" && key !== "uniqueItems")
      .map(([key, value]) => [key, key === "properties" ? toJsonSchemas(value) : toJsonSchema(value)]),
  );
  if (Array.isArray(required)) result.required = required;
  if (format === "date-time") result.format = format;
  if (format === "int-or-string") delete result.type;
  if (result.type === "any") delete result.type;
  if (nullable && result.type) result.type = [result.type, "null"];
  if (typeof $ref === "string") result.$ref = DEFINED + $ref.split("/").at(-1);
  return result;
}

/** Forbids additional properties where there are named ones, so that a misspelt one is detected. */
function close(schema: Json): Json {
  if (Array.isArray(schema)) return schema.map(close);
  if (!schema || typeof schema !== "object") return schema;
  const result = Object.fromEntries(
    Object.entries<Json>(schema).map(([key, value]) => [
      key,
      key === "properties" ? closeAll(value) : key === "enum" || key === "const" ? value : close(value),
    ]),
  );
  if (result.properties && !("additionalProperties" in result) && !result.allOf) result.additionalProperties = false;
  return result;
}

function closeAll(schemas: Record<string, Json>): Record<string, Json> {
  return Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, close(schema)]));
}

function keyOf({ method, path: template }: Operation, { official }: Description): string {
  return `${method} ${normalizePath((official.prefix ?? "") + template)}`;
}

function normalizePath(template: string): string {
  return template.replaceAll(/\{[^}]*\}/g, "{}").replace(/(.)\/$/, "$1");
}

function findSchema(schemas: Record<string, Schema>, key: string): Schema | undefined {
  const pattern = Object.keys(schemas).find((one) => one.endsWith("*") && key.startsWith(one.slice(0, -1)));
  return schemas[key] ?? (pattern ? schemas[pattern] : undefined);
}

function isUndocumented(operation: Operation, key: string): boolean {
  return (operation.undocumented ?? []).some((one) =>
    one.endsWith("*") ? key.startsWith(one.slice(0, -1)) : one === key,
  );
}

/** Parses a query parameter by the type of its schema. */
function parseQueryValue(schema: Schema, value: string): unknown {
  if (schema.type === "boolean") return value === "true" ? true : value === "false" ? false : value;
  if (schema.type === "integer" || schema.type === "number") return value === "" ? value : Number(value);
  return value;
}
