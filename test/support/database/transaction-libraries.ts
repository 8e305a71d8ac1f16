// Popular database libraries behind one interface for tests: open, run a transaction, insert a row.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { sql } from "drizzle-orm";
import { drizzle as drizzleNodePostgres } from "drizzle-orm/node-postgres";
import { drizzle as drizzlePostgresJs } from "drizzle-orm/postgres-js";
import knex from "knex";
import { Kysely, PostgresDialect } from "kysely";
import pg from "pg";
import postgres from "postgres";
import type { Transaction } from "../../../src/db/transaction.ts";

export interface Opened {
  /** Runs `work` in one transaction. An error rolls it back and is rethrown. */
  transaction<T>(work: (tx: Transaction, insert: (id: number) => Promise<unknown>) => Promise<T>): Promise<T>;
  /** The database or pool itself, which is not in a transaction. */
  outside: Transaction;
  close(): Promise<unknown>;
}

export interface Library {
  name: string;
  open(url: string): Promise<Opened>;
}

const INSERT = "insert into own_rows (id) values ($1)";

export const libraries: Library[] = [
  {
    name: "pg, a client",
    async open(url) {
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      return {
        transaction: (work) => byHand(client, () => work(client, (id) => client.query(INSERT, [id]))),
        outside: client,
        close: () => client.end(),
      };
    },
  },
  {
    name: "pg, a client of a pool",
    async open(url) {
      const pool = new pg.Pool({ connectionString: url });
      return {
        async transaction(work) {
          const client = await pool.connect();
          try {
            return await byHand(client, () => work(client, (id) => client.query(INSERT, [id])));
          } finally {
            client.release();
          }
        },
        outside: pool,
        close: () => pool.end(),
      };
    },
  },
  {
    name: "postgres.js",
    async open(url) {
      const db = postgres(url, { onnotice: () => {} });
      return {
        transaction: <T>(work: (tx: Transaction, insert: (id: number) => Promise<unknown>) => Promise<T>) =>
          db.begin((tx) => work(tx, async (id) => tx`insert into own_rows (id) values (${id})`)) as Promise<T>,
        outside: db,
        close: () => db.end(),
      };
    },
  },
  {
    name: "Drizzle on pg",
    async open(url) {
      const pool = new pg.Pool({ connectionString: url });
      const db = drizzleNodePostgres(pool);
      return {
        transaction: (work) =>
          db.transaction((tx) => work(tx, (id) => tx.execute(sql`insert into own_rows (id) values (${id})`))),
        outside: db,
        close: () => pool.end(),
      };
    },
  },
  {
    name: "Drizzle on postgres.js",
    async open(url) {
      const client = postgres(url, { onnotice: () => {} });
      const db = drizzlePostgresJs(client);
      return {
        transaction: (work) =>
          db.transaction((tx) => work(tx, async (id) => tx.execute(sql`insert into own_rows (id) values (${id})`))),
        outside: db,
        close: () => client.end(),
      };
    },
  },
  {
    name: "Kysely",
    async open(url) {
      const db = new Kysely<{ own_rows: { id: number } }>({
        dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: url }) }),
      });
      return {
        transaction: (work) =>
          db.transaction().execute((tx) => work(tx, (id) => tx.insertInto("own_rows").values({ id }).execute())),
        outside: db,
        close: () => db.destroy(),
      };
    },
  },
  {
    name: "Knex",
    async open(url) {
      const db = knex({ client: "pg", connection: url });
      return {
        transaction: (work) => db.transaction((tx) => work(tx, async (id) => tx("own_rows").insert({ id }))),
        outside: db,
        close: () => db.destroy(),
      };
    },
  },
  { name: "Prisma", open: openPrisma },
];

async function byHand<T>(client: pg.ClientBase, work: () => Promise<T>): Promise<T> {
  await client.query("begin");
  try {
    const result = await work();
    await client.query("commit");
    return result;
  } catch (error) {
    await client.query("rollback");
    throw error;
  }
}

/** The used part of a generated Prisma client, which exists only after it was generated. */
interface PrismaClient {
  $queryRawUnsafe<T = unknown>(query: string, ...values: unknown[]): PromiseLike<T>;
  $transaction<T>(work: (tx: PrismaTransaction) => Promise<T>): Promise<T>;
  $disconnect(): Promise<void>;
}
interface PrismaTransaction {
  $queryRawUnsafe<T = unknown>(query: string, ...values: unknown[]): PromiseLike<T>;
  own_rows: { create(row: { data: { id: number } }): PromiseLike<unknown> };
}

async function openPrisma(url: string): Promise<Opened> {
  const { PrismaPg } = await import("@prisma/adapter-pg");
  const generated = generatePrismaClient();
  const { PrismaClient } = (await import(pathToFileURL(path.join(generated, "client.ts")).href)) as {
    PrismaClient: new (options: { adapter: unknown }) => PrismaClient;
  };
  const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
  return {
    transaction: (work) => prisma.$transaction((tx) => work(tx, async (id) => tx.own_rows.create({ data: { id } }))),
    outside: prisma,
    async close() {
      await prisma.$disconnect();
      fs.rmSync(path.dirname(generated), { recursive: true });
    },
  };
}

/**
 * Generates Prisma's client without its Rust engine, from npm packages only. The command requires a schema engine, which it
 * would download but does not use, so any program can replace it.
 */
function generatePrismaClient(): string {
  const root = path.resolve(import.meta.dirname, "../../..");
  fs.mkdirSync(path.join(root, ".stillwake"), { recursive: true });
  // Inside the project, so that the generated code finds @prisma/client.
  const dir = fs.mkdtempSync(path.join(root, ".stillwake/prisma-"));
  const schema = path.join(dir, "schema.prisma");
  fs.writeFileSync(
    schema,
    `generator client {
  provider   = "prisma-client"
  output     = "./client"
  engineType = "client"
}
datasource db {
  provider = "postgresql"
  url      = "postgres://given-by-the-adapter"
}
model own_rows {
  id Int @id
}
`,
  );
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [path.join(root, "node_modules/prisma/build/index.js"), "generate", "--schema", schema],
    {
      encoding: "utf8",
      cwd: dir,
      env: { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: "1", NO_COLOR: "1" },
    },
  );
  if (status !== 0) throw new Error(`prisma generate failed:\n${stdout}${stderr}`);
  return path.join(dir, "client");
}
