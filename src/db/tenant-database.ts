// The second wall: reads for one tenant. Each statement runs in a transaction of its own that only reads, under a role that row-level security
// holds for, so that a query which forgot its condition shows nothing of anybody else. What is set ends with the transaction, which is why a
// pooler in transaction mode may stand in between. The server makes a Reading over one of these for each request of a tenant.
import type pg from "pg";
import { isConnectionLoss, StillwakeError } from "../errors.ts";
import { checkLabel } from "../payload.ts";
import { taken } from "./connection.ts";
import { type Database, ignore, type Queries, type Through } from "./database.ts";

/** The same database as a tenant may see it. It holds nothing: make one per request, and close the database it was made from. */
export function scopedTo(database: Database, tenant: string): Queries {
  const { schema } = database;
  const through = within(schema, checkLabel(tenant, "tenant"));
  return {
    schema,
    query: <Row extends pg.QueryResultRow>(text: string, values: unknown[] = [], patienceMs?: number) =>
      database.repeat<Row>(text, {
        values: () => values,
        through,
        ...(patienceMs !== undefined && { patienceMs }),
      }),
  };
}

function within(schema: string, tenant: string): Through {
  return async (pool, text, values) => {
    const client = await taken(pool, ignore);
    let broken: Error | undefined;
    try {
      await client.query("begin read only");
      await takeRole(client, schema, tenant);
      const answer = await client.query(text, values);
      await client.query("commit");
      return answer;
    } catch (error) {
      broken = await undo(client, error);
      throw explain(error);
    } finally {
      // One that could not be put back would carry the role of this tenant to the next caller.
      client.off("error", ignore);
      client.release(broken);
    }
  };
}

/** Elsewhere a server that takes no write is taken for a standby, and waited for. Here it is the transaction, and no waiting would help. */
function explain(error: unknown): unknown {
  if ((error as { code?: string }).code !== "25006") return error;
  return new StillwakeError("NOT_ALLOWED", "What is read for a tenant cannot write", {
    cause: error,
    remedy: "Call the verb through the database itself, after the tenant was checked",
  });
}

async function takeRole(client: pg.PoolClient, schema: string, tenant: string): Promise<void> {
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
    throw new StillwakeError("TENANT_WALL_MISSING", `This user cannot read as ${schema}_tenant`, {
      cause: error,
      remedy: `Run \`stillwake migrate\` as a user that may create roles, and connect as the owner or a member of ${schema}_app; \`stillwake doctor\` says which of the two is missing`,
    });
  }
}

/** Answers the error with which the connection has to be thrown away, if it has. */
async function undo(client: pg.PoolClient, error: unknown): Promise<Error | undefined> {
  if (isConnectionLoss(error) && (error as { code?: string }).code !== "25006") return error as Error;
  try {
    await client.query("rollback");
  } catch (again) {
    return again as Error;
  }
}
