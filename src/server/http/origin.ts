// Requests from pages of other origins: only listed origins may read responses or send requests that change anything.
import { httpError } from "./problem.ts";

const safeMethods = new Set(["GET", "HEAD", "OPTIONS"]);
const loopback = /^(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d+)?$/i;

interface OriginOptions {
  auth?: "tokens" | "none";
  /** Other origins that are allowed. */
  origins?: readonly string[];
}

export function isSameOrigin(origin: string, request: Request): boolean {
  return URL.canParse(origin) && new URL(origin).host === hostOf(request);
}

export function rejectForeignOrigin({ auth, origins }: OriginOptions, request: Request): void {
  // Without tokens every caller is an admin: reject other host names, which DNS rebinding would use.
  if (auth === "none" && !loopback.test(hostOf(request))) {
    throw httpError("FORBIDDEN", "A server without tokens accepts only loopback host names", {
      remedy: "Use http://127.0.0.1, or start the server with tokens",
    });
  }
  if (safeMethods.has(request.method)) return;
  const origin = request.headers.get("origin");
  const site = request.headers.get("sec-fetch-site");
  const foreign =
    origin !== null ? !isSameOrigin(origin, request) : site !== null && site !== "same-origin" && site !== "none";
  if (foreign && !(origin !== null && origins?.includes(origin))) {
    throw httpError("FORBIDDEN", "Pages of another origin may not send this request", {
      remedy: "Call the API from your own server, or add the origin to the server's `origins`",
    });
  }
}

/** CORS headers for a listed origin; cookies are never allowed. */
export function* corsHeaders({ origins }: OriginOptions, request: Request): Generator<[string, string]> {
  const origin = request.headers.get("origin");
  if (origin === null || !origins?.includes(origin)) return;
  yield ["access-control-allow-origin", origin];
  yield ["access-control-expose-headers", "retry-after"];
  yield ["access-control-allow-headers", "authorization, content-type, idempotency-key, last-event-id"];
  yield ["access-control-allow-methods", "GET, POST, PUT, DELETE"];
  yield ["access-control-max-age", "600"];
}

function hostOf(request: Request): string {
  return request.headers.get("host") ?? new URL(request.url).host;
}
