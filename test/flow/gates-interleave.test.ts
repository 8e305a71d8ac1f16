// Caps, limits and breakers under real concurrency: two transactions that both want the last one, in every order of their steps. One gets it.
import { afterAll, describe, expect, it } from "vitest";
import { stopClock, travel } from "../../src/testing/index.ts";
import { claim, connect, type Held } from "../model/actors.ts";
import { ordersOf, Stage, type Statement } from "../model/interleave.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";

const database = await freshDatabase();
const client = await connect(database.url);
await client.query(`alter database ${database.name} set deadlock_timeout = '50ms'`);
await stopClock(client);
const stage = await Stage.open(database.url, 2);
let number = 0;
let explored = 0;
let pool = "";

/** A pool of its own for every play, and two jobs that run in it. */
async function prepare(settings: object): Promise<Held[]> {
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
const using = ({ job, epoch, lease }: Held): Statement => ({
  text: "select granted from stillwake.use_limit($1, $2, $3, $4, 2)",
  values: [pool, job, epoch, lease],
});
const asking = ({ job, epoch, lease }: Held): Statement => ({
  text: "select resume_at from stillwake.ask_breaker('b', $1, $2, $3)",
  values: [job, epoch, lease],
});

/** Both in every order; `made` prepares each play anew, `count` says how many an answer is. */
async function everyOrder(made: () => Promise<Statement[]>, count: (rows: unknown[][]) => number, wanted: number) {
  for (const order of ordersOf([2, 2])) {
    const scripts = (await made()).map((statement) => [{ text: "begin" }, statement, { text: "commit" }]);
    const steps = order.flatMap((actor, step) => (order.indexOf(actor) === step ? [actor, actor] : [actor]));
    const { answers } = await stage.play(scripts, steps);
    expect(answers.flat().filter((answer) => typeof answer === "string")).toEqual([]);
    const got = answers.map((answer) => count(answer[1] as unknown[][]));
    expect(got[0]! + got[1]!, `order ${order}: ${got}`).toBe(wanted);
    explored += 1;
  }
}

const rowsOf = (rows: unknown[][]) => rows.length;
const granted = (rows: unknown[][]) => Number(rows[0]![0]);
const letThrough = (rows: unknown[][]) => Number(rows[0]![0] === null);

async function halfOpen(): Promise<void> {
  await client.query("select stillwake.tell_breaker('b', gen_random_uuid(), gen_random_uuid(), false)");
  await travel(client, "11s");
}

describe("two that claim at once", () => {
  it("get no more jobs of a pipeline than may run", () =>
    everyOrder(
      async () => {
        await prepare({ concurrency: 1 });
        return [claiming(), claiming()];
      },
      rowsOf,
      1,
    ));

  it("get no more jobs of a pool than may run", () =>
    everyOrder(
      async () => {
        await prepare({});
        await client.query("select stillwake.cap_pool($1, 3)", [pool]);
        return [claiming(), claiming()];
      },
      rowsOf,
      1,
    ));

  it("get one job to go first through a breaker whose time has come", () =>
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

describe("two that ask at once", () => {
  it("are let through a breaker whose time has come one at a time", () =>
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
    ["calls into a window that nothing is known of", { learn: true }, 1],
  ])("are granted no more %s than there are", async (_, settings, wanted) => {
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
