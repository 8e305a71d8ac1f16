// Limits of steps and leases: during a database outage, over several tries, beside a long transaction.
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { expect, it, onTestFinished } from "vitest";
import { createStillwake, pipeline } from "../../src/index.ts";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { createWorker, implement } from "../../src/worker/index.ts";
import { freshDatabase } from "../support/database/database.ts";

const database = await freshDatabase();

it("a finished step is saved and not run again, although its timeout passes while the database is unavailable", async () => {
  await using proxy = await faultProxy(database.url);
  let runs = 0;
  const slow = implement(pipeline("kept", { retry: { initial: "10ms", max: "10ms" } }), (job) =>
    job.step("once", { timeout: "500ms" }, () => {
      runs += 1;
      proxy.mode = "refuse";
      proxy.reset();
      return runs;
    }),
  );
  const worker = createWorker({ url: proxy.url, pipelines: [slow], slots: 1, grace: "100ms" });
  let lost = false;
  worker.events.subscribe((event) => {
    lost ||= event.kind === "database.lost";
  });
  await worker.start();
  onTestFinished(() => worker.stop());
  await using stillwake = createStillwake({ url: database.url });
  const { id } = await stillwake.enqueue("kept", {});
  await waitFor(() => lost);
  // Longer than the timeout, the grace and the keeper's check interval together.
  const lostAt = performance.now();
  await waitFor(() => performance.now() > lostAt + 2500);
  proxy.mode = "pass";
  expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ attempt: 1, output: 1 });
  expect(runs).toBe(1);
});

it("the timeout of a step applies to each try, not to all of them together", async () => {
  let tries = 0;
  const flaky = implement(pipeline("flaky"), (job) =>
    job.step("many", { timeout: "2s", retry: { attempts: 4, initial: "10ms", max: "10ms" } }, async (step) => {
      tries += 1;
      await delay(1100, undefined, { signal: step.signal });
      if (tries < 4) throw new Error("not yet");
      return tries;
    }),
  );
  const worker = createWorker({ url: database.url, pipelines: [flaky], slots: 1, grace: "100ms" });
  await worker.start();
  onTestFinished(() => worker.stop());
  await using stillwake = createStillwake({ url: database.url });
  const { id } = await stillwake.enqueue("flaky", {});
  expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ attempt: 1, output: 4 });
});

it("a heartbeat skips a lease that a long transaction has locked, and renews the others", async () => {
  const pool = new pg.Pool({ connectionString: database.url });
  onTestFinished(() => pool.end());
  await pool.query("select stillwake.register_pipeline('held'), stillwake.enqueue('held'), stillwake.enqueue('held')");
  const claim = () => pool.query("select * from stillwake.claim('w', 'default', '{held}')").then(({ rows }) => rows[0]);
  const jobs = [await claim(), await claim()];
  const until = () => pool.query("select until from stillwake.leases where id = $1", [jobs[1].lease_id]);
  const before = (await until()).rows[0].until;
  const lingering = await pool.connect();
  await lingering.query("begin");
  const { job_id, epoch, lease_id } = jobs[0];
  await lingering.query("select stillwake.save_checkpoint($1, $2, $3, 'done')", [job_id, epoch, lease_id]);
  const { rows } = await pool.query("select job_id, verdict from stillwake.heartbeat($1, $2, $3)", [
    jobs.map((job) => job.job_id),
    jobs.map((job) => job.epoch),
    jobs.map((job) => job.lease_id),
  ]);
  expect(rows).toEqual([{ job_id, verdict: "busy" }]);
  expect((await until()).rows[0].until.getTime()).toBeGreaterThan(before.getTime());
  await lingering.query("rollback");
  lingering.release();
});
