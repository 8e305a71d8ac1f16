// Read access limited to one tenant by row-level security, in addition to the conditions of each query. Each statement
// runs in its own read-only transaction under the tenant role, so a query without a tenant condition still returns only
// that tenant's rows. Role and tenant are set per transaction, which works behind a pooler in transaction mode. The
// server creates one Reader per tenant request on top of this.
import type pg from "pg";
import { isConnectionLoss, StillwakeError } from "../errors.ts";
import { checkLabel } from "../payload.ts";
import { checkoutClient } from "./connection.ts";
import { type Database, type Execute, ignoreError, type Queries } from "./database.ts";

/** The database as one tenant may see it. Holds no resources: create one per request and close the underlying database. */
export function tenantDatabase(database: Database, tenant: string): Queries {
  return readOnly(database, { tenant: checkLabel(tenant, "tenant") });
}

/**
 * For searches, which read the contents of many rows: Postgres itself stops a statement after `timeoutMs`. A statement
 * that only the client gives up would go on. `tenant`: null for all rows.
 */
export function searchDatabase(database: Database, tenant: string | null, timeoutMs: number): Queries {
  return readOnly(database, { tenant: tenant === null ? null : checkLabel(tenant, "tenant"), timeoutMs });
}

interface ReadLimits {
  tenant: string | null;
  timeoutMs?: number;
}

function readOnly(database: Database, limits: ReadLimits): Queries {
  const { schema } = database;
  const execute = executeReadOnly(schema, limits);
  return {
    schema,
    read: <Row extends pg.QueryResultRow>(text: string, values: unknown[] = [], retryTimeoutMs?: number) =>
      database.repeat<Row>(text, {
        values: () => values,
        read: true,
        execute,
        ...(retryTimeoutMs !== undefined && { retryTimeoutMs }),
      }),
  };
}

function executeReadOnly(schema: string, { tenant, timeoutMs }: ReadLimits): Execute {
  return async (pool, text, values) => {
    const client = await checkoutClient(pool, ignoreError);
    let broken: Error | undefined;
    try {
      await client.query("begin read only");
      if (timeoutMs !== undefined)
        await client.query("select set_config('statement_timeout', $1, true)", [`${timeoutMs}ms`]);
      if (tenant !== null) await setTenantRole(client, schema, tenant);
      const result = await client.query(text, values);
      await client.query("commit");
      return result;
    } catch (error) {
      broken = await rollBack(client, error);
      throw explain(error, timeoutMs);
    } finally {
      // A connection that could not be reset is destroyed: it would carry the tenant role to the next caller.
      client.off("error", ignoreError);
      client.release(broken);
    }
  };
}

/** Elsewhere a read-only error means a standby, and is retried. Here the transaction itself is read-only. */
function explain(error: unknown, timeoutMs: number | undefined): unknown {
  const { code } = error as { code?: string };
  if (code === "57014" && timeoutMs !== undefined) {
    return new StillwakeError("SEARCH_TOO_SLOW", `The search took longer than ${timeoutMs / 1000} s`, {
      cause: error,
      field: "text",
      remedy: "Narrow it: add pipeline, state, key, since or until",
    });
  }
  if (code !== "25006") return error;
  return new StillwakeError("NOT_ALLOWED", "A database limited to one tenant is read-only", {
    cause: error,
    remedy: "Write through the full database, after checking the tenant",
  });
}

async function setTenantRole(client: pg.PoolClient, schema: string, tenant: string): Promise<void> {
  try {
    await client.query("select set_config($1, $2, true), set_config('role', $3, true)", [
      `${schema}.tenant`,
      tenant,
      `${schema}_tenant`,
    ]);
  } catch (error) {
    const { code } = error as { code?: string };
    // Not a member of the role, or there is no such role.
    if (code !== "42501" && code !== "22023") throw error;
    throw new StillwakeError("TENANT_ROLE_MISSING", `This user cannot read as ${schema}_tenant`, {
      cause: error,
      remedy: `Run \`stillwake migrate\` as a user that may create roles, and connect as the owner or a member of ${schema}_app; \`stillwake doctor\` reports which one is missing`,
    });
  }
}

/** Returns the error if the connection must be destroyed. */
async function rollBack(client: pg.PoolClient, error: unknown): Promise<Error | undefined> {
  if (isConnectionLoss(error) && (error as { code?: string }).code !== "25006") return error as Error;
  try {
    await client.query("rollback");
  } catch (again) {
    return again as Error;
  }
}
