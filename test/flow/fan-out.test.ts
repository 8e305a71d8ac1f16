// Thousands of children: the cost of a child compared with a plain job, and a parent that is killed repeatedly spawns
// none twice and loses none.
import { beforeAll, describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connect } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { FULL, round } from "../support/processes/fault-checks.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";
import { startWorker, type WorkerProcess } from "../support/processes/workers.ts";

const { database, stillwake, start, until, name } = await inProcessFixture();
const client = await connect(database.url);
const COUNT = FULL ? 10_000 : 2_000;
const LONG = new URL("../fixtures/pipelines/long.mjs", import.meta.url).pathname;
beforeAll(async () => {
  buildPackage();
});

describe(`${COUNT} children`, () => {
  it("are spawned, run and joined; the cost compared with plain jobs is recorded", async () => {
    const plain = pipeline<{ n: number }>(name());
    const child = pipeline<{ n: number }>(name());
    const parent = pipeline(name());
    const inputs = Array.from({ length: COUNT }, (_, n) => ({ n }));
    let spawnedMs = 0;
    await start(
      [
        implement(plain, (_job, { n }) => n),
        implement(child, (_job, { n }) => n),
        implement(parent, async (job) => {
          const startedAt = performance.now();
          const kids = await job.spawn(child, inputs);
          spawnedMs ||= performance.now() - startedAt;
          const found = (await kids.done()) as number[];
          return found.length === COUNT && found.every((value, n) => value === n);
        }),
      ],
      { slots: 100, connections: 4 },
    );
    const seconds = async (work: () => Promise<unknown>) => {
      const startedAt = performance.now();
      await work();
      return (performance.now() - startedAt) / 1000;
    };
    const drained = (of: string) =>
      waitFor(
        async () =>
          (await client.query("select from stillwake.live_jobs where pipeline = $1 limit 1", [of])).rows.length === 0,
        {
          timeout: 120_000,
          interval: 10,
        },
      );
    await stillwake.enqueueMany(plain, inputs.slice(0, 200));
    await drained(plain.name);
    const plainSeconds = await seconds(async () => {
      await stillwake.enqueueMany(plain, inputs);
      await drained(plain.name);
    });
    let id = "";
    const familySeconds = await seconds(async () => {
      ({ id } = await stillwake.enqueue(parent, {}));
      await drained(parent.name);
    });
    expect(await until(id)).toMatchObject({
      state: "completed",
      output: true,
      children: { total: COUNT, completed: COUNT },
    });
    recordFigure(
      "fan-out: per child",
      round((familySeconds / COUNT) * 1e6),
      "µs",
      `${COUNT} children, spawn to join; spawned in ${Math.round(spawnedMs)} ms`,
    );
    recordFigure(
      "fan-out: ratio to plain jobs",
      round(familySeconds / plainSeconds),
      "×",
      `${COUNT} plain jobs in ${round(plainSeconds)} s`,
    );
  }, 240_000);

  it("are cancelled and retried with their parent in one statement each", async () => {
    const child = pipeline<{ n: number }>(name(), { pool: "nobody" });
    const parent = pipeline(name());
    await start([
      implement(parent, async (job) => {
        const kids = await job.spawn(
          child,
          Array.from({ length: COUNT }, (_, n) => ({ n })),
        );
        return kids.done();
      }),
    ]);
    const { id } = await stillwake.enqueue(parent, {});
    await until(id, ({ waitingFor }) => waitingFor === "children");
    const timed = async (act: string, work: () => Promise<unknown>) => {
      const startedAt = performance.now();
      await work();
      recordFigure(`fan-out: ${act}`, Math.round(performance.now() - startedAt), "ms", `with ${COUNT} children`);
    };
    await timed("cancel", () => stillwake.cancel(id));
    expect((await stillwake.get(id)).children).toEqual({ total: COUNT, completed: 0, failed: 0, cancelled: COUNT });
    await timed("retry", () => stillwake.retry(id));
    expect((await stillwake.get(id)).children).toEqual({ total: COUNT, completed: 0, failed: 0, cancelled: 0 });
    await until(id, ({ waitingFor }) => waitingFor === "children");
    await stillwake.cancel(id);
    await timed("retry from the start", () => stillwake.retry(id, { fromStart: true }));
    await until(id, ({ waitingFor, children }) => waitingFor === "children" && children?.total === COUNT);
    await stillwake.cancel(id);
    const { rows } = await client.query("select count(*)::int as left from stillwake.live_jobs where pipeline = $1", [
      child.name,
    ]);
    expect(rows[0].left).toBe(0);
  }, 120_000);

  it("of a parent whose workers and runners are killed at any time: none twice, none lost, none joined too early", async () => {
    const kills = FULL ? 40 : 10;
    const child = pipeline<{ n: number }>("child", { pool: "children" });
    const ran = new Map<string, number>();
    await start(
      [
        implement(child, (job, { n }) => {
          ran.set(job.id, (ran.get(job.id) ?? 0) + 1);
          return n;
        }),
      ],
      { pool: "children", slots: 50 },
    );
    const args = ["--slots", "1", "--lease", "1s"];
    const begin = () => startWorker({ url: database.url, pipelines: LONG, args });
    const workers: WorkerProcess[] = [await begin(), await begin()];
    const steps = 3;
    const { id } = await stillwake.enqueue("parent", { children: COUNT, steps });
    let killed = 0;
    const over = async () => (await stillwake.get(id)).endedAt !== null;
    while (killed < kills && !(await over())) {
      const [busy] = (
        await client.query("select worker from stillwake.live_jobs where id = $1 and lease_id is not null", [id])
      ).rows;
      const victim = busy && workers.find(({ lines }) => lines.some(({ worker }) => worker === busy.worker));
      if (!victim || victim.child.exitCode !== null || victim.child.signalCode !== null) {
        await new Promise((resolve) => setImmediate(resolve));
        continue;
      }
      if (killed % 3 === 0) {
        victim.signal("SIGKILL");
        workers.push(await begin());
      } else {
        for (const pid of victim.runners()) process.kill(pid, "SIGKILL");
      }
      killed += 1;
    }
    const job = await waitFor(
      async () => {
        const now = await stillwake.get(id);
        return now.endedAt !== null && now;
      },
      { timeout: 120_000, interval: 50 },
    );
    expect(job).toMatchObject({
      state: "completed",
      output: "joined",
      children: { total: COUNT * steps, completed: COUNT * steps, failed: 0, cancelled: 0 },
    });
    const { rows } = await client.query(
      "select spawn, count(*)::int as children, count(distinct child_no)::int as numbers, max(child_no) as last from stillwake.ended_jobs where parent_id = $1 group by 1 order by 1",
      [id],
    );
    expect(rows).toEqual(
      [0, 1, 2].map((step) => ({ spawn: `children ${step}`, children: COUNT, numbers: COUNT, last: COUNT - 1 })),
    );
    const sums = await client.query(
      "select output from stillwake.checkpoints where job_id = $1 and step like 'sum %'",
      [id],
    );
    expect(sums.rows.map(({ output }) => output)).toEqual([0, 1, 2].map(() => (COUNT * (COUNT - 1)) / 2));
    expect([...ran.values()].filter((times) => times > 1)).toHaveLength(0);
    expect(killed).toBeGreaterThan(0);
    recordFigure("fan-out: kills of the parent", killed, "", `${COUNT * steps} children, 0 twice, 0 lost`);
  }, 240_000);
});
