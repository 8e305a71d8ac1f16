// Hints and the feed reader: which hints are sent, one reader for all followers, and no queries without followers.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import net from "node:net";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { readFeeds } from "../../src/db/calls/feed.ts";
import { Database } from "../../src/db/database.ts";
import { FeedReader } from "../../src/live/feed-reader.ts";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import {
  append,
  claimJobs,
  complete,
  feedFixture,
  followed,
  type Lease,
  numbers,
  texts,
} from "../support/database/feed-writer.ts";
import { findPgBouncer, startPgBouncer } from "../support/database/pgbouncer.ts";
import { startPostgresServer } from "../support/database/postgres-server.ts";
import { recordFigure } from "../support/figures.ts";

const { database, sql, client, openReader } = await feedFixture();
/** A poll interval longer than any test. */
const NEVER = 600_000;
const listener = await connect(database.url);

describe("hints", () => {
  const received: string[] = [];
  beforeAll(async () => {
    listener.on("notification", ({ payload }) => received.push(payload ?? ""));
    await listener.query('listen "stillwake.feed"');
  });

  /** The hints that are sent while this runs. Hints of the test mark its start and its end. */
  async function hinted(act: () => Promise<unknown>): Promise<string[]> {
    await takeReceived();
    await act();
    return takeReceived();
  }

  /** All hints that were sent so far. */
  async function takeReceived(): Promise<string[]> {
    await sql.query("select pg_notify('stillwake.feed', 'mark')");
    await waitFor(() => received.includes("mark"), { interval: 2 });
    return received.splice(0).filter((payload) => payload !== "mark");
  }
  const call = (text: string, values: unknown[]) => () => sql.query(`select ${text}`, values);
  const asJson = (value: unknown) => JSON.stringify([value]);

  const acts: Record<string, (lease: Lease) => () => Promise<unknown>> = {
    "a line": (lease) => () => append(sql, [lease], [{ message: "x" }]),
    progress: ({ job, epoch, lease }) =>
      call("stillwake.progress($1, $2, $3, '{\"fraction\": 0.5}')", [job, epoch, lease]),
    "a checkpoint": (lease) => call("stillwake.save_checkpoints($1)", [asJson({ ...lease, step: "one", output: 1 })]),
    "the same again": (lease) => call("stillwake.save_checkpoints($1)", [asJson({ ...lease, step: "one", output: 1 })]),
    "a request to pause": ({ job }) => call("stillwake.pause($1)", [job]),
    "its being taken back": ({ job }) => call("stillwake.resume($1)", [job]),
    "a sleep": (lease) => call("stillwake.settle($1)", [asJson({ ...lease, outcome: "slept", for: "0s" })]),
    "a claim": () => () => sql.query("select stillwake.claim('writer', 'default', '{acts}', 100, '1 hour')"),
    cancelling: ({ job }) => call("stillwake.cancel($1)", [job]),
    "the end of it": ({ job }) =>
      call(
        "stillwake.settle(jsonb_build_array(jsonb_build_object('job', j.id, 'epoch', j.epoch, 'lease', j.lease_id, 'outcome', 'cancelled'))) from stillwake.live_jobs j where j.id = $1",
        [job],
      ),
    "a retry": ({ job }) => call("stillwake.retry($1)", [job]),
    "an end without an attempt": ({ job }) => call("stillwake.cancel($1)", [job]),
  };

  it("name watched jobs, at every visible change, and no other jobs", async () => {
    const [watched, unwatched] = await claimJobs(sql, 2, "acts");
    await sql.query("select stillwake.watch('me', array[$1]::uuid[])", [watched!.job]);
    for (const [what, act] of Object.entries(acts)) {
      const received = await hinted(act(watched!));
      expect(new Set(received), what).toEqual(new Set([watched!.job]));
      if (what !== "a claim") expect(await hinted(act(unwatched!)), `${what}, unwatched`).toEqual([]);
    }
    await sql.query("select stillwake.unwatch('me')");
    expect(await hinted(acts["a retry"]!(watched!))).toEqual([]);
  });

  it("are one per statement, with * for more jobs than fit", async () => {
    const leases = await claimJobs(sql, 300, "many");
    const ids = leases.map(({ job }) => job);
    await sql.query("select stillwake.watch('me', $1)", [ids.slice(0, 3)]);
    const few = await hinted(() => append(sql, leases, [{ message: "x" }]));
    expect(few.map((payload) => payload.split(",").sort())).toEqual([ids.slice(0, 3).sort()]);
    await sql.query("select stillwake.watch('me', $1)", [ids]);
    expect(await hinted(() => append(sql, leases, [{ message: "x" }]))).toEqual(["*"]);
    await sql.query("select stillwake.unwatch('me', $1)", [ids.slice(1)]);
    expect(await hinted(() => append(sql, leases, [{ message: "x" }]))).toEqual([ids[0]]);
    await sql.query("select stillwake.unwatch('me')");
  });

  it("are sent when a step takes a signal, a wait ends and a list is finished", async () => {
    const [lease] = await claimJobs(sql, 1, "words");
    const fence = [lease!.job, lease!.epoch, lease!.lease];
    await sql.query("select stillwake.watch('me', array[$1]::uuid[])", [lease!.job]);
    await sql.query("select stillwake.signal($1, 'go')", [lease!.job]);
    const { rows } = await sql.query("select id from stillwake.find_signal($1, $2, $3, 'go', 'one')", fence);
    const take = call("stillwake.take_signal($1, $2, $3, 'one', $4, '1')", [...fence, rows[0].id]);
    expect(await hinted(take)).toEqual([lease!.job]);
    expect(await hinted(call("stillwake.find_signal($1, $2, $3, 'no', 'two', '0s')", fence))).toEqual([lease!.job]);
    const place = (over: boolean) =>
      call("stillwake.save_position($1, $2, $3, 'list', 0, 0, null, $4)", [...fence, over]);
    expect(await hinted(place(false))).toEqual([]);
    expect(await hinted(place(true))).toEqual([lease!.job]);
    await sql.query("select stillwake.unwatch('me')");
  });

  it("do not scan expired watches that an old snapshot keeps", async () => {
    const [lease] = await claimJobs(sql, 1, "piled");
    const old = await openSnapshot();
    await append(sql, [lease!], [{ message: "x" }]);
    await sql.query("select stillwake.watch('me', array(select gen_random_uuid() from generate_series(1, 10000)))");
    await sql.query("select stillwake.unwatch('me')");
    const pagesRead = async (jobs: string[]) => {
      const text = `explain (analyze, buffers, format json) select stillwake.hint_watchers('{${jobs}}')`;
      return (await sql.query(text)).rows[0]["QUERY PLAN"][0].Plan["Shared Hit Blocks"] as number;
    };
    await pagesRead([lease!.job]);
    // The dead rows are on about 150 pages.
    expect(await pagesRead([lease!.job])).toBeLessThan(50);
    expect(await pagesRead([lease!.job, ...Array.from({ length: 9 }, () => randomUUID())])).toBeLessThan(100);
    await old.query("rollback");
  });

  async function openSnapshot() {
    const own = await connect(database.url);
    await own.query("begin isolation level repeatable read");
    await own.query("select from stillwake.watches");
    return own;
  }

  it("are not sent for a dead watcher, and its rows are deleted", async () => {
    const [lease] = await claimJobs(sql, 1, "dead");
    const left = async () =>
      (await sql.query("select watcher from stillwake.watches order by 1")).rows.map((row) => row.watcher);
    const lost = () => sql.query("update stillwake.watches set until = stillwake.now() - interval '1 second'");
    await sql.query("select stillwake.watch('dead', array[$1]::uuid[])", [lease!.job]);
    await lost();
    expect(await hinted(() => append(sql, [lease!], [{ message: "x" }]))).toEqual([]);
    await sql.query("select stillwake.watch('next', '{}')");
    expect(await left()).toEqual([]);
    await sql.query("select stillwake.watch('dead', array[$1]::uuid[])", [lease!.job]);
    await lost();
    await sql.query("select stillwake.watchdog()");
    expect(await left()).toEqual([]);
  });
});

describe("the reader", () => {
  it("is shared: 300 followers of 30 jobs use the same reads", async () => {
    const reader = openReader({ directUrl: database.url, pollWithHintsMs: NEVER });
    const leases = await claimJobs(sql, 30, "shared");
    const received = Array.from({ length: 300 }, (_, n) => followed(reader, leases[n % 30]!));
    await Promise.all(received.map((item) => item.has("its state", ({ kind }) => kind === "state")));
    await waitFor(() => reader.status.hints);
    expect(reader.status).toEqual({ jobs: 30, followers: 300, hints: true });
    await append(sql, leases, numbers(1, 5));
    await Promise.all(received.map((item) => item.has("5", (event) => event.kind === "log" && event.message === "5")));
    const sameObject = new Set(
      received.filter((_, n) => n % 30 === 0).map(({ events }) => events.find(({ kind }) => kind === "log")),
    );
    expect(sameObject.size).toBe(1);
    for (const lease of leases) await complete(sql, lease);
    await Promise.all(received.map(({ over }) => over));
    for (const entry of received) expect(entry.lines()).toEqual(texts(1, 5));
  });

  it("respects its size limits for lines that compress well, and for results", async () => {
    const reader = openReader({ directUrl: database.url });
    const leases = await claimJobs(sql, 8, "large");
    const line = { message: "x", data: { a: "a".repeat(16_000) } };
    await append(sql, leases, Array<object>(50).fill(line));
    const output = "o".repeat(1_000_000);
    for (const lease of leases) await complete(sql, lease, output);
    const requested = leases.map(({ job }) => ({ job, after: "0", stepsAfter: null }));
    const rows = await readFeeds(client, requested, 500);
    const size = (what: string, job?: string) =>
      JSON.stringify(rows.filter((row) => row.what === what && (job === undefined || row.job_id === job))).length;
    for (const { job } of leases) expect(size("feed", job)).toBeLessThan(300_000);
    expect(size("end")).toBeLessThan(5_500_000);
    const received = leases.map((lease) => followed(reader, lease));
    await Promise.all(received.map(({ over }) => over));
    for (const { events } of received) {
      expect(events.filter(({ kind }) => kind === "log")).toHaveLength(50);
      const end = events.at(-1)!;
      expect(end.kind === "end" && end.output === output).toBe(true);
      expect(events.filter(({ kind }) => kind === "state")).toMatchObject([{ state: "completed" }]);
    }
  });

  it("watches more jobs than one statement can name", async () => {
    const reader = openReader({ directUrl: database.url });
    reader.join(randomUUID());
    await waitFor(() => reader.status.hints);
    const ids = Array.from({ length: 10_001 }, () => randomUUID());
    for (const id of ids) reader.join(id);
    const watched = async () =>
      (await sql.query("select count(*)::int as count from stillwake.watches where job_id = any ($1)", [ids])).rows[0];
    await waitFor(async () => (await watched()).count === ids.length, { what: "all jobs to be watched" });
  });

  it("closes quickly when the network hangs", async () => {
    // Unlike with a hanging server, the end of a connection is lost too.
    const url = new URL(database.url);
    const { port, hostname } = url;
    const sockets: net.Socket[] = [];
    let drops = false;
    const network = net.createServer({ allowHalfOpen: true }, (socket) => {
      const onward = net.connect(Number(port), hostname);
      socket.on("data", (data) => drops || onward.write(data)).on("error", () => {});
      onward.on("data", (data) => drops || socket.write(data)).on("error", () => {});
      sockets.push(socket, onward);
    });
    await once(network.listen(0, "127.0.0.1"), "listening");
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy();
      network.close();
    });
    url.port = String((network.address() as net.AddressInfo).port);
    const reader = openReader({ directUrl: url.href });
    const [lease] = await claimJobs(sql, 1);
    const received = followed(reader, lease!);
    await waitFor(() => reader.status.hints);
    drops = true;
    let closed = false;
    void reader.close().then(() => {
      closed = true;
    });
    await waitFor(() => closed, { what: "the reader to be closed" });
    await expect(received.over).rejects.toMatchObject({ code: "CLOSED" });
  });

  it("polls without a direct URL, and watches nothing", async () => {
    const reader = openReader({ pollMs: 50 });
    const [lease] = await claimJobs(sql, 1);
    const received = followed(reader, lease!);
    await received.has("its state", ({ kind }) => kind === "state");
    await append(sql, [lease!], numbers(1, 3));
    await received.has("3", (event) => event.kind === "log" && event.message === "3");
    expect(reader.status.hints).toBe(false);
    expect((await sql.query("select from stillwake.watches where job_id = $1", [lease!.job])).rowCount).toBe(0);
    await complete(sql, lease!);
    await received.over;
  });

  const pooler = findPgBouncer();
  it("polls behind a transaction pooler, and leaves no LISTEN in a shared session", async (context) => {
    if (typeof pooler === "string") return context.skip(pooler);
    const options = { program: pooler.program, url: database.url, mode: "transaction", size: 4 } as const;
    await using pgbouncer = await startPgBouncer(options);
    const pooled = new Database({ url: pgbouncer.url });
    onTestFinished(() => pooled.close());
    const reader = new FeedReader(pooled, { directUrl: pgbouncer.url });
    onTestFinished(() => reader.close());
    const [lease] = await claimJobs(sql, 1);
    const received = followed(reader, lease!);
    await received.has("its state", ({ kind }) => kind === "state");
    for (const from of [1, 4]) {
      await append(sql, [lease!], numbers(from, from + 2));
      await received.has("the last", (event) => event.kind === "log" && event.message === `${from + 2}`);
    }
    expect(reader.status.hints).toBe(false);
    const client = await connect(pgbouncer.url);
    expect((await client.query("select pg_listening_channels()")).rows).toEqual([]);
    await client.end();
    await complete(sql, lease!);
    await received.over;
    expect(received.lines()).toEqual(texts(1, 6));
  });

  it("reads again after each reconnect, so that nothing written before is missed", async () => {
    await using proxy = await faultProxy(database.url);
    // Without polling: only the read after a reconnect finds changes without a hint.
    const reader = openReader({ directUrl: proxy.url, pollWithHintsMs: NEVER, pollMs: NEVER });
    const [lease] = await claimJobs(sql, 1);
    const received = followed(reader, lease!);
    await waitFor(() => reader.status.hints);
    const readSince = async (moment: string) =>
      (
        await sql.query(
          "select from pg_stat_activity where datname = current_database() and query like '%read_feeds(%' and state = 'idle' and state_change > $1::timestamptz",
          [moment],
        )
      ).rowCount! > 0;
    for (let round = 0; round < 5; round++) {
      const { rows } = await sql.query("select clock_timestamp()::text as now");
      proxy.mode = "refuse";
      proxy.reset();
      await waitFor(() => !reader.status.hints);
      // The read after the loss is finished before this line: only the one after the reconnect finds it.
      await waitFor(() => readSince(rows[0].now), { what: "the read after the loss", interval: 5 });
      await append(sql, [lease!], [{ message: `away ${round}` }]);
      proxy.mode = "pass";
      await received.has(
        `the line of round ${round}`,
        (event) => event.kind === "log" && event.message === `away ${round}`,
      );
      await waitFor(() => reader.status.hints);
      await append(sql, [lease!], [{ message: `back ${round}` }]);
      await received.has(
        `the line after round ${round}`,
        (event) => event.kind === "log" && event.message === `back ${round}`,
      );
    }
    expect(received.lines()).toEqual(Array.from({ length: 5 }, (_, n) => [`away ${n}`, `back ${n}`]).flat());
  });

  it("finds by polling what hints over a hanging connection missed", async () => {
    await using proxy = await faultProxy(database.url);
    const reader = openReader({ directUrl: proxy.url, pollWithHintsMs: 200 });
    const [lease] = await claimJobs(sql, 1);
    const received = followed(reader, lease!);
    await waitFor(() => reader.status.hints);
    proxy.mode = "silent";
    proxy.freeze();
    await append(sql, [lease!], numbers(1, 3));
    await received.has("3", (event) => event.kind === "log" && event.message === "3");
  });

  it("continues after an outage of Postgres", async () => {
    const reader = openReader({ directUrl: database.url });
    const [lease] = await claimJobs(sql, 1);
    const received = followed(reader, lease!);
    await waitFor(() => reader.status.hints);
    await sql.query(
      "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'stillwake%' and datname = current_database()",
    );
    await append(sql, [lease!], numbers(1, 3));
    await received.has("3", (event) => event.kind === "log" && event.message === "3");
    await complete(sql, lease!);
    await received.over;
  });
});

describe("without followers", () => {
  it("there is no statement, no connection, no watch; and following works again", {
    timeout: 60_000,
  }, async () => {
    const server = await startPostgresServer({
      log_statement: "all",
      log_connections: "on",
      log_line_prefix: "<%a> ",
    });
    const own = await connect(server.url);
    const quiet = new Database({ url: server.url, idleTimeout: "100ms" });
    const reader = new FeedReader(quiet, { directUrl: server.url, lingerMs: 300 });
    const sessions = async () =>
      (
        await own.query(
          "select application_name as name from pg_stat_activity where application_name like 'stillwake%'",
        )
      ).rows;
    for (let round = 0; round < 2; round++) {
      const [lease] = await claimJobs(own, 1);
      const received = followed(reader, lease!);
      await waitFor(() => reader.status.hints);
      await append(own, [lease!], numbers(1, 3));
      await complete(own, lease!);
      await received.over;
      expect(received.lines()).toEqual(texts(1, 3));
      await waitFor(async () => (await sessions()).length === 0, { what: "its connections to be closed" });
      expect(reader.status).toEqual({ jobs: 0, followers: 0, hints: false });
      expect((await own.query("select from stillwake.watches")).rowCount).toBe(0);
    }
    const from = server.log().length;
    await new Promise((resolve) => setTimeout(resolve, 3000));
    const output = server
      .log()
      .slice(from)
      .split("\n")
      .filter((line) => /^<(?!test>).*LOG: {2}(statement|execute)|connection received/.test(line));
    expect(output).toEqual([]);
    recordFigure("live path: statements and connections without followers", output.length, "", "over 3 s");
    await reader.close();
    await quiet.close();
  });
});
