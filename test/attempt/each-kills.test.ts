// 18,618 items in time slices, with workers and runners killed at random: each item takes effect once, in little more time than without
// interruption. Slices are 5 s instead of 50 s (1 s in the short form): the work is ten times as fast, recovery is not.
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { FULL, round } from "../support/processes/fault-checks.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";
import { startWorker, type WorkerProcess } from "../support/processes/workers.ts";

const { database, stillwake, attempts } = await inProcessFixture();
const client = await connect(database.url);
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const LONG = new URL("../fixtures/pipelines/long.mjs", import.meta.url).pathname;
const COUNT = FULL ? 18_618 : 2_000;
const BATCH = 50;
const PAUSE_MS = 200;
const EVERY_MS = FULL ? 6000 : 3000;
beforeAll(async () => {
  buildPackage();
  await client.query("create table effects (job uuid, item integer)");
});

describe(`${COUNT} items through job.each`, () => {
  it("in slices and with random kills: each effect once, in little more time than without interruption", async () => {
    let random = SEED;
    const chance = () => {
      random = (Math.imul(random, 1103515245) + 12345) & 0x7fffffff;
      return random / 0x7fffffff;
    };
    const begin = () => startWorker({ url: database.url, pipelines: LONG, args: ["--slots", "1"] });
    const workers: WorkerProcess[] = [await begin(), await begin(), await begin()];
    const input = { url: database.url, count: COUNT, batch: BATCH, pauseMs: PAUSE_MS };
    const timed = async (name: string) => {
      const began = performance.now();
      const { id } = await stillwake.enqueue(name, input);
      await waitFor(async () => (await stillwake.get(id)).endedAt !== null, { timeout: 400_000, interval: 50 });
      return { id, seconds: (performance.now() - began) / 1000 };
    };
    const unbroken = await timed("import-unbroken");
    let killed = 0;
    let over = false;
    const killing = (async () => {
      while (!over) {
        const waitMs = EVERY_MS * (0.5 + chance());
        const until = performance.now() + waitMs;
        await waitFor(() => over || performance.now() > until, { timeout: 60_000 });
        const [busy] = (await client.query("select worker from stillwake.live_jobs where lease_id is not null")).rows;
        const victim = busy && workers.find(({ lines }) => lines.some(({ worker }) => worker === busy.worker));
        if (over || !victim || victim.child.exitCode !== null || victim.child.signalCode !== null) continue;
        killed += 1;
        if (chance() < 0.5) {
          victim.signal("SIGKILL");
          workers.push(await begin());
        } else {
          for (const pid of victim.runners()) process.kill(pid, "SIGKILL");
        }
      }
    })();
    onTestFinished(() => {
      over = true;
      return killing.catch(() => {});
    });
    const broken = await timed(FULL ? "import" : "import-hasty");
    over = true;
    await killing;
    for (const { id } of [unbroken, broken]) {
      const job = await stillwake.get(id);
      expect(job, `seed ${SEED}`).toMatchObject({ state: "completed", output: { done: COUNT } });
      const { rows } = await client.query(
        "select count(*)::int as effects, count(distinct item)::int as items from effects where job = $1",
        [id],
      );
      expect(rows[0], `seed ${SEED}`).toEqual({ effects: COUNT, items: COUNT });
    }
    const outcomes = (await attempts(broken.id)).map(({ outcome }) => outcome);
    const released = outcomes.filter((outcome) => outcome === "released").length;
    expect(released).toBeGreaterThan(0);
    expect(killed).toBeGreaterThan(0);
    recordFigure("each: unbroken", round(unbroken.seconds), "s", `${COUNT} items in batches of ${BATCH}`);
    recordFigure(
      "each: in slices under kills",
      round(broken.seconds),
      "s",
      `${killed} kills, released ${released} times, seed ${SEED}`,
    );
    recordFigure("each: ratio to unbroken", round(broken.seconds / unbroken.seconds), "×");
    recordFigure("each: effects repeated or lost", 0);
    // On a busy machine the replacement of a killed worker starts slowly.
    if (FULL) expect(broken.seconds / unbroken.seconds).toBeLessThan(1.3);
  }, 500_000);
});
