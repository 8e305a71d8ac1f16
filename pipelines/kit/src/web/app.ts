// Combines a system into one handler: its API under api/, Stillwake's server for the live view under stillwake/, and the
// page at all other paths. It can be mounted below a path of another server or alone on a port.
import type { Page } from "./assets.ts";

export interface AppOptions {
  /** Name of the system, such as "extraction". */
  name: string;
  /** Creates the API for the path it is mounted at. */
  api(path: string): { fetch(request: Request, env?: object): Response | Promise<Response> };
  /** Stillwake's server for the live view: `createServer(…).fetch`. */
  live: (request: Request, env?: unknown) => Promise<Response>;
  page: Page;
  /** The path it is mounted at, such as "/extraction/". Default "/". */
  base?: string | undefined;
}

export interface App {
  fetch(request: Request, env?: unknown): Promise<Response>;
}

export function mountApp({ name, live, page, base: mounted = "/", ...options }: AppOptions): App {
  const base = checkBase(mounted, name);
  const api = options.api(`${base}api`);
  return {
    async fetch(request, env) {
      const { pathname, search } = new URL(request.url);
      if (`${pathname}/` === base) return Response.redirect(new URL(base + search, request.url), 308);
      if (!pathname.startsWith(base)) return notFoundResponse();
      const route = pathname.slice(base.length);
      if (route === "api" || route.startsWith("api/"))
        return api.fetch(withoutPrefix(request, `${base}api`), env as object);
      if (route === "stillwake" || route.startsWith("stillwake/"))
        return live(withoutPrefix(request, `${base}stillwake`), env);
      return page(request, route, base) ?? notFoundResponse();
    },
  };
}

/** The request with the path below the prefix. The Host header stays. */
function withoutPrefix(request: Request, prefix: string): Request {
  const url = new URL(request.url);
  url.pathname = url.pathname.slice(prefix.length) || "/";
  const { method, headers, body, signal } = request;
  // A streamed body requires `duplex`.
  return new Request(url, { method, headers, signal, ...(body && { body, duplex: "half" }) } as RequestInit);
}

function notFoundResponse(): Response {
  return new Response("Not found\n", {
    status: 404,
    headers: {
      "content-type": "text/plain; charset=utf-8",
      "x-content-type-options": "nosniff",
      "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    },
  });
}

function checkBase(path: string, name: string): string {
  if (/^\/([\w.~-]+\/)*$/.test(path)) return path;
  if (/^\/([\w.~-]+\/)*[\w.~-]+$/.test(path)) return `${path}/`;
  throw new Error(`Invalid base path "${path}". Use a path such as "/${name}/"`);
}
