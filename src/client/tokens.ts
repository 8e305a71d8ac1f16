// Tokens for the server: made here, shown once, kept as hashes. And the record of what people did with them.
import { createHash, randomBytes } from "node:crypto";
import * as verbs from "../db/calls/access.ts";
import type { Database } from "../db/database.ts";
import { StillwakeError } from "../errors.ts";
import { checkId, newId } from "../ids.ts";
import { checkLabel } from "../payload.ts";
import { type Duration, toInterval } from "../time.ts";
import { checkLimit, readCursor, writeCursor } from "./pagination.ts";

export type { Act, Role } from "../db/calls/access.ts";

export interface TokenOptions {
  /** Who or what will use it. */
  name: string;
  role: verbs.Role;
  /** Whose jobs it may see and steer; without one, everybody's. For readers and operators. */
  tenant?: string;
  /** Such as "90d". Without one it lasts until it is revoked. */
  expiresIn?: Duration;
}

export interface TokenInfo {
  id: string;
  name: string;
  /** How it begins. */
  prefix: string;
  role: verbs.Role;
  tenant: string | null;
  createdAt: Date;
  createdBy: string | null;
  expiresAt: Date | null;
  /** To the minute. */
  lastUsedAt: Date | null;
  revokedAt: Date | null;
  revokedBy: string | null;
}

/** So that scanners find one that was published. */
const MARK = "swt_";

export class Tokens {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Makes a token of 256 bits. It is answered this once; the database has its hash alone. */
  async create(options: TokenOptions, actor: { by?: string } = {}): Promise<{ id: string; token: string }> {
    const { name, role, tenant, expiresIn } = options;
    const token = `${MARK}${randomBytes(32).toString("base64url")}`;
    const id = newId();
    await verbs.createToken(this.#database, {
      id,
      name: checkLabel(name, "name"),
      prefix: token.slice(0, MARK.length + 4),
      hash: hashOf(token),
      role,
      tenant: tenant === undefined ? null : checkLabel(tenant, "tenant"),
      expiresIn: expiresIn === undefined ? null : toInterval(expiresIn, "expiresIn"),
      by: actor.by ?? null,
    });
    return { id, token };
  }

  async list(): Promise<TokenInfo[]> {
    return (await verbs.listTokens(this.#database)).map((row) => ({
      id: row.id,
      name: row.name,
      prefix: row.prefix,
      role: row.role,
      tenant: row.tenant,
      createdAt: row.created_at,
      createdBy: row.created_by,
      expiresAt: row.expires_at,
      lastUsedAt: row.last_used_at,
      revokedAt: row.revoked_at,
      revokedBy: row.revoked_by,
    }));
  }

  /** It opens nothing any more; servers notice within seconds. */
  async revoke(id: string, actor: { by?: string } = {}): Promise<void> {
    if (await verbs.revokeToken(this.#database, checkId(id), actor.by ?? null)) return;
    throw new StillwakeError("TOKEN_NOT_FOUND", `There is no token ${id}`, {
      field: "id",
      remedy: "See the list of tokens for its id, which is not the token itself",
    });
  }

  /** Whose token is this? Undefined when it is nobody's, has expired or was revoked. */
  async check(
    token: string,
  ): Promise<
    { id: string; name: string; role: verbs.Role; tenant: string | null; expiresAt: Date | null } | undefined
  > {
    if (!/^swt_[\w-]{43}$/.test(token)) return undefined;
    const row = await verbs.checkToken(this.#database, hashOf(token));
    return row && { id: row.id, name: row.name, role: row.role, tenant: row.tenant, expiresAt: row.expires_at };
  }

  /** What was done through the server, newest first. */
  async acts(
    options: { target?: string; limit?: number; cursor?: string } = {},
  ): Promise<{ acts: verbs.Act[]; cursor: string | null }> {
    const { target, limit = 50, cursor } = options;
    const before = cursor === undefined ? null : readCursor(cursor);
    const rows = await verbs.listActs(this.#database, target ?? null, before, checkLimit(limit, 200) + 1);
    const acts = rows.slice(0, limit);
    return { acts, cursor: rows.length > limit ? writeCursor(acts.at(-1)!.id) : null };
  }
}

function hashOf(token: string): Buffer {
  return createHash("sha256").update(token).digest();
}
