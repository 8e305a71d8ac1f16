// Enqueue one by one, enqueue in bulk, drain: each on a fresh database, each checked against what the store says afterwards.
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { nowMs, ownCpu, quietMoment, watchOthers } from "./machine.mjs";
import { loadPeer, peers } from "./peers/index.mjs";

const WARM_UP_MS = 3_000;
const TIME_LIMIT_MS = 300_000;

export const workloads = {
  enqueue: { title: "enqueue one by one, 20 callers", callers: 20, measure: measureEnqueue },
  crowd: { title: "enqueue one by one, 200 callers", callers: 200, measure: measureEnqueue },
  bulk: { title: "enqueue in bulk", measure: measureEnqueue },
  drain: { title: "drain of no-op jobs, one process", measure: measureDrain },
};

async function measureEnqueue({ workload, peer, jobs, servers, patienceMs }) {
  const store = await freshStore(peer, servers);
  const child = await startChild(peer);
  try {
    await child.call("open", { url: store.url });
    const commits = await countCommits(store);
    const { callers } = workloads[workload];
    const warm = callers ? await child.call("warmUp", { ms: WARM_UP_MS, callers }) : 0;
    await quietMoment(patienceMs);
    const meter = await startMeter(store);
    const { seconds, cpu } = await child.call(callers ? "enqueue" : "bulk", { jobs, callers });
    const figures = await meter.stop(cpu, jobs);
    await child.close();
    await store.check({ open: jobs + warm, ended: 0 });
    return { rate: jobs / seconds, seconds, ...figures, ...(await commits(jobs + warm)) };
  } finally {
    await child.close();
    await store.drop();
  }
}

/** The clock runs from the first handler until the store has nothing waiting or running, so completing late is paid for. */
async function measureDrain({ peer, jobs, servers, patienceMs }) {
  const store = await freshStore(peer, servers);
  await inChild(peer, async (child) => {
    await child.call("open", { url: store.url });
    await child.call("bulk", { jobs });
  });
  await store.settle();
  const judge = await store.judge();
  const child = await startChild(peer);
  try {
    await judge.busy();
    await quietMoment(patienceMs);
    const commits = await countCommits(store);
    const meter = await startMeter(store);
    const { firstMs, cpuBefore } = await child.call("drain", { url: store.url, jobs });
    while (await judge.busy()) await delay(2);
    const seconds = (nowMs() - firstMs) / 1000;
    const { handled, once: handledOnce, cpu } = await child.call("handled");
    const figures = await meter.stop(cpu - cpuBefore, jobs);
    if (handled !== jobs || handledOnce !== jobs) {
      throw new Error(
        `${peer} handled ${handled} jobs, ${handledOnce} of them exactly once, and should have handled ${jobs}`,
      );
    }
    await child.close();
    await store.check({ open: 0, ended: jobs });
    return { rate: jobs / seconds, seconds, ...figures, ...(await commits(jobs)) };
  } finally {
    await judge.close();
    await child.close();
    await store.drop();
  }
}

async function freshStore(peer, servers) {
  const postgres = peers[peer].store === "postgres" ? servers.postgres : undefined;
  const database = postgres ? await postgres.database(peer) : { url: servers.redis.url, drop: async () => {} };
  await inChild(peer, (child) => child.call("install", { url: database.url }));
  // No measurement pays for the pages of the one before.
  await servers.postgres.sql("checkpoint");
  const judge = async () => (await loadPeer(peer)).judge(database.url);
  return {
    url: database.url,
    name: database.name,
    postgres,
    server: postgres ?? servers.redis,
    judge,
    drop: database.drop,
    /** After filling: nothing left to write, and fresh statistics for everybody's plans. */
    async settle() {
      if (!postgres) return;
      const client = new pg.Client({ connectionString: database.url });
      await client.connect();
      await client.query("analyze");
      await client.end();
      await postgres.sql("checkpoint");
    },
    async check(expected) {
      const open = await judge();
      const found = await open.counts().finally(() => open.close());
      if (found.open === expected.open && (found.ended ?? expected.ended) === expected.ended) return;
      throw new Error(`${peer}: the store has ${JSON.stringify(found)} and should have ${JSON.stringify(expected)}`);
    },
  };
}

/** Everything counted between now and stop(), per job. */
async function startMeter({ postgres, server }) {
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

/** Commits per job. A connection reports them at the latest when it ends: to be read after the peer has closed. */
async function countCommits({ postgres, name }) {
  const before = await postgres?.counters(name);
  return async (jobs) => {
    if (!postgres) return {};
    await delay(300);
    const after = await postgres.counters(name);
    return { commits: (after.commits - before.commits) / jobs, pages: (after.pages - before.pages) / jobs };
  };
}

async function inChild(peer, work) {
  const child = await startChild(peer);
  try {
    return await work(child);
  } finally {
    await child.close();
  }
}

async function startChild(peer) {
  const child = fork(fileURLToPath(new URL("child.mjs", import.meta.url)), [peer], {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  const ended = once(child, "exit");
  async function answer(verb) {
    const impatient = new AbortController();
    const late = delay(TIME_LIMIT_MS, undefined, { signal: impatient.signal }).then(
      () => [{ failure: `no answer to ${verb} in ${TIME_LIMIT_MS} ms` }],
      () => {},
    );
    const gone = ended.then(() => [{ failure: `the process ended during ${verb}` }]);
    const [message] = await Promise.race([once(child, "message"), late, gone]);
    impatient.abort();
    if (message.failure) throw new Error(`${peer}: ${message.failure}`);
    return message.answer;
  }
  await answer("start");
  return {
    call(verb, values) {
      const answered = answer(verb);
      child.send({ verb, values });
      return answered;
    },
    async close() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      if (child.connected) child.send({ verb: "close" });
      const impatient = setTimeout(() => child.kill("SIGKILL"), 10_000);
      await ended;
      clearTimeout(impatient);
    },
  };
}
