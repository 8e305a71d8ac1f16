// Fan-out and join: a job spawns others, waits for them without a slot, and continues with their results, whatever crashes.
import { describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import { pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { type ChildEnd, implement } from "../../src/worker/index.ts";
import { deferred } from "../support/deferred.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { stillwake, run, start, until, query, events, attempts, logs, name } = await inProcessFixture();

const square = pipeline(name(), {
  input: z.object({ n: z.number() }),
  output: z.object({ square: z.number() }),
  retry: { attempts: 1 },
});
const squares = implement(square, (_job, { n }) => {
  if (n < 0) throw new Error(`${n} is negative`);
  return { square: n * n };
});
const numbers = (count: number) => Array.from({ length: count }, (_, n) => ({ n }));

describe("a job that spawns", () => {
  it("gets the results of its children, typed and in the order of its inputs", async () => {
    await start([squares]);
    const { job, id } = await run(async (parent) => {
      const kids = await parent.spawn(square, numbers(300));
      const results = await kids.done();
      expectTypeOf(results).toEqualTypeOf<{ square: number }[]>();
      return results.map(({ square }) => square);
    });
    expect(job).toMatchObject({
      state: "completed",
      attempt: 1,
      children: { total: 300, completed: 300, failed: 0, cancelled: 0 },
    });
    expect(job.output).toEqual(numbers(300).map(({ n }) => n * n));
    const { jobs } = await stillwake.list({ parent: id, limit: 1 });
    expect(jobs[0]!.parent).toEqual({ id, spawn: square.name, index: expect.any(Number) });
    expect(await events(id)).toContain("spawned");
  });

  it("occupies no slot while it waits, keeps its position, and does not count the attempt", async () => {
    await start([squares], { slots: 1 });
    const { job, id } = await run(
      { worker: { slots: 1 } },
      async (parent) => (await (await parent.spawn(square, numbers(5))).done()).length,
    );
    expect(job).toMatchObject({ state: "completed", output: 5, attempt: 1 });
    expect((await attempts(id)).map(({ outcome }) => outcome)).toEqual(["slept", "completed"]);
  });

  it("continues at once without inputs", async () => {
    const { job } = await run(async (parent) => (await parent.spawn(square, [])).done());
    expect(job).toMatchObject({ state: "completed", output: [], children: { total: 0 } });
  });

  it("fails with the first child that fails, and the others are cancelled", async () => {
    const slow = pipeline(name(), { retry: { attempts: 1 } });
    const { job, id } = await run({ until: ({ waitingFor }) => waitingFor === "children" }, async (parent) => {
      await parent.spawn(slow, numbers(200), { key: "never started" });
      const kids = await parent.spawn(square, [{ n: 1 }, { n: -2 }, { n: 3 }]);
      await kids.done();
    });
    expect(job.state).toBe("queued");
    await start([squares]);
    const failed = await until(id);
    expect(failed).toMatchObject({ state: "failed", attempt: 1, failure: { code: "CHILD_FAILED" } });
    expect(failed.failure!.message).toContain("-2 is negative");
    expect(failed.children).toMatchObject({ total: 203, completed: 2, failed: 1, cancelled: 200 });
    expect((await stillwake.list({ parent: id, state: "cancelled", limit: 1 })).jobs[0]!.cancel?.reason).toBe(
      "The job that spawned it has failed",
    );
  });

  it("collects the outcome of each child, or ignores failed ones", async () => {
    await start([squares]);
    const { job } = await run(async (parent) => {
      const collected = await (
        await parent.spawn(square, [{ n: 2 }, { n: -1 }], { key: "collect", onError: "collect" })
      ).done();
      expectTypeOf(collected).toEqualTypeOf<ChildEnd<{ square: number }>[]>();
      const ignored = await (
        await parent.spawn(square, [{ n: -1 }, { n: 3 }], { key: "ignore", onError: "ignore" })
      ).done();
      expectTypeOf(ignored).toEqualTypeOf<({ square: number } | undefined)[]>();
      return { collected, ignored: ignored.map((result) => result ?? null) };
    });
    expect(job.output).toMatchObject({
      collected: [
        { state: "completed", output: { square: 4 } },
        { state: "failed", failure: { code: "RETRIES_EXHAUSTED" } },
      ],
      ignored: [null, { square: 9 }],
    });
  });

  it("gets an error if it is retried with other inputs than it had spawned", async () => {
    let tries = 0;
    const { job } = await run(async (parent) => {
      tries += 1;
      await parent.spawn(square, numbers(tries), { key: "mine" });
      if (tries === 1) throw new Error("once more");
    });
    expect(job).toMatchObject({ state: "failed", failure: { code: "NOT_ALLOWED" } });
    expect(job.failure!.message).toContain('Spawn "mine" was started with 1 inputs');
  });

  it("may change onError between attempts", async () => {
    await start([squares]);
    let tries = 0;
    const { job } = await run(async (parent) => {
      tries += 1;
      const kids = await parent.spawn(square, [{ n: -1 }, { n: 2 }], { onError: tries === 1 ? "fail" : "collect" });
      if (tries === 1) throw new Error("once more");
      return (await kids.done()).map((result) => (result as { state?: string }).state);
    });
    expect(job).toMatchObject({ state: "completed", output: ["failed", "completed"] });
  });

  it("rejects invalid inputs, results and names, and stores nothing", async () => {
    const { job } = await run(async (parent) => {
      await expect(parent.spawn(square, [{ n: "no" } as never], { key: "a" })).rejects.toThrow(/inputs\[0\]\.n/);
      await parent.spawn(square, [{ n: 1 }], { key: "b" });
      await expect(parent.spawn(square, [{ n: 1 }], { key: "b" })).rejects.toThrow(/already used/);
      await expect(parent.spawn({} as never, [])).rejects.toThrow(/is not a pipeline/);
    });
    expect(job.state).toBe("completed");
    expect(job.children).toMatchObject({ total: 1 });
    const liar = pipeline(name(), { output: z.object({ square: z.number() }), retry: { attempts: 1 } });
    const { id: lie } = await stillwake.enqueue(liar, {});
    await start([implement(liar, () => ({ square: "four" }) as never)]);
    expect(await until(lie)).toMatchObject({ state: "failed", failure: { code: "INVALID_INPUT" } });
  });
});

describe("cancel", () => {
  it("applies to the whole tree: waiting and running children, and their children", async () => {
    const leaf = pipeline(name());
    const stem = pipeline(name());
    const root = pipeline(name());
    await stillwake.register(leaf);
    await start([
      implement(stem, async (job) => (await job.spawn(leaf, numbers(20))).done()),
      implement(root, async (job) => (await job.spawn(stem, numbers(5))).done()),
    ]);
    const { id } = await stillwake.enqueue(root, {});
    await until(id, ({ waitingFor, children }) => waitingFor === "children" && children?.total === 5);
    const stems = (await stillwake.list({ parent: id })).jobs;
    for (const context of stems) await until(context.id, ({ waitingFor }) => waitingFor === "children");
    await stillwake.cancel(id, { reason: "enough" });
    expect((await stillwake.get(id)).state).toBe("cancelled");
    const [left] = await query<{ count: string }>(
      "select count(*) from stillwake.live_jobs where pipeline = any ($1)",
      [[leaf.name, stem.name]],
    );
    expect(Number(left!.count)).toBe(0);
    expect((await stillwake.get(id)).children).toEqual({ total: 5, completed: 0, failed: 0, cancelled: 5 });
  });
});

describe("a parent that is cancelled while it runs", () => {
  it("ends as cancelled, even if it joins or spawns children before it notices", async () => {
    for (const act of ["join", "spawn"]) {
      const leaf = pipeline(name());
      const { promise: received, resolve: cancelled } = deferred();
      const { id } = await run(
        { until: ({ children }) => children !== null, worker: { lease: "1h" } },
        async (parent) => {
          const kids = await parent.spawn(leaf, numbers(3));
          await received;
          if (act === "join") await kids.done();
          else await parent.spawn(leaf, numbers(2), { key: "more" });
        },
      );
      expect(await stillwake.cancel(id)).toBe("running");
      cancelled();
      expect(await until(id)).toMatchObject({ state: "cancelled", children: { total: 3, cancelled: 3 } });
    }
  });
});

describe("keys", () => {
  it("of children are waited for, also by siblings, but never those of an ancestor, which would be a deadlock", async () => {
    const keyed = pipeline<{ key: string; n: number }>(name(), { key: ({ key }) => key, onConflict: "replace" });
    const parent = pipeline<{ key: string }>(keyed.name, {
      key: ({ key }) => key,
      onConflict: "replace",
      retry: { attempts: 1 },
    });
    const order: number[] = [];
    await start([
      implement(parent, async (job, input) => {
        if ("n" in input) return void order.push(input.n as number);
        if (input.key === "mine") return (await job.spawn(keyed, [{ key: "mine", n: 0 }])).done();
        return (
          await job.spawn(
            keyed,
            [1, 2, 3].map((n) => ({ key: "theirs", n })),
          )
        ).done();
      }),
    ]);
    const bad = await stillwake.enqueue(parent, { key: "mine" });
    expect(await until(bad.id)).toMatchObject({ state: "failed", failure: { code: "NOT_ALLOWED" } });
    const good = await stillwake.enqueue(parent, { key: "whole" });
    expect(await until(good.id)).toMatchObject({
      state: "completed",
      children: { total: 3, completed: 3, cancelled: 0 },
    });
    expect(order).toEqual([1, 2, 3]);
  });
});

describe("a watchdog", () => {
  it("does not complete a parent by its progress if its list is finished and its children have just ended", async () => {
    const part = pipeline(name());
    const { id, worker } = await run(
      { pipeline: { completeByProgress: true }, until: ({ waitingFor }) => waitingFor === "children" },
      async (parent) => {
        await parent.each("list", [1, 2], {}, () => {});
        return (await (await parent.spawn(part, numbers(1))).done()).length;
      },
    );
    await stillwake.watchdog();
    expect((await stillwake.get(id)).state).toBe("queued");
    await worker.stop();
    const { worker: second } = await start([implement(part, () => 1)]);
    await until(id, ({ waitingFor }) => waitingFor === null);
    await stillwake.watchdog();
    expect((await stillwake.get(id)).state).toBe("queued");
    await second.stop();
  });
});

describe("retry", () => {
  it("of a parent whose children are still stopping is rejected until they have stopped", async () => {
    const { promise: stopped, resolve: stop } = deferred();
    const slow = pipeline(name(), { retry: { attempts: 1 } });
    const whole = pipeline(name(), { retry: { attempts: 1 } });
    let broken = true;
    await start(
      [
        implement(slow, async (job) => {
          if (broken) await stopped;
          job.signal.throwIfAborted();
          return "fine";
        }),
        implement(whole, async (job) => {
          const kids = await job.spawn(slow, numbers(1));
          if (broken) {
            await waitFor(async () => (await stillwake.list({ parent: job.id })).jobs[0]?.state === "running");
            throw new Error("broken");
          }
          return kids.done();
        }),
      ],
      { grace: "10s", cancelGrace: "10s" },
    );
    const { id } = await stillwake.enqueue(whole, {});
    expect((await until(id)).state).toBe("failed");
    await expect(stillwake.retry(id)).rejects.toMatchObject({ code: "NOT_ALLOWED" });
    broken = false;
    stop();
    const [child] = (await stillwake.list({ parent: id })).jobs;
    await until(child!.id);
    await stillwake.retry(id);
    expect(await until(id)).toMatchObject({ state: "completed", output: ["fine"] });
  });

  it("of a parent queues the children that had not completed, and only those", async () => {
    let broken = true;
    const runs: number[] = [];
    const part = pipeline<{ n: number }>(name(), { retry: { attempts: 1 } });
    const whole = pipeline(name(), { retry: { attempts: 1 } });
    await start([
      implement(part, (_job, { n }) => {
        runs.push(n);
        if (broken && n === 1) throw new Error("not yet");
        return n;
      }),
      implement(whole, async (job) =>
        (await job.spawn(part, numbers(3), { onError: "collect" })).done().then((ends) => {
          if (ends.some(({ state }) => state === "failed")) throw new Error("one has failed");
          return ends.length;
        }),
      ),
    ]);
    const { id } = await stillwake.enqueue(whole, {});
    expect((await until(id)).state).toBe("failed");
    broken = false;
    await stillwake.retry(id);
    expect(await until(id)).toMatchObject({
      state: "completed",
      output: 3,
      children: { total: 3, completed: 3, failed: 0 },
    });
    expect(runs.toSorted()).toEqual([0, 1, 1, 2]);
  });

  it("from the start spawns new children", async () => {
    const part = pipeline<{ n: number }>(name());
    const whole = pipeline(name(), { retry: { attempts: 1 } });
    let count = 3;
    await start([
      implement(part, (_job, { n }) => n),
      implement(whole, async (job) => {
        const found = await (await job.spawn(part, numbers(count))).done();
        if (count === 3) throw new Error("again");
        return found;
      }),
    ]);
    const { id } = await stillwake.enqueue(whole, {});
    expect((await until(id)).state).toBe("failed");
    count = 2;
    await stillwake.retry(id, { fromStart: true });
    expect(await until(id)).toMatchObject({ state: "completed", output: [0, 1], children: { total: 2 } });
    expect((await logs(id)).length).toBeGreaterThan(0);
  });
});
