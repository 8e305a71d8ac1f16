// An operation: the schemas of its query, body and response, and its handler. The table in routes.ts gives each
// operation a method, a path and an access class.
import type { z } from "zod";
import type { Stillwake } from "../client/client.ts";
import type { Reader } from "../client/reader.ts";
import type { ServerContext } from "./context.ts";
import type { Access, Identity } from "./http/access.ts";

export interface Call<Query = unknown, Body = unknown> {
  params: Record<string, string>;
  query: Query;
  body: Body;
  caller: Identity;
  /** Reads what the caller may see: all rows, or those of a tenant. */
  reader: Reader;
  stillwake: Stillwake;
  context: ServerContext;
  /** All routes, for the API description. */
  routes: readonly Route[];
  request: Request;
  /** The client's address; null if unknown. */
  address: string | null;
  destroyConnection(): void;
  /** Stores the audit entry with the state before the operation. If that fails, the operation must not run. */
  recordBefore(state: unknown): Promise<void>;
}

export interface Operation<Query extends z.ZodType = z.ZodType, Body extends z.ZodType = z.ZodType> {
  summary: string;
  description?: string;
  query?: Query;
  body?: Body;
  /** Answered at any rate of requests. Only for what costs nothing. */
  unlimited?: true;
  /** Calls that are not counted as requests at once, because they share statements or have a separate limit. */
  uncounted?(query: z.output<Query>): boolean;
  /** The schema of a JSON response, or another content type. Undefined for an empty response. */
  response?: z.ZodType | string;
  status?: 200 | 201 | 202 | 204;
  /** The `after` of the audit entry, without secrets. Null: the operation is not audited. Default: the response. */
  audit?: ((response: unknown, body: unknown) => unknown) | null;
  handle(call: Call<z.output<Query>, z.output<Body>>): Promise<unknown>;
}

/** A line of the table in routes.ts. */
export interface Route {
  method: "GET" | "POST" | "PUT" | "DELETE";
  /** Such as /v1/jobs/:id. */
  path: string;
  access: Access;
  /** The operation id in OpenAPI, and the name in audit entries. */
  name: string;
  operation: Operation;
}

/** Infers the types of query and body for the handler. */
export function operation<Query extends z.ZodType, Body extends z.ZodType>(
  definition: Operation<Query, Body>,
): Operation {
  return definition as unknown as Operation;
}

/** For audit entries that also contain the request's body. */
export function mergeBody(response: unknown, body: unknown): unknown {
  return { ...(body as object), ...(response as object) };
}

/** For the state before an operation on a named thing. */
export function findByName<T extends { name: string }>(list: T[], name: string | undefined): T | null {
  return list.find((item) => item.name === name) ?? null;
}
