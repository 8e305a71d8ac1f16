// The application's connections of this process. A runner does one job after the other, and they share them.
import pg from "pg";

const pools = new Map<string, pg.Pool>();

/** `setting`: the variable that the URL is from. */
export function applicationPool(url: string, setting: string): pg.Pool {
  if (url === "") {
    throw new Error(`${setting} is not set: the pipeline writes what it finds to the application's tables`);
  }
  const known = pools.get(url);
  if (known) return known;
  const pool = new pg.Pool({
    connectionString: url,
    max: 2,
    idleTimeoutMillis: 5000,
    connectionTimeoutMillis: 10_000,
    // A network that goes silent in the middle of a statement would be waited for for ever.
    query_timeout: 60_000,
    // Nor may a process that was frozen in the middle of a transaction keep its rows from its successor.
    idle_in_transaction_session_timeout: 60_000,
    keepAlive: true,
  });
  // A connection that breaks while nobody uses it is replaced by the next one who needs one.
  pool.on("error", () => {});
  pools.set(url, pool);
  return pool;
}
