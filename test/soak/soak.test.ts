// The soak: workers as real processes on a primary with a synchronous standby, random faults one after another and some
// at once, and then an audit: nothing lost, doubled, stuck or charged wrongly. `npm run soak -- --minutes 30 --seed 7`.
// The same seed gives the same sequence of faults; when they hit depends on the machine.
import path from "node:path";
import { expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { scratchDirectory } from "../support/database/cluster-files.ts";
import { openStillwake } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { startStepObserver } from "../support/processes/step-observer.ts";
import { audit, type InjectedFault } from "./audit.ts";
import { SoakDatabase, smallFileSystem } from "./database.ts";
import { type FaultContext, faults, pause, pickFault, seededRandom } from "./faults.ts";
import { SoakWorkers } from "./workers.ts";

const MINUTES = Number(process.env.STILLWAKE_SOAK_MINUTES ?? (FULL ? 5 : 0));
const SEED = Number(process.env.STILLWAKE_SOAK_SEED ?? Math.floor(Math.random() * 2 ** 31));
const ONLY = process.env.STILLWAKE_SOAK_ONLY?.split(",");
const LEASE = "5s";
/** How long jobs may take to end after the last fault. */
const SETTLE_MS = 120_000;
const ACTS = ["quick", "quick", "slow", "chatty", "tx", "list", "artifact", "command", "event"];

it.skipIf(MINUTES === 0)(
  `loses, doubles, forgets and wrongly charges nothing in ${MINUTES} minutes (seed ${SEED})`,
  {
    timeout: (MINUTES + 10) * 60_000,
  },
  async () => {
    console.log(`Seed ${SEED}`);
    buildPackage();
    const random = seededRandom(SEED);
    const between = (from: number, to: number) => Math.round(from + random() * (to - from));
    const observer = await startStepObserver();
    const database = await SoakDatabase.start();
    await database.query("create table soak_effects (job uuid not null, step text not null, epoch bigint not null)");
    const stillwake = openStillwake(database.url, { retryTimeout: "forever", connections: 4 });
    const workers = new SoakWorkers({
      url: database.url,
      count: 3,
      lease: LEASE,
      scratch: smallFileSystem(path.join(scratchDirectory("soakwork"), "mount"), 64),
    });
    await workers.start();

    const enqueued: string[] = [];
    let over = false;
    const enqueueing = (async () => {
      for (let number = 0; !over; number++) {
        // The steps follow from the seed, whatever the faults do meanwhile.
        const own = seededRandom(SEED + number);
        const count = 2 + Math.floor(own() * 4);
        const steps = Array.from({ length: count }, (_, n) => {
          const act = own() < 0.01 ? "memory" : ACTS[Math.floor(own() * ACTS.length)]!;
          return { name: `${n} ${act}`, act, ms: Math.floor(own() * 3000) };
        });
        const input = { observer: observer.url, urls: database.directUrls, steps };
        const options = { idempotencyKey: `${SEED}-${number}` };
        // A caller repeats what was not acknowledged, such as while the disk is full.
        const enqueue = () => stillwake.enqueue("soak", input, options).catch(() => undefined);
        const { id } = await waitFor(enqueue, {
          timeout: 120_000,
          interval: 200,
          what: "an enqueue to be acknowledged",
        });
        enqueued.push(id);
        await pause(between(100, 400));
      }
    })();

    const counts: Record<string, number> = {};
    const context: FaultContext = {
      database,
      workers,
      random,
      between,
      async runningJob() {
        const rows = await database.query<{ id: string }>(
          "select id from stillwake.live_jobs where state = 'running' order by id limit 1",
        );
        return rows[0]?.id;
      },
    };
    const timeline: InjectedFault[] = [];
    const inject = async (name: string) => {
      const fault = { name, from: Date.now(), until: Number.POSITIVE_INFINITY };
      timeline.push(fault);
      await faults[name]!.run(context).catch((error) => failed.push(`${name}: ${error.message}`));
      fault.until = Date.now();
    };
    const failed: string[] = [];
    const end = performance.now() + MINUTES * 60_000;
    while (performance.now() < end) {
      await pause(between(200, 3000));
      const name = ONLY ? ONLY[Math.floor(random() * ONLY.length)]! : pickFault(random);
      counts[name] = (counts[name] ?? 0) + 1;
      // A second fault beside the first, of those that do not need the database.
      const beside = random() < 0.25 ? "worker killed" : undefined;
      if (beside) counts[beside] = (counts[beside] ?? 0) + 1;
      await Promise.all([inject(name), beside && inject(beside)]);
      await database.heal();
    }
    over = true;
    await enqueueing;
    const settledAt = performance.now();
    await waitFor(
      async () =>
        (await database.query<{ n: number }>("select count(*)::int as n from stillwake.live_jobs"))[0]!.n === 0,
      { timeout: SETTLE_MS, interval: 500 },
    ).catch(() => {});
    const settleMs = performance.now() - settledAt;
    const left = await workers.stop();

    const { findings, figures } = await audit({ database, observer, workers, enqueued, timeline, leaseMs: 5000 });
    const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
    console.log(`Seed ${SEED}, ${MINUTES} minutes, ${total} faults:`, counts);
    if (failed.length > 0) console.log("Faults that could not be injected:", failed);
    console.log({ ...figures, settleMs: Math.round(settleMs), processesLeft: left.length });
    for (const [name, value] of Object.entries(figures)) recordFigure(`soak: ${name}`, value, "", `seed ${SEED}`);
    recordFigure("soak: faults", total, "", `${MINUTES} minutes, seed ${SEED}`);
    expect(workers.deaths, "workers that ended by themselves").toEqual([]);
    expect(left, "processes left over").toEqual([]);
    expect(findings).toEqual({});
  },
);
