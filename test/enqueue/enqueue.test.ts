// Enqueueing: one job, many, delayed, by priority, idempotent. refusals.test.ts has invalid calls, outage.test.ts failures.
import { beforeAll, describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import { createStillwake, type InputOf, InvalidInput, type JobId, pipeline, type Stillwake } from "../../src/index.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import { connect, connectedDatabase } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";

const { database, stillwake, client: sql } = await connectedDatabase();
const report = pipeline<{ n: number }>("report");

beforeAll(() => stillwake.register(report));

describe("one job", () => {
  it("is queued and stored with its defaults when enqueue returns", async () => {
    const { id, existing } = await stillwake.enqueue(report, { n: 1 });
    expect(existing).toBe(false);
    expect(await stillwake.get(id)).toMatchObject({
      id,
      pipeline: "report",
      pool: "default",
      state: "queued",
      waitingFor: null,
      priority: 0,
      attempt: 0,
      maxAttempts: 3,
      crashes: 0,
      epoch: "0",
      input: { n: 1 },
      output: null,
      failure: null,
      missing: [],
    });
  });

  it.each([null, false, 0, "", "text", [], {}, [1, [2, { a: "b" }]], 1.5e300, -5e-324, Number.MAX_SAFE_INTEGER])(
    "stores the input %j unchanged",
    async (input) => {
      const { id } = await stillwake.enqueue("report", input);
      expect((await stillwake.get(id)).input).toEqual(input);
    },
  );

  it("keeps its labels", async () => {
    const { id } = await stillwake.enqueue(report, { n: 1 }, { key: "project-1", tenant: "acme", attempts: 7 });
    expect(await stillwake.get(id)).toMatchObject({ key: "project-1", tenant: "acme", maxAttempts: 7 });
  });
});

describe("many jobs", () => {
  it("keep their order over several statements, with ascending ids", async () => {
    const inputs = Array.from({ length: 10_001 }, (_, n) => ({ n }));
    const enqueued = await stillwake.enqueueMany(report, inputs, { tenant: "many" });
    const { rows } = await sql.query(
      "select id, input -> 'n' as n from stillwake.jobs where tenant = 'many' order by id",
    );
    expect(rows.map((row) => row.n)).toEqual(inputs.map(({ n }) => n));
    expect(rows.map((row) => row.id)).toEqual(enqueued.map(({ id }) => id));
  });

  it.each([
    ["without a schema", report],
    ["with one", pipeline("checked", { input: z.object({ n: z.number() }) })],
  ])("of which the last is invalid store nothing, in a pipeline %s", async (_, contract) => {
    const inputs: unknown[] = Array.from({ length: 10_001 }, (_, n) => ({ n }));
    inputs[10_000] = () => {};
    const refused = await stillwake.enqueueMany(contract, inputs as never, { tenant: "wrong" }).catch((e) => e);
    expect(refused).toMatchObject({ code: "INVALID_INPUT", field: "inputs[10000]" });
    expect(await countJobs("tenant = 'wrong'")).toBe(0);
  });

  it.each([
    ["of one call", (inputs: unknown[]) => stillwake.enqueueMany("report", inputs)],
    ["of as many calls", (inputs: unknown[]) => Promise.all(inputs.map((item) => stillwake.enqueue("report", item)))],
  ])("%s are split into statements of about 16 MB", async (_, enqueue) => {
    const enqueued = await enqueue(Array.from({ length: 70 }, (_, n) => `${n}${"x".repeat(250_000)}`));
    const { rows } = await sql.query(
      `select count(*)::int as jobs, sum(octet_length(input::text))::int as bytes from stillwake.live_jobs where id = any ($1)
      group by xmin::text order by jobs`,
      [enqueued.map(({ id }) => id)],
    );
    expect(rows.map(({ jobs }) => jobs)).toEqual([2, 68]);
    expect(rows[1].bytes).toBeLessThan(18_000_000);
  });

  it("may be none", async () => {
    expect(await stillwake.enqueueMany(report, [])).toEqual([]);
  });
});

describe("a start time", () => {
  it("given as a delay keeps the job queued until then", async () => {
    const { id } = await stillwake.enqueue(report, { n: 1 }, { delay: "1h30m", priority: 900 });
    const job = await stillwake.get(id);
    expect(job).toMatchObject({ state: "queued", waitingFor: "time" });
    expect(job.runAt!.getTime() - job.createdAt.getTime()).toBe(90 * 60_000);
    expect(await claimFirst()).not.toBe(id);
    await travel(sql, "91m");
    expect(await claimFirst()).toBe(id);
  });

  it("given as a date is exact to the millisecond", async () => {
    const runAt = new Date("2035-05-06T07:08:09.123Z");
    const { id } = await stillwake.enqueue(report, { n: 1 }, { runAt });
    expect((await stillwake.get(id)).runAt).toEqual(runAt);
  });

  it("in the past means now, before jobs that were enqueued later", async () => {
    const { id } = await stillwake.enqueue(report, { n: 1 }, { runAt: new Date("2020-01-01"), priority: 901 });
    expect(await stillwake.get(id)).toMatchObject({ waitingFor: null });
    expect(await claimFirst()).toBe(id);
  });

  it("comes after priority; jobs of equal priority run in order", async () => {
    const order = [1, 3, 2, 3].map((priority) => ({ priority: priority + 950 }));
    const ids: string[] = [];
    for (const options of order) ids.push((await stillwake.enqueue(report, { n: 1 }, options)).id);
    const claimed = [await claimFirst(), await claimFirst(), await claimFirst(), await claimFirst()];
    expect(claimed).toEqual([ids[1], ids[3], ids[2], ids[0]]);
  });
});

describe("a job that expires", () => {
  it("fails with EXPIRED if no worker started it in time", async () => {
    const { id } = await stillwake.enqueue(report, { n: 1 }, { expiresIn: "1h", priority: 990 });
    await travel(sql, "61m");
    expect(await claimFirst()).not.toBe(id);
    const job = await stillwake.get(id);
    expect(job).toMatchObject({ state: "failed", attempt: 0, failure: { code: "EXPIRED" } });
    await expect(stillwake.wait(id)).rejects.toThrow(/Expired at .* before a worker could start it/);
  });

  it("runs normally if a worker did", async () => {
    const { id } = await stillwake.enqueue(
      report,
      { n: 1 },
      { expiresAt: new Date(Date.now() + 86_400_000), priority: 990 },
    );
    expect(await claimFirst()).toBe(id);
    await travel(sql, "25h");
    await sql.query("select stillwake.expire()");
    expect((await stillwake.get(id)).state).toBe("running");
  });
});

describe("an idempotency key", () => {
  it("returns the job of the first call, whatever the second call passes", async () => {
    const first = await stillwake.enqueue(report, { n: 1 }, { idempotencyKey: "first" });
    const second = await stillwake.enqueue(report, { n: 2 }, { idempotencyKey: "first", priority: 5 });
    expect(second).toEqual({ id: first.id, existing: true });
    expect((await stillwake.get(first.id)).input).toEqual({ n: 1 });
  });

  it("gives 20 callers of two processes the same job", async () => {
    await using other = createStillwake({ url: database.url });
    const callers = Array.from({ length: 20 }, (_, n) => (n % 2 ? stillwake : other));
    const results = await Promise.all(
      callers.map((caller, n) =>
        caller.enqueue(report, { n }, { idempotencyKey: "crowd", ...(n % 3 && { priority: 1 }) }),
      ),
    );
    expect(new Set(results.map(({ id }) => id)).size).toBe(1);
    expect(results.filter(({ existing }) => !existing)).toHaveLength(1);
    expect(await countJobs("idempotency_key = 'crowd'")).toBe(1);
  });

  it("is looked up by index, also while statistics say that there are few", async () => {
    const enqueue = (keys: string[]) =>
      sql.query("select stillwake.enqueue_many('report', $1, $2)", [
        JSON.stringify(keys.map((n) => ({ n }))),
        { idempotency_keys: keys, delay: "1 hour" },
      ]);
    await enqueue(["one", "two"]);
    await sql.query("analyze stillwake.idempotency_keys");
    const keys = Array.from({ length: 5000 }, (_, n) => `known-${n}`);
    await enqueue(keys);
    const startedAt = performance.now();
    await enqueue(keys);
    // 5000 lookups take 50 ms; 25 million comparisons take seconds.
    expect(performance.now() - startedAt).toBeLessThan(1000);
  });

  it("still returns the job after it has ended", async () => {
    const { id } = await stillwake.enqueue(report, { n: 1 }, { idempotencyKey: "ended" });
    await stillwake.cancel(id);
    expect(await stillwake.enqueue(report, { n: 1 }, { idempotencyKey: "ended" })).toEqual({ id, existing: true });
  });

  it("creates one job if repeated in a batch; null creates one each", async () => {
    const idempotencyKeys = ["twin", null, "twin", null, "single"];
    const results = await stillwake.enqueueMany(
      report,
      idempotencyKeys.map((_, n) => ({ n })),
      { idempotencyKeys },
    );
    expect(results.map(({ existing }) => existing)).toEqual([false, false, true, false, false]);
    expect(results[2]!.id).toBe(results[0]!.id);
    expect(new Set(results.map(({ id }) => id)).size).toBe(4);
  });

  it("that is locked by another transaction does not delay calls without a key", async () => {
    const holder = await connect(database.url);
    await holder.query("begin");
    await holder.query(
      `select stillwake.enqueue('report', '1', jsonb_build_object('idempotency_key', k)) from unnest(array['a', 'b']) k`,
    );
    const waiting = ["a", "b"].map((key) =>
      stillwake.enqueue(report, { n: 1 }, { idempotencyKey: key, priority: key === "a" ? 1 : 2 }),
    );
    await waitFor(async () => {
      const { rowCount } = await sql.query(
        "select from pg_stat_activity where datname = current_database() and application_name = 'stillwake' and wait_event_type = 'Lock'",
      );
      return rowCount === 2;
    });
    const { id } = await stillwake.enqueue(report, { n: 2 });
    expect(await stillwake.get(id)).toMatchObject({ input: { n: 2 } });
    await holder.query("commit");
    await holder.end();
    expect((await Promise.all(waiting)).map(({ existing }) => existing)).toEqual([true, true]);
  });

  it("applies to its pipeline only", async () => {
    const other = pipeline("other");
    const first = await stillwake.enqueue(report, { n: 1 }, { idempotencyKey: "shared" });
    const second = await stillwake.enqueue(other, null, { idempotencyKey: "shared" });
    expect(second).toMatchObject({ existing: false });
    expect(second.id).not.toBe(first.id);
  });
});

describe("a contract", () => {
  const clip = pipeline("clip", {
    input: z.object({
      video: z.object({ url: z.string(), width: z.number().int() }),
      cuts: z.array(z.object({ from: z.number(), to: z.number() })),
      quality: z.number().default(80),
    }),
    pool: "video",
    priority: 4,
    retry: { attempts: 9 },
  });
  const good = { video: { url: "a.mp4", width: 4 }, cuts: [{ from: 0, to: 1 }] };

  it("types the input", () => {
    expectTypeOf<InputOf<typeof report>>().toEqualTypeOf<{ n: number }>();
    expectTypeOf<InputOf<typeof clip>>().toEqualTypeOf<{
      video: { url: string; width: number };
      cuts: { from: number; to: number }[];
      quality?: number | undefined;
    }>();
    async function neverCalled(client: Stillwake) {
      expectTypeOf(await client.enqueue(clip, good)).toEqualTypeOf<{ id: JobId; existing: boolean }>();
      // @ts-expect-error: width is a number
      await client.enqueue(clip, { ...good, video: { url: "", width: "4" } });
      // @ts-expect-error: cuts are missing
      await client.enqueueMany(clip, [{ video: good.video }]);
      // @ts-expect-error: n is a number
      await client.enqueue(report, { n: "1" });
      // @ts-expect-error: there is no such option
      await client.enqueue(report, { n: 1 }, { prioritty: 5 });
      // @ts-expect-error: many jobs have many keys
      await client.enqueueMany(report, [{ n: 1 }], { idempotencyKey: "one" });
    }
    expect(neverCalled).toBeTypeOf("function");
  });

  it("is registered with its policies; the schema's output is stored", async () => {
    const { id } = await stillwake.enqueue(clip, good);
    expect(await stillwake.get(id)).toMatchObject({
      pool: "video",
      priority: 4,
      maxAttempts: 9,
      input: { ...good, quality: 80 },
    });
  });

  it("reports every invalid path, through objects and arrays", async () => {
    const bad = {
      video: { url: "a.mp4", width: 1.5 },
      cuts: [
        { from: 0, to: 1 },
        { from: 0, to: "2" },
      ],
    };
    const refused = await stillwake.enqueue(clip, bad as never).catch((error) => error);
    expect(refused).toBeInstanceOf(InvalidInput);
    expect(refused.field).toBe("input.video.width");
    expect(refused.issues.map((issue: { path: string }) => issue.path)).toEqual([
      "input.video.width",
      "input.cuts[1].to",
    ]);
    expect(refused.message).toContain('Input for pipeline "clip" is not valid: input.video.width: ');

    const inMany = await stillwake.enqueueMany(clip, [good, { ...good, cuts: [{ from: 1 }] } as never]).catch((e) => e);
    expect(inMany).toMatchObject({ field: "inputs[1].cuts[0].to" });
    expect(await countJobs("pipeline = 'clip'")).toBe(1);
  });
});

describe("concurrent calls", () => {
  it("share commits: 200 of them take a few, and every returned id is stored", async () => {
    const results = await Promise.all(
      Array.from({ length: 200 }, (_, n) => stillwake.enqueue(report, { n }, { tenant: "burst" })),
    );
    const { rows } = await sql.query(
      "select count(*)::int as jobs, count(distinct xmin::text)::int as commits from stillwake.live_jobs where id = any ($1)",
      [results.map(({ id }) => id)],
    );
    expect(rows[0].jobs).toBe(200);
    expect(rows[0].commits).toBeLessThanOrEqual(5);
    recordFigure("enqueue: commits for 200 concurrent calls", rows[0].commits);
  });

  it("are independent: a rejected one does not fail the others", async () => {
    const keys = ["good-1", "x".repeat(501), "good-2", "", "good-3", "nul\u0000", "good-4", "half \ud83d", "good-5", 7];
    const results = await Promise.allSettled(
      keys.map((idempotencyKey, n) => stillwake.enqueue(report, { n }, { idempotencyKey: idempotencyKey as string })),
    );
    expect(results.map(({ status }) => status)).toEqual(keys.map((_, n) => (n % 2 ? "rejected" : "fulfilled")));
    for (const result of results) {
      if (result.status === "rejected")
        expect(result.reason).toMatchObject({ code: "INVALID_INPUT", field: "idempotencyKey" });
    }
  });
});

/** Claims one job of the default pool. */
async function claimFirst(): Promise<string | undefined> {
  const { rows } = await sql.query(
    "select job_id from stillwake.claim('test', 'default', array['report'], 1, '1 hour')",
  );
  return rows[0]?.job_id;
}

async function countJobs(condition: string): Promise<number> {
  return (await sql.query(`select count(*)::int as count from stillwake.jobs where ${condition}`)).rows[0].count;
}
