// The API in OpenAPI 3.1, made from the table of routes and the shapes that check what comes in: it cannot say anything else than the server does.
import { z } from "zod";
import { version } from "../version.ts";
import type { Access } from "./http/access.ts";
import type { Route } from "./operation.ts";
import { named, Problem } from "./shapes.ts";

const allowed: Record<Access, string> = {
  public: "Everybody.",
  follow: "Readers, operators and admins; or a read token for that job or key.",
  read: "Readers, operators and admins; those of a tenant see its jobs.",
  operate: "Operators and admins; those of a tenant steer its jobs.",
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

export type Described = ReturnType<typeof describe>;

export function describe(routes: readonly Route[]) {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    const path = route.path.replaceAll(/:(\w+)(\{[^}]*\})?/g, "{$1}");
    paths[path] ??= {};
    paths[path][route.method.toLowerCase()] = operationOf(route, path);
  }
  const { schemas } = z.toJSONSchema(named, { io: "input", unrepresentable: "any", uri: refOf });
  return {
    openapi: "3.1.0",
    info: {
      title: "Stillwake",
      version,
      summary: "Durable pipelines on Postgres",
      description:
        'Moments are ISO 8601 in UTC, durations are texts such as "30s", numbers that may grow large are texts. Every refusal is application/problem+json with a code and what to do about it.',
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
          description: "A token (swt_…), or a read token (swr_…) where those are allowed.",
        },
      },
      schemas: {
        ...Object.fromEntries(Object.entries(schemas).map(([id, schema]) => [id, plain(schema)])),
        // A shape that is made of itself is more than generators of clients can take.
        Json: { description: "Any JSON: null, a boolean, a number, a text, an array or an object." },
      },
    },
  };
}

function operationOf({ path: pattern, access, name, operation }: Route, path: string) {
  const { summary, about, query, body, answer, status = answer === undefined ? 204 : 200 } = operation;
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, one]) => one!);
  const parameters: object[] = names.map((one) => ({
    name: one,
    in: "path",
    required: true,
    schema: one === "id" && pattern.startsWith("/v1/jobs") ? { type: "string", format: "uuid" } : { type: "string" },
  }));
  const asked = query ? (schemaOf(query) as { properties?: Record<string, object>; required?: string[] }) : {};
  for (const [one, schema] of Object.entries(asked.properties ?? {})) {
    parameters.push({ name: one, in: "query", required: asked.required?.includes(one) ?? false, schema });
  }
  if (name === "followJob") {
    parameters.push({ name: "last-event-id", in: "header", required: false, schema: { type: "string" } });
  }
  if (name === "enqueue") {
    parameters.push({ name: "idempotency-key", in: "header", required: false, schema: { type: "string" } });
  }
  const problem = { description: "Refused", content: { "application/problem+json": { schema: schemaOf(Problem) } } };
  const good =
    answer === undefined
      ? { description: "Done" }
      : typeof answer === "string"
        ? { description: summary, content: { [answer.split(";")[0]!]: { schema: { type: "string" } } } }
        : { description: summary, content: { "application/json": { schema: schemaOf(answer) } } };
  return {
    operationId: name,
    tags: [tags.find(([, where]) => where.test(pattern))![0]],
    summary,
    description: `${about ? `${about}\n\n` : ""}Who may: ${allowed[access]}`,
    ...(access === "public" && { security: [] }),
    ...(parameters.length > 0 && { parameters }),
    ...(body && {
      requestBody: {
        required: !body.safeParse(undefined).success,
        content: { "application/json": { schema: schemaOf(body) } },
      },
    }),
    responses: {
      [status]: good,
      ...(name === "followJob" && { 204: { description: "The client has seen the end" } }),
      // By class: what is answered "by default" is taken by generators of clients for something that may come instead of the good answer.
      "4XX": problem,
      "5XX": problem,
    },
  };
}

/** A schema where it is used; what has a name is referred to by it. */
function schemaOf(schema: z.ZodType): object {
  const id = named.get(schema)?.id;
  if (id) return { $ref: refOf(id) };
  return plain(z.toJSONSchema(schema, { io: "input", unrepresentable: "any", metadata: named }));
}

function refOf(id: string): string {
  return `#/components/schemas/${id}`;
}

/** Without the marks of a document of its own. */
function plain(schema: object): object {
  const { $schema: _schema, $id: _id, id: _name, $defs: _defs, ...rest } = schema as Record<string, unknown>;
  return JSON.parse(JSON.stringify(rest).replaceAll("#/$defs/", refOf("")));
}
