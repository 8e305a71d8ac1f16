// Runs statements in the caller's transaction. Each library is recognized by its shape, so none is a dependency. A database, a pool or
// a connection outside of a transaction is refused: what is stored there would not commit and roll back with the caller's rows.
import { fromDatabase, InvalidInput, SchemaMismatch } from "../errors.ts";

/** Sends one statement with text parameters and returns its rows. */
export type Send = (text: string, values: (string | null)[]) => Promise<Record<string, unknown>[]>;

/** node-postgres: a client in a transaction. */
interface PgClient {
  query(text: string, values?: unknown[]): PromiseLike<{ rows: Record<string, unknown>[] }>;
}
/** postgres.js: the `sql` of `sql.begin`. */
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
  refuseOutside(tx);
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

/** What tells a transaction from its database, per library. Typed loosely: these properties are not in the types of a transaction. */
interface Shape {
  $queryRawUnsafe?: unknown;
  $transaction?: unknown;
  unsafe?: unknown;
  begin?: unknown;
  executeQuery?: unknown;
  execute?: unknown;
  transaction?: unknown;
  isTransaction?: unknown;
  rollback?: unknown;
  $client?: unknown;
  raw?: unknown;
  query?: unknown;
  connect?: unknown;
  totalCount?: unknown;
  idleCount?: unknown;
  /** Of a pg client, since 8.17: the status that the server reported last, "I" outside of a transaction. */
  _txStatus?: unknown;
  _activeQuery?: unknown;
  _queryQueue?: readonly unknown[];
}

/** Prisma's client of a transaction has the transaction's id here. */
const PRISMA_TRANSACTION = Symbol.for("prisma.client.transaction.id");

function refuseOutside(tx: object): void {
  const shape = tx as Shape;
  if ("$queryRawUnsafe" in tx) {
    if (typeof shape.$transaction === "function" && !(PRISMA_TRANSACTION in tx && tx[PRISMA_TRANSACTION]))
      throw outside("the Prisma client", "the tx of prisma.$transaction(async (tx) => …)");
  } else if ("unsafe" in tx) {
    if (typeof shape.begin === "function")
      throw outside("the sql of postgres.js", "the sql of sql.begin(async (sql) => …)");
  } else if ("executeQuery" in tx) {
    if (shape.isTransaction === false)
      throw outside("a Kysely database", "the trx of db.transaction().execute(async (trx) => …)");
  } else if ("execute" in tx && "transaction" in tx) {
    if (typeof shape.rollback === "function") return;
    // A database on a connection on which the caller has sent "begin".
    const { $client: client } = shape;
    const isConnection = typeof client === "object" && client !== null && "query" in client && !isPool(client);
    if (!isConnection) throw outside("a Drizzle database", "the tx of db.transaction(async (tx) => …)");
    refuseOutside(client);
  } else if ("raw" in tx) {
    if (shape.isTransaction !== true) throw outside("a Knex database", "the trx of knex.transaction(async (trx) => …)");
  } else if (isPool(tx)) {
    throw outside("a pg.Pool", 'a client of pool.connect() on which you have sent "begin"');
  } else if (isIdle(shape)) {
    throw outside("a pg client outside of a transaction", 'the client after client.query("begin")');
  }
}

function isPool(shape: Shape): boolean {
  return typeof shape.connect === "function" && "totalCount" in shape && "idleCount" in shape;
}

/** Without statements in flight: one of them may be "begin". */
function isIdle({ _txStatus, _activeQuery, _queryQueue }: Shape): boolean {
  return _txStatus === "I" && !_activeQuery && (_queryQueue?.length ?? 0) === 0;
}

function outside(found: string, wanted: string): InvalidInput {
  return new InvalidInput(`tx is ${found}: the call would not be part of a transaction`, {
    field: "tx",
    remedy: `Pass ${wanted}, or leave out tx`,
  });
}

/** Like fromDatabase(), for a statement in the caller's transaction, which may be one of another database. */
export function fromTransaction(error: unknown): unknown {
  const known = fromDatabase(error);
  if (!(known instanceof SchemaMismatch) || known.code !== "SCHEMA_MISSING") return known;
  return new SchemaMismatch("SCHEMA_MISSING", "The database of tx does not have the Stillwake schema of this version", {
    cause: error,
    field: "tx",
    remedy:
      "Pass a transaction of the database that Stillwake uses; if it is one, run `stillwake migrate` or check the schema setting",
  });
}

/** The transaction belongs to another database than the client, which has a Stillwake schema too. */
export class OtherDatabase extends InvalidInput {
  constructor() {
    super("tx is a transaction of another database than the one that this client uses", {
      field: "tx",
      remedy: "Pass a transaction of the same database, or create a client for the other one",
    });
    this.name = "InvalidInput";
  }
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
