// Pages of other sites: what they may read (nothing, unless their origin is listed) and what they may make a browser do (nothing).
import type { ServerContext } from "../context.ts";
import { isOwn } from "./identify.ts";
import { refusal } from "./problem.ts";

const safe = new Set(["GET", "HEAD", "OPTIONS"]);
const loopback = /^(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d+)?$/i;

export function refuseForeign(house: ServerContext, request: Request): void {
  const host = request.headers.get("host") ?? new URL(request.url).host;
  // Without tokens whoever reaches the server may do everything, so a name that was made to lead here is refused.
  if (house.options.auth === "none" && !loopback.test(host)) {
    throw refusal("FORBIDDEN", "A server without tokens answers to the names of this machine alone", {
      remedy: "Use http://127.0.0.1, or start it with tokens",
    });
  }
  if (safe.has(request.method)) return;
  const origin = request.headers.get("origin");
  const site = request.headers.get("sec-fetch-site");
  const foreign = origin !== null ? !isOwn(origin, host) : site !== null && site !== "same-origin" && site !== "none";
  if (foreign && !(origin !== null && house.options.origins?.includes(origin))) {
    throw refusal("FORBIDDEN", "A page of another origin may not do this", {
      remedy: "Call it from your own server, or list the origin in the server's `origins`",
    });
  }
}

/** Headers for a page of a listed origin; cookies are never for those. */
export function* crossOrigin(house: ServerContext, request: Request): Generator<[string, string]> {
  const origin = request.headers.get("origin");
  if (origin === null || !house.options.origins?.includes(origin)) return;
  yield ["access-control-allow-origin", origin];
  yield ["access-control-expose-headers", "retry-after"];
  yield ["access-control-allow-headers", "authorization, content-type, idempotency-key, last-event-id"];
  yield ["access-control-allow-methods", "GET, POST, PUT, DELETE"];
  yield ["access-control-max-age", "600"];
}
