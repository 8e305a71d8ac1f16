// Reads the API description: parameters, bodies and responses of each operation, from the document alone.
import { z } from "zod";
import { describeApi } from "../../../src/server/openapi.ts";
import { routes } from "../../../src/server/routes.ts";

export interface Schema {
  $ref?: string;
  type?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
  anyOf?: Schema[];
  enum?: unknown[];
  const?: unknown;
  format?: string;
  minimum?: number;
  maximum?: number;
}

export interface Described {
  method: string;
  path: string;
  operationId: string;
  parameters: { name: string; in: "path" | "query" | "header"; required: boolean; schema: Schema }[];
  body: Schema | undefined;
  /** By status; undefined for a response without JSON. */
  answers: Record<string, Schema | undefined>;
}

export const document = JSON.parse(JSON.stringify(describeApi(routes)));
const schemas: Record<string, Schema> = document.components.schemas;

export const operations: Described[] = Object.entries(document.paths as Record<string, object>).flatMap(
  ([path, methods]) =>
    // biome-ignore lint/suspicious/noExplicitAny: a document of any depth.
    Object.entries(methods).map(([method, one]: [string, any]) => ({
      method: method.toUpperCase(),
      path,
      operationId: one.operationId,
      parameters: one.parameters ?? [],
      body: one.requestBody?.content["application/json"].schema,
      answers: Object.fromEntries(
        // biome-ignore lint/suspicious/noExplicitAny: as above.
        Object.entries(one.responses).map(([status, answer]: [string, any]) => [
          status,
          answer.content?.["application/json"]?.schema,
        ]),
      ),
    })),
);

export function resolve(schema: Schema): Schema {
  return schema.$ref ? resolve(schemas[schema.$ref.split("/").at(-1)!]!) : schema;
}

/** Checks a JSON response strictly: nothing missing and nothing more. Returns the errors. */
export function wrongIn(operation: Described, status: number, json: unknown): string[] {
  const schema = operation.answers[status];
  if (!schema) return [`${operation.operationId} answers ${status} with JSON, of which the description says nothing`];
  const known = checks.get(schema) ?? z.fromJSONSchema(standalone(schema) as Parameters<typeof z.fromJSONSchema>[0]);
  checks.set(schema, known);
  const result = known.safeParse(json);
  if (result.success) return [];
  return result.error.issues.map(
    ({ path, message }) => `${operation.operationId} ${status}: ${path.map(String).join(".")}: ${message}`,
  );
}

const checks = new Map<Schema, z.ZodType>();

function standalone(schema: Schema): object {
  const all = JSON.stringify({ ...schema, $defs: schemas }, (_, value) =>
    // Objects have no additional properties, unless the schema allows them.
    value &&
    typeof value === "object" &&
    value.type === "object" &&
    value.properties &&
    !("additionalProperties" in value)
      ? { ...value, additionalProperties: false }
      : value,
  );
  return JSON.parse(all.replaceAll("#/components/schemas/", "#/$defs/"));
}
