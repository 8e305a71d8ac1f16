// BullMQ on Redis with an append-only file, 100 concurrent jobs; completed jobs are kept, its default. The file is synced every
// second, so a machine crash may lose acknowledged enqueues. bullmq-synced syncs before every response, like the other peers.
import { load } from "../install.mjs";

const { Queue, Worker } = await load("bullmq");
const { Redis } = await load("ioredis");
const NAME = "bench";
const CHUNK = 5_000;

function open(url) {
  const { hostname, port } = new URL(url);
  return { connection: { host: hostname, port: Number(port), maxRetriesPerRequest: null } };
}

export async function install(url, sync = "everysec") {
  const redis = new Redis(url);
  await redis.config("SET", "appendfsync", sync);
  await redis.flushall();
  await redis.quit();
}

export async function producer(url) {
  const queue = new Queue(NAME, open(url));
  await queue.waitUntilReady();
  return {
    one: (data) => queue.add(NAME, data),
    async many(list) {
      for (let from = 0; from < list.length; from += CHUNK) {
        await queue.addBulk(list.slice(from, from + CHUNK).map((data) => ({ name: NAME, data })));
      }
    },
    close: () => queue.close(),
  };
}

export async function worker(url, handle) {
  const worker = new Worker(NAME, async (job) => handle(job.data), { ...open(url), concurrency: 100 });
  worker.on("error", (error) => console.error(`BullMQ: ${error.message}`));
  await worker.waitUntilReady();
  return { stop: () => worker.close() };
}

export function judge(url) {
  const queue = new Queue(NAME, open(url));
  const count = () => queue.getJobCounts("waiting", "active", "completed");
  return {
    async busy() {
      const { waiting, active } = await count();
      return waiting + active > 0;
    },
    async counts() {
      const { waiting, active, completed } = await count();
      return { open: waiting + active, ended: completed };
    },
    close: () => queue.close(),
  };
}
