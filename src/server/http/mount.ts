// Mounts the server under a path of an application: as a fetch handler, or as a request listener of Node.
import type { IncomingMessage, RequestListener } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { httpError, problemResponse, toProblem } from "./problem.ts";

type Fetch = (request: Request, env?: unknown) => Promise<Response>;

/** What frameworks add to the request. */
interface MountedMessage extends IncomingMessage {
  /** The URL before a router removed its mount path (Express). */
  originalUrl?: string;
  /** The parsed body, if a parser of the application has read it. */
  body?: unknown;
  /** Read by @hono/node-server instead of the stream. */
  rawBody?: Buffer;
}

/** Handles requests whose URL contains the mount path. `base` has a slash at both ends. */
export function mountFetch(fetch: Fetch, base: string): (request: Request, env?: unknown) => Promise<Response> {
  return (request, env) => fetchWithin(fetch, base, request, new URL(request.url), env);
}

/** The same for Node. The mount path may have been removed from the URL already. */
export function mountListener(fetch: Fetch, base: string): RequestListener {
  const listener = getRequestListener(
    (request, env) => {
      const { originalUrl } = env.incoming as MountedMessage;
      const url = originalUrl?.startsWith("/") ? new URL(`http://mounted${originalUrl}`) : new URL(request.url);
      return fetchWithin(fetch, base, request, url, env);
    },
    { overrideGlobalObjects: false },
  );
  return (incoming, outgoing) => {
    const message = incoming as MountedMessage;
    if (incoming.readableEnded && message.body !== undefined) message.rawBody = toBuffer(message.body);
    return listener(incoming, outgoing);
  };
}

async function fetchWithin(fetch: Fetch, base: string, request: Request, { pathname, search }: URL, env: unknown) {
  if (!`${pathname}/`.startsWith(base)) {
    const error = httpError("NOT_FOUND", `The server is mounted at ${base}`, {
      remedy: "Route only paths below it to the server, and pass the same path to createServer({ path })",
    });
    return problemResponse(toProblem(error).problem);
  }
  const url = new URL(request.url);
  url.pathname = `/${pathname.slice(base.length)}`;
  url.search = search;
  return fetch(url.href === request.url ? request : new Request(url, request), env);
}

function toBuffer(body: unknown): Buffer {
  if (Buffer.isBuffer(body)) return body;
  return Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
}
