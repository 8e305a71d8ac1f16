// stillwake import pg-boss, with tables and jobs that pg-boss itself has created.
import { PgBoss } from "pg-boss";
import PgBoss10 from "pg-boss-10";
import { beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { pipeline, type Stillwake } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { createWorker, implement } from "../../src/worker/index.ts";
import { cleanUp } from "../support/cleanup.ts";
import { connect, openStillwake } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { runCommand } from "../support/processes/cli-in-process.ts";

const email = pipeline("email", { input: z.object({ to: z.string() }) });
const reports = pipeline<object>("reports");

let url: string;
let stillwake: Stillwake;
let boss: PgBoss;
// biome-ignore lint/suspicious/noExplicitAny: rows of any statement.
let sql: (text: string, values?: unknown[]) => Promise<any[]>;

beforeEach(async () => {
  url = (await freshDatabase()).url;
  stillwake = openStillwake(url);
  await stillwake.register(email, reports);
  boss = await startBoss(url);
  const client = await connect(url);
  sql = async (text, values) => (await client.query(text, values)).rows;
});

async function startBoss(database: string): Promise<PgBoss> {
  const opened = new PgBoss({ connectionString: database, schedule: false, supervise: false });
  opened.on("error", () => {});
  await opened.start();
  cleanUp(() => opened.stop({ graceful: false, close: true }));
  for (const name of ["email", "reports"]) await opened.createQueue(name);
  return opened;
}

const importJobs = (...args: string[]) => runCommand(["import", "pg-boss", ...args, "--url", url]);
const bossJobs = (state = "created") => sql("select id, name, data from pgboss.job where state::text = $1", [state]);
const liveJobs = () =>
  sql(`select pipeline, input, priority, max_attempts, key, run_at, waiting_for, idempotency_key
    from stillwake.live_jobs order by priority desc, run_at, id`);

describe("stillwake import pg-boss", () => {
  it("moves ready and delayed jobs with their input, time, priority and remaining attempts", async () => {
    const later = new Date(Date.now() + 3_600_000);
    await boss.send("email", { to: "a" }, { retryLimit: 4 });
    await boss.send("email", { to: "b" }, { priority: 7, retryLimit: 0 });
    await boss.send("reports", { big: 1 }, { startAfter: later, retryLimit: 2, priority: 5000 });
    await sql(`update pgboss.job set data = '{"big": 12345678901234567890.5}' where name = 'reports'`);
    const { code, stdout, stderr } = await importJobs();
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(/^email +email +2 +0 +2$/m);
    expect(stdout).toMatch(/^reports +reports +0 +1 +1$/m);
    expect(stdout).toContain("Moved 3 jobs.");
    expect(stdout).toContain("1 priority was limited");
    const jobs = await liveJobs();
    expect(jobs.map(({ pipeline: name, priority, max_attempts }) => [name, priority, max_attempts])).toEqual([
      ["reports", 1000, 3],
      ["email", 7, 1],
      ["email", 0, 5],
    ]);
    expect(Math.abs(jobs[0].run_at - later.getTime())).toBeLessThan(1000);
    expect(jobs[0].waiting_for).toBe("time");
    const [{ text }] = await sql("select input::text as text from stillwake.live_jobs where pipeline = 'reports'");
    expect(text).toBe('{"big": 12345678901234567890.5}');
    expect(await bossJobs()).toEqual([]);
  });

  it("keeps the order of the jobs of a queue across batches", async () => {
    await boss.insert(
      "reports",
      Array.from({ length: 1203 }, (_, number) => ({ data: { number } })),
    );
    // One insert has one creation time: give each job its own.
    await sql(`update pgboss.job set created_on = now() + (data ->> 'number')::integer * interval '1 ms'`);
    expect((await importJobs()).stdout).toContain("Moved 1,203 jobs.");
    const jobs = await liveJobs();
    expect(jobs.map(({ input }) => input.number)).toEqual(Array.from({ length: 1203 }, (_, number) => number));
  });

  it("counts an attempt that has failed", async () => {
    await boss.send("email", { to: "a" }, { retryLimit: 3, retryDelay: 600 });
    const [job] = await boss.fetch("email");
    await boss.fail("email", job!.id);
    expect(await bossJobs("retry")).toHaveLength(1);
    await importJobs();
    const [moved] = await liveJobs();
    expect(moved).toMatchObject({ max_attempts: 3, waiting_for: "time" });
  });

  it("moves nothing in a dry run, and prints the same table", async () => {
    await boss.send("email", { to: "a" });
    await boss.schedule("reports", "0 3 * * *", { day: 1 });
    const { code, stdout } = await importJobs("--dry-run");
    expect(code).toBe(0);
    expect(stdout).toMatch(/^QUEUE +PIPELINE +READY +DELAYED +TO MOVE$/m);
    expect(stdout).toContain("Would move 1 job and 1 schedule.");
    expect(await liveJobs()).toEqual([]);
    expect(await stillwake.schedules.list()).toEqual([]);
    expect(await bossJobs()).toHaveLength(1);
  });

  it("moves nothing when run a second time", async () => {
    await boss.send("email", { to: "a" });
    await importJobs();
    const { code, stdout } = await importJobs();
    expect({ code, stdout }).toEqual({ code: 0, stdout: "Moved 0 jobs.\n" });
    expect(await liveJobs()).toHaveLength(1);
  });

  it("names pipelines that are not registered and moves nothing, unless another is given", async () => {
    await boss.createQueue("sendEmail");
    await boss.send("sendEmail", { to: "a" });
    await boss.send("email", { to: "b" });
    const refused = await importJobs();
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain('UNKNOWN_PIPELINE: Pipeline "sendEmail" is not registered; nothing was moved');
    expect(refused.stderr).toContain("--map sendEmail=<pipeline>");
    expect(await liveJobs()).toEqual([]);
    expect((await importJobs("--map", "sendEmail=email")).stdout).toContain("Moved 2 jobs.");
    expect((await liveJobs()).map(({ pipeline: name }) => name)).toEqual(["email", "email"]);
  });

  it("moves only the named queues, and at most --limit jobs", async () => {
    for (const to of ["a", "b", "c"]) await boss.send("email", { to });
    await boss.send("reports", {});
    expect((await importJobs("email", "--limit", "2")).stdout).toContain("Moved 2 jobs.");
    expect((await bossJobs()).map(({ name }) => name).sort()).toEqual(["email", "reports"]);
  });

  it("refuses an input that the registered schema rejects, as a whole, or leaves it with --skip-invalid", async () => {
    await boss.send("email", { to: "a" });
    const id = await boss.send("email", { to: 5 });
    const refused = await importJobs();
    expect(refused.code).toBe(2);
    expect(refused.stderr).toContain(`1 job cannot be stored: email ${id}: input.to: `);
    expect(await liveJobs()).toEqual([]);
    const dry = await importJobs("--dry-run");
    expect(dry.code).toBe(1);
    expect(dry.stdout).toContain(`email ${id}: input.to: `);
    const { code, stdout } = await importJobs("--skip-invalid");
    expect(code).toBe(0);
    expect(stdout).toContain("Moved 1 job.");
    expect((await bossJobs()).map((job) => job.id)).toEqual([id]);
  });

  it("leaves running jobs and jobs of a flow, and counts them", async () => {
    await boss.send("email", { to: "running" });
    await boss.fetch("email");
    await boss.send("email", { to: "waiting" });
    await boss.flow([
      { name: "reports", data: { child: true }, ref: "child" },
      { name: "reports", data: { parent: true }, ref: "parent", dependsOn: ["child"] },
    ]);
    const { stdout } = await importJobs();
    expect(stdout).toContain("Moved 1 job.");
    expect(stdout).toContain("1 running job stays in pg-boss.");
    expect(stdout).toContain("2 jobs stay in pg-boss: part of a flow");
    expect((await liveJobs()).map(({ input }) => input)).toEqual([{ to: "waiting" }]);
  });

  it("turns a singleton key into a key that lets one job run at a time", async () => {
    await boss.createQueue("serial", { policy: "key_strict_fifo" });
    for (const number of [1, 2, 3]) await boss.send("serial", { number }, { singletonKey: number < 3 ? "x" : "y" });
    await importJobs("--map", "serial=reports");
    const jobs = await liveJobs();
    expect(jobs.map(({ key, input, waiting_for }) => [input.number, key, waiting_for]).sort()).toEqual([
      [1, "x", null],
      [2, "x", "key"],
      [3, "y", null],
    ]);
  });

  it("moves cron schedules, and leaves those that Stillwake cannot run with the reason", async () => {
    await boss.schedule("email", "15 3 * * 1-5", { to: "a" }, { tz: "Europe/Berlin", retryLimit: 4, priority: 3 });
    await boss.schedule("reports", "0 0 L * *", {}, { key: "monthly" });
    const { code, stdout } = await importJobs();
    expect(code).toBe(0);
    expect(stdout).toContain("Moved 0 jobs and 1 schedule.");
    expect(stdout).toMatch(/reports:monthly +0 0 L \* \* +reports +.*L, W and # are not supported/);
    expect(await stillwake.schedules.list()).toMatchObject([
      { name: "email", cron: "15 3 * * 1-5", zone: "Europe/Berlin", pipeline: "email", input: { to: "a" } },
    ]);
    const [{ options }] = await sql("select options from stillwake.schedules");
    expect(options).toEqual({ priority: 3, max_attempts: 5 });
    expect(await sql("select name, key from pgboss.schedule")).toEqual([{ name: "reports", key: "monthly" }]);
  });

  it("loses and doubles no job while a worker of pg-boss takes jobs and others import", async () => {
    const total = 3000;
    await boss.insert(
      "reports",
      Array.from({ length: total }, (_, number) => ({ data: { number } })),
    );
    const taken: number[] = [];
    const done = new AbortController();
    const work = (async () => {
      while (!done.signal.aborted) {
        const jobs = await boss.fetch<{ number: number }>("reports", { batchSize: 20 });
        if (jobs.length === 0) return;
        taken.push(...jobs.map(({ data }) => data.number));
      }
    })();
    // The first batch is taken before the import starts.
    await waitFor(() => taken.length > 0);
    const runs = await Promise.all([importJobs("--limit", "900"), importJobs("--limit", "900")]);
    for (const run of runs) expect(run.stderr).toBe("");
    await work;
    done.abort();
    const moved = (await liveJobs()).map(({ input }) => input.number as number);
    expect(moved.length).toBeGreaterThan(0);
    expect(taken.length).toBeGreaterThan(0);
    expect([...taken, ...moved].sort((a, b) => a - b)).toEqual(Array.from({ length: total }, (_, number) => number));
  });

  it("rolls everything back when the process is interrupted before the commit", async () => {
    await boss.insert(
      "reports",
      Array.from({ length: 600 }, (_, number) => ({ data: { number } })),
    );
    // The removal of the second batch waits for this lock.
    const blocker = await connect(url);
    await blocker.query("begin");
    await blocker.query("select pg_advisory_xact_lock(1)");
    await sql(`create function wait() returns trigger language plpgsql as $$ begin
      if (old.data ->> 'number')::integer = 599 then perform pg_advisory_xact_lock(1); end if; return old; end $$`);
    await sql("update pgboss.job set created_on = now() + (data ->> 'number')::integer * interval '1 ms'");
    await sql("create trigger wait before delete on pgboss.job for each row execute function wait()");
    const run = importJobs();
    const [{ pid }] = await waitFor(async () => {
      const found = await sql(
        "select pid from pg_stat_activity where application_name = 'stillwake import' and wait_event_type = 'Lock'",
      );
      return found.length > 0 && found;
    });
    await sql("select pg_terminate_backend($1)", [pid]);
    await blocker.query("rollback");
    await sql("drop trigger wait on pgboss.job");
    const { code, stderr } = await run;
    expect(code).toBe(1);
    expect(stderr).toMatch(/^DATABASE_UNAVAILABLE: The connection was lost: .* Run the import again/);
    expect(await liveJobs()).toEqual([]);
    expect(await bossJobs()).toHaveLength(600);
    expect((await importJobs()).stdout).toContain("Moved 600 jobs.");
  });

  it("moves from another database in two steps, and stores no job twice after an interruption between them", async () => {
    const source = await freshDatabase();
    const other = await startBoss(source.url);
    await other.insert(
      "reports",
      Array.from({ length: 700 }, (_, number) => ({ data: { number } })),
    );
    const rows = await connect(source.url);
    // The commit in Stillwake succeeds, the removal in the source fails.
    await rows.query(`create function fail() returns trigger language plpgsql as $$ begin raise 'no'; end $$`);
    await rows.query("create trigger fail before delete on pgboss.job for each row execute function fail()");
    const failed = await importJobs("--from", source.url);
    expect(failed.code).toBe(1);
    expect(await liveJobs()).toHaveLength(500);
    await rows.query("drop trigger fail on pgboss.job");
    const { code, stdout } = await importJobs("--from", source.url);
    expect(code).toBe(0);
    expect(stdout).toContain("Moved 700 jobs.");
    expect(stdout).toContain("500 of them had been stored by an earlier run.");
    expect(new Set((await liveJobs()).map(({ input }) => input.number)).size).toBe(700);
    expect(await liveJobs()).toHaveLength(700);
    expect((await rows.query("select from pgboss.job")).rowCount).toBe(0);
  });

  it("prints the report as JSON", async () => {
    await boss.send("email", { to: "a" });
    const { stdout } = await importJobs("--json");
    expect(JSON.parse(stdout)).toMatchObject({
      source: "pg-boss",
      dryRun: false,
      moved: 1,
      invalid: 0,
      queues: [{ name: "email", pipelines: ["email"], ready: 1, delayed: 0, running: 0, kept: 0, moved: 1 }],
      schedules: [],
      notes: [],
    });
  });

  it("suggests the source that was meant", async () => {
    const { code, stderr } = await runCommand(["import", "pgboss", "--url", url]);
    expect(code).toBe(2);
    expect(stderr).toContain('Jobs cannot be imported from "pgboss". Did you mean pg-boss?');
  });

  it("names the schema when pg-boss has no tables there", async () => {
    const { code, stderr } = await importJobs("--source-schema", "elsewhere");
    expect(code).toBe(2);
    expect(stderr).toContain("There is no table elsewhere.job of pg-boss 10 and later");
    expect(stderr).toContain("--source-schema");
  });

  it("reads the tables of pg-boss 10", async () => {
    const old = new PgBoss10({ connectionString: url, schema: "old_boss", schedule: false, supervise: false });
    await old.start();
    cleanUp(() => old.stop({ graceful: false, wait: true }));
    await old.createQueue("reports");
    await old.send("reports", { number: 1 }, { priority: 2, retryLimit: 1 });
    await old.send("reports", { number: 2 }, { startAfter: 600 });
    await old.schedule("reports", "0 4 * * *", { day: 2 }, { tz: "UTC" });
    const { code, stdout } = await importJobs("--source-schema", "old_boss");
    expect(code).toBe(0);
    expect(stdout).toContain("Moved 2 jobs and 1 schedule.");
    expect(await liveJobs()).toMatchObject([
      { input: { number: 1 }, priority: 2, max_attempts: 2, waiting_for: null },
      { input: { number: 2 }, priority: 0, waiting_for: "time" },
    ]);
    expect(await sql("select from old_boss.job where name = 'reports'")).toEqual([]);
  });

  it("stores jobs that a worker of Stillwake runs", async () => {
    const seen: unknown[] = [];
    await boss.send("email", { to: "a" });
    await importJobs();
    const worker = createWorker({
      url,
      isolation: "none",
      pipelines: [implement(email, async (_job, input) => void seen.push(input))],
    });
    cleanUp(() => worker.stop());
    await worker.start();
    await waitFor(() => seen.length === 1);
    expect(seen).toEqual([{ to: "a" }]);
  });
});
