// Housekeeping: partitions for the coming weeks and the deletion of old data, in portions that disturb no one, by whichever
// process is at work.
import pg from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { createStillwake, pipeline } from "../../src/index.ts";
import { createOrchestrator, local } from "../../src/orchestrator/index.ts";
import { createServer } from "../../src/server/index.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import { createWorker, implement } from "../../src/worker/index.ts";
import { claim, enqueue, first } from "../model/actors.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";

async function fresh(): Promise<{ url: string; client: pg.Client }> {
  const { url } = await freshDatabase();
  return { url, client: await connect(url) };
}

/** Rows of other jobs that were created at the same time as this one. */
const fill = (client: pg.Client, table: "feed" | "checkpoints", job: string, rows: number) =>
  client.query(
    `insert into stillwake.${table} (job_id, ${table === "feed" ? "seq, at, kind, level, message" : "step, saved_at, output"}, epoch)
      select (left($1::text, 18) || '-a' || lpad(to_hex(g / 100 % 4096), 3, '0') || '-' || lpad(to_hex(g / 100), 12, '0'))::uuid,
        ${table === "feed" ? "g % 100, stillwake.now(), 'log', 'info', repeat('x', 80)" : "'s' || g % 100, stillwake.now(), '1'"}, 1
      from generate_series(1, $2::integer) g`,
    [job, rows],
  );

const weeksAhead = async (client: pg.Client, parent = "feed") =>
  Number(
    await first(
      client,
      `select floor((max(until) - (stillwake.now() at time zone 'UTC')::date) / 7.0) from stillwake.partitions() where parent = $1`,
      [parent],
    ),
  );

const isBlocked = async (client: pg.Client) =>
  (await client.query("select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"))!
    .rowCount! > 0;

describe("a running process", () => {
  const quiet = pipeline("quiet");

  it("prepares partitions for weeks and deletes what is past its retention: a worker, without a cron job", async () => {
    const { url, client } = await fresh();
    await client.query("select stillwake.register_pipeline('quiet')");
    await client.query(
      `insert into stillwake.idempotency_keys (pipeline, key, job_id, forget_on)
        select 'quiet', 'k' || g, gen_random_uuid(), '2020-01-06' from generate_series(1, 5000) g`,
    );
    await travel(client, "56d");
    expect(await weeksAhead(client)).toBeLessThan(0);
    const old = await first(client, "select min(week)::text from stillwake.partitions()", []);
    await using worker = createWorker({ url, pipelines: [implement(quiet, () => "done")], isolation: "none" });
    await worker.start();
    // The partitions exist before the first job runs.
    expect(await weeksAhead(client)).toBeGreaterThanOrEqual(4);
    await waitFor(() => first(client, "select kept_at > '-infinity' from stillwake.housekeeping", []));
    expect(await first(client, "select count(*)::int from stillwake.idempotency_keys", [])).toBe(0);
    expect(await first(client, "select min(week)::text from stillwake.partitions()", [])).not.toBe(old);
    expect(
      await first(client, "select count(*)::int from stillwake.partitions() where until < stillwake.now()", []),
    ).toBe(0);
  });

  it("recovers the jobs of every pool, also of one without a worker", async () => {
    const { url, client } = await fresh();
    await client.query(`select stillwake.register_pipeline('elsewhere', '{"pool": "other"}')`);
    await enqueue(client, "elsewhere");
    await client.query("select stillwake.claim('dead', 'other', '{elsewhere}', 1, '1 second')");
    await travel(client, "1h");
    // A worker that has just connected takes an expired lease for an outage; so did an earlier one.
    await client.query("select stillwake.recover(p_except => '{null}')");
    await travel(client, "1h");
    await using worker = createWorker({ url, pipelines: [implement(quiet, () => "done")], isolation: "none" });
    await worker.start();
    await waitFor(async () => (await first(client, "select state from stillwake.live_jobs", [])) === "queued");
  });

  it("does not recover its own leases, however late its statement arrives", async () => {
    const { client } = await fresh();
    await client.query("select stillwake.register_pipeline('p')");
    await enqueue(client, "p");
    const [own] = await claim(client, "w", ["p"]);
    await travel(client, "1h");
    const state = () => first(client, "select state from stillwake.live_jobs", []);
    await client.query("select stillwake.tend_jobs(null, $1)", [[own!.lease]]);
    expect(await state()).toBe("running");
    // A call that is repeated after an outage.
    await client.query("select stillwake.tend_jobs(null, null)");
    expect(await state()).toBe("running");
    await client.query("select stillwake.tend_jobs(null, '{}')");
    expect(await state()).toBe("queued");
  });

  it("does it while it serves requests: a server", async () => {
    const { url, client } = await fresh();
    await travel(client, "56d");
    const pool = new pg.Pool({ connectionString: url });
    const server = createServer({ pool, auth: "none" });
    onTestFinished(async () => {
      await server.close();
      await pool.end();
    });
    expect((await server.fetch(new Request("http://localhost/health"))).status).toBe(200);
    // A health check opens no connection: it must not keep a database awake.
    expect(pool.totalCount).toBe(0);
    expect(await weeksAhead(client)).toBeLessThan(0);
    expect((await server.fetch(new Request("http://localhost/v1/jobs"))).status).toBe(200);
    await waitFor(() => first(client, "select kept_at > '-infinity' from stillwake.housekeeping", []));
    expect(await weeksAhead(client)).toBeGreaterThanOrEqual(4);
  });

  it("does it while it polls: an orchestrator", async () => {
    const { url, client } = await fresh();
    await travel(client, "56d");
    const provider = local({ args: [], dir: temporaryDirectory("machines") });
    await using orchestrator = createOrchestrator({ url, pools: { default: { provider, max: 1 } } });
    await orchestrator.start();
    await waitFor(() => first(client, "select kept_at > '-infinity' from stillwake.housekeeping", []));
    expect(await weeksAhead(client)).toBeGreaterThanOrEqual(4);
  });

  it("does it once for all: another process finds it done, or leaves it to the one that is at it", async () => {
    const { url, client } = await fresh();
    await client.query("select * from stillwake.tend_jobs('1 minute')");
    const again = await connect(url);
    expect((await again.query("select * from stillwake.tend_jobs('1 minute')")).rows).toEqual([]);
    await client.query("begin");
    expect((await client.query("select * from stillwake.housekeep('leftovers')")).rows).toHaveLength(1);
    expect((await again.query("select * from stillwake.housekeep('leftovers')")).rows).toEqual([]);
    await client.query("commit");
    expect((await again.query("select * from stillwake.housekeep('leftovers')")).rows).toHaveLength(1);
    await travel(client, "2m");
    expect((await again.query("select * from stillwake.tend_jobs('1 minute')")).rows).not.toEqual([]);
  });
});

describe("a watchdog after months without one", () => {
  it("stalls no one, works within a statement_timeout, and leaves many rows where they are", async () => {
    const { url, client } = await fresh();
    await client.query("select stillwake.register_pipeline('p')");
    await travel(client, "84d");
    const job = await enqueue(client, "p");
    await client.query("set synchronous_commit = off");
    await fill(client, "feed", job, 100_000);
    expect(await first(client, "select count(*)::int from stillwake.feed_default", [])).toBeGreaterThanOrEqual(100_000);
    const [own] = await claim(client, "w", ["p"]);
    const cron = await connect(url);
    await cron.query("set statement_timeout = '2s'");
    let longestMs = 0;
    let calls = 0;
    let stop = false;
    const writer = await connect(url);
    const writing = (async () => {
      for (; !stop; calls++) {
        const began = performance.now();
        const batch = [{ job: own!.job, epoch: own!.epoch, lease: own!.lease, lines: [{ message: "x" }] }];
        await writer.query("select * from stillwake.append_logs($1)", [JSON.stringify(batch)]);
        longestMs = Math.max(longestMs, performance.now() - began);
      }
    })();
    await waitFor(async () => {
      await cron.query("select * from stillwake.watchdog()");
      return (await weeksAhead(client)) >= 4;
    });
    stop = true;
    await writing;
    expect(calls).toBeGreaterThan(10);
    expect(longestMs).toBeLessThan(1500);
    recordFigure("housekeeping: longest wait of a writer behind a late watchdog", longestMs, "ms", "100,000 rows");
    expect(await first(client, "select count(*)::int from stillwake.feed_default", [])).toBeGreaterThanOrEqual(100_000);
    // When no job of that week is left, they are deleted in portions.
    await client.query("select stillwake.cancel($1)", [job]);
    await client.query("delete from stillwake.live_jobs; delete from stillwake.leases");
    await travel(client, "70d");
    await using sw = createStillwake({ url });
    await waitFor(async () => {
      await sw.watchdog();
      return (await first(client, "select count(*)::int from stillwake.feed_default", [])) === 0;
    });
  }, 60_000);

  it("lets no write fail that began before a partition was attached", async () => {
    const { url, client } = await fresh();
    await client.query("select stillwake.register_pipeline('p')");
    await travel(client, "84d");
    await enqueue(client, "p");
    const [own] = await claim(client, "w", ["p"]);
    const save = (step: string) => ({ job: own!.job, epoch: own!.epoch, lease: own!.lease, step, output: 1 });
    await client.query("select * from stillwake.save_checkpoints($1)", [JSON.stringify([save("one")])]);
    const watchdog = await connect(url);
    await watchdog.query("begin; select stillwake.make_partitions()");
    const observer = await connect(url);
    const saving = client.query("select result from stillwake.save_checkpoints($1)", [JSON.stringify([save("two")])]);
    await waitFor(() => isBlocked(observer));
    await watchdog.query("commit");
    expect((await saving).rows).toEqual([{ result: "saved" }]);
    expect(await first(client, "select count(*)::int from stillwake.checkpoints_default", [])).toBe(0);
    expect(await first(client, "select count(*)::int from stillwake.checkpoints", [])).toBe(2);
  });

  it("deletes all that is due in one run, not ten thousand rows", async () => {
    const { url, client } = await fresh();
    await client.query(
      `insert into stillwake.idempotency_keys (pipeline, key, job_id, forget_on)
        select 'p', 'k' || g, gen_random_uuid(), '2020-01-06' from generate_series(1, 25000) g`,
    );
    await client.query(
      `insert into stillwake.webhooks (id, endpoint, url, lane, job_id, event, body, created_at, state, next_at, ended_at)
        select 'msg_' || lpad(to_hex(g), 32, '0'), 'default', 'https://x/', 'default x', gen_random_uuid(), 'job.completed', '{}',
          stillwake.now() - interval '40 days', 'delivered', stillwake.now(), stillwake.now() - interval '40 days'
        from generate_series(1, 25000) g`,
    );
    await using sw = createStillwake({ url });
    const actions = await sw.watchdog();
    expect(actions).toContainEqual(expect.objectContaining({ act: "deleted", count: 25_000 }));
    expect(actions).toContainEqual(expect.objectContaining({ act: "forgotten", count: 25_000 }));
  });

  it("that is called in SQL deletes more than one portion", async () => {
    const { client } = await fresh();
    await client.query(
      `insert into stillwake.idempotency_keys (pipeline, key, job_id, forget_on)
        select 'p', 'k' || g, gen_random_uuid(), '2020-01-06' from generate_series(1, 15000) g`,
    );
    const { rows } = await client.query("select count::int from stillwake.watchdog() where act = 'deleted'");
    expect(rows[0].count).toBeGreaterThan(2000);
  });
});

describe("a write without a partition", () => {
  it("makes the partition and succeeds", async () => {
    const { url, client } = await fresh();
    await using sw = createStillwake({ url });
    const { id } = await sw.enqueue("quiet-sql", {}).catch(async () => {
      await client.query("select stillwake.register_pipeline('quiet-sql')");
      return sw.enqueue("quiet-sql", {});
    });
    // As after a restore without the partitions.
    await client.query(`do $$ declare v text; begin
      for v in select name from stillwake.partitions() union all values ('ended_jobs_default'), ('feed_default') loop
        execute format('drop table stillwake.%I', v); end loop; end $$`);
    await client.query("create table stillwake.ended_jobs_default partition of stillwake.ended_jobs default");
    await client.query("create table stillwake.feed_default (like stillwake.feed)");
    await expect(client.query("select stillwake.cancel($1)", [id])).rejects.toThrow(/no partition of relation "feed"/);
    await sw.cancel(id);
    expect(await sw.get(id)).toMatchObject({ state: "cancelled" });
  });
});

describe("a retention of two years", () => {
  it("needs few partitions, and keeps everything as long", async () => {
    const { client } = await fresh();
    const keep = { keep_completed: "2 years", keep_failed: "2 years", keep_cancelled: "2 years" };
    await client.query("select stillwake.register_pipeline('p', $1)", [keep]);
    const finish = async () => {
      await enqueue(client, "p");
      const [own] = await claim(client, "w", ["p"]);
      const batch = [{ job: own!.job, epoch: own!.epoch, lease: own!.lease, lines: [{ message: "x" }] }];
      await client.query("select * from stillwake.append_logs($1)", [JSON.stringify(batch)]);
      await client.query("select stillwake.complete($1, $2, $3)", [own!.job, own!.epoch, own!.lease]);
      return own!.job;
    };
    const oldest = await finish();
    for (let week = 0; week < 104; week++) {
      await finish();
      await travel(client, "7d");
      await client.query("select stillwake.make_partitions(), stillwake.prune()");
    }
    const partitions = Number(await first(client, "select count(*) from stillwake.partitions()", []));
    recordFigure("partitions after two years with keep: 2y", partitions);
    expect(partitions).toBeLessThan(150);
    expect(await first(client, "select count(*)::int from stillwake.jobs", [])).toBe(105);
    expect(await first(client, "select count(*)::int from stillwake.logs where job_id = $1", [oldest])).toBe(1);
    await client.query("begin");
    await client.query("select from stillwake.jobs where id = $1", [oldest]);
    const locks = Number(await first(client, "select count(*) from pg_locks where pid = pg_backend_pid()", []));
    await client.query("commit");
    recordFigure("locks of a read of one job after two years with keep: 2y", locks);
    expect(locks).toBeLessThan(250);
    await travel(client, "100d");
    await client.query("select stillwake.prune()");
    expect(await first(client, "select count(*)::int from stillwake.jobs where id = $1", [oldest])).toBe(0);
  }, 120_000);
});
