// One file per peer, all with the same functions; those of the workload "steps" are in steps/.
//   install(url)                 creates the peer's tables in an empty database
//   producer(url)                one(data), many(list), close()
//   worker(url, handle, hooks)   starts to work; handle(data) is the job and returns nothing. stop()
//                                steps/: hooks.begin() before the first step, await hooks.between?.() after each, handle(data) last
//   judge(url)                   reads the store: busy() while a job waits or runs, counts() of open and ended jobs, close();
//                                steps/: kept() counts results of steps
import path from "node:path";
import { pathToFileURL } from "node:url";
import pg from "pg";

/** Steps per job of the workload "steps", and concurrent jobs. Step i is named si and returns i. */
export const STEPS = 5;
export const STEP_SLOTS = 100;
export const ISOLATION_SLOTS = 4;

export const peers = {
  stillwake: { title: "Stillwake", store: "postgres", package: undefined },
  "stillwake-verbs": { title: "Stillwake, verbs", store: "postgres", package: undefined },
  "stillwake-none": { title: "isolation none", store: "postgres", package: undefined },
  "stillwake-process": { title: "isolation process", store: "postgres", package: undefined },
  // `of`: the peer it is compared with.
  "flow-plain": { title: "plain", store: "postgres", package: undefined },
  "flow-keys": { title: "a key each", store: "postgres", package: undefined, of: "flow-plain" },
  "flow-tenants": { title: "100 tenants", store: "postgres", package: undefined, of: "flow-plain" },
  "flow-cap": { title: "a cap of 1,000", store: "postgres", package: undefined, of: "flow-plain" },
  "flow-limit": { title: "needs a limit", store: "postgres", package: undefined, of: "flow-plain" },
  "flow-take": { title: "and takes from it", store: "postgres", package: undefined, of: "flow-plain" },
  "flow-plain-few": { title: "plain, 100 slots", store: "postgres", package: undefined },
  "flow-keys-wait": { title: "100 keys that wait", store: "postgres", package: undefined, of: "flow-plain-few" },
  graphile: { title: "graphile", store: "postgres", package: "graphile-worker" },
  "pg-boss": { title: "pg-boss", store: "postgres", package: "pg-boss" },
  bullmq: { title: "BullMQ", store: "redis", package: "bullmq" },
  "bullmq-synced": { title: "BullMQ, synced", store: "redis", package: "bullmq" },
  dbos: { title: "DBOS", store: "postgres", package: "@dbos-inc/dbos-sdk" },
  bare: { title: "bare SQL", store: "postgres", package: undefined },
  // Stillwake of another checkout: see --before.
  before: { title: "before", store: "postgres", package: undefined },
};

export async function loadPeer(name, workload) {
  if (name.startsWith("flow-")) return (await import("./flow.mjs")).flowPeer(name);
  if (name === "before")
    return import(pathToFileURL(path.resolve(process.env.BENCH_BEFORE, "bench/peers/stillwake.mjs")).href);
  return import(new URL(workload === "steps" ? `steps/${name}.mjs` : `${name}.mjs`, import.meta.url));
}

/** A judge by SQL. `open`: jobs that wait or run; `ended`: ended jobs if the peer keeps them; `kept`: results of steps. */
export function sqlJudge(url, open, ended, kept) {
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  pool.on("error", () => {});
  const ask = async (text) => Object.values((await pool.query(text)).rows[0])[0];
  const count = async (rows) => (rows ? Number(await ask(`select count(*) ${rows}`)) : undefined);
  return {
    ask,
    busy: () => ask(`select exists (select ${open})`),
    kept: () => count(kept),
    counts: async () => ({ open: await count(open), ended: await count(ended), kept: await count(kept) }),
    close: () => pool.end(),
  };
}
