// Stillwake without a worker, as an upper bound for it: the public client, and two lanes that call the SQL function of a busy
// worker, which settles the last batch and claims the next one in one commit.

import { settleAndClaim } from "../../dist/db/calls/worker.js";
import { createStillwake, migrate, pipeline } from "../../dist/index.js";
import { sqlJudge } from "./index.mjs";

export const bench = pipeline("bench");
const LANES = 2;
const BATCH = 500;

export async function install(url) {
  await migrate({ url });
  const stillwake = createStillwake({ url });
  await stillwake.register(bench);
  await stillwake.close();
}

export async function producer(url) {
  const stillwake = createStillwake({ url });
  await stillwake.register(bench);
  return {
    one: (data) => stillwake.enqueue(bench, data),
    many: (list) => stillwake.enqueueMany(bench, list),
    close: () => stillwake.close(),
  };
}

export async function worker(url, handle) {
  const { database } = createStillwake({ url, connections: LANES });
  const request = { worker: "bench", pool: "default", pipelines: ["bench"], limit: BATCH, lease: "15 seconds" };
  async function lane() {
    let settlements = [];
    do {
      const { refused, claimed } = await settleAndClaim(database, settlements, request);
      if (refused.length > 0) throw new Error(`${refused.length} settlements were refused`);
      settlements = new Array(claimed.length);
      for (let index = 0; index < claimed.length; index++) {
        const { job_id, epoch, lease_id, input } = claimed[index];
        handle(input);
        settlements[index] = { job: job_id, epoch, lease: lease_id, outcome: "completed" };
      }
    } while (settlements.length > 0);
  }
  const lanes = Promise.all(Array.from({ length: LANES }, lane));
  return {
    async stop() {
      await lanes;
      await database.close();
    },
  };
}

export function judge(url) {
  return sqlJudge(url, "from stillwake.live_jobs", "from stillwake.ended_jobs where state = 'completed'");
}
