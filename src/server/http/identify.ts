// Who is calling: a bearer token, the cookie of somebody who signed in, or a signed read token. Found tokens are remembered for some seconds, so
// that a page of twenty requests asks the database once; a revoked one is good for no longer than that.
import { createHash } from "node:crypto";
import { checkReadToken } from "../../client/read-token.ts";
import type { Tokens } from "../../client/tokens.ts";
import type { Identity } from "./access.ts";

export function isOwn(origin: string, host: string): boolean {
  return URL.canParse(origin) && new URL(origin).host === host;
}

export const COOKIE = "stillwake";
const REMEMBERED_MS = 5000;
const MAX_REMEMBERED = 10_000;

/** A credential that was given, and how. */
export interface Credential {
  token: string;
  cookie: boolean;
}

export function credentialOf(request: Request): Credential | undefined {
  const given = request.headers.get("authorization");
  if (given !== null) return { token: /^bearer +([^\s]+) *$/i.exec(given)?.[1] ?? "", cookie: false };
  // A cookie is sent by a browser unasked: from a page of another origin it says nothing of who is behind it, listed or not.
  const origin = request.headers.get("origin");
  if (origin !== null && !isOwn(origin, request.headers.get("host") ?? new URL(request.url).host)) return undefined;
  for (const pair of request.headers.get("cookie")?.split(";") ?? []) {
    const [name, value] = pair.trim().split("=", 2);
    if (name === COOKIE && value) return { token: value, cookie: true };
  }
  return undefined;
}

export class Identifier {
  readonly #tokens: Tokens;
  readonly #secrets: readonly string[];
  readonly #remembered = new Map<string, { identity: Identity | undefined; until: number }>();

  constructor(tokens: Tokens, secrets: readonly string[]) {
    this.#tokens = tokens;
    this.#secrets = secrets;
  }

  /** Undefined when it opens nothing. */
  async identify(token: string, { fresh = false } = {}): Promise<Identity | undefined> {
    if (token.startsWith("swr_")) return this.#follower(token);
    const hash = hashOf(token);
    const known = this.#remembered.get(hash);
    if (known && known.until > performance.now() && !fresh) return inTime(known.identity);
    const row = await this.#tokens.check(token);
    const identity = row && {
      name: row.name,
      role: row.role,
      tenant: row.tenant,
      id: row.id,
      expiresAt: row.expiresAt,
    };
    if (this.#remembered.size >= MAX_REMEMBERED) this.#remembered.clear();
    this.#remembered.set(hash, { identity, until: performance.now() + REMEMBERED_MS });
    return inTime(identity);
  }

  /** Whether it was found a moment ago, or needs no look at the database. */
  remembers(token: string): boolean {
    return token.startsWith("swr_") || this.#remembered.get(hashOf(token))?.identity !== undefined;
  }

  forget(): void {
    this.#remembered.clear();
  }

  #follower(token: string): Identity | undefined {
    const found = checkReadToken(this.#secrets, token);
    if (!found) return undefined;
    const { expiresAt, ...scope } = found;
    const id = createHash("sha256").update(token).digest("base64url");
    return { name: `follower of ${scope.job ?? scope.key}`, role: "follower", tenant: null, id, scope, expiresAt };
  }
}

function hashOf(token: string): string {
  return createHash("sha256").update(token).digest("base64");
}

/** One that is remembered may have run out meanwhile. */
function inTime(identity: Identity | undefined): Identity | undefined {
  return identity && (identity.expiresAt === null || identity.expiresAt.getTime() > Date.now()) ? identity : undefined;
}
