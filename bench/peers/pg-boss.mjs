// pg-boss tuned for throughput: two loops fetch batches of 500 without a pause while batches are full.
import { load } from "../install.mjs";
import { sqlJudge } from "./index.mjs";

const { PgBoss } = await load("pg-boss");
const NAME = "bench";
const CHUNK = 10_000;

async function start(url, options) {
  const boss = new PgBoss({ connectionString: url, schedule: false, ...options });
  boss.on("error", (error) => console.error(`pg-boss: ${error.message}`));
  await boss.start();
  return boss;
}

export async function install(url) {
  const boss = await start(url, { supervise: false });
  await boss.createQueue(NAME);
  await boss.stop({ graceful: false });
}

export async function producer(url) {
  const boss = await start(url, { max: 20, supervise: false });
  return {
    one: (data) => boss.send(NAME, data),
    async many(list) {
      for (let from = 0; from < list.length; from += CHUNK) {
        await boss.insert(
          NAME,
          list.slice(from, from + CHUNK).map((data) => ({ data })),
        );
      }
    },
    close: () => boss.stop({ graceful: false }),
  };
}

export async function worker(url, handle) {
  const boss = await start(url, { max: 10 });
  const options = { localConcurrency: 2, batchSize: 500, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
  await boss.work(NAME, options, async (jobs) => {
    for (const job of jobs) handle(job.data);
  });
  return { stop: () => boss.stop({ graceful: false }) };
}

export function judge(url) {
  const jobs = `from pgboss.job where name = '${NAME}' and state`;
  return sqlJudge(url, `${jobs} in ('created', 'retry', 'active')`, `${jobs} = 'completed'`);
}
