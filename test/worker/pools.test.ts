// Which pools a worker serves: all pools of its pipelines, in turn, or the configured one.
import { describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, stillwake, start, until, name } = await inProcessFixture();

/** Two pipelines, each in a different pool. */
function two(code: () => unknown = () => "done") {
  return [name(), name()].map((own) => implement(pipeline(own, { pool: `pool-of-${own}` }), code)) as [
    ReturnType<typeof implement>,
    ReturnType<typeof implement>,
  ];
}
const poolOf = ({ pipeline: { options } }: ReturnType<typeof implement>) => options.pool!;
const enqueue = async ({ pipeline: contract }: ReturnType<typeof implement>) =>
  (await stillwake.enqueue(contract, null)).id;

describe("a worker without a pool", () => {
  it("serves all pools of its pipelines, and says which", async () => {
    const [one, other] = two();
    const jobs = [await enqueue(one), await enqueue(other)];
    const { worker, events } = await start([one, other]);
    for (const id of jobs) expect(await until(id)).toMatchObject({ state: "completed" });
    expect(worker.pools).toEqual([poolOf(one), poolOf(other)].sort());
    expect(events.find(({ kind }) => kind === "worker.started")).toMatchObject({
      pools: { [poolOf(one)]: [one.pipeline.name], [poolOf(other)]: [other.pipeline.name] },
      notServed: {},
    });
  });

  it("serves the pool that the database has for a pipeline that names none", async () => {
    const own = name();
    await stillwake.register(pipeline(own, { pool: `registered-${own}` }));
    const code = implement(pipeline(own), () => "done");
    const id = await enqueue(code);
    const { worker } = await start([code]);
    expect(await until(id)).toMatchObject({ state: "completed", pool: `registered-${own}` });
    expect(worker.pools).toEqual([`registered-${own}`]);
  });

  it("takes turns between the pools: a backlog in one does not delay the other", async () => {
    const [long, short] = two();
    for (let count = 0; count < 20; count++) await enqueue(long);
    const id = await enqueue(short);
    const { events } = await start([long, short], { slots: 1 });
    await until(id);
    const started = events.filter((event) => event.kind === "attempt.started").map((event) => event.pipeline);
    expect(started.indexOf(short.pipeline.name)).toBeLessThan(3);
  });

  it("finds a new job of one pool while the other never runs out of jobs, without hints", async () => {
    let found = false;
    const [endless, rare]: ReturnType<typeof two> = [
      implement(pipeline(name(), { pool: name() }), async () => {
        if (!found) await enqueue(endless);
      }),
      implement(pipeline(name(), { pool: name() }), () => {
        found = true;
      }),
    ];
    for (let count = 0; count < 4; count++) await enqueue(endless);
    const { events } = await start([endless, rare], { slots: 2 });
    await waitFor(() => events.filter(({ kind }) => kind === "attempt.ended").length > 10);
    expect(await until(await enqueue(rare))).toMatchObject({ state: "completed" });
  });

  it("receives the hints of all its pools", async () => {
    const [one, other] = two();
    const { events } = await start([one, other], { directUrl: database.url, poll: "10m", pollWithHints: "10m" });
    await waitFor(() => events.some(({ kind }) => kind === "hints.ready"));
    for (const code of [one, other, one])
      expect(await until(await enqueue(code))).toMatchObject({ state: "completed" });
  });

  it("does not serve the excluded pools", async () => {
    const [mine, theirs] = two();
    const left = await enqueue(theirs);
    const { worker } = await start([mine, theirs], { exceptPools: [poolOf(theirs)] });
    expect(worker.pools).toEqual([poolOf(mine)]);
    await until(await enqueue(mine));
    expect(await stillwake.get(left)).toMatchObject({ state: "queued", attempt: 0 });
  });
});

describe("a worker with a pool", () => {
  it("serves no other, and says which of its pipelines it does not serve", async () => {
    const [mine, theirs] = two();
    const left = await enqueue(theirs);
    const { events } = await start([mine, theirs], { pool: poolOf(mine) });
    await until(await enqueue(mine));
    expect(await stillwake.get(left)).toMatchObject({ state: "queued", attempt: 0 });
    expect(events.find(({ kind }) => kind === "worker.started")).toMatchObject({
      pools: { [poolOf(mine)]: [mine.pipeline.name] },
      notServed: { [poolOf(theirs)]: [theirs.pipeline.name] },
    });
  });

  it("serves one that none of its pipelines names, for jobs that were enqueued into it", async () => {
    const [code] = two();
    const elsewhere = `elsewhere-${name()}`;
    await stillwake.register(pipeline(name(), { pool: elsewhere }));
    const { id } = await stillwake.enqueue(code.pipeline, null, { pool: elsewhere });
    await start([code], { pool: elsewhere });
    expect(await until(id)).toMatchObject({ state: "completed" });
  });

  it("ends with the nearest name if the pool exists nowhere", async () => {
    const [code] = two();
    const misspelled = poolOf(code).replace("pool-of", "pol-of");
    await expect(start([code], { pool: misspelled })).rejects.toMatchObject({
      code: "UNKNOWN_POOL",
      field: "pool",
      message: expect.stringMatching(
        new RegExp(`^Pool "${misspelled}" does not exist\\. Did you mean "${poolOf(code)}"\\? Known pools: `),
      ),
    });
  });
});
