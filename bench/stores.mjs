// A fresh database (or an emptied Redis) with the tables of one peer, and its counters during a measurement.
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { ownCpu, watchOthers } from "./machine.mjs";
import { inChild } from "./peer-process.mjs";
import { loadPeer, peers } from "./peers/index.mjs";

export async function freshStore({ peer, workload, servers }) {
  const postgres = peers[peer].store === "postgres" ? servers.postgres : undefined;
  const database = postgres ? await postgres.database(peer) : { url: servers.redis.url, drop: async () => {} };
  await inChild({ peer, workload }, (child) => child.call("install", { url: database.url }));
  // So that no measurement writes pages of the previous one.
  await servers.postgres.sql("checkpoint");
  const judge = async () => (await loadPeer(peer, workload)).judge(database.url);
  return {
    url: database.url,
    name: database.name,
    postgres,
    server: postgres ?? servers.redis,
    judge,
    drop: database.drop,
    /** Adds jobs with the ids 0, 1, 2, … with the peer's bulk call. */
    fill: (jobs) =>
      inChild({ peer, workload }, async (child) => {
        await child.call("open", { url: database.url });
        await child.call("bulk", { jobs });
      }),
    /** After filling: a checkpoint, and fresh statistics for the planner. */
    async settle() {
      if (!postgres) return;
      const client = new pg.Client({ connectionString: database.url });
      await client.connect();
      await client.query("analyze");
      await client.end();
      await postgres.sql("checkpoint");
    },
    /** Waits until no job waits or runs. */
    async idle() {
      const open = await judge();
      while (await open.busy()) await delay(5);
      await open.close();
    },
    async check(expected) {
      const open = await judge();
      const found = await open.counts().finally(() => open.close());
      // Not every peer keeps ended jobs.
      if (Object.entries(expected).every(([name, count]) => (found[name] ?? count) === count)) return;
      throw new Error(`${peer}: the store has ${JSON.stringify(found)}, expected ${JSON.stringify(expected)}`);
    },
  };
}

/** Counters per job between now and stop(). */
export async function startMeter({ postgres, server }) {
  const wal = await postgres?.walBytes();
  const others = watchOthers();
  const own = ownCpu();
  const store = server.cpu();
  return {
    async stop(nodeCpu, jobs) {
      const storeCpu = server.cpu() - store;
      const foreign = others(nodeCpu + storeCpu + ownCpu() - own);
      const walBytes = postgres ? ((await postgres.walBytes()) - wal) / jobs : undefined;
      return { nodeUs: (nodeCpu * 1e6) / jobs, storeUs: (storeCpu * 1e6) / jobs, walBytes, foreign };
    },
  };
}

/** Commits per job. A connection reports them when it closes at the latest: read them after the peer has closed. */
export async function countCommits({ postgres, name }) {
  const before = await postgres?.counters(name);
  return async (jobs) => {
    if (!postgres) return {};
    await delay(300);
    const after = await postgres.counters(name);
    return { commits: (after.commits - before.commits) / jobs, pages: (after.pages - before.pages) / jobs };
  };
}
