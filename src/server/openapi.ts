// Generates the OpenAPI 3.1 description from the route table and the schemas that validate requests.
import { z } from "zod";
import { version } from "../version.ts";
import type { Access } from "./http/access.ts";
import type { Route } from "./operation.ts";
import { namedSchemas, Problem } from "./schemas.ts";

const accessTexts: Record<Access, string> = {
  public: "Everyone.",
  follow: "Readers, operators and admins; or a read token for that job or key.",
  read: "Readers, operators and admins; those of a tenant see only its jobs.",
  operate: "Operators and admins; those of a tenant control only its jobs.",
  oversee: "Readers, operators and admins of the whole installation.",
  manage: "Operators and admins of the whole installation.",
  admin: "Admins.",
  tend: "Workers, operators and admins.",
  measure: "Readers, workers, operators and admins of the whole installation.",
};

const tags: [string, RegExp][] = [
  ["Jobs", /^\/v1\/jobs/],
  ["Pipelines and flow", /^\/v1\/(pipelines|pools|machines|poke|limits|breakers)/],
  ["Schedules", /^\/v1\/schedules/],
  ["Webhooks", /^\/v1\/(endpoints|webhooks)/],
  ["Access", /^\/v1\/(tokens|read-tokens|audit|me|session)/],
  ["System", /^/],
];

export type ApiDescription = ReturnType<typeof describeApi>;

export function describeApi(routes: readonly Route[]) {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    const path = route.path.replaceAll(/:(\w+)(\{[^}]*\})?/g, "{$1}");
    paths[path] ??= {};
    paths[path][route.method.toLowerCase()] = describeOperation(route, path);
  }
  const { schemas } = z.toJSONSchema(namedSchemas, { io: "input", unrepresentable: "any", uri: refOf });
  return {
    openapi: "3.1.0",
    info: {
      title: "Stillwake",
      version,
      summary: "Durable pipelines on Postgres",
      description:
        'Timestamps are ISO 8601 in UTC. Durations are strings such as "30s". Numbers that can become large are strings. Every error is application/problem+json with a code and a remedy.',
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: "/" }],
    security: [{ token: [] }],
    tags: tags.map(([name]) => ({ name })),
    paths,
    components: {
      securitySchemes: {
        token: {
          type: "http",
          scheme: "bearer",
          description: "A token (swt_…), or a read token (swr_…) where allowed.",
        },
      },
      schemas: {
        ...Object.fromEntries(Object.entries(schemas).map(([id, schema]) => [id, embed(schema)])),
        // Not recursive: client generators cannot handle a recursive schema.
        Json: { description: "Any JSON: null, a boolean, a number, a string, an array or an object." },
      },
    },
  };
}

function describeOperation({ path: pattern, access, name, operation }: Route, path: string) {
  const { summary, description, query, body, response, status = response === undefined ? 204 : 200 } = operation;
  const pathNames = [...path.matchAll(/\{(\w+)\}/g)].map(([, parameter]) => parameter!);
  const parameters: object[] = pathNames.map((parameter) => ({
    name: parameter,
    in: "path",
    required: true,
    schema:
      parameter === "id" && pattern.startsWith("/v1/jobs") ? { type: "string", format: "uuid" } : { type: "string" },
  }));
  const querySchema = query ? (toSchema(query) as { properties?: Record<string, object>; required?: string[] }) : {};
  for (const [parameter, schema] of Object.entries(querySchema.properties ?? {})) {
    const required = querySchema.required?.includes(parameter) ?? false;
    parameters.push({ name: parameter, in: "query", required, schema });
  }
  if (name === "followJob") {
    parameters.push({ name: "last-event-id", in: "header", required: false, schema: { type: "string" } });
  }
  if (name === "enqueue") {
    parameters.push({ name: "idempotency-key", in: "header", required: false, schema: { type: "string" } });
  }
  const problem = { description: "Error", content: { "application/problem+json": { schema: toSchema(Problem) } } };
  const success =
    response === undefined
      ? { description: "Done" }
      : typeof response === "string"
        ? { description: summary, content: { [response.split(";")[0]!]: { schema: { type: "string" } } } }
        : { description: summary, content: { "application/json": { schema: toSchema(response) } } };
  return {
    operationId: name,
    tags: [tags.find(([, paths]) => paths.test(pattern))![0]],
    summary,
    description: `${description ? `${description}\n\n` : ""}Access: ${accessTexts[access]}`,
    ...(access === "public" && { security: [] }),
    ...(parameters.length > 0 && { parameters }),
    ...(body && {
      requestBody: {
        required: !body.safeParse(undefined).success,
        content: { "application/json": { schema: toSchema(body) } },
      },
    }),
    responses: {
      [status]: success,
      ...(name === "followJob" && { 204: { description: "The client has received the end" } }),
      // By class: client generators treat a "default" response as an alternative success response.
      "4XX": problem,
      "5XX": problem,
    },
  };
}

/** A reference for a named schema, otherwise the JSON Schema itself. */
function toSchema(schema: z.ZodType): object {
  const id = namedSchemas.get(schema)?.id;
  if (id) return { $ref: refOf(id) };
  return embed(z.toJSONSchema(schema, { io: "input", unrepresentable: "any", metadata: namedSchemas }));
}

function refOf(id: string): string {
  return `#/components/schemas/${id}`;
}

/** Removes the keywords of a standalone schema document. */
function embed(schema: object): object {
  const { $schema: _schema, $id: _id, id: _name, $defs: _defs, ...rest } = schema as Record<string, unknown>;
  return JSON.parse(JSON.stringify(rest).replaceAll("#/$defs/", refOf("")));
}
