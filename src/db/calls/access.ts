// Calls of sql/functions/reads/access.sql: tokens and the audit log.
import type { Database, Queries } from "../database.ts";
import { readValues } from "../row.ts";

export type Role = "reader" | "operator" | "admin" | "worker";

export interface NewToken {
  id: string;
  name: string;
  prefix: string;
  hash: Buffer;
  role: Role;
  tenant: string | null;
  /** A Postgres interval. */
  expiresIn: string | null;
  by: string | null;
  limits: { pipelines?: readonly string[]; pools?: readonly string[]; max_priority?: number };
}

export async function createToken(database: Database, token: NewToken): Promise<void> {
  const { id, name, prefix, hash, role, tenant, expiresIn, by, limits } = token;
  await database.repeat(`select ${database.schema}.create_token($1, $2, $3, $4, $5, $6, $7, $8, $9::text::jsonb)`, {
    values: () => [id, name, prefix, hash, role, tenant, expiresIn, by, JSON.stringify(limits)],
  });
}

/** In the order of the hashes; undefined where the token is unknown, expired or revoked. */
export async function checkTokens(database: Queries, hashes: Buffer[]): Promise<(CheckedToken | undefined)[]> {
  const found = await readValues<CheckedToken & { hash: Buffer }>(
    database,
    `select * from ${database.schema}.check_tokens($1)`,
    [hashes],
  );
  const tokens = new Map(found.map(({ hash, ...token }) => [hash.toString("hex"), token]));
  return hashes.map((hash) => tokens.get(hash.toString("hex")));
}

export async function revokeToken(database: Database, id: string, by: string | null): Promise<boolean> {
  const rows = await database.repeat<{ found: boolean }>(`select ${database.schema}.revoke_token($1, $2) as found`, {
    values: () => [id, by],
  });
  return rows[0]!.found;
}

export interface TokenInfo {
  id: string;
  name: string;
  /** The first characters of the token. */
  prefix: string;
  role: Role;
  tenant: string | null;
  createdAt: Date;
  createdBy: string | null;
  expiresAt: Date | null;
  /** To the minute. */
  lastUsedAt: Date | null;
  revokedAt: Date | null;
  revokedBy: string | null;
  /** The pipelines that it may enqueue; null for any. */
  pipelines: string[] | null;
  /** The pools that it may choose; null for that of the pipeline with a tenant, for any without. */
  pools: string[] | null;
  /** The highest priority that it may choose; null for 0 with a tenant, for any without. */
  maxPriority: number | null;
}

export type CheckedToken = Pick<
  TokenInfo,
  "id" | "name" | "role" | "tenant" | "expiresAt" | "pipelines" | "pools" | "maxPriority"
>;

export async function listTokens(database: Queries): Promise<TokenInfo[]> {
  return readValues<TokenInfo>(
    database,
    `select id, name, prefix, role, tenant, created_at, created_by, expires_at, last_used_at, revoked_at, revoked_by,
      pipelines, pools, max_priority
    from ${database.schema}.access_tokens order by id desc limit 1000`,
  );
}

/** An action performed through the server. */
export interface AuditEntry {
  id: string;
  at: Date;
  actor: string;
  /** The id of the token that was used. */
  token: string | null;
  tenant: string | null;
  act: string;
  target: string | null;
  before: unknown;
  /** The result; null when the server died before it was known. */
  after: unknown;
  address: string | null;
}

export async function beginAuditEntry(
  database: Database,
  id: string,
  act: Partial<Omit<AuditEntry, "id" | "at">>,
): Promise<void> {
  await database.query(`select ${database.schema}.begin_audit_entry($1, $2::text::jsonb)`, [id, JSON.stringify(act)]);
}

export async function endAuditEntry(database: Database, id: string, before: unknown, after: unknown): Promise<void> {
  await database.query(`select ${database.schema}.finish_audit_entry($1, $2::text::jsonb, $3::text::jsonb)`, [
    id,
    JSON.stringify(before),
    JSON.stringify(after),
  ]);
}

/** Newest first. */
export async function listAuditEntries(
  database: Queries,
  target: string | null,
  before: string | null,
  limit: number,
): Promise<AuditEntry[]> {
  const values: unknown[] = [limit];
  const conditions: string[] = [];
  if (target !== null) conditions.push(`target = $${values.push(target)}`);
  if (before !== null) conditions.push(`id < $${values.push(before)}`);
  const where = conditions.length > 0 ? `where ${conditions.join(" and ")}` : "";
  return database.read<AuditEntry>(
    `select id, at, actor, token, tenant, act, target, before, after, address from ${database.schema}.audit ${where}
      order by id desc limit $1`,
    values,
  );
}
