// A follower of one job: everything it is told, once and in order, whatever becomes of the job and of its place.
import { describe, expect, it } from "vitest";
import { follow } from "../../src/live/follower.ts";
import { waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import {
  append,
  claimJobs,
  complete,
  feedRig,
  followed,
  hear,
  type Lease,
  numbers,
  texts,
} from "../support/database/feed-writer.ts";
import { connect } from "../support/processes/aftermath.ts";

const database = await freshDatabase();
/** A floor that helps nobody within a test. */
const NEVER = 600_000;
const { sql, openReader } = feedRig(database);
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
  it("is told how the job stands, then every line once and in order, its steps, its progress, and what came of it", async () => {
    const reader = openReader({ directUrl: database.url });
    await sql.query("select stillwake.register_pipeline('life')");
    const { rows } = await sql.query("select stillwake.enqueue('life') as id");
    const id: string = rows[0].id;
    const heard = hear(follow(reader, id));
    await heard.has("the first state", ({ kind }) => kind === "state");
    const claim = async (): Promise<Lease> =>
      (
        await sql.query(
          "select job_id as job, epoch, lease_id as lease from stillwake.claim('w', 'default', '{life}', 1, '1 hour')",
        )
      ).rows[0];
    const first = await claim();
    await heard.has("running", (event) => event.kind === "state" && event.state === "running");
    await append(
      sql,
      [first],
      [
        { message: "one", step: "s" },
        { message: "two", level: "warning", data: { n: 2 } },
      ],
    );
    await heard.has("two", (event) => event.kind === "log" && event.message === "two");
    await sql.query("select stillwake.save_checkpoints($1)", [
      JSON.stringify([{ ...first, step: "s", output: 1, took_ms: 40 }]),
    ]);
    await heard.has("the step", ({ kind }) => kind === "step");
    await sql.query('select stillwake.progress($1, $2, $3, \'{"done": 1, "total": 3}\')', [
      first.job,
      first.epoch,
      first.lease,
    ]);
    await heard.has("progress", ({ kind }) => kind === "progress");
    await sql.query("select stillwake.fail($1, $2, $3, '{\"message\": \"oh\"}', false, '0s')", [
      first.job,
      first.epoch,
      first.lease,
    ]);
    await heard.has("back in line", (event) => event.kind === "event" && event.event === "failed");
    const second = await claim();
    await append(sql, [second], [{ message: "three" }]);
    await complete(sql, second, { answer: 42 });
    await heard.over;

    expect(heard.events[0]).toMatchObject({ kind: "state", state: "queued", attempt: 0, maxAttempts: 3, missing: [] });
    const told = heard.events.filter(({ kind }) => kind === "log" || kind === "event");
    expect(told.map((event) => (event.kind === "log" ? event.message : (event as { event: string }).event))).toEqual([
      "one",
      "two",
      "failed",
      "three",
    ]);
    expect(told.map((event) => (event as { seq: string }).seq)).toEqual(["1", "2", "3", "4"]);
    expect(told[1]).toMatchObject({
      level: "warning",
      step: null,
      data: { n: 2 },
      epoch: "1",
      id: `2-${id.slice(-8)}`,
    });
    expect(heard.events.filter(({ kind }) => kind === "step")).toMatchObject([{ name: "s", tookMs: 40, epoch: "1" }]);
    expect(heard.events.find(({ kind }) => kind === "progress")).toMatchObject({ progress: { done: 1, total: 3 } });
    expect(heard.events.filter(({ kind }) => kind === "gap")).toEqual([]);
    expect(heard.events.at(-2)).toMatchObject({ kind: "state", state: "completed" });
    expect(heard.events.at(-1)).toEqual({
      kind: "end",
      id: `4-${id.slice(-8)}-end`,
      state: "completed",
      output: { answer: 42 },
      failure: null,
    });
  });

  it("of a job that has ended is given all of it, and one that comes back only what it lacks", async () => {
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

  it("that did not read for long reads what the process no longer holds from the database, every line once", async () => {
    const reader = openReader({ directUrl: database.url });
    const [lease] = await claimJobs(sql, 1);
    const slow = follow(reader, lease!.job)[Symbol.asyncIterator]();
    expect((await slow.next()).value).toMatchObject({ kind: "state", state: "running" });
    const quick = followed(reader, lease!);
    for (let from = 1; from <= 3001; from += 1000) await append(sql, [lease!], numbers(from, from + 999));
    await complete(sql, lease!);
    await quick.over;
    const late = hear({ [Symbol.asyncIterator]: () => slow });
    await late.over;
    expect(quick.lines()).toEqual(texts(1, 4000));
    expect(late.lines()).toEqual(texts(1, 4000));
    expect([...quick.events, ...late.events].filter(({ kind }) => kind === "gap")).toEqual([]);
  });

  it("goes on when the job is retried, and sees steps begin again", async () => {
    const reader = openReader({ directUrl: database.url });
    const [lease] = await claimJobs(sql, 1, "again");
    await sql.query("select stillwake.save_checkpoints($1)", [JSON.stringify([{ ...lease, step: "old", output: 1 }])]);
    await append(sql, [lease!], [{ message: "before" }]);
    await sql.query("select stillwake.cancel($1)", [lease!.job]);
    const slow = follow(reader, lease!.job)[Symbol.asyncIterator]();
    await slow.next();
    // In one statement: it is never seen as ended.
    await sql.query("begin");
    await sql.query("select stillwake.settle($1)", [JSON.stringify([{ ...lease, outcome: "cancelled" }])]);
    await sql.query("select stillwake.retry($1, true)", [lease!.job]);
    await sql.query("commit");
    const rest = hear({ [Symbol.asyncIterator]: () => slow });
    await rest.has("the retry", (event) => event.kind === "event" && event.event === "retried");
    const late = followed(reader, lease!);
    await late.has("the retry", (event) => event.kind === "event" && event.event === "retried");
    await sql.query("select stillwake.cancel($1)", [lease!.job]);
    await Promise.all([rest.over, late.over]);
    expect(rest.events.filter(({ kind }) => kind === "end")).toHaveLength(1);
    expect(late.lines()).toEqual(["before"]);
    expect(late.events.filter(({ kind }) => kind === "step")).toEqual([]);
  });

  it("without hints is not told of an end that is over, nor of a line twice", async () => {
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
    const heard = hear(slow);
    await heard.has("the newest line", (event) => event.kind === "log" && event.message === "309");
    // It holds what was known when it came; by now that is old.
    await waitFor(() => performance.now() - knownAt > 1100);
    const late = hear(patient);
    await append(sql, [again], [{ message: "last" }]);
    await complete(sql, again);
    await Promise.all([heard.over, late.over]);
    expect(heard.lines()).toEqual([...texts(151, 309), "last"]);
    expect(late.lines()).toEqual([...texts(300, 309), "last"]);
    for (const { events } of [heard, late]) {
      expect(events.filter(({ kind }) => kind === "end")).toMatchObject([{ state: "completed" }]);
      expect(events.at(-1)).toMatchObject({ kind: "end" });
      expect(events.filter(({ kind }) => kind === "gap")).toEqual([]);
    }
  });

  it("of a job with many steps is told of the latest, while it runs and before its end", async () => {
    const reader = openReader({ directUrl: database.url, pollWithHintsMs: NEVER });
    const [lease] = await claimJobs(sql, 1, "stepping");
    const heard = followed(reader, lease!);
    await heard.has("its state", ({ kind }) => kind === "state");
    await waitFor(() => reader.status.hints);
    const told = (name: string) => heard.has(name, (event) => event.kind === "step" && event.name === name);
    // After so many steps they are asked for a third of a second after one another.
    for (let batch = 0; batch < 4; batch++) {
      await steps(
        lease!,
        numbers(1, 450).map(({ message }) => `${batch}.${message}`),
      );
      await told(`${batch}.450`);
    }
    await steps(lease!, ["in between"]);
    await told("in between");
    await sql.query("begin");
    await steps(lease!, ["last"]);
    await complete(sql, lease!);
    await sql.query("commit");
    await heard.over;
    expect(heard.events.filter(({ kind }) => kind === "step")).toHaveLength(1802);
    expect(heard.events.slice(-3)).toMatchObject([{ kind: "step", name: "last" }, { kind: "state" }, { kind: "end" }]);
  });

  it("is told of the steps of a new beginning, however much was written before it", async () => {
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

  it("is told of a step that takes a signal after another was kept, whoever came first", async () => {
    const [lease] = await claimJobs(sql, 1, "turns");
    const fence = [lease!.job, lease!.epoch, lease!.lease];
    await sql.query("select stillwake.signal($1, 'go')", [lease!.job]);
    const { rows } = await sql.query("select id from stillwake.look_for_signal($1, $2, $3, 'go', 'taken')", fence);
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
    const kept = await sql.query("select step from stillwake.checkpoints where job_id = $1 order by saved_at", [
      lease!.job,
    ]);
    expect(kept.rows.map(({ step }) => step)).toEqual(["kept", "taken"]);
  });

  it("is told of a gap when the database has lost what was told, and then what there is", async () => {
    const reader = openReader({ pollMs: 50 });
    const [lease] = await claimJobs(sql, 1, "lost");
    await append(sql, [lease!], numbers(1, 10));
    await steps(lease!, ["lost"]);
    const heard = followed(reader, lease!);
    await heard.has("10", (event) => event.kind === "log" && event.message === "10");
    await sql.query("begin");
    await sql.query("delete from stillwake.feed where job_id = $1 and seq > 6", [lease!.job]);
    await sql.query("delete from stillwake.checkpoints where job_id = $1", [lease!.job]);
    await sql.query("update stillwake.live_jobs set seq = 6 where id = $1", [lease!.job]);
    await append(sql, [lease!], [{ message: "other 7" }]);
    await sql.query("commit");
    await heard.has("the other line", (event) => event.kind === "log" && event.message === "other 7");
    await steps(lease!, ["found"]);
    await append(sql, [lease!], numbers(8, 12));
    await complete(sql, lease!);
    await heard.over;
    expect(heard.events.filter(({ kind }) => kind === "gap")).toEqual([{ kind: "gap", after: "10", next: "1" }]);
    expect(heard.lines()).toEqual([...texts(1, 10), ...texts(1, 6), "other 7", ...texts(8, 12)]);
    const late = followed(reader, lease!);
    await late.over;
    expect(late.events.flatMap((event) => (event.kind === "step" ? event.name : []))).toEqual(["found"]);
    expect(late.lines()).toEqual([...texts(1, 6), "other 7", ...texts(8, 12)]);
  });

  it("is told of a gap where lines are gone, and begins at the first when its place was never reached", async () => {
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
    // What was its end is gone too, for one who comes later and elsewhere.
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

  it("of a job that is forgotten meanwhile ends without a state; of none there is it is refused", async () => {
    const reader = openReader({ directUrl: database.url, pollWithHintsMs: 50 });
    const [lease] = await claimJobs(sql, 1);
    await append(sql, [lease!], [{ message: "x" }]);
    const heard = followed(reader, lease!);
    await heard.has("its line", ({ kind }) => kind === "log");
    await sql.query("delete from stillwake.live_jobs where id = $1", [lease!.job]);
    await heard.over;
    expect(heard.events.at(-1)).toMatchObject({ kind: "end", state: null });
    await expect(followed(reader, lease!).over).rejects.toMatchObject({ code: "JOB_NOT_FOUND" });
    await expect(hear(follow(reader, "no id")).over).rejects.toMatchObject({ code: "INVALID_INPUT" });
    for (const after of ["-1", "x", "1e3", "", "9".repeat(30)]) {
      await expect(followed(reader, lease!, { after }).over, after).rejects.toMatchObject({ code: "INVALID_INPUT" });
    }
  });

  it("that is called off, and one whose reader is closed, end at once and say so", async () => {
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

  it("can be left while it waits for news", async () => {
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

  it("carries numbers above 2^53 digit by digit", async () => {
    const reader = openReader({ directUrl: database.url });
    const [lease] = await claimJobs(sql, 1);
    const start = 2n ** 62n;
    await sql.query("update stillwake.live_jobs set seq = $2 where id = $1", [lease!.job, String(start)]);
    await append(sql, [lease!], numbers(1, 3));
    const heard = followed(reader, lease!, { after: String(start + 1n) });
    await heard.has("3", (event) => event.kind === "log" && event.message === "3");
    expect(heard.events.flatMap((event) => (event.kind === "log" ? event.seq : []))).toEqual([
      String(start + 2n),
      String(start + 3n),
    ]);
  });
});
