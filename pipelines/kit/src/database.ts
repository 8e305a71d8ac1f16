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
  let broken: Error | undefined;
  const onError = (error: Error) => {
    broken = error;
  };
  const client = await connect(pool, onError);
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
    client.off("error", onError);
    // A client that is broken, or whose rollback failed, is destroyed instead of returned to the pool.
    client.release(broken);
  }
}

/**
 * Listens for errors in the pool's callback: a connection can break before an awaiting caller resumes, and an unhandled
 * error event would kill the process.
 */
function connect(pool: pg.Pool, onError: (error: Error) => void): Promise<pg.PoolClient> {
  return new Promise((resolve, reject) => {
    pool.connect((error, client) => {
      if (!client) return reject(error);
      client.on("error", onError);
      resolve(client);
    });
  });
}

/** Connection errors and SQLSTATE 08 (connection), 40 (conflict), 53 (resources), 57 (shutdown, cancel), 58 (I/O). */
export function isDatabaseError(error: unknown): boolean {
  const { code, message, errors } = error as { code?: unknown; message?: unknown; errors?: unknown[] };
  if (errors?.some(isDatabaseError)) return true;
  if (typeof code === "string") {
    return /^(?:08|40|53|57|58)\w{3}$|^(?:ECONN\w+|E(?:PIPE|TIMEDOUT|NOTFOUND|AI_AGAIN|HOSTUNREACH|HOSTDOWN|NETUNREACH|NETDOWN))$/.test(
      code,
    );
  }
  return /Connection terminated|timeout exceeded when trying to connect|Query read timeout|connection error|not queryable/.test(
    String(message),
  );
}
