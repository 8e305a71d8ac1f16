// The workloads: each runs on a fresh database, and its result is checked in the store afterwards.
import { setTimeout as delay } from "node:timers/promises";
import { nowMs, treeCpu, waitUntilIdle } from "./machine.mjs";
import { inChild, startChild } from "./peer-process.mjs";
import { ISOLATION_SLOTS, peers, STEPS } from "./peers/index.mjs";
import { countCommits, freshStore, startMeter } from "./stores.mjs";

const WARM_UP_MS = 3_000;
const PROOF_JOBS = 10;
const QUEUES = ["stillwake", "before", "graphile", "pg-boss", "bullmq", "bullmq-synced", "bare"];
const FLOW = Object.keys(peers).filter((peer) => peer.startsWith("flow-"));

/** `jobs`: the option with the number of jobs. */
export const workloads = {
  enqueue: {
    title: "enqueue one by one, 20 callers",
    peers: QUEUES,
    jobs: "singles",
    callers: 20,
    measure: measureEnqueue,
  },
  crowd: {
    title: "enqueue one by one, 200 callers",
    peers: QUEUES,
    jobs: "singles",
    callers: 200,
    measure: measureEnqueue,
  },
  bulk: { title: "enqueue in bulk", peers: QUEUES, jobs: "jobs", measure: measureEnqueue },
  drain: {
    title: "drain of no-op jobs, one process",
    peers: [...QUEUES, "stillwake-verbs"],
    jobs: "jobs",
    measure: measureDrain,
  },
  steps: {
    title: `drain of jobs with ${STEPS} durable no-op steps, one process`,
    peers: ["stillwake", "dbos", "bare"],
    jobs: "step-jobs",
    measure: measureSteps,
  },
  isolation: {
    title: `drain of no-op jobs by ${ISOLATION_SLOTS} slots`,
    peers: ["stillwake-none", "stillwake-process"],
    jobs: "step-jobs",
    measure: measureIsolation,
  },
  flow: {
    title: "drain of no-op jobs under flow control, one process",
    peers: FLOW,
    jobs: "flow-jobs",
    measure: measureDrain,
  },
  "flow-bulk": {
    title: "enqueue in bulk under flow control",
    peers: FLOW.filter((peer) => !["flow-plain-few", "flow-take"].includes(peer)),
    jobs: "flow-jobs",
    measure: measureEnqueue,
  },
};

async function measureEnqueue({ workload, peer, jobs, servers, maxWaitMs }) {
  const store = await freshStore({ peer, workload, servers });
  const child = await startChild({ peer, workload });
  try {
    await child.call("open", { url: store.url });
    const commits = await countCommits(store);
    const { callers } = workloads[workload];
    const warm = callers ? await child.call("warmUp", { ms: WARM_UP_MS, callers }) : 0;
    await waitUntilIdle(maxWaitMs);
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

async function measureDrain(setting) {
  const store = await freshStore(setting);
  try {
    const figures = await drain(store, setting);
    await store.check({ open: 0, ended: setting.jobs });
    return figures;
  } finally {
    await store.drop();
  }
}

/** A drain of jobs with steps. A few untimed jobs first prove that no step starts before the previous result is in the store. */
async function measureSteps(setting) {
  const { peer, workload, jobs } = setting;
  const store = await freshStore(setting);
  try {
    await store.fill(PROOF_JOBS);
    await inChild({ peer, workload }, async (child) => {
      const early = await child.call("prove", { url: store.url, jobs: PROOF_JOBS });
      if (early > 0) throw new Error(`${peer} continued ${early} times before the result of a step was in the store`);
      await store.idle();
    });
    await store.check({ open: 0, ended: PROOF_JOBS, kept: PROOF_JOBS * STEPS });
    const figures = await drain(store, setting);
    const all = PROOF_JOBS + jobs;
    await store.check({ open: 0, ended: all, kept: all * STEPS });
    return figures;
  } finally {
    await store.drop();
  }
}

/** Measured from the first handler until no job waits or runs in the store, so late completion counts. */
async function drain(store, { peer, workload, jobs, maxWaitMs }) {
  await store.fill(jobs);
  await store.settle();
  const judge = await store.judge();
  const child = await startChild({ peer, workload });
  try {
    await judge.busy();
    await waitUntilIdle(maxWaitMs);
    const commits = await countCommits(store);
    const meter = await startMeter(store);
    const { firstMs, cpuBefore } = await child.call("drain", { url: store.url, jobs });
    while (await judge.busy()) await delay(2);
    const seconds = (nowMs() - firstMs) / 1000;
    const { handled, once: handledOnce, cpu } = await child.call("handled");
    const figures = await meter.stop(cpu - cpuBefore, jobs);
    if (handled !== jobs || handledOnce !== jobs) {
      throw new Error(`${peer} handled ${handled} jobs, ${handledOnce} of them exactly once, expected ${jobs}`);
    }
    await child.close();
    return { rate: jobs / seconds, seconds, ...figures, ...(await commits(jobs)) };
  } finally {
    await judge.close();
    await child.close();
  }
}

/** Handlers may run in runner processes, so the start time comes from the store, and the end is polled. */
async function measureIsolation({ workload, peer, jobs, servers, maxWaitMs }) {
  const store = await freshStore({ peer, workload, servers });
  const judge = await store.judge();
  const child = await startChild({ peer, workload });
  try {
    await store.fill(jobs);
    await store.settle();
    await waitUntilIdle(maxWaitMs);
    const commits = await countCommits(store);
    const meter = await startMeter(store);
    const cpuBefore = treeCpu(child.pid);
    await child.call("start", { url: store.url });
    while (await judge.busy()) await delay(20);
    const endMs = nowMs();
    const figures = await meter.stop(treeCpu(child.pid) - cpuBefore, jobs);
    await child.close();
    await store.check({ open: 0, ended: jobs });
    const seconds = (endMs - (await judge.firstMs())) / 1000;
    return { rate: jobs / seconds, seconds, ...figures, ...(await commits(jobs)) };
  } finally {
    await judge.close();
    await child.close();
    await store.drop();
  }
}
