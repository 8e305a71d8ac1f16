// The reducer of job.each(): its value and the position are saved together, so that they never disagree.
import pg from "pg";
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from "vitest";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { deferred } from "../support/deferred.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, run, query, attempts } = await inProcessFixture();
const pool = new pg.Pool({ connectionString: database.url, max: 8 });
beforeAll(async () => {
  await pool.query("create table effects (list text, item integer)");
});
afterAll(() => pool.end());

const range = (count: number) => Array.from({ length: count }, (_, n) => n);
const sumOf = (items: readonly number[]) => items.reduce((sum, item) => sum + item, 0);
const adding = { initial: 0, reduce: (sum: number, found: number) => sum + found };

describe("the reducer of job.each", () => {
  it("keeps its value when the job waits, which variables outside of the function do not", async () => {
    let attemptsRun = 0;
    const { job, id } = await run({ pipeline: { releaseAfter: "60ms" } }, async (one) => {
      attemptsRun += 1;
      let lost = 0;
      const { done, value } = await one.each(
        "items",
        range(40),
        { batch: 5 },
        async (batch) => {
          await new Promise((resolve) => setTimeout(resolve, 25));
          lost += sumOf(batch);
          return sumOf(batch);
        },
        { initial: 0, reduce: (sum, found) => sum + found },
      );
      expectTypeOf(value).toEqualTypeOf<number>();
      await one.sleep("a wait", "1ms");
      return { done, value, lost };
    });
    expect((await attempts(id)).length).toBe(attemptsRun);
    expect(attemptsRun).toBeGreaterThan(2);
    expect(job.output).toEqual({ done: 40, value: sumOf(range(40)), lost: 0 });
  });

  it("adds the result of each batch once when attempts fail, with batches in parallel", async () => {
    const failing = new Set([10, 25, 40]);
    const { job } = await run({ pipeline: { retry: { attempts: 10, initial: "1ms", max: "1ms" } } }, async (one) =>
      one.each(
        "items",
        range(60),
        { batch: 5, parallel: 4 },
        async (batch) => {
          await new Promise((resolve) => setTimeout(resolve, batch[0]! % 7));
          if (failing.delete(batch[0]!)) throw new Error("once");
          return sumOf(batch);
        },
        adding,
      ),
    );
    expect(failing.size).toBe(0);
    expect(job).toMatchObject({ state: "completed", output: { done: 60, value: sumOf(range(60)) } });
  });

  it("calls reduce in the order in which batches are saved, each time with the value that was saved last", async () => {
    const seen: number[][] = [];
    const { job } = await run(async (one) => {
      const { value } = await one.each(
        "items",
        range(6),
        { batch: 1, parallel: 6 },
        async ([item]) => {
          await new Promise((resolve) => setTimeout(resolve, (6 - item!) * 15));
          return item!;
        },
        {
          initial: [] as number[],
          reduce: (all, item) => {
            seen.push([...all]);
            all.push(item);
            return all;
          },
        },
      );
      return value;
    });
    expect(job.output).toEqual([5, 4, 3, 2, 1, 0]);
    expect(seen).toEqual([[], [5], [5, 4], [5, 4, 3], [5, 4, 3, 2], [5, 4, 3, 2, 1]]);
  });

  it("commits the value with the rows of the batch: what is rolled back is not added", async () => {
    let tries = 0;
    const { job } = await run(async (one) =>
      one.each(
        "items",
        range(40),
        { batch: 5, parallel: 3, tx: pool },
        async (batch, { tx, first }) => {
          expectTypeOf(tx).toEqualTypeOf<pg.PoolClient>();
          for (const item of batch) await tx.query("insert into effects values ('reduced', $1)", [item]);
          if (first === 20 && ++tries === 1) throw new Error("after its rows");
          return batch.length;
        },
        adding,
      ),
    );
    expect(job).toMatchObject({ state: "completed", attempt: 2, output: { done: 40, value: 40 } });
    expect(await query("select count(*)::int as rows from effects where list = 'reduced'")).toEqual([{ rows: 40 }]);
  });

  it("does not add a batch twice that is repeated because of a conflict", async () => {
    const isolated = new pg.Pool({
      connectionString: database.url,
      max: 8,
      options: "-c default_transaction_isolation=repeatable\\ read",
    });
    let runs = 0;
    const { job } = await run(async (one) =>
      one.each(
        "items",
        range(40),
        { batch: 1, parallel: 4, tx: isolated },
        async ([item], { tx }) => {
          runs += 1;
          await tx.query("insert into effects values ('conflicts', $1)", [item]);
          return item!;
        },
        adding,
      ),
    );
    await isolated.end();
    expect(runs).toBeGreaterThan(40);
    expect(job).toMatchObject({ state: "completed", attempt: 1, output: { done: 40, value: sumOf(range(40)) } });
  });

  it("adds a batch once when the response to its COMMIT is lost", async () => {
    await using proxy = await faultProxy(database.url);
    const broken = new pg.Pool({ connectionString: proxy.url, max: 1 });
    broken.on("error", () => {});
    let commits = 0;
    const cut = proxy.cutAfterServerReceives((sent) => /commit/i.test(sent.toString("latin1")) && ++commits === 2);
    const { job } = await run({ pipeline: { retry: { attempts: 1 } } }, async (one) =>
      one.each("items", range(30), { batch: 10, tx: broken }, (batch) => sumOf(batch), adding),
    );
    await cut;
    await broken.end();
    expect(job).toMatchObject({ state: "completed", attempt: 1, output: { done: 30, value: sumOf(range(30)) } });
  });

  it("takes over the saved value when a batch that exceeded its timeout finishes after its second try", async () => {
    let tries = 0;
    const reduced: number[] = [];
    const { promise: late, resolve: finishFirstTry } = deferred();
    const { job } = await run(async (one) =>
      one.each(
        "items",
        [1, 2],
        { batch: 1, timeout: "1s", retry: { attempts: 2, initial: "1ms" } },
        async ([item], { first }) => {
          if (first === 0 && ++tries === 1) await late;
          if (first === 1) {
            finishFirstTry();
            // The first try of the other batch saves its position now, which is done already.
            await waitFor(() => reduced.length === 2, { interval: 1 });
          }
          return item!;
        },
        {
          initial: 0,
          reduce: (sum, item) => {
            reduced.push(item);
            return sum + item;
          },
        },
      ),
    );
    expect(tries).toBe(2);
    expect(reduced).toEqual([1, 1, 2]);
    expect(job).toMatchObject({ state: "completed", attempt: 1, output: { done: 2, value: 3 } });
  });

  it("returns the same value in every later attempt, with the types that a step can return", async () => {
    const seen: unknown[] = [];
    const { job } = await run(async (one) => {
      const { value } = await one.each("items", [1, 2], { batch: 1 }, ([item]) => item!, {
        initial: { first: null as Date | null, count: 0n },
        reduce: ({ first, count }, item) => ({ first: first ?? new Date(item), count: count + 1n }),
      });
      seen.push(value);
      await one.sleep("a wait", "1ms");
    });
    expect(job.state).toBe("completed");
    expect(seen).toEqual(Array(2).fill({ first: new Date(1), count: 2n }));
  });

  it("returns the initial value of an empty list", async () => {
    const { job } = await run(async (one) => one.each("items", [] as number[], {}, sumOf, { ...adding, initial: 7 }));
    expect(job.output).toEqual({ done: 0, value: 7 });
  });

  it("fails without a retry when the value cannot be saved, and names the value", async () => {
    const { job } = await run(async (one) =>
      one.each("items", [1], {}, (batch) => batch.length, {
        initial: { total: 0, how: (() => 0) as unknown },
        reduce: (value) => value,
      }),
    );
    expect(job).toMatchObject({ state: "failed", attempt: 1 });
    expect(JSON.stringify(job.failure)).toContain('The value of \\"items\\".how is a function');
  });

  it("fails without a retry when the value exceeds the limit of a step's result", async () => {
    const { job } = await run(async (one) =>
      one.each("items", range(20), { batch: 1 }, () => "x".repeat(100_000), {
        initial: "",
        reduce: (text, more) => text + more,
      }),
    );
    expect(job).toMatchObject({ state: "failed", attempt: 1 });
    expect(JSON.stringify(job.failure)).toContain("the limit is 1048576");
  });

  it("rejects a reducer that is added to a list of which batches were saved without one", async () => {
    let tries = 0;
    const { job } = await run(async (one) => {
      tries += 1;
      if (tries === 1) {
        await one.each("items", range(2), { batch: 1 }, ([item]) => {
          if (item === 1) throw new Error("the code changes");
        });
      }
      return one.each("items", range(2), { batch: 1 }, ([item]) => item!, adding);
    });
    expect(job).toMatchObject({ state: "failed", attempt: 2 });
    expect(JSON.stringify(job.failure)).toContain("saved batches of it without one");
  });

  it("loses nothing when another caller of save_position() passes no value", async () => {
    const { id } = await run(async (one) => {
      const [row] = await query<{ epoch: string; lease_id: string }>(
        "select epoch, lease_id from stillwake.live_jobs where id = $1",
        [one.id],
      );
      const save = (from: number, value: string | null) =>
        query("select stillwake.save_position($1, $2, $3, 'items', $4, $5, null, false, $6)", [
          ...[one.id, row!.epoch, row!.lease_id, from, from + 2, value],
        ]);
      await save(0, '{"sum": 1}');
      await save(2, null);
    });
    expect(await query("select value from stillwake.checkpoints where job_id = $1", [id])).toEqual([
      { value: { sum: 1 } },
    ]);
  });

  it("rejects an invalid reducer", async () => {
    const { job } = await run(async (one) => {
      await expect(one.each("a", [1], {}, () => 1, { reduce: () => 1 } as never)).rejects.toThrow(/no initial value/);
      await expect(one.each("b", [1], {}, () => 1, { initial: 1 } as never)).rejects.toThrow(/no function reduce/);
    });
    expect(job.state).toBe("completed");
  });
});
