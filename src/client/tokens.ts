// `sw.tokens`: access tokens of the server, returned once and stored as hashes, and the audit log.
import { createHash, randomBytes } from "node:crypto";
import { createBatcher } from "../db/batcher.ts";
import * as calls from "../db/calls/access.ts";
import type { Database } from "../db/database.ts";
import { StillwakeError } from "../errors.ts";
import { checkId, newId } from "../ids.ts";
import { checkLabel } from "../payload.ts";
import { type Duration, toInterval } from "../time.ts";
import { checkInteger } from "../validate.ts";
import { checkLimit, readCursor, writeCursor } from "./pagination.ts";

export type { AuditEntry, Role, TokenInfo } from "../db/calls/access.ts";

export interface TokenOptions {
  /** The user or program it is for. */
  name: string;
  role: calls.Role;
  /** Restricts a reader or operator to the jobs of one tenant. */
  tenant?: string;
  /** Such as "90d". Default: valid until revoked. */
  expiresIn?: Duration;
  /** The pipelines that an operator may enqueue. Default: any. */
  pipelines?: readonly string[];
  /** Other pools than that of the pipeline that an operator may choose. Default: none with a tenant, any without. */
  pools?: readonly string[];
  /** The highest priority that an operator may choose; that of the pipeline is always allowed. Default: 0 with a tenant, 1000 without. */
  maxPriority?: number;
}

/** A fixed prefix, so that secret scanners find published tokens. */
const PREFIX = "swt_";

export class Tokens {
  readonly #database: Database;
  readonly #checkBatched: (hash: Buffer) => Promise<calls.CheckedToken | undefined>;

  constructor(database: Database) {
    this.#database = database;
    // One statement at a time, whatever the number of callers: many invalid tokens take no more than one connection.
    this.#checkBatched = createBatcher({
      groupOf: () => "",
      sizeOf: () => 1,
      send: (hashes) => calls.checkTokens(database, hashes),
      maxCalls: 500,
      maxSize: 500,
      lanes: 1,
    });
  }

  /** Creates a token of 256 random bits. It is returned only here; the database stores its hash. */
  async create(options: TokenOptions, actor: { by?: string } = {}): Promise<{ id: string; token: string }> {
    const { name, role, tenant, expiresIn, pipelines, pools, maxPriority } = options;
    const token = `${PREFIX}${randomBytes(32).toString("base64url")}`;
    const id = newId();
    await calls.createToken(this.#database, {
      id,
      name: checkLabel(name, "name"),
      prefix: token.slice(0, PREFIX.length + 4),
      hash: hashOf(token),
      role,
      tenant: tenant === undefined ? null : checkLabel(tenant, "tenant"),
      expiresIn: expiresIn === undefined ? null : toInterval(expiresIn, "expiresIn"),
      by: actor.by ?? null,
      limits: {
        ...(pipelines && { pipelines }),
        ...(pools && { pools }),
        ...(maxPriority !== undefined && { max_priority: checkInteger(maxPriority, "maxPriority", -1000, 1000) }),
      },
    });
    return { id, token };
  }

  async list(): Promise<calls.TokenInfo[]> {
    return calls.listTokens(this.#database);
  }

  /** Invalidates a token; servers notice within seconds. */
  async revoke(id: string, actor: { by?: string } = {}): Promise<void> {
    if (await calls.revokeToken(this.#database, checkId(id), actor.by ?? null)) return;
    throw new StillwakeError("TOKEN_NOT_FOUND", `There is no token ${id}`, {
      field: "id",
      remedy: "Find the id in the list of tokens; it is not the token itself",
    });
  }

  /** Looks up a token; concurrent calls share a statement. Undefined if it is unknown, expired or revoked. */
  async check(token: string): Promise<calls.CheckedToken | undefined> {
    if (!/^swt_[\w-]{43}$/.test(token)) return undefined;
    return this.#checkBatched(hashOf(token));
  }

  /** Operations performed through the server, newest first. */
  async audit(
    options: { target?: string; limit?: number; cursor?: string } = {},
  ): Promise<{ entries: calls.AuditEntry[]; cursor: string | null }> {
    const { target, limit = 50, cursor } = options;
    const before = cursor === undefined ? null : readCursor(cursor);
    const rows = await calls.listAuditEntries(this.#database, target ?? null, before, checkLimit(limit, 200) + 1);
    const entries = rows.slice(0, limit);
    return { entries, cursor: rows.length > limit ? writeCursor(entries.at(-1)!.id) : null };
  }
}

function hashOf(token: string): Buffer {
  return createHash("sha256").update(token).digest();
}
