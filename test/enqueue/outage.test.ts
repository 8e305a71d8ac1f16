// The network and the server fail during enqueues. Every input has a unique number, so that stored jobs can be compared
// with the returned ids: every acknowledged job is stored, and no number twice.
import { once } from "node:events";
import net from "node:net";
import pg from "pg";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { type Settlement, settleAndClaim } from "../../src/db/calls/worker.ts";
import { createStillwake, pipeline, type StillwakeError } from "../../src/index.ts";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { startEnqueueLoad } from "../support/database/enqueue-load.ts";
import { startPostgresServer } from "../support/database/postgres-server.ts";
import { recordFigure } from "../support/figures.ts";

const database = await freshDatabase();
const sql = await connect(database.url);
const report = pipeline<number>("report");
let number = 0;

beforeAll(() => sql.query("select stillwake.register_pipeline('report')"));

describe("the response to an enqueue is lost", () => {
  const isEnqueue = (sent: Buffer) => sent.includes("enqueue_many");

  it("one job is stored, with the returned id", async () => {
    await using proxy = await faultProxy(database.url);
    await using stillwake = createStillwake({ url: proxy.url });
    await stillwake.register(report);
    for (const options of [{}, { idempotencyKey: "lost response" }, { delay: "1h" as const, tenant: "t" }]) {
      const cut = proxy.cutAfterServerReceives(isEnqueue);
      const n = ++number;
      const enqueued = await stillwake.enqueue(report, n, options);
      await cut;
      expect(enqueued.existing).toBe(false);
      expect(await idsOf(n)).toEqual([enqueued.id]);
    }
  });

  it("a batch of 500, interrupted four times, is stored once and in order", async () => {
    await using proxy = await faultProxy(database.url);
    await using stillwake = createStillwake({ url: proxy.url });
    await stillwake.register(report);
    const numbers = Array.from({ length: 500 }, () => ++number);
    const cuts = [1, 2, 3, 4].map(() => proxy.cutAfterServerReceives(isEnqueue));
    const enqueued = await stillwake.enqueueMany(report, numbers);
    await Promise.all(cuts);
    const { rows } = await sql.query(
      "select id from stillwake.jobs where input::int between $1 and $2 order by input::int",
      [numbers[0], numbers.at(-1)],
    );
    expect(rows.map((row) => row.id)).toEqual(enqueued.map(({ id }) => id));
  });

  it("no second job, even if the first has ended before the client retries", async () => {
    await using proxy = await faultProxy(database.url);
    await using stillwake = createStillwake({ url: proxy.url });
    await stillwake.register(report);
    const n = ++number;
    const cut = proxy.cutAfterServerReceives((sent) => {
      if (isEnqueue(sent)) proxy.mode = "refuse";
      return isEnqueue(sent);
    });
    const enqueueing = stillwake.enqueue(report, n, { idempotencyKey: `early end ${n}` });
    await cut;
    const [id] = await waitFor(async () => (await idsOf(n)).length === 1 && idsOf(n));
    await sql.query("select stillwake.cancel($1)", [id]);
    proxy.mode = "pass";
    expect(await enqueueing).toEqual({ id, existing: false });
    expect(await idsOf(n)).toEqual([id]);
  });

  it("the client retries once even after its retry timeout is over", async () => {
    await using proxy = await faultProxy(database.url);
    await using stillwake = createStillwake({ url: proxy.url, retryTimeout: "0ms" });
    await stillwake.register(report);
    const cut = proxy.cutAfterServerReceives(isEnqueue);
    const n = ++number;
    const enqueued = await stillwake.enqueue(report, n);
    await cut;
    expect(await idsOf(n)).toEqual([enqueued.id]);
    const cuts = [1, 2].map(() => proxy.cutAfterServerReceives(isEnqueue));
    await expect(stillwake.enqueue(report, ++number)).rejects.toMatchObject({ code: "DATABASE_UNAVAILABLE" });
    await Promise.all(cuts);
  });

  it("cancel, retry, pause and resume return their result", async () => {
    await using proxy = await faultProxy(database.url);
    await using stillwake = createStillwake({ url: proxy.url });
    const { id } = await stillwake.enqueue(report, ++number);
    for (const [verb, state] of [
      ["pause", "paused"],
      ["resume", "queued"],
      ["cancel", "cancelled"],
      ["retry", "queued"],
    ] as const) {
      const cut = proxy.cutAfterServerReceives((sent) => sent.includes(`stillwake.${verb}(`));
      expect(await stillwake[verb](id)).toBe(state);
      await cut;
      expect((await stillwake.get(id)).state).toBe(state);
    }
    const kinds = await sql.query("select kind from stillwake.events where job_id = $1 order by seq", [id]);
    // A repeated pause request is recorded twice in the feed; the other operations once.
    expect(kinds.rows.map(({ kind }) => kind)).toEqual(["paused", "paused", "resumed", "cancel_requested", "retried"]);
    await expect(stillwake.retry(id)).rejects.toMatchObject({ code: "NOT_ALLOWED" });
  });
});

describe("the response to a claim is lost", () => {
  it("the repeated call returns the jobs of the first, and settled jobs stay settled", async () => {
    await using proxy = await faultProxy(database.url);
    await using stillwake = createStillwake({ url: proxy.url });
    await stillwake.register(pipeline("claimed", { pool: "claims" }));
    await stillwake.enqueueMany("claimed", [1, 2, 3]);
    const request = { worker: "w", pool: "claims", pipelines: ["claimed"], limit: 1, lease: "1 minute" };
    let settlements: Settlement[] = [];
    for (const left of [2, 1, 0]) {
      const cut = proxy.cutAfterServerReceives((sent) => sent.includes("settle_and_claim"));
      const { refused, claimed } = await settleAndClaim(
        stillwake.database,
        settlements.map((one) => JSON.stringify(one)),
        request,
      );
      await cut;
      expect(refused).toEqual([]);
      const { jobs } = await stillwake.list({ pool: "claims" });
      expect(jobs.filter(({ state }) => state === "running").map(({ id }) => id)).toEqual(
        claimed.map((job) => job.job_id),
      );
      expect(jobs.filter(({ state }) => state === "queued")).toHaveLength(left);
      expect(jobs.every(({ attempt, crashes }) => attempt <= 1 && crashes === 0)).toBe(true);
      settlements = claimed.map((job) => ({
        job: job.job_id,
        epoch: job.epoch,
        lease: job.lease_id,
        outcome: "completed",
      }));
    }
  });
});

describe("the network hangs", () => {
  it.each(["silent", "deaf", "mute"] as const)(
    "a %s connection is destroyed at the statement's deadline, and the call succeeds when the network is back",
    async (mode) => {
      await using proxy = await faultProxy(database.url);
      await using stillwake = createStillwake({ url: proxy.url, statementTimeout: "250ms" });
      // Calls with keys use a separate statement: both connections are open when the network fails.
      await Promise.all([{}, { idempotencyKey: mode }].map((options) => stillwake.enqueue(report, ++number, options)));
      proxy.mode = mode;
      const numbers = Array.from({ length: 20 }, () => ++number);
      const enqueueing = numbers.map((n) => stillwake.enqueue(report, n, n % 2 ? { idempotencyKey: `${n}` } : {}));
      expect(proxy.connections()).toBe(2);
      await waitFor(() => proxy.connections() === 0, { what: "the deadline to destroy the sockets", interval: 1 });
      const healed = performance.now();
      proxy.mode = "pass";
      const ids = (await Promise.all(enqueueing)).map(({ id }) => id);
      const stall = performance.now() - healed;
      // Delayed statements may still arrive; they change nothing.
      await waitFor(async () => (await othersAtWork()) === 0);
      for (const [index, n] of numbers.entries()) expect(await idsOf(n)).toEqual([ids[index]]);
      expect(stall).toBeLessThan(6000);
      recordFigure(`outage: longest stall after a ${mode} network healed`, stall, "ms");
    },
  );
});

describe("connections are reset", () => {
  it.each([{ keyed: false }, { keyed: true }])(
    "20 callers lose nothing and store nothing twice during many resets ($keyed)",
    async ({ keyed }) => {
      await using proxy = await faultProxy(database.url);
      await using stillwake = createStillwake({ url: proxy.url });
      const load = startEnqueueLoad(stillwake, proxy, 20, keyed);
      for (let storm = 0; storm < 40; storm++) {
        const progress = load.acknowledged.size;
        await waitFor(() => load.acknowledged.size > progress + 5, { interval: 1 });
        proxy.reset();
      }
      await load.stop();
      await load.check(sql, `reset storm${keyed ? " with keys" : ""}`);
    },
  );
});

describe("Postgres crashes and comes back", () => {
  it("no acknowledged job is lost, none is stored twice, and callers only wait longer", {
    timeout: 60_000,
  }, async () => {
    const postgres = await startPostgresServer();
    await using proxy = await faultProxy(postgres.url);
    await using stillwake = createStillwake({ url: proxy.url });
    await stillwake.register(report);
    const loads = [startEnqueueLoad(stillwake, proxy, 8, false), startEnqueueLoad(stillwake, proxy, 8, true)];
    for (let crash = 0; crash < 4; crash++) {
      const progress = loads.map(({ acknowledged }) => acknowledged.size);
      await waitFor(() => loads.every(({ acknowledged }, index) => acknowledged.size > progress[index]! + 100), {
        interval: 1,
      });
      // SIGQUIT is an immediate shutdown: no checkpoint, recovery from the WAL at the next start.
      await postgres.kill("SIGQUIT");
      await postgres.start();
    }
    await Promise.all(loads.map((load) => load.stop()));
    const client = await connect(postgres.url);
    await loads[0]!.check(client, "4 crashes");
    await loads[1]!.check(client, "4 crashes with keys");
  });
});

describe("after a failover the connection is to a standby", () => {
  it("a statement rejected by a read-only server is sent again over a new connection", async () => {
    const pool = new pg.Pool({ connectionString: database.url });
    let refused = 0;
    pool.on("remove", () => refused++);
    await using stillwake = createStillwake({ pool });
    await sql.query(`alter database ${database.name} set default_transaction_read_only = on`);
    const n = ++number;
    const enqueueing = stillwake.enqueue(report, n);
    await waitFor(() => refused > 0, { what: "the server to reject the job" });
    await sql.query(`alter database ${database.name} reset default_transaction_read_only`);
    const { id } = await enqueueing;
    expect(await idsOf(n)).toEqual([id]);
    await pool.end();
  });
});

describe("Postgres stays unreachable", () => {
  it("longer than the retry timeout: DatabaseUnavailable with a remedy, without much delay", async () => {
    await using proxy = await faultProxy(database.url);
    await using stillwake = createStillwake({ url: proxy.url, retryTimeout: "400ms" });
    await stillwake.enqueue(report, ++number);
    proxy.mode = "refuse";
    proxy.reset();
    const startedAt = performance.now();
    const refused: StillwakeError = await stillwake.enqueue(report, ++number).catch((error) => error);
    expect(performance.now() - startedAt).toBeLessThan(2000);
    expect(refused).toMatchObject({ name: "DatabaseUnavailable", code: "DATABASE_UNAVAILABLE", retryable: true });
    expect(refused.message).toMatch(
      /^Postgres could not be reached for 400 ms: .*\. Check that it is running and that the URL is right; the last call may/,
    );
    proxy.mode = "pass";
    await stillwake.enqueue(report, ++number);
  });

  it("only the error of a write whose response was lost says that it may have been committed", async () => {
    await using proxy = await faultProxy(database.url);
    await using stillwake = createStillwake({ url: proxy.url, retryTimeout: "400ms", statementTimeout: "1s" });
    await stillwake.enqueue(report, ++number);
    // The statements are sent over frozen connections, and there are no others.
    await Promise.all([stillwake.list({ limit: 1 }), stillwake.list({ limit: 1 })]);
    proxy.freeze();
    proxy.mode = "refuse";
    const calls = [stillwake.enqueue(report, ++number), stillwake.list({ limit: 1 })];
    const [written, read] = await Promise.all(
      calls.map((call) =>
        call.then(
          () => "done",
          ({ message }) => message,
        ),
      ),
    );
    proxy.mode = "pass";
    proxy.thaw();
    expect(written).toMatch(/the last call may or may not have been committed$/);
    expect(read).toMatch(/Check that it is running and that the URL is right$/);

    await using nowhere = createStillwake({ url: "postgres://x@127.0.0.1:1/x", retryTimeout: "100ms" });
    await expect(nowhere.enqueue(report, ++number)).rejects.toThrow(/ECONNREFUSED.*that the URL is right$/);
  });

  it("callers retry with growing pauses, and not all at once", async () => {
    const connects: number[] = [];
    const listener = net.createServer((socket) => {
      connects.push(performance.now());
      socket.on("error", () => {}).resetAndDestroy();
    });
    await once(listener.listen(0, "127.0.0.1"), "listening");
    const url = `postgres://x@127.0.0.1:${(listener.address() as net.AddressInfo).port}/x`;
    const clients = Array.from({ length: 20 }, () => createStillwake({ url, retryTimeout: "1500ms" }));
    await Promise.all(clients.map((client) => expect(client.list()).rejects.toThrow(/could not be reached/)));
    listener.close();
    await Promise.all(clients.map((client) => client.close()));
    // 20, 40, 80 … 640 ms, half of each random: 6 to 8 attempts fit into the retry timeout.
    expect(connects.length / clients.length).toBeLessThan(9);
    expect(connects.length / clients.length).toBeGreaterThan(5);
    const late = connects.filter((at) => at > connects[0]! + 300).sort((a, b) => a - b);
    const max = Math.max(...late.map((at) => late.filter((other) => other >= at && other < at + 20).length));
    expect(max).toBeLessThan(clients.length);
    recordFigure("outage: connects per caller in 1.5 s without Postgres", connects.length / clients.length);
  });

  it("many concurrent calls open no more connections than allowed", async () => {
    await using proxy = await faultProxy(database.url);
    await using stillwake = createStillwake({ url: proxy.url, connections: 3 });
    proxy.latencyMs = 5;
    let max = 0;
    const calls = Array.from({ length: 30 }, () =>
      stillwake.list({ limit: 1 }).then(() => (max = Math.max(max, proxy.connections()))),
    );
    await Promise.all(calls);
    expect(max).toBe(3);
  });
});

async function idsOf(n: number): Promise<string[]> {
  return (await sql.query("select id from stillwake.jobs where input = to_jsonb($1::int)", [n])).rows.map(
    ({ id }) => id,
  );
}

async function othersAtWork(): Promise<number> {
  const { rows } = await sql.query(
    "select count(*)::int as count from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'",
  );
  return rows[0].count;
}

describe("an outage", () => {
  it("makes many calls wait without a warning of Node", async () => {
    const warnings: string[] = [];
    const onWarning = ({ message }: Error) => warnings.push(message);
    process.on("warning", onWarning);
    onTestFinished(() => void process.off("warning", onWarning));
    await using proxy = await faultProxy(database.url);
    await using stillwake = createStillwake({ url: proxy.url });
    await stillwake.list({ limit: 1 });
    proxy.mode = "refuse";
    proxy.reset();
    const calls = Promise.all(Array.from({ length: 30 }, () => stillwake.list({ limit: 1 })));
    const opened = proxy.asked();
    await waitFor(() => proxy.asked() > opened + 2, { what: "refused connections" });
    proxy.mode = "pass";
    await calls;
    expect(warnings).toEqual([]);
  });
});
