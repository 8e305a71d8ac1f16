// graphile-worker with the settings of its performance page: a local queue of 500, batched completions, 24 concurrent jobs.
import pg from "pg";
import { load } from "../install.mjs";
import { sqlJudge } from "./index.mjs";

const { Logger, makeWorkerUtils, run, runMigrations } = await load("graphile-worker");
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(`graphile: ${message}`);
});
const CHUNK = 10_000;

function openPool(url, max) {
  const pool = new pg.Pool({ connectionString: url, max });
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  return pool;
}

export async function install(url) {
  await runMigrations({ connectionString: url, logger });
}

export async function producer(url) {
  const pgPool = openPool(url, 20);
  const utils = await makeWorkerUtils({ pgPool, logger });
  return {
    one: (data) => utils.addJob("bench", data),
    async many(list) {
      for (let from = 0; from < list.length; from += CHUNK) {
        await utils.addJobs(list.slice(from, from + CHUNK).map((payload) => ({ identifier: "bench", payload })));
      }
    },
    async close() {
      await utils.release();
      await pgPool.end();
    },
  };
}

export async function worker(url, handle) {
  const pgPool = openPool(url, 25);
  const preset = {
    worker: {
      logger,
      concurrentJobs: 24,
      maxPoolSize: 25,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  };
  const runner = await run({ pgPool, preset, noHandleSignals: true, taskList: { bench: handle } });
  return {
    async stop() {
      await runner.stop();
      await pgPool.end();
    },
  };
}

export function judge(url) {
  return sqlJudge(url, "from graphile_worker._private_jobs");
}
