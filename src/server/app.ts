// The path of a request through the server, the same for all routes: origin check, identification, access check,
// validation, the handler, the audit entry, the response. Hono matches the route.
import { type Context, Hono } from "hono";
import { beginAuditEntry, endAuditEntry } from "../db/calls/access.ts";
import { newId } from "../ids.ts";
import type { ServerContext } from "./context.ts";
import { anonymous, callerName, type Identity, isAllowed, localAdmin } from "./http/access.ts";
import { forwardedAddress } from "./http/client-address.ts";
import { readToken } from "./http/identify.ts";
import { corsHeaders, rejectForeignOrigin } from "./http/origin.ts";
import { servePage } from "./http/pages.ts";
import { httpError, problemResponse, toProblem } from "./http/problem.ts";
import { RateLimitExceeded } from "./http/rate-limits.ts";
import { readJson, readQuery, validate } from "./http/request-input.ts";
import type { Call, Route } from "./operation.ts";

/** Responses must not be cached, framed, sniffed or executed. */
const securityHeaders = {
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
};

export function createApp(context: ServerContext, routes: readonly Route[]): Hono {
  const app = new Hono();
  app.use(async (c, next) => {
    if (context.closing.signal.aborted) c.res = fail(context, c, closedError());
    else await next();
    for (const [name, value] of Object.entries(securityHeaders)) {
      if (!c.res.headers.has(name)) c.res.headers.set(name, value);
    }
    for (const [name, value] of corsHeaders(context.options, c.req.raw)) c.res.headers.set(name, value);
    if (context.options.origins?.length) c.res.headers.append("vary", "origin");
  });
  app.onError((error, c) => fail(context, c, error));
  for (const route of routes) {
    app.on(route.method, route.path, (c) => handle(context, routes, route, c));
  }
  app.options("*", (c) => {
    const allowed = [...corsHeaders(context.options, c.req.raw)].length > 0;
    if (allowed) return new Response(null, { status: 204 });
    const remedy = "Call the API from your own server, or add the origin to the server's `origins`";
    return fail(context, c, httpError("FORBIDDEN", "Pages of other origins may not call this server", { remedy }));
  });
  app.notFound((c) => {
    const page = servePage(c.req.raw, context.base);
    if (page) {
      rejectForeignOrigin(context.options, c.req.raw);
      return page;
    }
    const methods = routes.filter(({ path }) => matches(path, c.req.path)).map(({ method }) => method);
    if (methods.length === 0) {
      return fail(context, c, httpError("NOT_FOUND", "No such path", { remedy: "See /docs" }));
    }
    const error = httpError("METHOD_NOT_ALLOWED", `Use ${methods.join(" or ")}`, { remedy: "See /docs" });
    const response = fail(context, c, error);
    response.headers.set("allow", methods.join(", "));
    return response;
  });
  return app;
}

async function handle(context: ServerContext, routes: readonly Route[], route: Route, c: Context): Promise<Response> {
  const request = c.req.raw;
  const { operation } = route;
  rejectForeignOrigin(context.options, request);
  const { clientAddress, trustProxy = 0 } = context.options;
  const address = clientAddress?.(request) ?? forwardedAddress(request, remoteAddress(c), trustProxy);
  const caller = await identify(context, route, request, address);
  if (!isAllowed(route.access, caller)) {
    const scope = caller.tenant === null ? "" : " (limited to a tenant)";
    throw httpError("FORBIDDEN", `The role ${caller.role}${scope} is not allowed to do this`, {
      remedy: "Ask an admin for a token with a role that is",
    });
  }
  // Not for public routes: health checks must not keep a database awake.
  if (route.access !== "public") context.housekeeping.check();
  const query = validate(operation.query, readQuery(request), "query");
  const body = validate(operation.body, operation.body && (await readJson(request)), "body");

  const audited = route.method !== "GET" && operation.audit !== null;
  const params = c.req.param() as Record<string, string>;
  const entry = {
    actor: caller.name,
    token: caller.role === "follower" ? null : caller.id,
    tenant: caller.tenant,
    act: route.name,
    target: params.id ?? params.name ?? null,
    address,
  };
  // Requests of orchestrators and operators, not of people who only read: an idle server sends nothing.
  if (route.method !== "GET") context.absenceWatch.start();
  const entryId = newId();
  let begun = false;
  let before: unknown = null;
  const { stillwake } = context;
  const call: Call = {
    params,
    query,
    body,
    caller,
    reader: context.readerFor(caller),
    stillwake,
    context,
    routes,
    request,
    address,
    destroyConnection: () => connectionOf(c).outgoing?.destroy?.(),
    recordBefore: async (state) => {
      before = state;
      if (!audited || begun) return;
      await beginAuditEntry(stillwake.database, entryId, { ...entry, before });
      begun = true;
    },
  };
  const recordAfter = (after: unknown) =>
    begun
      ? endAuditEntry(stillwake.database, entryId, before, after)
      : beginAuditEntry(stillwake.database, entryId, { ...entry, before, after });
  const toAfter = operation.audit ?? ((response: unknown) => response);
  try {
    const result = await (operation.uncounted?.(query) || caller === anonymous || caller === localAdmin
      ? operation.handle(call)
      : context.concurrencyLimiter.run(callerName(caller), () => operation.handle(call)));
    // An enqueue has no state before; its entry contains the new ids.
    if (audited) await recordAfter(toAfter(result, body));
    // The body of a response to HEAD is never read and must not stay open.
    if (request.method === "HEAD" && result instanceof Response) await result.body?.cancel();
    if (result instanceof Response) return result;
    const status = operation.status ?? 200;
    return new Response(JSON.stringify(result), { status, headers: { "content-type": "application/json" } });
  } catch (error) {
    if (begun) await recordAfter({ refused: toProblem(error).problem.code }).catch(() => {});
    throw error;
  }
}

async function identify(
  context: ServerContext,
  route: Route,
  request: Request,
  address: string | null,
): Promise<Identity> {
  const { options, authenticator, requestLimiter, failureLimiter } = context;
  if (options.auth === "none") return localAdmin;
  if (route.access === "public") {
    if (!route.operation.unlimited) requestLimiter.take(`public ${route.name} ${address}`);
    return anonymous;
  }
  const identity = await options.authenticate?.(request);
  const token = identity ? undefined : readToken(request);
  // Every token is looked up: behind a proxy a valid one may come from the same address as many invalid ones.
  const caller = identity ?? (token === undefined ? undefined : await authenticator.identify(token));
  if (!caller) {
    if (token !== undefined && address !== null) failureLimiter.take(address);
    throw httpError("UNAUTHORIZED", token === undefined ? "A token is required" : "Invalid or expired token", {
      remedy: "Send authorization: Bearer <token>; create a token with `stillwake tokens create`",
    });
  }
  requestLimiter.take(caller.id ?? caller.name);
  if (caller.tenant !== null) requestLimiter.take(`tenant ${caller.tenant}`);
  return caller;
}

function closedError(): Error {
  return httpError("CLOSED", "The server is closing");
}

function fail(context: ServerContext, c: Context, thrown: unknown): Response {
  // While the server closes, any error is a consequence of it.
  const error = context.closing.signal.aborted ? closedError() : thrown;
  if (error instanceof RateLimitExceeded) {
    const rejection = httpError("TOO_MANY_REQUESTS", "Too many requests", { remedy: `Wait ${error.seconds} s` });
    return problemResponse(toProblem(rejection).problem, { "retry-after": String(error.seconds) });
  }
  const { problem, internal } = toProblem(error);
  if (internal) context.onError(error, { method: c.req.method, path: c.req.path });
  const headers: Record<string, string> = {};
  if (problem.status === 401) headers["www-authenticate"] = 'Bearer realm="stillwake"';
  if (problem.status === 503) headers["retry-after"] = "2";
  if (problem.code === "CLOSED") headers.connection = "close";
  return problemResponse(problem, headers);
}

/** Null if the server is mounted in an application and does not see the connection. */
function remoteAddress(c: Context): string | null {
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
