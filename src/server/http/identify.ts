// Identifies the caller: by a bearer token, a session cookie, or a signed read token. Tokens are cached for a few
// seconds, so that a page with twenty requests causes one query; a revoked token is accepted for no longer than that.
import { createHash } from "node:crypto";
import { checkReadToken } from "../../client/read-token.ts";
import type { Tokens } from "../../client/tokens.ts";
import type { CheckedToken } from "../../db/calls/access.ts";
import type { EnqueueLimits, Identity } from "./access.ts";
import { isSameOrigin } from "./origin.ts";

export const COOKIE = "stillwake";
const CACHE_MS = 5000;
const MAX_CACHED = 10_000;

/** The token of the request: from the authorization header, or else from the cookie. */
export function readToken(request: Request): string | undefined {
  const header = request.headers.get("authorization");
  if (header !== null) return /^bearer +([^\s]+) *$/i.exec(header)?.[1] ?? "";
  // Browsers send cookies automatically: a request from another origin, listed or not, must not be authenticated by one.
  const origin = request.headers.get("origin");
  if (origin !== null && !isSameOrigin(origin, request)) return undefined;
  for (const pair of request.headers.get("cookie")?.split(";") ?? []) {
    const [name, value] = pair.trim().split("=", 2);
    if (name === COOKIE && value) return value;
  }
  return undefined;
}

export class Authenticator {
  readonly #tokens: Tokens;
  readonly #secrets: readonly string[];
  readonly #cache = new Map<string, { identity: Identity; until: number }>();
  /** Invalid tokens, separately: many of them must not displace valid ones. */
  readonly #invalid = new Map<string, number>();

  constructor(tokens: Tokens, secrets: readonly string[]) {
    this.#tokens = tokens;
    this.#secrets = secrets;
  }

  /** Undefined if the token is invalid. */
  async identify(token: string, { fresh = false } = {}): Promise<Identity | undefined> {
    if (token.startsWith("swr_")) return this.#identifyFollower(token);
    const hash = hashOf(token);
    const cached = this.#cache.get(hash);
    if (cached && cached.until > performance.now() && !fresh) return unlessExpired(cached.identity);
    if ((this.#invalid.get(hash) ?? 0) > performance.now() && !fresh) return undefined;
    const row = await this.#tokens.check(token);
    if (!row) {
      if (this.#invalid.size >= MAX_CACHED) this.#invalid.clear();
      this.#invalid.set(hash, performance.now() + CACHE_MS);
      this.#cache.delete(hash);
      return undefined;
    }
    const identity = {
      name: row.name,
      role: row.role,
      tenant: row.tenant,
      id: row.id,
      expiresAt: row.expiresAt,
      limits: limitsOf(row),
    };
    if (this.#cache.size >= MAX_CACHED) this.#cache.clear();
    this.#cache.set(hash, { identity, until: performance.now() + CACHE_MS });
    return unlessExpired(identity);
  }

  clearCache(): void {
    this.#cache.clear();
  }

  #identifyFollower(token: string): Identity | undefined {
    const verified = checkReadToken(this.#secrets, token);
    if (!verified) return undefined;
    const { expiresAt, ...scope } = verified;
    const id = createHash("sha256").update(token).digest("base64url");
    return { name: `follower of ${scope.job ?? scope.key}`, role: "follower", tenant: null, id, scope, expiresAt };
  }
}

function limitsOf({ pipelines, pools, maxPriority }: CheckedToken): EnqueueLimits {
  return { ...(pipelines && { pipelines }), ...(pools && { pools }), ...(maxPriority !== null && { maxPriority }) };
}

function hashOf(token: string): string {
  return createHash("sha256").update(token).digest("base64");
}

/** A cached token may have expired since. */
function unlessExpired(identity: Identity | undefined): Identity | undefined {
  return identity && (identity.expiresAt === null || identity.expiresAt.getTime() > Date.now()) ? identity : undefined;
}
