// stillwake import bullmq, with a real Redis and jobs that BullMQ itself has created.
import { FlowProducer, Queue, Worker } from "bullmq";
import { beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { pipeline, type Stillwake } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { cleanUp } from "../support/cleanup.ts";
import { connect, openStillwake } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { findRedis, startRedis } from "../support/database/redis.ts";
import { deferred } from "../support/deferred.ts";
import { runCommand } from "../support/processes/cli-in-process.ts";

const missing = findRedis();
const redis = missing === undefined ? await startRedis() : "";
const email = pipeline("email", { input: z.object({ to: z.string() }) });
const reports = pipeline<object>("reports");
let counter = 0;

describe.skipIf(missing !== undefined)(`stillwake import bullmq${missing === undefined ? "" : `: ${missing}`}`, () => {
  let url: string;
  let stillwake: Stillwake;
  let queue: Queue;
  // biome-ignore lint/suspicious/noExplicitAny: rows of any statement.
  let sql: (text: string, values?: unknown[]) => Promise<any[]>;
  const prefix = () => `test-${counter}`;
  const connection = () => ({ connection: { url: redis, maxRetriesPerRequest: null }, prefix: prefix() });

  beforeEach(async () => {
    counter += 1;
    url = (await freshDatabase()).url;
    stillwake = openStillwake(url);
    await stillwake.register(email, reports);
    queue = openQueue("email");
    const client = await connect(url);
    sql = async (text, values) => (await client.query(text, values)).rows;
  });

  function openQueue(name: string): Queue {
    const opened = new Queue(name, connection());
    cleanUp(() => opened.close());
    return opened;
  }

  const importJobs = (...args: string[]) =>
    runCommand(["import", "bullmq", ...args, "--from", redis, "--prefix", prefix(), "--url", url]);
  const liveJobs = () =>
    sql(`select pipeline, input, priority, max_attempts, key, run_at, waiting_for
      from stillwake.live_jobs order by priority desc, run_at, id`);

  it("moves waiting, prioritized and delayed jobs with their data, time, priority and remaining attempts", async () => {
    await queue.add("welcome", { to: "a" }, { attempts: 4 });
    await queue.add("welcome", { to: "b" });
    await queue.add("welcome", { to: "c" }, { priority: 5 });
    await queue.add("welcome", { to: "d" }, { delay: 3_600_000, deduplication: { id: "d" } });
    const at = Date.now() + 3_600_000;
    const { code, stdout, stderr } = await importJobs("email");
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(/^email +email +3 +1 +4$/m);
    const jobs = await liveJobs();
    expect(jobs.map(({ input, priority, max_attempts, key }) => [input.to, priority, max_attempts, key])).toEqual([
      ["a", 0, 4, null],
      ["b", 0, 1, null],
      ["d", 0, 1, "d"],
      ["c", -5, 1, null],
    ]);
    expect(Math.abs(jobs[2].run_at - at)).toBeLessThan(5000);
    expect(await queue.getJobCountByTypes("waiting", "prioritized", "delayed")).toBe(0);
    expect(await queue.isPaused()).toBe(false);
    expect((await importJobs("email")).stdout).toContain("Moved 0 jobs.");
  });

  it("maps the names of jobs within a queue to pipelines", async () => {
    await queue.add("welcome", { to: "a" });
    await queue.add("monthly", { day: 1 });
    expect((await importJobs("email", "--dry-run", "--map", "email/monthly=unknown")).stderr).toContain(
      'Pipeline "unknown" (for email/monthly) is not registered',
    );
    await importJobs("email", "--map", "email/monthly=reports");
    expect((await liveJobs()).map(({ pipeline: name, input }) => [name, input])).toEqual([
      ["email", { to: "a" }],
      ["reports", { day: 1 }],
    ]);
  });

  it("says how many jobs it has moved when a later batch cannot be", async () => {
    await queue.addBulk(Array.from({ length: 500 }, (_, to) => ({ name: "welcome", data: { to: String(to) } })));
    await queue.add("monthly", { day: 1 });
    const { code, stderr } = await importJobs("email", "--map", "email/monthly=unknown");
    expect(code).toBe(1);
    expect(stderr).toContain("500 jobs were moved before");
    expect(await liveJobs()).toHaveLength(500);
    expect(await queue.isPaused()).toBe(false);
    expect(await queue.getWaitingCount()).toBe(1);
  });

  it("takes the time of the next attempt of a job that has failed", async () => {
    await queue.add("welcome", { to: "a" }, { attempts: 3, backoff: { type: "fixed", delay: 600_000 } });
    const worker = new Worker("email", () => Promise.reject(new Error("no")), connection());
    cleanUp(() => worker.close(true));
    await waitFor(async () => (await queue.getDelayedCount()) === 1);
    await worker.close();
    await importJobs("email");
    const [job] = await liveJobs();
    expect(job).toMatchObject({ max_attempts: 2, waiting_for: "time" });
    expect(job.run_at.getTime() - Date.now()).toBeGreaterThan(580_000);
  });

  it("leaves running jobs and jobs of a flow, and a job that the schema rejects with --skip-invalid", async () => {
    const gate = deferred();
    await queue.add("welcome", { to: "running" });
    const worker = new Worker("email", () => gate.promise, connection());
    cleanUp(() => worker.close());
    cleanUp(() => gate.resolve());
    await waitFor(async () => (await queue.getActiveCount()) === 1);
    await queue.add("welcome", { to: 5 });
    await queue.add("welcome", { to: "a" });
    const flows = new FlowProducer(connection());
    cleanUp(() => flows.close());
    const child = { name: "child", queueName: "reports", data: {} };
    await flows.add({ name: "parent", queueName: "reports", data: {}, children: [child] });
    expect((await importJobs("email", "reports")).code).toBe(2);
    expect(await queue.isPaused()).toBe(false);
    const { code, stdout } = await importJobs("email", "reports", "--skip-invalid");
    expect(code).toBe(0);
    expect(stdout).toContain("Moved 1 job.");
    expect(stdout).toContain("1 running job stays in bullmq.");
    expect((await liveJobs()).map(({ input }) => input)).toEqual([{ to: "a" }]);
    expect((await queue.getJobs(["waiting"])).map(({ data }) => data)).toEqual([{ to: 5 }]);
  });

  it("moves job schedulers with a cron pattern or whole minutes, and leaves others with the reason", async () => {
    await queue.upsertJobScheduler("nightly", { pattern: "0 15 3 * * *", tz: "Europe/Berlin" }, { data: { to: "a" } });
    await queue.upsertJobScheduler("often", { every: 300_000 }, { data: { to: "b" }, opts: { attempts: 2 } });
    await queue.upsertJobScheduler("odd", { every: 7000 }, { data: { to: "c" } });
    const { stdout } = await importJobs("email");
    expect(stdout).toContain("Moved 0 jobs and 2 schedules.");
    expect(stdout).toMatch(/email:odd .*every 7000 ms cannot be written as minutes, hours and days/);
    expect(await stillwake.schedules.list()).toMatchObject([
      { name: "email:nightly", cron: "15 3 * * *", zone: "Europe/Berlin", input: { to: "a" } },
      { name: "email:often", cron: "*/5 * * * *", input: { to: "b" } },
    ]);
    expect((await queue.getJobSchedulers()).map(({ key }) => key)).toEqual(["odd"]);
    expect(await liveJobs()).toEqual([]);
  });

  it("stays paused after an interruption between the two stores, and stores no job twice in the next run", async () => {
    for (const to of ["a", "b", "c"]) await queue.add("welcome", { to });
    // A lock of the job makes its removal fail, as it does for a job that runs.
    const [last] = await queue.getJobs(["wait"], 0, 0, false);
    const client = await queue.getBackend().client;
    const lock = `${queue.toKey(last!.id!)}:lock`;
    await client.set(lock, "token");
    const failed = await importJobs("email");
    expect(failed.code).toBe(1);
    expect(failed.stderr).toContain("Queue email of BullMQ stays paused");
    expect(await queue.isPaused()).toBe(true);
    expect(await liveJobs()).toHaveLength(3);
    await client.del(lock);
    const { code, stdout } = await importJobs("email");
    expect(code).toBe(0);
    expect(stdout).toContain("of them had been stored by an earlier run.");
    expect((await liveJobs()).map(({ input }) => input.to).sort()).toEqual(["a", "b", "c"]);
    expect(await queue.getJobCountByTypes("waiting")).toBe(0);
  });

  it("loses and doubles no job while a worker of BullMQ runs", async () => {
    const total = 1500;
    const done: string[] = [];
    const every = Array.from({ length: total }, (_, number) => String(number));
    await queue.addBulk(every.map((to) => ({ name: "welcome", data: { to } })));
    const worker = new Worker("email", async ({ data }) => void done.push(data.to), {
      ...connection(),
      concurrency: 5,
    });
    cleanUp(() => worker.close());
    await waitFor(() => done.length > 0);
    expect((await importJobs("email", "--limit", "700")).stderr).toBe("");
    await waitFor(async () => (await queue.getJobCountByTypes("waiting", "active")) === 0);
    const moved = (await liveJobs()).map(({ input }) => input.to as string);
    expect(moved.length).toBeGreaterThan(0);
    expect([...done, ...moved].sort()).toEqual(every.sort());
  });

  it("needs the names of the queues and the address of Redis", async () => {
    expect((await importJobs()).stderr).toContain("import bullmq needs the names of the queues");
    const without = await runCommand(["import", "bullmq", "email", "--url", url]);
    expect(without.stderr).toContain("Pass --from redis://localhost:6379");
    const closed = await runCommand(["import", "bullmq", "email", "--url", url, "--from", "redis://127.0.0.1:1"]);
    expect(closed.code).toBe(1);
    expect(closed.stderr).toContain("REDIS_UNAVAILABLE: Redis cannot be reached");
  });
});
