// Work on the application's tables that is done whole or not at all.
import type pg from "pg";

export async function inTransaction<T>(pool: pg.Pool, work: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    await client.query("begin");
    const result = await work(client);
    await client.query("commit");
    return result;
  } catch (error) {
    await client.query("rollback").catch((lost: Error) => {
      broken = lost;
    });
    throw error;
  } finally {
    // One that could not roll back is of no use to the next.
    client.release(broken);
  }
}
