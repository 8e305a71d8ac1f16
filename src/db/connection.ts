// Opening and closing single connections: loss detection, close with a timeout, checkout from a pool.
import type pg from "pg";
import { withTimeout } from "../timeout.ts";

const CLOSE_TIMEOUT_MS = 1000;

/** A promise that rejects when the connection is lost or closed; race it against waits on the connection. */
export function connectionLost(client: pg.Client): Promise<never> {
  const lost = new Promise<never>((_, reject) => {
    client.on("error", reject);
    client.on("end", () => reject(new Error("The connection ended")));
  });
  lost.catch(() => {});
  return lost;
}

/** Closes gracefully, but for at most a second: a network that drops packets also drops the close message. */
export async function closeConnection(client: pg.Client): Promise<void> {
  await withTimeout(
    client.end().catch(() => {}),
    CLOSE_TIMEOUT_MS,
    undefined,
  );
  destroyConnection(client);
}

/** Destroys the socket; a peer that does not respond cannot complete a graceful close. */
export function destroyConnection(client: pg.Client): void {
  (client as unknown as { connection?: { stream?: { destroy(): void } } }).connection?.stream?.destroy();
}

/**
 * Takes a client from the pool with the error listener attached synchronously. A server that accepts and terminates a
 * connection at once may send both in one packet; a listener attached after an await would be too late, and an error
 * event without a listener terminates the process.
 */
export function checkoutClient(pool: pg.Pool, onError: (error: Error) => void): Promise<pg.PoolClient> {
  return new Promise((resolve, reject) => {
    pool.connect((error, client) => {
      if (!client) return reject(error);
      client.on("error", onError);
      resolve(client);
    });
  });
}
