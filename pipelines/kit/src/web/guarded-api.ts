// What stands around the routes of an API: who may come in, what no answer lets a browser do, and how a refusal is said. The routes themselves are each system's own.
import { Hono } from "hono";
import { accessBy } from "./access.ts";
import { notFound, problemOf, type Refusal } from "./problems.ts";
import { body, signIn } from "./requests.ts";

export interface GuardedOptions {
  /** Of the system, such as "extraction": that of its cookie, of its jobs, and of its variable EXTRACTION_API_TOKEN. */
  name: string;
  /** Who comes in needs it. Without one, only this machine may. */
  token?: string | undefined;
  /** Where the API is reached, for its cookie. Default "/". */
  path?: string | undefined;
  /** How what is not there is refused. */
  missing?: ((what: string) => Refusal) | undefined;
  /** Told what the caller is not told. */
  onError?: ((error: unknown, request: { method: string; path: string }) => void) | undefined;
}

/** Nothing of an answer may be kept, framed, sniffed or run. */
const guards = {
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
};

/** With the way in and out, POST and DELETE /session. Every route that is added to it is for those who may. */
export function guardedApi({ name, token, path = "/", missing = notFound, ...options }: GuardedOptions): Hono {
  const onError = options.onError ?? ((error, { method, path }) => console.error(`${method} ${path}`, error));
  const access = accessBy({ name, token, path });
  const api = new Hono();

  api.use(async (c, next) => {
    await next();
    for (const [name, value] of Object.entries(guards)) if (!c.res.headers.has(name)) c.res.headers.set(name, value);
  });
  api.onError((error, c) => {
    const { problem, inside } = problemOf(error, () => missing(name));
    if (inside) onError(error, { method: c.req.method, path: c.req.path });
    return new Response(JSON.stringify(problem), {
      status: problem.status,
      headers: { "content-type": "application/problem+json", ...guards },
    });
  });
  api.notFound(() => {
    throw missing("address");
  });

  api.post("/session", async (c) => {
    const { token } = await body(signIn, c.req.raw);
    c.header("set-cookie", access.signIn(token, c.req.raw));
    return c.body(null, 204);
  });
  // Everything below is for those who may.
  api.use(async (c, next) => {
    access.check(c.req.raw);
    await next();
  });
  api.delete("/session", (c) => {
    c.header("set-cookie", access.signOut());
    return c.body(null, 204);
  });
  return api;
}
