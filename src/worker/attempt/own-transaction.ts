// A transaction of the user's own, in whatever library: job.tx() commits its rows together with the checkpoint.
import type pg from "pg";
import { taken } from "../../db/connection.ts";

/** Opens a transaction of the user's library and runs the function in it, such as `(run) => db.transaction(run)`; or a pg.Pool. */
export type Begin<Tx> = ((run: (tx: Tx) => Promise<unknown>) => PromiseLike<unknown>) | pg.Pool;

export async function opened<Tx>(begin: Begin<Tx>, run: (tx: unknown) => Promise<unknown>): Promise<void> {
  if (typeof begin === "function") {
    await begin(run);
    return;
  }
  let broken: Error | undefined;
  const onError = (error: Error) => {
    broken = error;
  };
  const client = await taken(begin, onError);
  try {
    await client.query("begin");
    await run(client);
    await client.query("commit");
  } catch (error) {
    await client.query("rollback").catch((failed: Error) => (broken = failed));
    throw error;
  } finally {
    client.off("error", onError);
    client.release(broken);
  }
}
