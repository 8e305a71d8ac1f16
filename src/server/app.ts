// A request's way through the server: method and path, where it comes from, who it is, whether that one may, what it says, the deed, the record of
// it, the answer. Hono finds the route; everything else is here, once, for all routes.
import { type Context, Hono } from "hono";
import { beginAct, endAct } from "../db/calls/access.ts";
import { newId } from "../ids.ts";
import { unstorable } from "../payload.ts";
import type { ServerContext } from "./context.ts";
import { type Identity, may, nobody, somebody } from "./http/access.ts";
import { credentialOf } from "./http/identify.ts";
import { crossOrigin, refuseForeign } from "./http/origin.ts";
import { pageAt } from "./http/pages.ts";
import { answerProblem, problemOf, refusal } from "./http/problem.ts";
import { readJson } from "./http/rate-limits.ts";
import type { Call, Route } from "./operation.ts";

/** Nothing of an answer may be kept, framed, sniffed or run. */
const guards = {
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
};

export function makeApp(house: ServerContext, routes: readonly Route[]): Hono {
  const app = new Hono();
  app.use(async (c, next) => {
    if (house.closing.signal.aborted) c.res = fail(house, c, closed());
    else await next();
    for (const [name, value] of Object.entries(guards)) {
      if (!c.res.headers.has(name)) c.res.headers.set(name, value);
    }
    for (const [name, value] of crossOrigin(house, c.req.raw)) c.res.headers.set(name, value);
    if (house.options.origins?.length) c.res.headers.append("vary", "origin");
  });
  app.onError((error, c) => fail(house, c, error));
  for (const route of routes) {
    app.on(route.method, route.path, (c) => answer(house, routes, route, c));
  }
  app.options("*", (c) => {
    const allowed = [...crossOrigin(house, c.req.raw)].length > 0;
    if (allowed) return new Response(null, { status: 204 });
    const remedy = "Call it from your own server, or list the origin in the server's `origins`";
    return fail(house, c, refusal("FORBIDDEN", "Pages of other origins may not call this server", { remedy }));
  });
  app.notFound((c) => {
    const page = pageAt(c.req.raw, house.base);
    if (page) {
      refuseForeign(house, c.req.raw);
      return page;
    }
    const elsewhere = routes.filter(({ path }) => matches(path, c.req.path)).map(({ method }) => method);
    if (elsewhere.length === 0) {
      return fail(house, c, refusal("NOT_FOUND", "There is nothing here", { remedy: "See /docs" }));
    }
    const refused = fail(
      house,
      c,
      refusal("METHOD_NOT_ALLOWED", `Use ${elsewhere.join(" or ")}`, { remedy: "See /docs" }),
    );
    refused.headers.set("allow", elsewhere.join(", "));
    return refused;
  });
  return app;
}

async function answer(house: ServerContext, routes: readonly Route[], route: Route, c: Context): Promise<Response> {
  const request = c.req.raw;
  const { operation } = route;
  refuseForeign(house, request);
  const address = house.options.clientAddress?.(request) ?? addressOf(c);
  const who = await identify(house, route, request, address);
  if (!may(route.access, who)) {
    throw refusal(
      "FORBIDDEN",
      `A token of role ${who.role}${who.tenant === null ? "" : " of a tenant"} may not do this`,
      {
        remedy: "Ask an admin for a token that may",
      },
    );
  }
  const query = check(operation.query, queryOf(request), "query");
  const given = operation.body && hasBody(request) ? await readJson(request) : undefined;
  const body = check(operation.body, given, "body");

  const writes = route.method !== "GET" && operation.record !== null;
  const act = { actor: who.name, token: who.role === "follower" ? null : who.id, tenant: who.tenant, act: route.name };
  const params = c.req.param() as Record<string, string>;
  const target = params.id ?? params.name ?? null;
  const id = newId();
  let begun = false;
  let before: unknown = null;
  const { stillwake } = house;
  const call: Call = {
    params,
    query,
    body,
    who,
    reading: house.readingOf(who),
    stillwake,
    house,
    routes,
    request,
    address,
    hangUp: () => connectionOf(c).outgoing?.destroy?.(),
    before: async (state) => {
      before = state;
      if (!writes || begun) return;
      await beginAct(stillwake.database, id, { ...act, target, before, address });
      begun = true;
    },
  };
  const record = operation.record ?? ((value: unknown) => value);
  const note = (after: unknown) =>
    begun
      ? endAct(stillwake.database, id, before, after)
      : beginAct(stillwake.database, id, { ...act, target, before, after, address });
  try {
    const result = await operation.handle(call);
    // What comes in by enqueue has no before, and is recorded with its ids.
    if (writes) await note(record(result, body));
    // Of what is only asked for its headers the content must not stay open.
    if (request.method === "HEAD" && result instanceof Response) await result.body?.cancel();
    if (result instanceof Response) return result;
    const status = operation.status ?? 200;
    return new Response(JSON.stringify(result), { status, headers: { "content-type": "application/json" } });
  } catch (error) {
    if (begun) await note({ refused: problemOf(error).problem.code }).catch(() => {});
    throw error;
  }
}

/** A public route takes whoever comes; every other wants to know. */
async function identify(
  house: ServerContext,
  route: Route,
  request: Request,
  address: string | null,
): Promise<Identity> {
  const hurry = (name: string, rate: ServerContext["rate"]) => {
    const wait = rate.take(name);
    if (wait > 0) throw new Hurried(wait);
  };
  if (house.options.auth === "none") return somebody;
  if (route.access === "public") {
    hurry(`public ${address}`, house.rate);
    return nobody;
  }
  const own = await house.options.authenticate?.(request);
  const credential = own ? undefined : credentialOf(request);
  // Whoever tries one word after another is sent away before the database is asked.
  const guess = credential !== undefined && address !== null && !house.identifier.remembers(credential.token);
  const tired = guess ? house.failures.wait(address) : 0;
  if (tired > 0) throw new Hurried(tired);
  const who = own ?? (credential && (await house.identifier.identify(credential.token)));
  if (!who) {
    if (guess) hurry(address, house.failures);
    throw refusal("UNAUTHORIZED", credential ? "The token opens nothing" : "This needs a token", {
      remedy: "Send authorization: Bearer <token>; make one with `stillwake tokens create`",
    });
  }
  hurry(who.id ?? who.name, house.rate);
  if (who.tenant !== null) hurry(`tenant ${who.tenant}`, house.rate);
  return who;
}

class Hurried extends Error {
  readonly seconds: number;

  constructor(seconds: number) {
    super("Too many requests");
    this.seconds = Math.max(1, Math.ceil(seconds));
  }
}

function closed(): Error {
  return refusal("CLOSED", "The server is closing");
}

function fail(house: ServerContext, c: Context, thrown: unknown): Response {
  // Whatever breaks off while it closes breaks off because of that.
  const error = house.closing.signal.aborted ? closed() : thrown;
  if (error instanceof Hurried) {
    const refused = refusal("TOO_MANY_REQUESTS", "Too many requests", { remedy: `Wait ${error.seconds} s` });
    return answerProblem(problemOf(refused).problem, { "retry-after": String(error.seconds) });
  }
  const { problem, inside } = problemOf(error);
  if (inside) house.onError(error, { method: c.req.method, path: c.req.path });
  const headers: Record<string, string> = {};
  if (problem.status === 401) headers["www-authenticate"] = 'Bearer realm="stillwake"';
  if (problem.status === 503) headers["retry-after"] = "2";
  if (problem.code === "CLOSED") headers.connection = "close";
  return answerProblem(problem, headers);
}

function hasBody(request: Request): boolean {
  if (request.method === "GET" || request.body === null) return false;
  return request.headers.get("content-length") !== "0";
}

/** A name that comes twice is a mistake, not a list. */
function queryOf(request: Request): Record<string, string> {
  const found: Record<string, string> = Object.create(null);
  for (const [name, value] of new URL(request.url).searchParams) {
    if (name in found)
      throw refusal("INVALID_INPUT", `${name.slice(0, 100)} is said twice`, {
        field: name.slice(0, 100),
        remedy: "Say it once",
      });
    if (unstorable(value) || unstorable(name)) {
      throw refusal("INVALID_INPUT", `${name.slice(0, 100)} holds ${unstorable(value) ?? "what no name can hold"}`, {
        field: name.slice(0, 100),
        remedy: "Remove it",
      });
    }
    found[name] = value;
  }
  return { ...found };
}

function check(schema: Route["operation"]["query"], value: unknown, where: "query" | "body"): unknown {
  if (!schema) {
    const said = where === "query" ? Object.keys(value as object)[0] : undefined;
    if (said === undefined) return undefined;
    throw refusal("INVALID_INPUT", `Unknown parameter "${said.slice(0, 100)}"`, {
      field: said.slice(0, 100),
      remedy: "See /docs",
    });
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issues = result.error.issues.slice(0, 20).map(({ path, message }) => ({
    path: path.map(String).join(".").slice(0, 200) || where,
    message: message.slice(0, 500),
  }));
  const [first] = issues;
  const problem = refusal("INVALID_INPUT", `The ${where} is not valid: ${first?.path}: ${first?.message}`, {
    field: first?.path ?? where,
    remedy: "See /docs for what this takes",
  });
  throw Object.assign(problem, { issues });
}

/** Who is at the other end of the connection; null where the server is mounted and does not see it. */
function addressOf(c: Context): string | null {
  return connectionOf(c).incoming?.socket?.remoteAddress ?? null;
}

function connectionOf(c: Context): {
  incoming?: { socket?: { remoteAddress?: string } };
  outgoing?: { destroy?(): void };
} {
  return c.env ?? {};
}

function matches(pattern: string, path: string): boolean {
  const expression = pattern
    .replaceAll(/[.]/g, "\\.")
    .replaceAll(/:\w+\{\\\.\+\}/g, ".+")
    .replaceAll(/:\w+/g, "[^/]+");
  return new RegExp(`^${expression}$`).test(path);
}
