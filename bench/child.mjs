// One peer in a separate process: enqueues or works on commands of the parent, and reports results and CPU time.
import { nowMs, ownCpu } from "./machine.mjs";
import { loadPeer } from "./peers/index.mjs";

const peer = await loadPeer(process.argv[2], process.argv[3]);
let opened;
let handled = 0;
let seen;

const verbs = {
  install: ({ url }) => peer.install(url),

  async open({ url }) {
    opened = await peer.producer(url);
  },

  /** Enqueues for a while to warm up. Returns the number of jobs. */
  async warmUp({ ms, callers }) {
    const end = nowMs() + ms;
    let enqueued = 0;
    await callAtOnce(callers, async () => {
      while (nowMs() < end) await opened.one({ id: enqueued++ });
    });
    return enqueued;
  },

  /** Each caller waits for its response before it sends the next job. */
  enqueue({ jobs, callers }) {
    let next = 0;
    const caller = async () => {
      while (next < jobs) await opened.one({ id: next++ });
    };
    return measured(() => callAtOnce(callers, caller));
  },

  bulk({ jobs }) {
    const list = Array.from({ length: jobs }, (_, id) => ({ id }));
    return measured(() => opened.many(list));
  },

  async drain({ url, jobs }) {
    const cpuBefore = ownCpu();
    return { firstMs: await work(url, jobs), cpuBefore };
  },

  /** Counts the results in the store after every step. Returns how often there were fewer results than finished steps. */
  async prove({ url, jobs }) {
    const judge = peer.judge(url);
    let done = 0;
    let early = 0;
    const between = async () => {
      const expected = ++done;
      if (!((await judge.kept()) >= expected)) early += 1;
    };
    await work(url, jobs, { between });
    await judge.close();
    return early;
  },

  /** Starts the worker and returns at once: for jobs that run in other processes. */
  async start({ url }) {
    const worker = await peer.worker(url);
    opened = { close: () => worker.stop() };
  },

  /** Number of handled jobs, of jobs handled exactly once, and the CPU time so far. */
  handled: () => ({ handled, once: seen.reduce((sum, times) => sum + (times === 1 ? 1 : 0), 0), cpu: ownCpu() }),

  async close() {
    await opened?.close();
    process.exit();
  },
};

/** Works until the last job has been handled, which is before the store knows. Returns the start time of the first job. */
function work(url, jobs, hooks) {
  seen = new Uint8Array(jobs);
  let firstMs = 0;
  const begin = () => {
    firstMs ||= nowMs();
  };
  return new Promise((resolve, reject) => {
    const handle = ({ id }) => {
      begin();
      seen[id] += 1;
      if (++handled === jobs) resolve(firstMs);
    };
    peer.worker(url, handle, { begin, ...hooks }).then((worker) => {
      opened = { close: () => worker.stop() };
    }, reject);
  });
}

async function callAtOnce(callers, caller) {
  await Promise.all(Array.from({ length: callers }, caller));
}

async function measured(work) {
  const cpu = ownCpu();
  const began = nowMs();
  await work();
  return { seconds: (nowMs() - began) / 1000, cpu: ownCpu() - cpu };
}

process.on("disconnect", () => process.exit());
process.on("message", async ({ verb, values }) => {
  try {
    process.send({ answer: (await verbs[verb](values)) ?? null });
  } catch (error) {
    process.send({ failure: error?.stack ?? String(error) });
  }
});
process.send({ answer: "ready" });
