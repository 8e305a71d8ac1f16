// A follower of one job receives every event once and in order, whatever happens to the job and to its cursor.
import { describe, expect, it } from "vitest";
import { follow } from "../../src/live/follower.ts";
import { waitFor } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import {
  append,
  claimJobs,
  collect,
  complete,
  feedFixture,
  followed,
  type Lease,
  numbers,
  texts,
} from "../support/database/feed-writer.ts";

const { database, sql, openReader } = await feedFixture();
/** A poll interval longer than any test. */
const NEVER = 600_000;
const steps = (lease: Lease, names: string[]) =>
  sql.query("select stillwake.save_checkpoints($1)", [
    JSON.stringify(names.map((step) => ({ ...lease, step, output: 1 }))),
  ]);
const claimAgain = async ({ job }: Lease): Promise<Lease> => {
  const { rows } = await sql.query(
    "select c.job_id as job, c.epoch, c.lease_id as lease from stillwake.live_jobs j, stillwake.claim('writer', 'default', array[j.pipeline], 100, '1 hour') c where j.id = $1",
    [job],
  );
  return rows.find((row) => row.job === job);
};
const fail = (lease: Lease) =>
  sql.query("select stillwake.settle($1)", [
    JSON.stringify([{ ...lease, outcome: "failed", failure: { message: "oh" }, fatal: true }]),
  ]);

describe("a follower", () => {
  it("receives the job's state, then every line once and in order, its steps, its progress, and its result", async () => {
    const reader = openReader({ directUrl: database.url });
    await sql.query("select stillwake.register_pipeline('life')");
    const { rows } = await sql.query("select stillwake.enqueue('life') as id");
    const id: string = rows[0].id;
    const received = collect(follow(reader, id));
    await received.has("the first state", ({ kind }) => kind === "state");
    const claim = async (): Promise<Lease> =>
      (
        await sql.query(
          "select job_id as job, epoch, lease_id as lease from stillwake.claim('w', 'default', '{life}', 1, '1 hour')",
        )
      ).rows[0];
    const first = await claim();
    await received.has("running", (event) => event.kind === "state" && event.state === "running");
    await append(
      sql,
      [first],
      [
        { message: "one", step: "s" },
        { message: "two", level: "warning", data: { n: 2 } },
      ],
    );
    await received.has("two", (event) => event.kind === "log" && event.message === "two");
    await sql.query("select stillwake.save_checkpoints($1)", [
      JSON.stringify([{ ...first, step: "s", output: 1, took_ms: 40 }]),
    ]);
    await received.has("the step", ({ kind }) => kind === "step");
    await sql.query('select stillwake.progress($1, $2, $3, \'{"done": 1, "total": 3}\')', [
      first.job,
      first.epoch,
      first.lease,
    ]);
    await received.has("progress", ({ kind }) => kind === "progress");
    await sql.query("select stillwake.fail($1, $2, $3, '{\"message\": \"oh\"}', false, '0s')", [
      first.job,
      first.epoch,
      first.lease,
    ]);
    await received.has("back in line", (event) => event.kind === "event" && event.event === "failed");
    const second = await claim();
    await append(sql, [second], [{ message: "three" }]);
    await complete(sql, second, { answer: 42 });
    await received.over;

    expect(received.events[0]).toMatchObject({
      kind: "state",
      state: "queued",
      attempt: 0,
      maxAttempts: 3,
      missing: [],
    });
    const reported = received.events.filter(({ kind }) => kind === "log" || kind === "event");
    expect(
      reported.map((event) => (event.kind === "log" ? event.message : (event as { event: string }).event)),
    ).toEqual(["one", "two", "failed", "three"]);
    expect(reported.map((event) => (event as { seq: string }).seq)).toEqual(["1", "2", "3", "4"]);
    expect(reported[1]).toMatchObject({
      level: "warning",
      step: null,
      data: { n: 2 },
      epoch: "1",
      id: `2-${id.slice(-8)}`,
    });
    expect(received.events.filter(({ kind }) => kind === "step")).toMatchObject([
      { name: "s", tookMs: 40, epoch: "1" },
    ]);
    expect(received.events.find(({ kind }) => kind === "progress")).toMatchObject({ progress: { done: 1, total: 3 } });
    expect(received.events.filter(({ kind }) => kind === "gap")).toEqual([]);
    expect(received.events.at(-2)).toMatchObject({ kind: "state", state: "completed" });
    expect(received.events.at(-1)).toEqual({
      kind: "end",
      id: `4-${id.slice(-8)}-end`,
      state: "completed",
      output: { answer: 42 },
      failure: null,
    });
  });

  it("of an ended job receives everything; one that reconnects only what it is missing", async () => {
    const reader = openReader({ directUrl: database.url });
    const [lease] = await claimJobs(sql, 1);
    await append(sql, [lease!], numbers(1, 700));
    await complete(sql, lease!, "out");
    const all = followed(reader, lease!);
    const rest = followed(reader, lease!, { after: "650" });
    const none = followed(reader, lease!, { after: "700" });
    await Promise.all([all.over, rest.over, none.over]);
    expect(all.lines()).toEqual(texts(1, 700));
    expect(rest.lines()).toEqual(texts(651, 700));
    expect(none.events.map(({ kind }) => kind)).toEqual(["state", "end"]);
  });

  it("that is behind the buffer reads from the database, every line once", async () => {
    const reader = openReader({ directUrl: database.url });
    const [lease] = await claimJobs(sql, 1);
    const slow = follow(reader, lease!.job)[Symbol.asyncIterator]();
    expect((await slow.next()).value).toMatchObject({ kind: "state", state: "running" });
    const quick = followed(reader, lease!);
    for (let from = 1; from <= 3001; from += 1000) await append(sql, [lease!], numbers(from, from + 999));
    await complete(sql, lease!);
    await quick.over;
    const late = collect({ [Symbol.asyncIterator]: () => slow });
    await late.over;
    expect(quick.lines()).toEqual(texts(1, 4000));
    expect(late.lines()).toEqual(texts(1, 4000));
    expect([...quick.events, ...late.events].filter(({ kind }) => kind === "gap")).toEqual([]);
  });

  it("continues when the job is retried, and sees the new steps", async () => {
    const reader = openReader({ directUrl: database.url });
    const [lease] = await claimJobs(sql, 1, "again");
    await sql.query("select stillwake.save_checkpoints($1)", [JSON.stringify([{ ...lease, step: "old", output: 1 }])]);
    await append(sql, [lease!], [{ message: "before" }]);
    await sql.query("select stillwake.cancel($1)", [lease!.job]);
    const slow = follow(reader, lease!.job)[Symbol.asyncIterator]();
    await slow.next();
    // In one statement: it is never visible as ended.
    await sql.query("begin");
    await sql.query("select stillwake.settle($1)", [JSON.stringify([{ ...lease, outcome: "cancelled" }])]);
    await sql.query("select stillwake.retry($1, true)", [lease!.job]);
    await sql.query("commit");
    const rest = collect({ [Symbol.asyncIterator]: () => slow });
    await rest.has("the retry", (event) => event.kind === "event" && event.event === "retried");
    const late = followed(reader, lease!);
    await late.has("the retry", (event) => event.kind === "event" && event.event === "retried");
    await sql.query("select stillwake.cancel($1)", [lease!.job]);
    await Promise.all([rest.over, late.over]);
    expect(rest.events.filter(({ kind }) => kind === "end")).toHaveLength(1);
    expect(late.lines()).toEqual(["before"]);
    expect(late.events.filter(({ kind }) => kind === "step")).toEqual([]);
  });

  it("without hints receives no outdated end, and no line twice", async () => {
    const reader = openReader({ pollMs: 50 });
    const [lease] = await claimJobs(sql, 1, "revived");
    await append(sql, [lease!], numbers(1, 299));
    await fail(lease!);
    const slow = follow(reader, lease!.job, { after: "150" });
    expect((await slow.next()).value).toMatchObject({ kind: "state", state: "failed" });
    const patient = follow(reader, lease!.job, { after: "299" });
    await patient.next();
    const knownAt = performance.now();
    await sql.query("select stillwake.retry($1)", [lease!.job]);
    const again = await claimAgain(lease!);
    await append(sql, [again], numbers(300, 309));
    const received = collect(slow);
    await received.has("the newest line", (event) => event.kind === "log" && event.message === "309");
    // The buffer is outdated by now.
    await waitFor(() => performance.now() - knownAt > 1100);
    const late = collect(patient);
    await append(sql, [again], [{ message: "last" }]);
    await complete(sql, again);
    await Promise.all([received.over, late.over]);
    expect(received.lines()).toEqual([...texts(151, 309), "last"]);
    expect(late.lines()).toEqual([...texts(300, 309), "last"]);
    for (const { events } of [received, late]) {
      expect(events.filter(({ kind }) => kind === "end")).toMatchObject([{ state: "completed" }]);
      expect(events.at(-1)).toMatchObject({ kind: "end" });
      expect(events.filter(({ kind }) => kind === "gap")).toEqual([]);
    }
  });

  it("of a job with many steps receives the latest, while it runs and before its end", async () => {
    const reader = openReader({ directUrl: database.url, pollWithHintsMs: NEVER });
    const [lease] = await claimJobs(sql, 1, "stepping");
    const received = followed(reader, lease!);
    await received.has("its state", ({ kind }) => kind === "state");
    await waitFor(() => reader.status.hints);
    const reported = (name: string) => received.has(name, (event) => event.kind === "step" && event.name === name);
    // With this many steps they are read every third of a second.
    for (let batch = 0; batch < 4; batch++) {
      await steps(
        lease!,
        numbers(1, 450).map(({ message }) => `${batch}.${message}`),
      );
      await reported(`${batch}.450`);
    }
    await steps(lease!, ["in between"]);
    await reported("in between");
    await sql.query("begin");
    await steps(lease!, ["last"]);
    await complete(sql, lease!);
    await sql.query("commit");
    await received.over;
    expect(received.events.filter(({ kind }) => kind === "step")).toHaveLength(1802);
    expect(received.events.slice(-3)).toMatchObject([
      { kind: "step", name: "last" },
      { kind: "state" },
      { kind: "end" },
    ]);
  });

  it("receives the steps after a restart, however many lines precede it", async () => {
    const reader = openReader({ directUrl: database.url });
    const [lease] = await claimJobs(sql, 1, "anew");
    await steps(lease!, ["old"]);
    await sql.query("select stillwake.cancel($1)", [lease!.job]);
    const first = followed(reader, lease!);
    await first.has("its step", ({ kind }) => kind === "step");
    await sql.query("begin");
    await append(sql, [lease!], numbers(1, 700));
    await sql.query("select stillwake.settle($1)", [JSON.stringify([{ ...lease, outcome: "cancelled" }])]);
    await sql.query("select stillwake.retry($1, true)", [lease!.job]);
    const again = await claimAgain(lease!);
    await steps(again, ["new"]);
    await sql.query("commit");
    await first.has("the retry", (event) => event.kind === "event" && event.event === "retried");
    const late = followed(reader, lease!);
    await late.has("the retry", (event) => event.kind === "event" && event.event === "retried");
    await complete(sql, again);
    await Promise.all([first.over, late.over]);
    const names = late.events.flatMap((event) => (event.kind === "step" ? event.name : []));
    expect(names).toEqual(["new"]);
  });

  it("receives a step that takes a signal after another checkpoint, in any order", async () => {
    const [lease] = await claimJobs(sql, 1, "turns");
    const fence = [lease!.job, lease!.epoch, lease!.lease];
    await sql.query("select stillwake.signal($1, 'go')", [lease!.job]);
    const { rows } = await sql.query("select id from stillwake.find_signal($1, $2, $3, 'go', 'taken')", fence);
    const taker = await connect(database.url);
    await sql.query("begin");
    await sql.query("select from stillwake.leases where id = $1 for no key update", [lease!.lease]);
    const pid = (await taker.query("select pg_backend_pid() as pid")).rows[0].pid;
    const taking = taker.query("select stillwake.take_signal($1, $2, $3, 'taken', $4, '1')", [...fence, rows[0].id]);
    const waits = "select from pg_locks where pid = $1 and not granted";
    await waitFor(async () => (await sql.query(waits, [pid])).rowCount! > 0);
    await steps(lease!, ["kept"]);
    await sql.query("commit");
    await taking;
    await taker.end();
    const stored = await sql.query("select step from stillwake.checkpoints where job_id = $1 order by saved_at", [
      lease!.job,
    ]);
    expect(stored.rows.map(({ step }) => step)).toEqual(["kept", "taken"]);
  });

  it("receives a gap when the database has lost lines that were sent, and then the whole feed", async () => {
    const reader = openReader({ pollMs: 50 });
    const [lease] = await claimJobs(sql, 1, "lost");
    await append(sql, [lease!], numbers(1, 10));
    await steps(lease!, ["lost"]);
    const received = followed(reader, lease!);
    await received.has("10", (event) => event.kind === "log" && event.message === "10");
    await sql.query("begin");
    await sql.query("delete from stillwake.feed where job_id = $1 and seq > 6", [lease!.job]);
    await sql.query("delete from stillwake.checkpoints where job_id = $1", [lease!.job]);
    await sql.query("update stillwake.live_jobs set seq = 6 where id = $1", [lease!.job]);
    await append(sql, [lease!], [{ message: "other 7" }]);
    await sql.query("commit");
    await received.has("the other line", (event) => event.kind === "log" && event.message === "other 7");
    await steps(lease!, ["found"]);
    await append(sql, [lease!], numbers(8, 12));
    await complete(sql, lease!);
    await received.over;
    expect(received.events.filter(({ kind }) => kind === "gap")).toEqual([{ kind: "gap", after: "10", next: "1" }]);
    expect(received.lines()).toEqual([...texts(1, 10), ...texts(1, 6), "other 7", ...texts(8, 12)]);
    const late = followed(reader, lease!);
    await late.over;
    expect(late.events.flatMap((event) => (event.kind === "step" ? event.name : []))).toEqual(["found"]);
    expect(late.lines()).toEqual([...texts(1, 6), "other 7", ...texts(8, 12)]);
  });

  it("receives a gap for deleted lines, and starts at the first line if its cursor was never reached", async () => {
    const reader = openReader({ directUrl: database.url });
    const [lease] = await claimJobs(sql, 1);
    await append(sql, [lease!], numbers(1, 900));
    await sql.query(
      "delete from stillwake.feed where job_id = $1 and (seq <= 10 or seq between 101 and 110 or seq between 871 and 875)",
      [lease!.job],
    );
    const gaps = (events: readonly object[]) => events.filter((event) => (event as { kind: string }).kind === "gap");
    const live = followed(reader, lease!);
    await live.has("the last line", (event) => event.kind === "log" && event.message === "900");
    const expected = [
      { kind: "gap", after: "0", next: "11" },
      { kind: "gap", after: "100", next: "111" },
      { kind: "gap", after: "870", next: "876" },
    ];
    expect(gaps(live.events)).toEqual(expected);
    await append(sql, [lease!], numbers(901, 902));
    await complete(sql, lease!);
    await live.over;
    // Its end is deleted too, for a later follower of another process.
    await sql.query("delete from stillwake.feed where job_id = $1 and seq > 900", [lease!.job]);
    const later = openReader({ directUrl: database.url });
    const beyond = followed(later, lease!, { after: "5000" });
    const within = followed(later, lease!, { after: "105" });
    await Promise.all([beyond.over, within.over]);
    const end = { kind: "gap", after: "900", next: "903" };
    expect(gaps(beyond.events)).toEqual([{ kind: "gap", after: "5000", next: "11" }, ...expected.slice(1), end]);
    expect(beyond.lines()).toEqual([...texts(11, 100), ...texts(111, 870), ...texts(876, 900)]);
    expect(gaps(within.events)).toEqual([{ kind: "gap", after: "105", next: "111" }, expected[2], end]);
  });

  it("of a job that is deleted ends without a state; of an unknown job it is rejected", async () => {
    const reader = openReader({ directUrl: database.url, pollWithHintsMs: 50 });
    const [lease] = await claimJobs(sql, 1);
    await append(sql, [lease!], [{ message: "x" }]);
    const received = followed(reader, lease!);
    await received.has("its line", ({ kind }) => kind === "log");
    await sql.query("delete from stillwake.live_jobs where id = $1", [lease!.job]);
    await received.over;
    expect(received.events.at(-1)).toMatchObject({ kind: "end", state: null });
    await expect(followed(reader, lease!).over).rejects.toMatchObject({ code: "JOB_NOT_FOUND" });
    await expect(collect(follow(reader, "no id")).over).rejects.toMatchObject({ code: "INVALID_INPUT" });
    for (const after of ["-1", "x", "1e3", "", "9".repeat(30)]) {
      await expect(followed(reader, lease!, { after }).over, after).rejects.toMatchObject({ code: "INVALID_INPUT" });
    }
  });

  it("throws at once when its signal is aborted, or when its reader is closed", async () => {
    const reader = openReader({ directUrl: database.url });
    const [lease] = await claimJobs(sql, 1);
    const stop = new AbortController();
    const first = followed(reader, lease!, { signal: stop.signal });
    const second = followed(reader, lease!);
    await first.has("its state", ({ kind }) => kind === "state");
    await second.has("its state", ({ kind }) => kind === "state");
    stop.abort(new Error("enough"));
    await expect(first.over).rejects.toThrow("enough");
    expect(reader.status).toMatchObject({ jobs: 1, followers: 1 });
    await reader.close();
    await expect(second.over).rejects.toMatchObject({ code: "CLOSED" });
    await expect(followed(reader, lease!).over).rejects.toMatchObject({ code: "CLOSED" });
  });

  it("can be ended while it waits", async () => {
    const reader = openReader({ directUrl: database.url });
    const [lease] = await claimJobs(sql, 1);
    const stream = ReadableStream.from(follow(reader, lease!.job)).getReader();
    expect((await stream.read()).value).toMatchObject({ kind: "state" });
    const pending = stream.read();
    await stream.cancel();
    expect(await pending).toMatchObject({ done: true });
    expect(reader.status.followers).toBe(0);
    const feed = follow(reader, lease!.job);
    await feed.next();
    const waiting = feed.next();
    expect(await feed.return()).toEqual({ done: true, value: undefined });
    expect(await waiting).toEqual({ done: true, value: undefined });
    expect(await feed.next()).toEqual({ done: true, value: undefined });
    expect(reader.status.followers).toBe(0);
    for await (const _ of follow(reader, lease!.job)) break;
    expect(reader.status.followers).toBe(0);
  });

  it("keeps numbers above 2^53 exactly", async () => {
    const reader = openReader({ directUrl: database.url });
    const [lease] = await claimJobs(sql, 1);
    const start = 2n ** 62n;
    await sql.query("update stillwake.live_jobs set seq = $2 where id = $1", [lease!.job, String(start)]);
    await append(sql, [lease!], numbers(1, 3));
    const received = followed(reader, lease!, { after: String(start + 1n) });
    await received.has("3", (event) => event.kind === "log" && event.message === "3");
    expect(received.events.flatMap((event) => (event.kind === "log" ? event.seq : []))).toEqual([
      String(start + 2n),
      String(start + 3n),
    ]);
  });
});
