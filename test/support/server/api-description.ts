// The description of the API, read as a stranger reads it: what each operation takes and answers, by the document alone.
import { z } from "zod";
import { describe } from "../../../src/server/openapi.ts";
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
  /** By status; undefined for one that has no JSON in it. */
  answers: Record<string, Schema | undefined>;
}

export const document = JSON.parse(JSON.stringify(describe(routes)));
const schemas: Record<string, Schema> = document.components.schemas;

export const operations: Described[] = Object.entries(document.paths as Record<string, object>).flatMap(
  ([path, methods]) =>
    // biome-ignore lint/suspicious/noExplicitAny: a document of whatever depth.
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

/** An answer that is JSON is what the document says, with nothing missing and nothing more. Answers what is wrong with it. */
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
    // What has named members has no others, unless it says so.
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
