// A transaction of the user's own, in whatever library: job.tx() commits its rows together with the checkpoint.
import type pg from "pg";

/** Opens a transaction of the user's library and runs the function in it, such as `(run) => db.transaction(run)`; or a pg.Pool. */
export type Begin<Tx> = ((run: (tx: Tx) => Promise<unknown>) => PromiseLike<unknown>) | pg.Pool;

export async function opened<Tx>(begin: Begin<Tx>, run: (tx: unknown) => Promise<unknown>): Promise<void> {
  if (typeof begin === "function") {
    await begin(run);
    return;
  }
  const client = await begin.connect();
  let broken: Error | undefined;
  // A connection that breaks while no statement is in flight has nobody to tell but its listeners; without one the process would end.
  const onError = (error: Error) => {
    broken = error;
  };
  client.on("error", onError);
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
