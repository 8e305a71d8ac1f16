// The application's database connections in this process, shared by all jobs that a runner executes.
import pg from "pg";

const pools = new Map<string, pg.Pool>();

/** `setting`: the environment variable that the URL comes from. */
export function applicationPool(url: string, setting: string): pg.Pool {
  if (url === "") {
    throw new Error(`${setting} is not set. The pipeline needs it to write its results to the application's tables`);
  }
  const existing = pools.get(url);
  if (existing) return existing;
  const pool = new pg.Pool({
    connectionString: url,
    max: 2,
    idleTimeoutMillis: 5000,
    connectionTimeoutMillis: 10_000,
    // A network that goes silent during a statement must not block the job forever.
    query_timeout: 60_000,
    // A process that was frozen inside a transaction must not keep its rows locked.
    idle_in_transaction_session_timeout: 60_000,
    keepAlive: true,
  });
  // The pool replaces a connection that breaks while idle.
  pool.on("error", () => {});
  pools.set(url, pool);
  return pool;
}

export async function inTransaction<T>(pool: pg.Pool, work: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    await client.query("begin");
    const result = await work(client);
    await client.query("commit");
    return result;
  } catch (error) {
    await client.query("rollback").catch((failed: Error) => {
      broken = failed;
    });
    throw error;
  } finally {
    // A client whose rollback failed is destroyed instead of returned to the pool.
    client.release(broken);
  }
}
