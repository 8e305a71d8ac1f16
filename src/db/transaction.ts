// Runs statements in the caller's transaction. Each library is recognized by its shape, so none is a dependency.
import { InvalidInput } from "../errors.ts";

/** Sends one statement with text parameters and returns its rows. */
export type Send = (text: string, values: (string | null)[]) => Promise<Record<string, unknown>[]>;

/** node-postgres: a client or a pool. */
interface PgClient {
  query(text: string, values?: unknown[]): PromiseLike<{ rows: Record<string, unknown>[] }>;
}
/** postgres.js: `sql` or the `sql` of `sql.begin`. */
interface PostgresJs {
  unsafe(text: string, values?: never[]): PromiseLike<Record<string, unknown>[]>;
}
/** Drizzle: the `tx` of `db.transaction`. */
interface Drizzle {
  execute(query: never): PromiseLike<unknown>;
}
/** Kysely: the `trx` of `db.transaction().execute`. */
interface Kysely {
  executeQuery(query: never): PromiseLike<{ rows: unknown[] }>;
}
/** Prisma: the `tx` of `prisma.$transaction`. */
interface Prisma {
  $queryRawUnsafe(text: string, ...values: unknown[]): PromiseLike<unknown>;
}
/** Knex: the `trx` of `knex.transaction`. */
interface Knex {
  raw(text: string, bindings: never): PromiseLike<{ rows: Record<string, unknown>[] }>;
}

export type Transaction = PgClient | PostgresJs | Drizzle | Kysely | Prisma | Knex;

export function sendThroughTransaction(tx: Transaction): Send {
  if (tx === null || (typeof tx !== "object" && typeof tx !== "function")) throw notATransaction(tx);
  if ("$queryRawUnsafe" in tx) {
    return async (text, values) => (await tx.$queryRawUnsafe(text, ...values)) as Record<string, unknown>[];
  }
  if ("unsafe" in tx) return async (text, values) => [...(await tx.unsafe(text, values as never[]))];
  if ("executeQuery" in tx) {
    return async (text, values) => {
      const query = { kind: "RawNode", sqlFragments: [text], parameters: [] };
      const compiled = { sql: text, parameters: values, query, queryId: { queryId: "stillwake" } };
      return (await tx.executeQuery(compiled as never)).rows as Record<string, unknown>[];
    };
  }
  if ("execute" in tx && "transaction" in tx) {
    return async (text, values) => {
      const query = { getSQL: () => query, toQuery: () => ({ sql: text, params: values, typings: [] }) };
      const result = (await tx.execute(query as never)) as
        | Record<string, unknown>[]
        | { rows: Record<string, unknown>[] };
      return Array.isArray(result) ? result : result.rows;
    };
  }
  if ("raw" in tx) {
    return async (text, values) => {
      const bindings: (string | null)[] = [];
      const positional = text.replaceAll(/\$(\d+)/g, (_, number) => {
        bindings.push(values[Number(number) - 1] ?? null);
        return "?";
      });
      try {
        return (await tx.raw(positional, bindings as never)).rows;
      } catch (error) {
        throw withoutStatement(error, positional);
      }
    };
  }
  if ("query" in tx) return async (text, values) => (await tx.query(text, values)).rows;
  throw notATransaction(tx);
}

/** Knex prepends the statement, with renumbered parameters, to the database's message. */
function withoutStatement(error: unknown, positional: string): unknown {
  let number = 0;
  const statement = `${positional.replaceAll("?", () => `$${++number}`)} - `;
  if (error instanceof Error && error.message.startsWith(statement)) {
    error.message = error.message.slice(statement.length);
  }
  return error;
}

function notATransaction(tx: unknown): InvalidInput {
  return new InvalidInput(`tx is ${tx === null ? "null" : typeof tx}, not a supported transaction`, {
    field: "tx",
    remedy: "Pass the transaction object of pg, postgres.js, Drizzle, Kysely, Prisma or Knex",
  });
}
