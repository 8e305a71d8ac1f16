// Writes of a running attempt: log lines, which a reader with a cursor sees once and in order, checkpoints, progress.
import type pg from "pg";
import { beforeAll, describe, expect, it } from "vitest";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";

const database = await freshDatabase();
const sql = await connect(database.url);
beforeAll(() => sql.query("select stillwake.register_pipeline('report')"));

interface Lease {
  job: string;
  epoch: string;
  lease: string;
}

describe("readers with cursors", () => {
  it("see every line once, in order, without a gap: 8 writers with delays and rollbacks, 20 readers", async () => {
    const leases = await claimJobs(4);
    await sql.query("create table serial_lines (id bigserial primary key, line text)");
    const writers = await connectMany(8);
    const readers = await connectMany(20);
    let writing = true;

    const written = Promise.all(
      writers.map(async (client, writer) => {
        for (let batch = 0; batch < 40; batch++) {
          const chosen = [...leases].sort(() => Math.random() - 0.5).slice(0, 1 + (batch % 2));
          const lines = Array.from({ length: 1 + (batch % 5) }, (_, n) => ({ message: `${writer}.${batch}.${n}` }));
          await client.query("begin");
          await client.query("insert into serial_lines (line) values ($1)", [`${writer}.${batch}`]);
          await client.query("select stillwake.append_logs($1)", [
            JSON.stringify(chosen.map((lease) => ({ ...lease, lines }))),
          ]);
          await client.query("select pg_sleep(random() * 0.01)");
          await client.query(Math.random() < 0.1 ? "rollback" : "commit");
        }
      }),
    ).finally(() => {
      writing = false;
    });

    const tails = await Promise.all(
      readers.map(async (client, reader) => {
        const job = leases[reader % leases.length]!.job;
        const tail = { job, seqs: [] as number[], lines: [] as string[], serial: new Set<string>() };
        let cursor = "0";
        let serialCursor = "0";
        for (let last = false; ; last = !writing) {
          const page = await client.query(
            "select seq, message from stillwake.logs where job_id = $1 and seq > $2 order by seq",
            [job, cursor],
          );
          for (const { seq, message } of page.rows) {
            tail.seqs.push(Number(seq));
            tail.lines.push(message);
            cursor = seq;
          }
          const serial = await client.query("select id, line from serial_lines where id > $1 order by id", [
            serialCursor,
          ]);
          for (const { id, line } of serial.rows) {
            tail.serial.add(line);
            serialCursor = id;
          }
          if (last) return tail;
        }
      }),
    );
    await written;

    let lost = 0;
    let duplicated = 0;
    for (const { job, seqs, lines } of tails) {
      const { rows } = await sql.query("select seq, message from stillwake.feed where job_id = $1 order by seq", [job]);
      expect(rows.map(({ seq }) => Number(seq))).toEqual(rows.map((_, index) => index + 1));
      lost += rows.filter(({ message }) => !lines.includes(message)).length;
      duplicated += lines.length - new Set(seqs).size;
      expect(lines).toEqual(rows.map(({ message }) => message));
    }
    expect({ lost, duplicated }).toEqual({ lost: 0, duplicated: 0 });
    const lines = tails.reduce((sum, tail) => sum + tail.lines.length, 0);
    recordFigure("feed: lines read by 20 tails", lines, "lines");
    recordFigure("feed: lines lost or read twice", lost + duplicated, "lines");

    // Control: the same readers on a plain sequence in the same transactions do miss lines.
    const committed = (await sql.query("select count(*)::int as count from serial_lines")).rows[0].count;
    const serialLost = tails.reduce((sum, { serial }) => sum + committed - serial.size, 0);
    expect(serialLost).toBeGreaterThan(0);
    recordFigure("feed: of these a global sequence would lose", (100 * serialLost) / (committed * tails.length), "%");
  });
});

describe("a log line", () => {
  it("is stored in the job's feed, with level, step, data and time", async () => {
    const [lease] = await claimJobs(1);
    const lines = [{ message: "one" }, { message: "two", level: "success", step: "s", data: { n: 1 }, ago_ms: 5000 }];
    expect(await append({ ...lease, lines })).toEqual([{ job_id: lease!.job, last_seq: "2" }]);
    const { rows } = await sql.query(
      "select seq, level, step, message, data, at, epoch from stillwake.logs where job_id = $1 order by seq",
      [lease!.job],
    );
    expect(rows[0]).toMatchObject({
      seq: "1",
      level: "info",
      step: null,
      message: "one",
      data: null,
      epoch: lease!.epoch,
    });
    expect(rows[1]).toMatchObject({
      seq: "2",
      level: "success",
      step: "s",
      message: "two",
      data: { n: 1 },
    });
    expect(rows[0].at - rows[1].at).toBe(5000);
  });

  it("from an attempt that was replaced is rejected, and takes no seq", async () => {
    const [lease, other] = await claimJobs(2);
    const stale = { ...lease, epoch: String(Number(lease!.epoch) - 1), lines: [{ message: "stale" }] };
    const responses = await append(stale, { ...other, lines: [{ message: "fine" }] });
    expect(responses.find(({ job_id }) => job_id === lease!.job)!.last_seq).toBeNull();
    expect(responses.find(({ job_id }) => job_id === other!.job)!.last_seq).toBe("1");
  });

  it("is cut at 16,384 characters; data that is larger than that leaves only its size", async () => {
    const [lease] = await claimJobs(1);
    await append({
      ...lease,
      lines: [
        { message: "x".repeat(16_384), data: "d".repeat(16_382), step: "s".repeat(200) },
        { message: "x".repeat(20_000), data: "d".repeat(16_383), step: "s".repeat(201) },
      ],
    });
    const { rows } = await sql.query(
      "select length(message) as message, length(step) as step, case when jsonb_typeof(data) = 'object' then data end as data from stillwake.logs where job_id = $1 order by seq",
      [lease!.job],
    );
    expect(rows).toEqual([
      { message: 16_384, step: 200, data: null },
      { message: 16_384, step: 200, data: { dropped: "larger than 16384 bytes", bytes: 16_385 } },
    ]);
  });

  it.each([
    [{ lines: null }, "lines"],
    [{}, "lines"],
    [{ lines: {} }, "lines"],
    [{ lines: [{ message: "x", level: "debug" }] }, "lines"],
    [{ lines: [{ level: "info" }] }, "lines"],
    [{ lines: [{ message: 5 }] }, "lines"],
  ])("with invalid fields is rejected: %j", async (batch, field) => {
    const [lease] = await claimJobs(1);
    await expect(append({ ...lease, ...batch })).rejects.toMatchObject({ code: "SW001", detail: field });
  });

  it.each(["null", "'{}'", "'5'"])("in an argument that is not a list is rejected: %s", async (list) => {
    for (const [verb, detail] of [
      ["append_logs", "batches"],
      ["save_checkpoints", "checkpoints"],
      ["settle", "settlements"],
    ]) {
      await expect(sql.query(`select stillwake.${verb}(${list})`)).rejects.toMatchObject({ code: "SW001", detail });
    }
  });
});

describe("a checkpoint", () => {
  it("is kept once: a second write of the same step changes nothing", async () => {
    const [lease] = await claimJobs(1);
    expect(
      await save({ ...lease, step: "clone", output: { dir: "/a" } }, { ...lease, step: "scan", output: null }),
    ).toEqual(["saved", "saved"]);
    expect(await save({ ...lease, step: "clone", output: { dir: "/b" } })).toEqual(["kept"]);
    expect(await load(lease!)).toMatchObject([
      { step: "clone", output: { dir: "/a" } },
      { step: "scan", output: null },
    ]);
  });

  it("is available to the next attempt; the previous attempt can neither read nor write", async () => {
    const [lease] = await claimJobs(1);
    await save({ ...lease, step: "one", output: 1 });
    await sql.query("select stillwake.release($1, $2, $3)", [lease!.job, lease!.epoch, lease!.lease]);
    const [next] = await claim(1);
    expect(next!.job).toBe(lease!.job);
    expect(await load(next!)).toMatchObject([{ step: "one", output: 1, epoch: lease!.epoch }]);
    expect(await save({ ...lease, step: "two", output: 2 })).toEqual(["lost"]);
    await expect(load(lease!)).rejects.toMatchObject({ code: "SW005", detail: "epoch" });
    expect(await save({ ...next, step: "two", output: 2 })).toEqual(["saved"]);
  });

  it("may have 1,048,576 bytes and a name of 200 characters, and not one more", async () => {
    const [lease] = await claimJobs(1);
    const output = "x".repeat(1_048_574);
    expect(await save({ ...lease, step: "s".repeat(200), output })).toEqual(["saved"]);
    expect(await save({ ...lease, step: "numbers", output: Array(524_287).fill(1) })).toEqual(["saved"]);
    await expect(save({ ...lease, step: "big", output: `${output}x` })).rejects.toMatchObject({
      code: "SW001",
      detail: "output",
      message: /1048576 bytes/,
    });
    await expect(save({ ...lease, step: "s".repeat(201), output: 1 })).rejects.toMatchObject({
      code: "SW001",
      detail: "step",
    });
    await expect(save({ ...lease, step: "", output: 1 })).rejects.toMatchObject({ code: "SW001", detail: "step" });
    await expect(save({ ...lease, output: 1 })).rejects.toMatchObject({ code: "SW001", detail: "step" });
  });
});

describe("progress", () => {
  it("is stored with its time, rejects unknown fields, and needs the lease", async () => {
    const [lease] = await claimJobs(1);
    const report = (progress: object) =>
      sql.query("select stillwake.progress($1, $2, $3, $4)", [
        lease!.job,
        lease!.epoch,
        lease!.lease,
        JSON.stringify(progress),
      ]);
    await report({ done: 3, total: 9, sentence: "3 of 9" });
    const { rows } = await sql.query("select progress from stillwake.jobs where id = $1", [lease!.job]);
    expect(rows[0].progress).toMatchObject({ done: 3, total: 9, sentence: "3 of 9", at: expect.any(String) });
    await expect(report({ percent: 5 })).rejects.toMatchObject({ code: "SW001", detail: "percent" });
    await sql.query("select stillwake.release($1, $2, $3)", [lease!.job, lease!.epoch, lease!.lease]);
    await expect(report({ done: 4 })).rejects.toMatchObject({ code: "SW005" });
  });
});

/** Enqueues `count` jobs with the highest priority and claims them. */
async function claimJobs(count: number): Promise<Lease[]> {
  await sql.query(
    "select stillwake.enqueue_many('report', to_jsonb(array_fill(0, array[$1::int])), '{\"priority\": 5}')",
    [count],
  );
  return claim(count);
}

async function claim(count: number): Promise<Lease[]> {
  const { rows } = await sql.query(
    "select job_id as job, epoch, lease_id as lease from stillwake.claim('w', 'default', '{report}', $1, '1 hour')",
    [count],
  );
  expect(rows).toHaveLength(count);
  return rows;
}

async function append(...batches: object[]): Promise<{ job_id: string; last_seq: string | null }[]> {
  return (await sql.query("select * from stillwake.append_logs($1)", [JSON.stringify(batches)])).rows;
}

async function save(...checkpoints: object[]): Promise<string[]> {
  const { rows } = await sql.query("select result from stillwake.save_checkpoints($1)", [JSON.stringify(checkpoints)]);
  return rows.map(({ result }) => result);
}

async function load({ job, epoch, lease }: Lease): Promise<object[]> {
  return (await sql.query("select * from stillwake.load_checkpoints($1, $2, $3)", [job, epoch, lease])).rows;
}

function connectMany(count: number): Promise<pg.Client[]> {
  return Promise.all(Array.from({ length: count }, () => connect(database.url)));
}
