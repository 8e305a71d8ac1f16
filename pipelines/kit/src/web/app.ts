// An application as one origin: its API under api/, the live view's server under stillwake/, and the page at everything else. Mounted anywhere: below a path of another
// server, or alone on a port.
import type { Page } from "./assets.ts";

export interface AppOptions {
  /** Of the system, such as "extraction". */
  name: string;
  /** The API, for the path that it is reached at. */
  api(path: string): { fetch(request: Request, env?: object): Response | Promise<Response> };
  /** Stillwake's own server, which the page follows jobs with: `createServer(…).fetch`. */
  live: (request: Request, env?: unknown) => Promise<Response>;
  page: Page;
  /** The path it is mounted at, such as "/extraction/". Requests come with it. Default "/". */
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
      if (!pathname.startsWith(base)) return nothing();
      const place = pathname.slice(base.length);
      if (place === "api" || place.startsWith("api/")) return api.fetch(below(request, `${base}api`), env as object);
      if (place === "stillwake" || place.startsWith("stillwake/")) return live(below(request, `${base}stillwake`), env);
      return page(request, place, base) ?? nothing();
    },
  };
}

/** The same request as one who is mounted here sees it. The header with the host stays that of the page. */
function below(request: Request, prefix: string): Request {
  const url = new URL(request.url);
  url.pathname = url.pathname.slice(prefix.length) || "/";
  const { method, headers, body, signal } = request;
  // A request with a stream for its body has to say so.
  return new Request(url, { method, headers, signal, ...(body && { body, duplex: "half" }) } as RequestInit);
}

function nothing(): Response {
  return new Response("There is nothing here\n", {
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
  throw new Error(`The application cannot be mounted at "${path}": write a path such as "/${name}/"`);
}
