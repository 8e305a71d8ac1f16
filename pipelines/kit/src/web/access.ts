// Access control of the API. With a token: clients that send it in a header, or a session cookie that the page gets for it.
// Without a token: only requests to loopback host names. Cross-site writes from a browser are always refused.
import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import net from "node:net";
import { Refusal } from "./problems.ts";

export interface Access {
  /** Throws a Refusal if the request has no access. */
  check(request: Request): void;
  /** Checks the token and returns the Set-Cookie header of a session. */
  signIn(token: string, request: Request): string;
  signOut(): string;
}

export const MIN_TOKEN = 20;
const SESSION_MS = 12 * 3600_000;
const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS"]);
const LOOPBACK_HOST = /^(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d+)?$/i;

export interface AccessOptions {
  /** Name of the system, such as "extraction": also of its cookie, and the prefix of EXTRACTION_API_TOKEN. */
  name: string;
  token: string | undefined;
  /** Path of the API, for its cookie. */
  path: string;
}

export function createAccess({ name, token, path }: AccessOptions): Access {
  const setting = `${name.toUpperCase()}_API_TOKEN`;
  const attributes = `Path=${path}; HttpOnly; SameSite=Strict`;
  const signed = (until: string) =>
    createHmac("sha256", token ?? "")
      .update(`${name} session.${until}`)
      .digest("base64url");
  const hasSession = (request: Request) => {
    for (const pair of request.headers.get("cookie")?.split(";") ?? []) {
      const [cookie, value = ""] = pair.trim().split("=", 2);
      const [until = "", signature = ""] = value.split(".", 2);
      if (cookie === name && safeEqual(signature, signed(until)) && Number(until) > Date.now()) return true;
    }
    return false;
  };
  const refuse = (request: Request) => refuseForeign(request, token === undefined ? setting : undefined);
  return {
    check(request) {
      refuse(request);
      if (token === undefined) return;
      const bearer = /^bearer +(\S+) *$/i.exec(request.headers.get("authorization") ?? "")?.[1];
      if (bearer === undefined ? hasSession(request) : safeEqual(bearer, token)) return;
      throw new Refusal(401, "UNAUTHORIZED", "A token is required", {
        remedy: `Send "authorization: Bearer <token>" with the value of ${setting}, or sign in on the page`,
      });
    },
    signIn(sent, request) {
      refuse(request);
      if (token !== undefined && !safeEqual(sent, token)) {
        throw new Refusal(401, "UNAUTHORIZED", "Invalid token", {
          field: "token",
          remedy: `Use the value of ${setting}`,
        });
      }
      const until = String(Date.now() + SESSION_MS);
      const value = `${until}.${signed(until)}`;
      const secure = isEncrypted(request) ? "; Secure" : "";
      return `${name}=${value}; ${attributes}; Max-Age=${SESSION_MS / 1000}${secure}`;
    },
    signOut: () => `${name}=; ${attributes}; Max-Age=0`,
  };
}

export function isLoopback(host: string): boolean {
  if (host === "localhost") return true;
  const loopback = new net.BlockList();
  loopback.addSubnet("127.0.0.0", 8, "ipv4");
  loopback.addAddress("::1", "ipv6");
  const kind = net.isIP(host);
  return kind !== 0 && loopback.check(host, kind === 6 ? "ipv6" : "ipv4");
}

/** `open`: set if the server has no token; the name of the variable that would set one. */
function refuseForeign(request: Request, open: string | undefined): void {
  const host = request.headers.get("host") ?? new URL(request.url).host;
  // Against DNS rebinding: without a token every client has full access.
  if (open && !LOOPBACK_HOST.test(host)) {
    throw new Refusal(403, "FORBIDDEN", "A server without a token accepts only loopback host names", {
      remedy: `Use http://127.0.0.1, or set ${open}`,
    });
  }
  if (SAFE_METHODS.has(request.method)) return;
  const origin = request.headers.get("origin");
  const site = request.headers.get("sec-fetch-site");
  const sameOrigin = origin !== null ? URL.canParse(origin) && new URL(origin).host === host : true;
  if (sameOrigin && (origin !== null || site === null || site === "same-origin" || site === "none")) return;
  throw new Refusal(403, "FORBIDDEN", "Requests from pages of another origin are not allowed", {
    remedy: "Call the API from your server with the token",
  });
}

/** Constant-time comparison. */
function safeEqual(a: string, b: string): boolean {
  const hash = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(hash(a), hash(b));
}

function isEncrypted(request: Request): boolean {
  return request.headers.get("x-forwarded-proto") === "https" || new URL(request.url).protocol === "https:";
}
