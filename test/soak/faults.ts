// The faults of the soak. Each one injects itself, lasts as long as its random numbers say, and leaves the system able
// to recover. What it did to which worker is recorded, so that the audit can tell a justified crash from a wrong one.
import fs from "node:fs";
import path from "node:path";
import pg from "pg";
import type { SoakDatabase } from "./database.ts";
import { fill, isMounted } from "./database.ts";
import type { SoakWorkers } from "./workers.ts";

/** Returns a number from 0 to 1; the same sequence for the same seed. */
export type Random = () => number;

export interface FaultContext {
  database: SoakDatabase;
  workers: SoakWorkers;
  random: Random;
  between(from: number, to: number): number;
  /** The names of jobs that run now. */
  runningJob(): Promise<string | undefined>;
}

type Fault = (context: FaultContext) => Promise<void>;

export const faults: Record<string, { weight: number; run: Fault }> = {
  "worker killed": {
    weight: 3,
    async run({ workers, random }) {
      workers.kill(workers.pick(random), "SIGKILL");
    },
  },
  "keeper out of memory": {
    weight: 1,
    // What V8 does at its heap limit.
    async run({ workers, random }) {
      workers.kill(workers.pick(random), "SIGABRT");
    },
  },
  "runner killed": {
    weight: 3,
    async run({ workers, random }) {
      const worker = workers.pick(random);
      const runners = workers.runnersOf(worker);
      const runner = runners[Math.floor(random() * runners.length)];
      if (runner !== undefined) workers.killRunner(worker, runner);
    },
  },
  "worker frozen": {
    weight: 2,
    run: ({ workers, random, between }) => workers.freeze(workers.pick(random), between(500, 9000)),
  },
  "runner frozen": {
    weight: 1,
    async run({ workers, random, between }) {
      const worker = workers.pick(random);
      const [runner] = workers.runnersOf(worker);
      if (runner !== undefined) await workers.freezeRunner(worker, runner, between(500, 5000));
    },
  },
  "connections reset": {
    weight: 3,
    async run({ database }) {
      for (const proxy of database.proxies) proxy.reset();
    },
  },
  "network cut": {
    weight: 2,
    async run({ database, random, between }) {
      const mode = (["silent", "refuse", "deaf", "mute"] as const)[Math.floor(random() * 4)]!;
      for (const proxy of database.proxies) proxy.mode = mode;
      await pause(between(500, 8000));
      for (const proxy of database.proxies) proxy.mode = "pass";
    },
  },
  "database crash": {
    weight: 2,
    run: ({ database, random, between }) => database.crash(random() < 0.5 ? "SIGKILL" : "SIGQUIT", between(0, 4000)),
  },
  "standby promoted": { weight: 1, run: ({ database, between }) => database.promote(between(0, 12_000)) },
  "synchronous standby away": {
    weight: 1,
    run: ({ database, between }) => database.standbyAway(between(1000, 15_000)),
  },
  "open transaction on a lease": {
    weight: 2,
    async run({ database, runningJob, between }) {
      const job = await runningJob();
      if (!job) return;
      const client = new pg.Client({ connectionString: database.directUrl, connectionTimeoutMillis: 3000 });
      client.on("error", () => {});
      try {
        await client.connect();
        await client.query("begin");
        await client.query("select stillwake.signal($1, 'go', 'null')", [job]);
        await pause(between(1000, 12_000));
        await client.query("commit");
      } finally {
        await client.end().catch(() => {});
      }
    },
  },
  "timeouts set by the host": {
    weight: 1,
    async run({ database, between }) {
      await database.query("alter database postgres set statement_timeout = '1s'");
      await database.query("alter database postgres set lock_timeout = '200ms'");
      await database.query("alter database postgres set idle_in_transaction_session_timeout = '2s'");
      for (const proxy of database.proxies) proxy.reset();
      await pause(between(3000, 8000));
      for (const name of ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"]) {
        await database.query(`alter database postgres reset ${name}`);
      }
      for (const proxy of database.proxies) proxy.reset();
    },
  },
  "disk of the database full": {
    weight: 1,
    async run({ database, between }) {
      await database.fillDisk(between(500, 3000));
    },
  },
  "scratch full": {
    weight: 1,
    async run({ workers, between }) {
      if (!isMounted(workers.scratch)) return;
      const filler = path.join(workers.scratch, "filler");
      fill(filler);
      await pause(between(500, 4000));
      fs.rmSync(filler, { force: true });
    },
  },
};

export function pickFault(random: Random): string {
  const total = Object.values(faults).reduce((sum, { weight }) => sum + weight, 0);
  let left = random() * total;
  for (const [name, { weight }] of Object.entries(faults)) {
    left -= weight;
    if (left < 0) return name;
  }
  return Object.keys(faults)[0]!;
}

/** mulberry32: 32 bits of state are enough to repeat a sequence. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
