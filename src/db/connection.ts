// The end of a connection of our own: that it broke, and how to leave one that is no longer wanted. A network that drops packets swallows the goodbye
// too, so it is waited for only briefly.
import type pg from "pg";

const GOODBYE_MS = 1000;

/** Rejects when the connection breaks or ends; to be raced with whatever waits on it. */
export function breakOf(client: pg.Client): Promise<never> {
  const broken = new Promise<never>((_, reject) => {
    client.on("error", reject);
    client.on("end", () => reject(new Error("The connection ended")));
  });
  broken.catch(() => {});
  return broken;
}

export async function hangUp(client: pg.Client): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const unanswered = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, GOODBYE_MS);
  });
  await Promise.race([client.end().catch(() => {}), unanswered]);
  clearTimeout(timer);
  destroy(client);
}

/** Without a word: what does not answer would not answer to a goodbye either. */
export function destroy(client: pg.Client): void {
  (client as unknown as { connection?: { stream?: { destroy(): void } } }).connection?.stream?.destroy();
}

/**
 * A connection of a pool, listened to from the moment it is taken. A server that accepts and ends it in one breath says both in one packet: whoever
 * waited for the connection is called after the second, and an error without a listener ends the process.
 */
export function taken(pool: pg.Pool, onError: (error: Error) => void): Promise<pg.PoolClient> {
  return new Promise((resolve, reject) => {
    pool.connect((error, client) => {
      if (!client) return reject(error);
      client.on("error", onError);
      resolve(client);
    });
  });
}
