// Who may come in. With a token: whoever has it, in a header or, from the page, in a cookie that stands for it. Without one: this machine alone, by its own names.
// What a browser does because another site made it do so is refused either way.
import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import net from "node:net";
import { Refusal } from "./problems.ts";

export interface Access {
  /** Refuses whoever may not. */
  check(request: Request): void;
  /** For the page: the header that sets the cookie of whoever has the token. */
  signIn(token: string, request: Request): string;
  signOut(): string;
}

export const MIN_TOKEN = 20;
const SESSION_MS = 12 * 3600_000;
const safe = new Set(["GET", "HEAD", "OPTIONS"]);
const ownNames = /^(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d+)?$/i;

export interface AccessOptions {
  /** Of the system, such as "extraction": that of its cookie, and of its variable EXTRACTION_API_TOKEN. */
  name: string;
  token: string | undefined;
  /** Where the API is, for its cookie, which other paths do not get. */
  path: string;
}

export function accessBy({ name, token, path }: AccessOptions): Access {
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
      if (cookie === name && isSame(signature, signed(until)) && Number(until) > Date.now()) return true;
    }
    return false;
  };
  const refuse = (request: Request) => refuseForeign(request, token === undefined ? setting : undefined);
  return {
    check(request) {
      refuse(request);
      if (token === undefined) return;
      const given = /^bearer +(\S+) *$/i.exec(request.headers.get("authorization") ?? "")?.[1];
      if (given === undefined ? hasSession(request) : isSame(given, token)) return;
      throw new Refusal(401, "UNAUTHORIZED", "This needs a token", {
        remedy: `Send authorization: Bearer and the server's ${setting}, or sign in on the page`,
      });
    },
    signIn(given, request) {
      refuse(request);
      if (token !== undefined && !isSame(given, token)) {
        throw new Refusal(401, "UNAUTHORIZED", "This is not the token of this server", {
          field: "token",
          remedy: `It is what ${setting} was set to`,
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
  const own = new net.BlockList();
  own.addSubnet("127.0.0.0", 8, "ipv4");
  own.addAddress("::1", "ipv6");
  const kind = net.isIP(host);
  return kind !== 0 && own.check(host, kind === 6 ? "ipv6" : "ipv4");
}

/** `open`: there is no token, and this variable would set one. */
function refuseForeign(request: Request, open: string | undefined): void {
  const host = request.headers.get("host") ?? new URL(request.url).host;
  // A name that was made to lead here is refused, since whoever comes may do everything.
  if (open && !ownNames.test(host)) {
    throw new Refusal(403, "FORBIDDEN", "A server without a token answers to the names of this machine alone", {
      remedy: `Use http://127.0.0.1, or set ${open}`,
    });
  }
  if (safe.has(request.method)) return;
  const origin = request.headers.get("origin");
  const site = request.headers.get("sec-fetch-site");
  const own = origin !== null ? URL.canParse(origin) && new URL(origin).host === host : true;
  if (own && (origin !== null || site === null || site === "same-origin" || site === "none")) return;
  throw new Refusal(403, "FORBIDDEN", "A page of another origin may not do this", {
    remedy: "Call it from a server of yours, with the token",
  });
}

/** In the same time whatever differs. */
function isSame(one: string, other: string): boolean {
  const hash = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(hash(one), hash(other));
}

function isEncrypted(request: Request): boolean {
  return request.headers.get("x-forwarded-proto") === "https" || new URL(request.url).protocol === "https:";
}
