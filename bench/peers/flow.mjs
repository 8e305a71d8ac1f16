// The cost of keys, tenants, limits and caps: the same no-op jobs and worker, with one difference.
import { createStillwake, limit, migrate, pipeline } from "../../dist/index.js";
import { createWorker, implement } from "../../dist/worker/index.js";
import { judge } from "./stillwake-verbs.mjs";

const SLOTS = 1000;
/** With this number of waiting keys as many jobs run at once; compared with a worker of as many slots. */
const FEW = 100;
const calls = limit("calls", { max: 1e9, per: "1m" });

const variants = {
  "flow-plain": {},
  "flow-keys": { contract: { key: ({ id }) => `k${id}` } },
  "flow-tenants": { contract: { tenant: ({ id }) => `t${id % 100}` } },
  "flow-cap": { contract: { concurrency: SLOTS } },
  "flow-limit": { contract: { needs: [calls] } },
  "flow-take": { contract: { needs: [calls] }, first: (job) => calls.take(job) },
  "flow-plain-few": { slots: FEW },
  "flow-keys-wait": { slots: FEW, contract: { key: ({ id }) => `k${id % FEW}`, onConflict: "wait" } },
};

export function flowPeer(name) {
  const { contract, slots = SLOTS, first } = variants[name];
  const bench = pipeline("bench", contract);
  return {
    judge,
    async install(url) {
      await migrate({ url });
      const stillwake = createStillwake({ url });
      await stillwake.register(bench);
      await stillwake.close();
    },
    async producer(url) {
      const stillwake = createStillwake({ url });
      return { many: (list) => stillwake.enqueueMany(bench, list), close: () => stillwake.close() };
    },
    async worker(url, handle) {
      const run = first ? (job, input) => first(job).then(() => handle(input)) : (_job, input) => handle(input);
      const worker = createWorker({ url, pipelines: [implement(bench, run)], slots, isolation: "none" });
      await worker.start();
      return worker;
    },
  };
}
