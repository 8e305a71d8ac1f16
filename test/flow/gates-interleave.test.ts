// Caps, limits and breakers under real concurrency: two transactions compete for the last use, in every order of their steps. One gets it.
import { afterAll, describe, expect, it } from "vitest";
import { stopClock, travel } from "../../src/testing/index.ts";
import { claim, connect, type HeldJob } from "../model/actors.ts";
import { Interleaver, ordersOf, type Statement } from "../model/interleave.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";

const database = await freshDatabase();
const client = await connect(database.url);
await client.query(`alter database ${database.name} set deadlock_timeout = '50ms'`);
await stopClock(client);
const stage = await Interleaver.open(database.url, 2);
let number = 0;
let explored = 0;
let pool = "";

/** A new pool for every order, and two running jobs in it. */
async function prepare(settings: object): Promise<HeldJob[]> {
  pool = `pool-${number++}`;
  await client.query(`delete from stillwake.live_jobs; delete from stillwake.leases; delete from stillwake.breakers;
    select stillwake.register_breaker('b', '{"failures": 1, "pause": "10s"}')`);
  await client.query("select stillwake.register_pipeline('plain', $1)", [{ pool }]);
  await client.query("select stillwake.register_pipeline($1, $2)", [pool, { pool, ...settings }]);
  await client.query("select stillwake.enqueue_many('plain', '[1, 2]'), stillwake.enqueue_many($1, '[1, 2, 3]')", [
    pool,
  ]);
  return claim(client, "w", ["plain"], { pool, limit: 2 });
}

const claiming = (): Statement => ({
  text: "select job_id from stillwake.claim('w', $1, array[$1], 2)",
  values: [pool],
});
const using = ({ job, epoch, lease }: HeldJob): Statement => ({
  text: "select granted from stillwake.use_limit($1, $2, $3, $4, 2)",
  values: [pool, job, epoch, lease],
});
const asking = ({ job, epoch, lease }: HeldJob): Statement => ({
  text: "select resume_at from stillwake.check_breaker('b', $1, $2, $3)",
  values: [job, epoch, lease],
});

/** Runs both in every order; `made` creates the fixture of each run, `count` counts a result. */
async function everyOrder(created: () => Promise<Statement[]>, count: (rows: unknown[][]) => number, wanted: number) {
  for (const order of ordersOf([2, 2])) {
    const scripts = (await created()).map((statement) => [{ text: "begin" }, statement, { text: "commit" }]);
    const steps = order.flatMap((actor, step) => (order.indexOf(actor) === step ? [actor, actor] : [actor]));
    const { results: answers } = await stage.run(scripts, steps);
    expect(answers.flat().filter((response) => typeof response === "string")).toEqual([]);
    const got = answers.map((response) => count(response[1] as unknown[][]));
    expect(got[0]! + got[1]!, `order ${order}: ${got}`).toBe(wanted);
    explored += 1;
  }
}

const rowsOf = (rows: unknown[][]) => rows.length;
const granted = (rows: unknown[][]) => Number(rows[0]![0]);
const letThrough = (rows: unknown[][]) => Number(rows[0]![0] === null);

async function halfOpen(): Promise<void> {
  await client.query("select stillwake.report_breaker_result('b', gen_random_uuid(), gen_random_uuid(), false)");
  await travel(client, "11s");
}

describe("two concurrent claims", () => {
  it("return no more jobs of a pipeline than its cap", () =>
    everyOrder(
      async () => {
        await prepare({ concurrency: 1 });
        return [claiming(), claiming()];
      },
      rowsOf,
      1,
    ));

  it("return no more jobs of a pool than its cap", () =>
    everyOrder(
      async () => {
        await prepare({});
        await client.query("select stillwake.cap_pool($1, 3)", [pool]);
        return [claiming(), claiming()];
      },
      rowsOf,
      1,
    ));

  it("return one probe of a breaker at its resume time", () =>
    everyOrder(
      async () => {
        await prepare({ breakers: ["b"] });
        await halfOpen();
        return [claiming(), claiming()];
      },
      rowsOf,
      1,
    ));
});

describe("two concurrent calls", () => {
  it("pass a breaker at its resume time one at a time", () =>
    everyOrder(
      async () => {
        const held = await prepare({});
        await halfOpen();
        return held.map(asking);
      },
      letThrough,
      1,
    ));

  it.each([
    ["uses of a period", { max: 3, period: "1 hour" }, 3],
    ["calls under way", { concurrency: 3 }, 3],
    ["calls into a window of which nothing is known", { learn: true }, 1],
  ])("are granted no more %s than available", async (_, settings, wanted) => {
    await everyOrder(
      async () => {
        const held = await prepare({});
        await client.query("select stillwake.register_limit($1, $2)", [pool, settings]);
        return held.map(using);
      },
      granted,
      wanted,
    );
  });
});

afterAll(() => recordFigure("gates: interleavings explored", explored, "", "one too many: 0, deadlocks: 0"));
