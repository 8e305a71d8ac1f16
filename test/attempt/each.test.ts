// job.each(): no item is repeated or skipped, whatever fails, dies or runs out of time.
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { implement, type JobContext } from "../../src/worker/index.ts";
import { deferred } from "../support/deferred.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, stillwake, run, start, until, query, attempts, logs, events } = await inProcessFixture();
const pool = new pg.Pool({ connectionString: database.url, max: 8 });
beforeAll(async () => {
  await pool.query("create table effects (list text, item integer)");
});
afterAll(() => pool.end());
const range = (count: number) => Array.from({ length: count }, (_, n) => n);

describe("job.each", () => {
  it("processes a list in batches, in order, and reports its progress", async () => {
    const seen: number[][] = [];
    const { job, logs: lines } = await run(async (one) =>
      one.each("items", range(25), { batch: 10, end: ({ done }) => `All ${done}` }, (batch) => void seen.push(batch)),
    );
    expect(job).toMatchObject({ state: "completed", output: { done: 25 }, progress: { done: 25, total: 25 } });
    expect(seen.map((batch) => batch.length)).toEqual([10, 10, 5]);
    expect(seen.flat()).toEqual(range(25));
    expect(lines.map(({ message }) => message)).toContain("All 25");
  });

  it("completes at once without items and logs it", async () => {
    const { job, logs: lines } = await run(async (one) =>
      one.each("items", [], {}, () => Promise.reject(new Error("never"))),
    );
    expect(job).toMatchObject({ state: "completed", output: { done: 0 }, progress: { done: 0, total: 0 }, attempt: 1 });
    expect(lines.map(({ message }) => message)).toContain('Nothing to do: "items" has no items');
  });

  it("resumes after the last batch after a failure", async () => {
    const seen: number[] = [];
    let broken = true;
    const { job } = await run(async (one) =>
      one.each("items", range(50), { batch: 10 }, (batch) => {
        if (broken && batch[0] === 30) {
          broken = false;
          throw new Error("in the middle");
        }
        seen.push(...batch);
      }),
    );
    expect(job).toMatchObject({ state: "completed", attempt: 2, output: { done: 50 } });
    expect(seen).toEqual(range(50));
  });

  it("runs batches in parallel, and repeats none that was done", async () => {
    const seen: number[] = [];
    let most = 0;
    let now = 0;
    let broken = true;
    const { job } = await run(async (one) =>
      one.each("items", range(60), { batch: 5, parallel: 4 }, async (batch) => {
        most = Math.max(most, ++now);
        await new Promise((resolve) => setTimeout(resolve, batch[0] === 10 ? 30 : 5));
        now -= 1;
        if (broken && batch[0] === 10) {
          broken = false;
          throw new Error("out of order");
        }
        seen.push(...batch);
      }),
    );
    expect(job).toMatchObject({ state: "completed", attempt: 2 });
    expect(seen.toSorted((a, b) => a - b)).toEqual(range(60));
    expect(most).toBe(4);
  });

  it("passes the cursor of the last item to the source", async () => {
    const starts: unknown[] = [];
    let broken = true;
    const { job } = await run(async (one) =>
      one.each(
        "rows",
        async function* ({ done, after }) {
          starts.push({ done, after });
          const from = after === undefined ? 0 : (after as { id: number }).id + 1;
          for (let id = from; id < 30; id++) yield { id };
        },
        { batch: 7, cursor: ({ id }) => ({ id }), total: 30 },
        (batch) => {
          if (broken && batch.some(({ id }) => id === 15)) {
            broken = false;
            throw new Error("once");
          }
        },
      ),
    );
    expect(job).toMatchObject({ state: "completed", output: { done: 30 } });
    expect(starts).toEqual([{ done: 0 }, { done: 14, after: { id: 13 } }]);
  });

  it("commits the rows of a batch together with its position", async () => {
    let tries = 0;
    const { job } = await run(async (one) =>
      one.each("items", range(40), { batch: 10, tx: pool }, async (batch, { tx, first }) => {
        for (const item of batch) await tx.query("insert into effects values ('tx', $1)", [item]);
        if (first === 20 && ++tries === 1) throw new Error("after its rows");
      }),
    );
    expect(job).toMatchObject({ state: "completed", attempt: 2 });
    const rows = await query<{ item: number }>("select item from effects where list = 'tx' order by item");
    expect(rows.map(({ item }) => item)).toEqual(range(40));
  });

  it("releases its job shortly before `releaseAfter` is over, with its position and without counting the attempt", async () => {
    const seen: number[] = [];
    const { job, id } = await run({ pipeline: { releaseAfter: "100ms" } }, async (one) =>
      one.each("items", range(40), { batch: 5 }, async (batch) => {
        await new Promise((resolve) => setTimeout(resolve, 40));
        seen.push(...batch);
      }),
    );
    expect(job).toMatchObject({ state: "completed", attempt: 1, crashes: 0, output: { done: 40 } });
    expect(seen).toEqual(range(40));
    const outcomes = (await attempts(id)).map(({ outcome }) => outcome);
    expect(outcomes.filter((outcome) => outcome === "released").length).toBeGreaterThan(1);
    expect(await events(id)).toContain("released:time");
    expect((await logs(id)).map(({ message }) => message)).toContain(
      "This attempt has reached its time limit; the job continues with the next attempt",
    );
  });

  it("releases its job between steps too, but not before it has saved something", async () => {
    const ran: string[] = [];
    const { job, id } = await run({ pipeline: { releaseAfter: "10ms" } }, async (one) => {
      for (const step of ["a", "b", "c"]) {
        await one.step(step, async () => {
          await new Promise((resolve) => setTimeout(resolve, 30));
          ran.push(step);
        });
      }
    });
    expect(job).toMatchObject({ state: "completed", attempt: 1 });
    expect(ran).toEqual(["a", "b", "c"]);
    expect(await attempts(id)).toHaveLength(3);
  });

  it("gives each batch a step handle whose tokens identify its items", async () => {
    const seen: unknown[] = [];
    const {
      job,
      id,
      logs: lines,
    } = await run(async (one) =>
      one.each(
        "items",
        range(4),
        { batch: 3 },
        async (batch, { idempotencyKey, fencingToken, signal, log, progress, scratch, exec, first, name }) => {
          log.info(`batch ${first}`);
          progress({ done: first, total: 4 });
          const { stdout } = await exec("echo", [String(batch.length)]);
          seen.push({
            idempotencyKey,
            fencingToken,
            aborted: signal.aborted,
            name,
            stdout: stdout.trim(),
            scratch: typeof (await scratch()),
          });
        },
      ),
    );
    expect(job.state).toBe("completed");
    expect(seen).toEqual([
      {
        idempotencyKey: `${id}:items 0-3`,
        fencingToken: 1,
        aborted: false,
        name: "items 0-3",
        stdout: "3",
        scratch: "string",
      },
      {
        idempotencyKey: `${id}:items 3-4`,
        fencingToken: 1,
        aborted: false,
        name: "items 3-4",
        stdout: "1",
        scratch: "string",
      },
    ]);
    expect(lines.map(({ message }) => message)).toEqual(expect.arrayContaining(["batch 0", "batch 3"]));
  });

  it("logs the lines of a batch, of its commands and of its failed tries as lines of the list", async () => {
    const failing = new Set([2]);
    const { logs: lines } = await run(async (one) =>
      one.each(
        "items",
        range(4),
        { batch: 2, retry: { attempts: 2, initial: "1ms" } },
        async (batch, { log, exec }) => {
          if (failing.delete(batch[0]!)) throw new Error("once");
          log.info(`batch ${batch}`);
          await exec("echo", [`echo ${batch}`]);
        },
      ),
    );
    const [warning] = lines.filter(({ level }) => level === "warning");
    expect(lines.map(({ step, message }) => [step, message])).toEqual([
      ["items", "batch 0,1"],
      ["items", "echo 0,1"],
      ["items", expect.stringContaining("once (try 1 of 2")],
      ["items", "batch 2,3"],
      ["items", "echo 2,3"],
      ["items", "4 items done"],
    ]);
    expect(warning!.data).toMatchObject({ try: 1, tries: 2, batch: "items 2-4" });
  });

  it("saves a batch that finishes after the worker received a stop request", async () => {
    const seen: number[] = [];
    const code = async (one: JobContext) =>
      one.each("items", range(6), { batch: 1 }, async (batch) => {
        await new Promise((resolve) => setTimeout(resolve, 150));
        seen.push(...batch);
      });
    const { id, worker } = await run({ until: ({ progress }) => progress?.done === 2, worker: { grace: "5s" } }, code);
    await worker.stop();
    await start([implement(pipeline((await stillwake.get(id)).pipeline), code)]);
    expect(await until(id)).toMatchObject({ state: "completed", attempt: 1 });
    expect(seen).toEqual(range(6));
  });

  it("repeats batches that conflict under REPEATABLE READ, and counts none of them twice", async () => {
    const isolated = new pg.Pool({
      connectionString: database.url,
      max: 8,
      options: "-c default_transaction_isolation=repeatable\\ read",
    });
    const { job } = await run(async (one) =>
      one.each("items", range(40), { batch: 1, parallel: 4, tx: isolated }, async ([item], { tx }) => {
        await tx.query("insert into effects values ('isolated', $1)", [item]);
      }),
    );
    await isolated.end();
    expect(job).toMatchObject({ state: "completed", attempt: 1 });
    const rows = await query<{ item: number }>("select item from effects where list = 'isolated' order by item");
    expect(rows.map(({ item }) => item)).toEqual(range(40));
  });

  it("stores only the cursors it may need", async () => {
    const { promise: gate, resolve: opened } = deferred();
    const { id } = await run({ until: ({ progress }) => progress?.done === 99 }, async (one) =>
      one.each("items", range(100), { batch: 1, parallel: 2, cursor: (item) => item }, ([item]) =>
        item === 0 ? gate : undefined,
      ),
    );
    const [{ output }] = (await query<{ output: { $stillwake: [string, { lasts: object }] } }>(
      "select output from stillwake.checkpoints where job_id = $1",
      [id],
    )) as [{ output: { $stillwake: [string, { lasts: object }] } }];
    expect(Object.keys(output.$stillwake[1].lasts)).toEqual(["100"]);
    opened();
    expect((await until(id)).state).toBe("completed");
  });

  it("rejects a list that was a step and a step that was a list, before any effect", async () => {
    let tries = 0;
    let effects = 0;
    const { job } = await run(async (one) => {
      tries += 1;
      if (tries === 1) {
        await one.step("a", () => 1);
        await one.each("b", [1], {}, () => {});
        throw new Error("the code changes");
      }
      await expect(one.each("a", [1], {}, () => void effects++)).rejects.toThrow(/earlier attempt saved it as a step/);
      await expect(one.step("b", () => 1)).rejects.toThrow(/earlier attempt saved it as a list/);
    });
    expect(job).toMatchObject({ state: "completed" });
    expect(effects).toBe(0);
  });

  it("releases its job between steps of every kind", async () => {
    const ran: string[] = [];
    const pause = () => new Promise<void>((resolve) => setTimeout(resolve, 30));
    const { job, id } = await run({ pipeline: { releaseAfter: "10ms" } }, async (one) => {
      await one.tx("a", {}, pool, pause);
      await one.optional("b", pause);
      await one.each("c", [1], {}, pause);
      ran.push("end");
    });
    expect(job).toMatchObject({ state: "completed", attempt: 1 });
    expect(ran).toEqual(["end"]);
    expect((await attempts(id)).map(({ outcome }) => outcome)).toEqual(["released", "released", "completed"]);
  });

  it("does not release its job while another step of the attempt is running", async () => {
    const ran: string[] = [];
    const { job } = await run({ pipeline: { releaseAfter: "50ms" } }, async (one) => {
      const lane = async (name: string, ms: number) => {
        for (let n = 0; n < 3; n++) {
          await one.step(`${name}${n}`, async () => {
            await new Promise((resolve) => setTimeout(resolve, ms));
            ran.push(`${name}${n}`);
          });
        }
      };
      await Promise.all([lane("a", 20), lane("b", 70)]);
    });
    expect(job).toMatchObject({ state: "completed", attempt: 1 });
    expect(ran.toSorted()).toEqual(["a0", "a1", "a2", "b0", "b1", "b2"]);
  });

  it("rejects invalid arguments", async () => {
    const { job } = await run(async (one) => {
      await expect(one.each("a", [1], { batch: 0 }, () => {})).rejects.toThrow(/batch must be a whole number/);
      await expect(one.each("b", [1], { parallel: 1.5 }, () => {})).rejects.toThrow(/parallel/);
      await expect(one.each("b", [1], { total: -1 }, () => {})).rejects.toThrow(/total/);
      await expect(one.each("b", [1], { bach: 5 } as never, () => {})).rejects.toThrow(/Unknown option "bach"/);
      await expect(one.each("b", 5 as never, {}, () => {})).rejects.toThrow(/not iterable/);
      await one.each("c", [1], {}, () => {});
      await expect(one.each("c", [1], {}, () => {})).rejects.toThrow(/already used/);
    });
    expect(job.state).toBe("completed");
  });
});
