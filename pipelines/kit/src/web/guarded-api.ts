// The frame around the routes of each system's API: access control, response headers, and errors as problem documents.
import { Hono } from "hono";
import { type Stillwake, StillwakeError } from "stillwake";
import { createAccess } from "./access.ts";
import { notFound, problemOf } from "./problems.ts";
import { parseBody, signInBody } from "./requests.ts";

export interface GuardedOptions {
  /** Name of the system, such as "extraction": also of its cookie, its jobs, and the prefix of EXTRACTION_API_TOKEN. */
  name: string;
  /** Token that clients must send. Without one, only loopback requests are accepted. */
  token?: string | undefined;
  /** Path of the API, for its cookie. Default "/". */
  path?: string | undefined;
  /** Receives internal errors, whose details the client does not get. */
  onError?: ((error: unknown, request: { method: string; path: string }) => void) | undefined;
}

/** Responses may not be cached, framed, sniffed or executed. */
const HEADERS = {
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
};

/** Has POST and DELETE /session. All routes that are added require access. */
export function guardedApi({ name, token, path = "/", ...options }: GuardedOptions): Hono {
  const onError = options.onError ?? ((error, { method, path }) => console.error(`${method} ${path}`, error));
  const access = createAccess({ name, token, path });
  const api = new Hono();

  api.use(async (c, next) => {
    await next();
    for (const [header, value] of Object.entries(HEADERS))
      if (!c.res.headers.has(header)) c.res.headers.set(header, value);
  });
  api.onError((error, c) => {
    const { problem, internal } = problemOf(error, name);
    if (internal) onError(error, { method: c.req.method, path: c.req.path });
    // The rest of a refused body is not read, so the connection cannot be used again.
    const close = problem.status === 413 || problem.status === 415 ? { connection: "close" } : undefined;
    return new Response(JSON.stringify(problem), {
      status: problem.status,
      headers: { "content-type": "application/problem+json", ...HEADERS, ...close },
    });
  });
  api.notFound(() => {
    throw notFound("address");
  });

  api.post("/session", async (c) => {
    const { token } = await parseBody(signInBody, c.req.raw);
    c.header("set-cookie", access.signIn(token, c.req.raw));
    return c.body(null, 204);
  });
  // Everything below requires access.
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

/** A read token for the live view of one job. Null if the live view needs none: a loopback server without a secret. */
export function readToken(stillwake: Stillwake, job: string): string | null {
  try {
    return stillwake.readToken({ job, expiresIn: "1h" });
  } catch (error) {
    if (error instanceof StillwakeError && error.field === "secret") return null;
    throw error;
  }
}
