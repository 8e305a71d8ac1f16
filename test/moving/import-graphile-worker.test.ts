// stillwake import graphile-worker, with tables and jobs that graphile-worker itself has created.
import { Logger, makeWorkerUtils, run, runMigrations, type WorkerUtils } from "graphile-worker";
import { beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { cleanUp } from "../support/cleanup.ts";
import { connect, openStillwake } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { deferred } from "../support/deferred.ts";
import { runCommand } from "../support/processes/cli-in-process.ts";

const email = pipeline("email", { input: z.object({ to: z.string() }) });
const reports = pipeline<object>("reports");
const logger = new Logger(() => () => {});

let url: string;
let utils: WorkerUtils;
// biome-ignore lint/suspicious/noExplicitAny: rows of any statement.
let sql: (text: string, values?: unknown[]) => Promise<any[]>;

beforeEach(async () => {
  url = (await freshDatabase()).url;
  await openStillwake(url).register(email, reports);
  await runMigrations({ connectionString: url, logger });
  utils = await makeWorkerUtils({ connectionString: url, logger });
  cleanUp(() => utils.release());
  const client = await connect(url);
  sql = async (text, values) => (await client.query(text, values)).rows;
});

const importJobs = (...args: string[]) => runCommand(["import", "graphile-worker", ...args, "--url", url]);
const jobsLeft = () => sql("select task_identifier, key from graphile_worker.jobs order by id");
const liveJobs = () =>
  sql(`select pipeline, input, priority, max_attempts, key, run_at, waiting_for
    from stillwake.live_jobs order by priority desc, run_at, id`);

describe("stillwake import graphile-worker", () => {
  it("moves ready and delayed jobs with their payload, time, priority and remaining attempts", async () => {
    const runAt = new Date(Date.now() + 7_200_000);
    await utils.addJob("email", { to: "a" });
    await utils.addJob("email", { to: "b" }, { priority: -10, maxAttempts: 3 });
    await utils.addJob("reports", { day: 1 }, { runAt, priority: 30_000 });
    await sql("update graphile_worker._private_jobs set attempts = 2, last_error = 'no' where payload ->> 'to' = 'b'");
    const { code, stdout, stderr } = await importJobs();
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toContain("Moved 3 jobs.");
    const jobs = await liveJobs();
    expect(jobs).toMatchObject([
      { pipeline: "email", input: { to: "b" }, priority: 10, max_attempts: 1 },
      { pipeline: "email", input: { to: "a" }, priority: 0, max_attempts: 25 },
      { pipeline: "reports", input: { day: 1 }, priority: -1000, waiting_for: "time" },
    ]);
    expect(Math.abs(jobs[2].run_at - runAt.getTime())).toBeLessThan(1000);
    expect(await jobsLeft()).toEqual([]);
    expect((await importJobs()).stdout).toBe("Moved 0 jobs.\n");
  });

  it("turns a job key and a named queue into a key", async () => {
    await utils.addJob("reports", { number: 1 }, { queueName: "tenant-1" });
    await utils.addJob("reports", { number: 2 }, { queueName: "tenant-1", jobKey: "unused" });
    await utils.addJob("reports", { number: 3 }, { jobKey: "daily" });
    expect((await importJobs("--dry-run", "--no-keys")).stdout).toContain("Would move 3 jobs.");
    await importJobs();
    const jobs = await liveJobs();
    expect(jobs.map(({ input, key, waiting_for }) => [input.number, key, waiting_for]).sort()).toEqual([
      [1, "tenant-1", null],
      [2, "tenant-1", "key"],
      [3, "daily", null],
    ]);
  });

  it("leaves the jobs that run, those behind them in a named queue, and those without attempts", async () => {
    const gate = deferred();
    const started = deferred();
    await utils.addJob("reports", { number: 1 }, { queueName: "serial" });
    await utils.addJob("reports", { number: 2 }, { queueName: "serial" });
    await utils.addJob("email", { to: "a" });
    await utils.addJob("email", { to: "failed" }, { maxAttempts: 1 });
    await sql("update graphile_worker._private_jobs set attempts = 1 where payload ->> 'to' = 'failed'");
    const taskList = {
      reports: async () => {
        started.resolve();
        await gate.promise;
      },
    };
    const runner = await run({ connectionString: url, taskList, logger, noHandleSignals: true, concurrency: 1 });
    cleanUp(() => runner.stop());
    cleanUp(() => gate.resolve());
    await started.promise;
    const { stdout } = await importJobs();
    expect(stdout).toContain("Moved 1 job.");
    expect(stdout).toContain("1 running job stays in graphile-worker.");
    expect(stdout).toContain("2 jobs stay in graphile-worker: without attempts left, or behind a running job");
    expect((await liveJobs()).map(({ input }) => input)).toEqual([{ to: "a" }]);
  });

  it("loses and doubles no job while a worker of graphile-worker runs", async () => {
    const total = 2000;
    await utils.addJobs(Array.from({ length: total }, (_, number) => ({ identifier: "reports", payload: { number } })));
    const done: number[] = [];
    const taskList = { reports: async (payload: unknown) => void done.push((payload as { number: number }).number) };
    const runner = await run({ connectionString: url, taskList, logger, noHandleSignals: true, concurrency: 4 });
    cleanUp(() => runner.stop().catch(() => {}));
    await waitFor(() => done.length > 0);
    const runs = await Promise.all([importJobs("--limit", "600"), importJobs("--limit", "600")]);
    for (const one of runs) expect(one.stderr).toBe("");
    await waitFor(async () => (await jobsLeft()).length === 0);
    await runner.stop();
    const moved = (await liveJobs()).map(({ input }) => input.number as number);
    expect(moved.length).toBeGreaterThan(0);
    expect([...done, ...moved].sort((a, b) => a - b)).toEqual(Array.from({ length: total }, (_, number) => number));
  });

  it("names the cron items that must become schedules", async () => {
    await sql("insert into graphile_worker._private_known_crontabs values ('nightly', now(), null)");
    expect((await importJobs()).stdout).toContain("declare a schedule for each of nightly");
  });

  it("refuses a payload that Postgres cannot store as jsonb, and names the job", async () => {
    await utils.addJob("reports", { number: 1 });
    await sql(`update graphile_worker._private_jobs set payload = '{"text": "a\\u0000b"}'`);
    const { code, stderr } = await importJobs();
    expect(code).toBe(2);
    expect(stderr).toContain("reports 1: input.text contains a NUL character");
    expect(await jobsLeft()).toHaveLength(1);
  });

  it("refuses a role that row security hides the jobs from", async () => {
    await utils.addJob("reports", {});
    const role = `import_${process.pid}`;
    await sql(`create role ${role} login password 'x'`);
    cleanUp(async () => {
      await sql(`drop owned by ${role}`);
      await sql(`drop role ${role}`);
    });
    await sql(`grant usage on schema graphile_worker, stillwake to ${role}`);
    await sql(`grant all on all tables in schema graphile_worker, stillwake to ${role}`);
    await sql(`grant execute on all functions in schema stillwake to ${role}`);
    const login = new URL(url);
    login.username = role;
    login.password = "x";
    const { code, stderr } = await runCommand(["import", "graphile-worker", "--url", login.href]);
    expect(code).toBe(1);
    expect(stderr).toContain("This role may not read and delete all rows of graphile_worker._private_jobs");
  });
});
