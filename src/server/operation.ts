// What a route does: what it takes, what it answers, and the function between. The table in routes.ts gives each a method, a path and who may.
import type { z } from "zod";
import type { Stillwake } from "../client/client.ts";
import type { Reader } from "../client/reader.ts";
import type { ServerContext } from "./context.ts";
import type { Access, Identity } from "./http/access.ts";

export interface Call<Query = unknown, Body = unknown> {
  params: Record<string, string>;
  query: Query;
  body: Body;
  who: Identity;
  /** Shows what the caller may see: all, or the rows of a tenant. */
  reading: Reader;
  stillwake: Stillwake;
  house: ServerContext;
  /** All of them, for those who describe them. */
  routes: readonly Route[];
  request: Request;
  /** Where it comes from; null where that is not known. */
  address: string | null;
  /** Breaks the connection. */
  hangUp(): void;
  /** Says, before the deed, how things were: the act is on record from then on. What cannot be recorded is not done. */
  before(state: unknown): Promise<void>;
}

export interface Operation<Query extends z.ZodType = z.ZodType, Body extends z.ZodType = z.ZodType> {
  summary: string;
  /** More than a line, for the description. */
  about?: string;
  query?: Query;
  body?: Body;
  /** Without one there is nothing in the answer. A text is the content type of what is no JSON. */
  answer?: z.ZodType | string;
  status?: 200 | 201 | 202 | 204;
  /** What is kept in the record of acts as what came of it; secrets do not belong there. Null: this is no act. Default: all of the answer. */
  record?: ((answer: unknown, body: unknown) => unknown) | null;
  handle(call: Call<z.output<Query>, z.output<Body>>): Promise<unknown>;
}

/** A line of the table in routes.ts. */
export interface Route {
  method: "GET" | "POST" | "PUT" | "DELETE";
  /** Such as /v1/jobs/:id. */
  path: string;
  access: Access;
  /** Its name in descriptions, in generated clients and in the record of acts. */
  name: string;
  operation: Operation;
}

/** Keeps the types of query and body together with the function that is given them. */
export function operation<Query extends z.ZodType, Body extends z.ZodType>(made: Operation<Query, Body>): Operation {
  return made as unknown as Operation;
}

/** For a record that says not only that something was set, but to what. */
export function withBody(answer: unknown, body: unknown): unknown {
  return { ...(body as object), ...(answer as object) };
}

/** The one of a list that has this name: for a record of how things were. */
export function named<T extends { name: string }>(list: T[], name: string | undefined): T | null {
  return list.find((one) => one.name === name) ?? null;
}
