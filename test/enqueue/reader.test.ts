// Reads of attempts, steps, pipelines, pools, machines and statistics.
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { breaker, limit, pipeline } from "../../src/index.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import { deferred } from "../support/deferred.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, run, stillwake, start, name, query } = await inProcessFixture();

describe("a job", () => {
  it("has all its attempts, the running one included, with their outcomes", async () => {
    let tries = 0;
    const { id } = await run({ pipeline: { retry: { initial: "10ms", max: "10ms" } } }, async () => {
      tries += 1;
      if (tries === 1) throw new Error("not yet");
      return "done";
    });
    expect(await stillwake.attempts(id)).toEqual([
      {
        epoch: "1",
        attempt: 1,
        worker: expect.any(String),
        claimedAt: expect.any(Date),
        endedAt: expect.any(Date),
        outcome: "failed",
        failure: expect.objectContaining({ message: "not yet" }),
      },
      {
        epoch: "2",
        attempt: 2,
        worker: expect.any(String),
        claimedAt: expect.any(Date),
        endedAt: expect.any(Date),
        outcome: "completed",
        failure: null,
      },
    ]);
  });

  it("has its checkpoints in order, with outputs only on request", async () => {
    const { id } = await run(async (job) => {
      await job.step("first", () => ({ n: 1 }));
      await job.step("second", () => ({ n: 2 }));
    });
    const steps = await stillwake.steps(id);
    expect(steps.map((step) => step.name)).toEqual(["first", "second"]);
    expect(steps[0]).toEqual({
      name: "first",
      epoch: "1",
      startedAt: expect.any(Date),
      savedAt: expect.any(Date),
      tookMs: expect.any(Number),
    });
    expect((await stillwake.steps(id, { outputs: true })).map((step) => step.output)).toEqual([{ n: 1 }, { n: 2 }]);
  });
});

describe("pipelines", () => {
  it("have an input schema once registered, if the schema has a JSON form", async () => {
    const described = pipeline(name(), {
      input: z.object({ repo: z.string().min(1), depth: z.int().default(1) }),
      needs: [limit("reading-limit", { max: 5, per: "1m" }), breaker("reading-breaker", {})],
      concurrency: 3,
    });
    const silent = pipeline(name(), { input: z.object({ at: z.date() }) });
    await stillwake.register(described, silent);
    expect(await stillwake.pipeline(described.name)).toMatchObject({
      pool: "default",
      concurrency: 3,
      limits: ["reading-limit"],
      breakers: ["reading-breaker"],
      onConflict: "join",
      inputSchema: { type: "object", required: ["repo"], properties: { depth: { default: 1 } } },
    });
    expect((await stillwake.pipeline(silent.name)).inputSchema).toBeNull();
    expect((await stillwake.pipelines()).map((item) => item.name)).toEqual(
      expect.arrayContaining([described.name, silent.name]),
    );
    await expect(stillwake.pipeline("unknown")).rejects.toMatchObject({ code: "UNKNOWN_PIPELINE" });
  });

  it.each([{ pol: "x" }, { retry: { attemps: 3 } }, { keep: { forever: true } }])(
    "reject an unknown option and list the known ones: %j",
    (options) => {
      expect(() => pipeline("misspelled", options as never)).toThrow(/unknown option.*Known options/);
    },
  );

  it("lose a removed schema at the next registration", async () => {
    const contract = pipeline(name(), { input: z.object({ a: z.string() }) });
    await stillwake.register(contract);
    await query("select stillwake.register_pipeline($1, $2)", [contract.name, JSON.stringify({ input_schema: null })]);
    expect((await stillwake.pipeline(contract.name)).inputSchema).toBeNull();
  });
});

describe("pools and machines", () => {
  it("show a worker with its running jobs, and its pool with the waiting ones", async () => {
    const pool = name();
    const { promise: released, resolve: release } = deferred();
    const contract = pipeline(name(), { pool });
    const { implement } = await import("../../src/worker/index.ts");
    await start([implement(contract, () => released)], { pool, slots: 1 });
    await stillwake.enqueueMany(contract, [{}, {}, {}]);
    await waitFor(async () =>
      (await stillwake.machines()).some((machine) => machine.pool === pool && machine.running === 1),
    );
    const [machine] = (await stillwake.machines()).filter((item) => item.pool === pool);
    expect(machine).toMatchObject({ running: 1, since: expect.any(Date), leaseUntil: expect.any(Date) });
    await stillwake.pause({ pool }, { reason: "lunch", by: "ann" });
    expect((await stillwake.pools()).find((item) => item.name === pool)).toMatchObject({
      claimable: 2,
      running: 1,
      oldest: expect.any(Date),
      paused: { at: expect.any(Date), by: "ann", reason: "lunch" },
    });
    release();
  });
});

describe("statistics", () => {
  it("count waiting jobs by reason, and ended jobs by outcome and duration", async () => {
    const ended = pipeline(name());
    const { implement } = await import("../../src/worker/index.ts");
    await start(
      [
        implement(ended, async (_job, input) => {
          if ((input as { fail?: boolean }).fail) throw new Error("no");
        }),
      ],
      {},
    );
    const ids = [
      ...(await stillwake.enqueueMany(ended, [{}, {}, { fail: true }], { attempts: 1 })),
      ...(await stillwake.enqueueMany(ended, [{}], { delay: "1h" })),
    ];
    await waitFor(
      async () => (await stillwake.stats()).pipelines.find((item) => item.name === ended.name)?.failed === 1,
    );
    await waitFor(
      async () => (await stillwake.stats()).pipelines.find((item) => item.name === ended.name)?.completed === 2,
    );
    const stats = await stillwake.stats({ span: "10m", parts: 10 });
    expect(stats.pipelines.find((item) => item.name === ended.name)).toMatchObject({
      completed: 2,
      failed: 1,
      cancelled: 0,
      totalSeconds: expect.any(Number),
      meanSeconds: expect.any(Number),
    });
    // Jobs that never ran do not count for the duration.
    const mean = stats.pipelines.find((item) => item.name === ended.name)!.meanSeconds!;
    await stillwake.cancel((await stillwake.enqueue(ended, {}, { delay: "1h" })).id);
    const after = (await stillwake.stats({ span: "10m" })).pipelines.find((item) => item.name === ended.name)!;
    expect(after).toMatchObject({ cancelled: 1, meanSeconds: mean });
    expect(stats.parts).toHaveLength(10);
    expect(stats.parts.reduce((sum, part) => sum + part.completed, 0)).toBe(stats.ended.completed);
    expect(stats.waiting.time).toBeGreaterThanOrEqual(1);
    expect(stats.more).toBe(false);
    await stillwake.cancel(ids[3]!.id);
    await travel(database.url, "11m");
    expect((await stillwake.stats({ span: "10m" })).ended).toEqual({ completed: 0, failed: 0, cancelled: 0 });
  });

  it.each([{ span: "25h" }, { span: "0s" }, { parts: 0 }, { parts: 201 }, { parts: 1.5 }])(
    "reject %j",
    async (options) => {
      await expect(stillwake.stats(options as never)).rejects.toMatchObject({ code: "INVALID_INPUT" });
    },
  );
});
