// Schedules in a running worker: a sleeping worker wakes up for the occurrence without polling, three workers create one job per occurrence, and
// schedules continue after a database outage. On a separate server, which is stopped and started, and whose log shows the statements.
import { describe, expect, it, onTestFinished } from "vitest";
import { pipeline, type ScheduledFor, schedule } from "../../src/index.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connect, openStillwake } from "../support/database/connections.ts";
import { startPostgresServer } from "../support/database/postgres-server.ts";
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";

// Each line of the log starts with the application name.
const server = await startPostgresServer({ log_statement: "all", log_line_prefix: "<%a> " });
const client = await connect(server.url);
const stillwake = openStillwake(server.url, { retryTimeout: "forever" });

/** Moves the database's clock to about `seconds` before its next full minute. */
async function beforeTheMinute(seconds: number): Promise<void> {
  await travel(server.url, "1ms");
  const { rows } = await client.query("select extract(second from stillwake.now())::float8 as second");
  const ahead = (60 - rows[0].second - seconds + 60) % 60;
  await travel(server.url, `${Math.round(ahead * 1000)}ms`);
}

/** A pipeline that records the occurrences of its jobs, in a new pool, for one test. */
function noting(name: string) {
  const seen: ScheduledFor[] = [];
  const contract = pipeline(name, { pool: name });
  onTestFinished(async () => void (await stillwake.schedules.remove(name)));
  const code = implement(contract, (job) => {
    seen.push(job.schedule!);
  });
  return { seen, contract, code };
}

describe("a worker that sleeps", () => {
  it("wakes up for the occurrence without polling", async () => {
    const { seen, contract, code } = noting("sleeper");
    await beforeTheMinute(6);
    await stillwake.schedules.set(schedule("sleeper", { cron: "* * * * *", pipeline: contract }));
    const from = server.log().length;
    const received = () =>
      server
        .log()
        .slice(from)
        .split("\n")
        .filter((line) => /^<stillwake>.*LOG: {2}(statement|execute)/.test(line));
    const asks = (line: string) => /next_due|settle_and_claim/.test(line);
    const { worker } = await startRecordedWorker({
      url: server.url,
      directUrl: false,
      pool: "sleeper",
      pipelines: [code],
      poll: "1h",
    });
    await waitFor(() => received().some((line) => line.includes("next_due")), {
      what: "the worker to query the next due time",
    });
    const requested = received().filter(asks).length;
    await waitFor(() => seen.length === 1, { timeout: 40_000, interval: 50, what: "the occurrence to run" });
    const until = received().filter(asks).length;
    const { rows } = await client.query(
      "select extract(epoch from created_at - (origin ->> 'at')::timestamptz) * 1000 as late from stillwake.jobs where pipeline = 'sleeper'",
    );
    expect(rows).toHaveLength(1);
    expect(Number(rows[0].late)).toBeGreaterThanOrEqual(0);
    expect(seen[0]).toMatchObject({
      name: "sleeper",
      occurrence: expect.stringMatching(/^\d{4}-.*\+00:00$/),
      at: expect.any(Date),
    });
    // The claim that created and took the job, and one or two when it ended: not one per second of sleep.
    expect(until - requested).toBeLessThanOrEqual(4);
    recordFigure("a sleeping worker: the job of an occurrence is there after", Math.round(Number(rows[0].late)), "ms");
    recordFigure(
      "a sleeping worker: claims and queries while it waits for an occurrence",
      until - requested,
      "",
      "up to 6 s",
    );
    await worker.stop();
  }, 90_000);

  it("three of them create one job per occurrence", async () => {
    const { seen, contract, code } = noting("three");
    await stillwake.schedules.set(
      schedule("three", { cron: "* * * * *", pipeline: contract, overlap: "allow", catchUp: "all" }),
    );
    const options = {
      url: server.url,
      directUrl: false as const,
      pool: "three",
      pipelines: [code],
      poll: "50ms" as const,
    };
    for (let n = 0; n < 3; n++) await startRecordedWorker({ ...options, name: `three-${n}` });
    for (let minute = 1; minute <= 8; minute++) {
      await travel(server.url, "1m");
      await waitFor(() => seen.length >= minute, { timeout: 30_000, what: `occurrence ${minute}` });
    }
    const { rows } = await client.query(
      "select count(*)::int as jobs, count(distinct origin ->> 'occurrence')::int as occurrences from stillwake.jobs where pipeline = 'three'",
    );
    expect(rows[0].jobs).toBe(rows[0].occurrences);
    expect(new Set(seen.map(({ occurrence }) => occurrence)).size).toBe(seen.length);
  }, 90_000);
});

describe("a worker whose slots are all occupied", () => {
  it("creates the jobs of occurrences in time, with one query each", async () => {
    const { contract, code } = noting("full");
    const long = pipeline("long", { pool: "full" });
    const { promise: released, resolve: release } = deferred();
    onTestFinished(() => release());
    onTestFinished(async () => void (await stillwake.schedules.remove("full-2")));
    await beforeTheMinute(8);
    await stillwake.register(contract, long);
    await stillwake.schedules.set(schedule("full", { cron: "* * * * *", pipeline: contract, overlap: "allow" }));
    await stillwake.schedules.set(schedule("full-2", { cron: "* * * * *", pipeline: contract, overlap: "queue" }));
    await stillwake.enqueue(long, {});
    const from = server.log().length;
    const { waitForEvent } = await startRecordedWorker({
      url: server.url,
      directUrl: false,
      pool: "full",
      slots: 1,
      pipelines: [code, implement(long, () => released)],
    });
    await waitForEvent("attempt.started");
    const created = async () =>
      (await client.query("select origin from stillwake.jobs where pipeline = 'full'")).rowCount;
    await waitFor(async () => (await created()) === 2, {
      timeout: 40_000,
      interval: 50,
      what: "the jobs of both occurrences",
    });
    const { rows } = await client.query(
      "select max(extract(epoch from created_at - (origin ->> 'at')::timestamptz)) * 1000 as late from stillwake.jobs where pipeline = 'full'",
    );
    const requested = server
      .log()
      .slice(from)
      .split("\n")
      .filter((line) => /execute.*run_due_schedules/.test(line)).length;
    expect(requested).toBeGreaterThan(0);
    expect(requested).toBeLessThanOrEqual(4);
    const states = (await stillwake.schedules.list()).filter(({ name }) => name.startsWith("full"));
    expect(states).toMatchObject([
      { fired: 1, missed: 0 },
      { fired: 1, missed: 0 },
    ]);
    recordFigure("a full worker: the job of an occurrence is there after", Math.round(Number(rows[0].late)), "ms");
    release();
  }, 90_000);
});

describe("the database is down for ten minutes", () => {
  it("and a running worker continues by the catchUp of each schedule", async () => {
    const all = noting("every");
    const item = noting("latest");
    const options = { url: server.url, directUrl: false as const, poll: "200ms" as const };
    const workers = [
      await startRecordedWorker({ ...options, pool: "every", pipelines: [all.code] }),
      await startRecordedWorker({ ...options, pool: "latest", pipelines: [item.code] }),
    ];
    await beforeTheMinute(40);
    const nine = { cron: "* * * * *" };
    await stillwake.schedules.set(
      schedule("every", { ...nine, pipeline: all.contract, overlap: "allow", catchUp: "all" }),
    );
    await stillwake.schedules.set(schedule("latest", { ...nine, pipeline: item.contract }));
    await travel(server.url, "1m");
    await waitFor(() => all.seen.length >= 1 && item.seen.length >= 1, {
      timeout: 30_000,
      what: "the first occurrences",
    });

    await server.kill("SIGINT");
    for (const worker of workers) await worker.waitForEvent("database.lost", { timeout: 30_000 });
    await server.start();
    await travel(server.url, "10m");
    for (const worker of workers) await worker.waitForEvent("database.back", { timeout: 60_000 });
    await waitFor(() => all.seen.length >= 11 && item.seen.length >= 2, {
      timeout: 60_000,
      what: "schedules to continue",
    });
    await travel(server.url, "1m");
    await waitFor(() => all.seen.length >= 12 && item.seen.length >= 3, {
      timeout: 60_000,
      what: "the next occurrence",
    });

    const fresh = await connect(server.url);
    const { rows } = await fresh.query(
      `select origin ->> 'schedule' as name, count(*)::int as jobs, count(distinct origin ->> 'occurrence')::int as occurrences,
        extract(epoch from max((origin ->> 'at')::timestamptz) - min((origin ->> 'at')::timestamptz))::int / 60 + 1 as due,
        count(*) filter (where created_at > (origin ->> 'at')::timestamptz + interval '1 minute')::int as late
      from stillwake.jobs where pipeline in ('every', 'latest') group by 1 order by 1`,
    );
    const [every, latest] = rows;
    // Each occurrence has one job, in order, although the database was down for most of them.
    expect(every).toMatchObject({ jobs: every.due, occurrences: every.due });
    expect(every.due).toBeGreaterThanOrEqual(12);
    expect(latest.jobs).toBe(latest.occurrences);
    const states = Object.fromEntries((await stillwake.schedules.list()).map((state) => [state.name, state]));
    expect(states.every).toMatchObject({ missed: 0, lastError: null });
    // Fired and missed occurrences together are all due occurrences.
    expect(latest.jobs + states.latest!.missed + states.latest!.skipped).toBe(latest.due);
    expect(states.latest!.missed).toBeGreaterThanOrEqual(8);
    recordFigure("occurrences that ran late after 10 minutes without the database", every.late, "", "catchUp all");
    recordFigure("occurrences lost", every.due - every.occurrences, "", "catchUp all");
    recordFigure("occurrences counted as missed", states.latest!.missed, "", "catchUp one");
  }, 180_000);
});

describe("without a worker", () => {
  it("select stillwake.watchdog() from pg_cron creates the jobs", async () => {
    const { contract } = noting("lone");
    await stillwake.schedules.set(schedule("lone", { cron: "* * * * *", pipeline: contract, overlap: "allow" }));
    const fresh = await connect(server.url);
    for (let minute = 0; minute < 5; minute++) {
      await travel(server.url, "1m");
      await fresh.query("select stillwake.watchdog()");
    }
    const { rows } = await fresh.query(
      "select count(*)::int as jobs, count(distinct origin ->> 'occurrence')::int as occurrences from stillwake.live_jobs where pipeline = 'lone'",
    );
    expect(rows[0].jobs).toBe(rows[0].occurrences);
    expect(rows[0].occurrences).toBeGreaterThanOrEqual(5);
  });
});
