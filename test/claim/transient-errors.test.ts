// Transient errors. Each is raised by Postgres itself, in the middle of a call: what was rolled back as a whole is repeated,
// errors that the caller must handle are thrown, and nothing happens twice.
import { describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connectedDatabase } from "../support/database/connections.ts";
import { installFaults } from "../support/database/sql-faults.ts";
import { recordFigure } from "../support/figures.ts";
import { countedEffects } from "../support/processes/effects.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";

/** Transient errors, and after them permanent ones. */
const codes = ["40001", "40P01", "57014", "57P01", "53300", "55P03", "53100", "25006"] as const;
const workerVerbs = [
  "settle_and_claim",
  "settle",
  "heartbeat",
  "save_checkpoints",
  "append_logs",
  "load_checkpoints",
  "next_due",
  "recover",
  "recover_absent",
  "listen",
  "hold_presence",
];
/** Calls that behave the same when repeated. */
const lasting = ["XX000", "42501", "22012"] as const;

const { database, stillwake, client: sql } = await connectedDatabase();
const faults = await installFaults(sql, [...workerVerbs, "enqueue_many", "cancel"], [...codes, ...lasting]);

describe("one error in one call of a worker", () => {
  it.each(codes)("%s: the statement is sent again, and the job notices nothing", { timeout: 60_000 }, async (code) => {
    for (const verb of ["settle_and_claim", "save_checkpoints", "append_logs", "load_checkpoints", "heartbeat"]) {
      for (const moment of ["before", "after"] as const) {
        const pool = `${verb.replaceAll("_", "-")}-${code.toLowerCase()}-${moment}`;
        let runs = 0;
        let effects = 0;
        const contract = pipeline(pool, { pool, retry: { attempts: 5, initial: "1ms", max: "1ms" } });
        const run = implement(contract, async (job) => {
          runs += 1;
          await job.step("before", () => "kept");
          // The second attempt loads the checkpoints of the first.
          if (verb === "load_checkpoints" && runs === 1) {
            await faults.once(verb, code, moment, 2);
            throw new Error("go again");
          }
          await job.step("work", async (step) => {
            effects += 1;
            step.log.info("said");
            await faults.once(verb, code, moment, 2);
            await job.flush();
            if (verb === "heartbeat")
              await waitFor(async () => (await faults.raised())[code]! > 0, { timeout: 20_000 });
          });
          await job.step("after", () => "kept");
        });
        await faults.none();
        const worker = await startRecordedWorker({
          url: database.url,
          directUrl: false,
          pool,
          pipelines: [run],
          slots: 1,
          lease: "1s",
          poll: "50ms",
        });
        const { id } = await stillwake.enqueue(contract, {} as never);
        const job = await waitFor(
          async () => {
            const found = await stillwake.get(id);
            return found.endedAt && found;
          },
          { timeout: 15_000, what: `${pool} to end` },
        );
        const raised = (await faults.raised())[code]!;
        await faults.none();
        const { rows } = await sql.query("select message from stillwake.logs where job_id = $1 and message = 'said'", [
          id,
        ]);
        expect({ raised: raised > 0, state: job.state, effects, runs, said: rows.length }, pool).toEqual({
          raised: true,
          state: "completed",
          effects: 1,
          runs: verb === "load_checkpoints" ? 2 : 1,
          said: 1,
        });
        await worker.worker.stop();
      }
    }
    recordFigure(`transient errors: ${code} in a worker's calls`, 1, "", "sent again; repeated effects 0");
  });
});

describe("one error in a call of a client", () => {
  const report = pipeline<number>("report", { pool: "nobody" });
  const silent = new Set(["40001", "40P01", "57P01", "53300", "25006"]);
  let number = 0;
  const stored = async (n: number) =>
    (await sql.query("select from stillwake.jobs where input = to_jsonb($1::int)", [n])).rows.length;

  it.each(codes)("%s: is repeated when that is safe and short, and thrown otherwise", async (code) => {
    await stillwake.register(report);
    for (const moment of ["before", "after"] as const) {
      const n = ++number;
      await faults.none();
      await faults.once("enqueue_many", code, moment);
      const answer = await stillwake.enqueue(report, n).catch((error) => error);
      if (silent.has(code)) expect(answer).toMatchObject({ existing: false });
      else expect(answer).toMatchObject({ code });
      expect((await faults.raised())[code]).toBe(1);
      expect(await stored(n)).toBe(silent.has(code) ? 1 : 0);
    }
    recordFigure(
      `transient errors: ${code} in enqueue`,
      1,
      "",
      silent.has(code) ? "repeated, stored once" : "told, nothing stored",
    );
  });

  it.each(lasting)("%s is thrown at once and never repeated", async (code) => {
    await stillwake.register(report);
    const n = ++number;
    await faults.none();
    await faults.once("enqueue_many", code, "after", 5);
    await expect(stillwake.enqueue(report, n)).rejects.toMatchObject({ code });
    expect((await faults.raised())[code]).toBe(1);
    expect(await stored(n)).toBe(0);
    await faults.none();
    recordFigure(`transient errors: ${code} in enqueue`, 1, "", "thrown, never repeated");
  });
});

describe("what a worker does not repeat", () => {
  it("a permanent error costs the attempt and is not waited out", async () => {
    const counted = countedEffects("lasting", { steps: 1 });
    await startRecordedWorker({ url: database.url, pool: "lasting", pipelines: [counted.implementation], slots: 1 });
    await faults.none();
    await faults.once("save_checkpoints", "XX000");
    const { id } = await stillwake.enqueue("lasting", {});
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ attempt: 2, crashes: 0 });
    expect(counted.effects).toHaveLength(2);
    recordFigure("transient errors: XX000 in a worker's calls", 1, "", "fails the attempt");
  });

  it("an error of the user's own database is passed to the user, whatever its code: the step is not run again", async () => {
    let effects = 0;
    const contract = pipeline("own-error", { pool: "own-error", retry: { attempts: 1 } });
    const run = implement(contract, (job) =>
      job.step("one", () => {
        effects += 1;
        throw Object.assign(new Error("could not serialize access"), { code: "40001" });
      }),
    );
    await startRecordedWorker({ url: database.url, pool: "own-error", pipelines: [run], slots: 1 });
    const { id } = await stillwake.enqueue(contract, {} as never);
    const failed = await stillwake.wait(id, { timeout: "20s" }).catch((error) => error);
    expect(failed).toMatchObject({ state: "failed" });
    expect(effects).toBe(1);
  });
});

describe("a read-only server, such as a standby", () => {
  it("is tried again with growing pauses until it accepts writes", async () => {
    await using proxy = await faultProxy(database.url);
    const counted = countedEffects("reading", { steps: 2 });
    const worker = await startRecordedWorker({
      url: proxy.url,
      pool: "reading",
      pipelines: [counted.implementation],
      slots: 2,
      poll: "50ms",
    });
    await worker.waitForEvent("hints.ready");
    // Due while nothing can be written.
    const { id } = await stillwake.enqueue("reading", {}, { delay: "500ms" });
    await sql.query(`alter database ${database.name} set default_transaction_read_only = on`);
    const terminate = () =>
      sql.query(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'stillwake%' and datname = current_database()",
      );
    await terminate();
    const from = proxy.asked();
    const began = performance.now();
    try {
      await waitFor(() => performance.now() - began > 4_000);
    } finally {
      await sql.query(
        `set default_transaction_read_only = off; alter database ${database.name} reset default_transaction_read_only`,
      );
    }
    const perSecond = (proxy.asked() - from) / ((performance.now() - began) / 1000);
    recordFigure("transient errors: connects per second to a server that only reads", perSecond, "/s");
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ attempt: 1 });
    expect(perSecond).toBeLessThan(20);
    await worker.worker.stop();
  });
});

describe("all of them at random", () => {
  const wanted = FULL ? 1000 : 80;

  it(`${wanted} jobs under raised, cancelled, terminated and refused statements: each ends once, none fails, nothing finished is repeated`, {
    timeout: 300_000,
  }, async () => {
    await faults.none();
    // Not a superuser: superusers have reserved connections.
    await sql.query("create role limited login password 'limited' in role stillwake_worker");
    await sql.query("grant execute on all functions in schema stillwake to limited");
    const login = new URL(database.url);
    login.username = "limited";
    login.password = "limited";
    const counted = countedEffects("storm", {
      steps: 3,
      async before(job) {
        for (let line = 0; line < 3; line++) job.log.info(`${job.attempt} ${line}`);
        await job.flush();
      },
    });
    const workers = await Promise.all(
      [1, 2, 3].map((n) =>
        startRecordedWorker({
          url: login.href,
          name: `storm-${n}`,
          pool: "storm",
          pipelines: [counted.implementation],
          slots: 4,
          poll: "200ms",
          connections: 4,
        }),
      ),
    );
    await faults.always(
      [...codes].filter((code) => code !== "25006"),
      0.2,
    );
    const jobs = await stillwake.enqueueMany("storm", new Array(wanted).fill({})).catch(async () => {
      await faults.none();
      const again = await stillwake.enqueueMany("storm", new Array(wanted).fill({}));
      await faults.always(
        [...codes].filter((code) => code !== "25006"),
        0.2,
      );
      return again;
    });
    // Real faults as well: backends are cancelled and terminated, and the role is refused connections.
    const ours = "from pg_stat_activity where usename = 'limited'";
    const struck = { cancelled: 0, terminated: 0, refused: 0 };
    for (let strike = 0; counted.finished.size < wanted * 3; strike++) {
      const before = counted.effects.length;
      if (strike % 3 === 0) {
        const { rows } = await sql.query(`select pg_cancel_backend(pid) ${ours} and state = 'active'`);
        struck.cancelled += rows.length;
      } else if (strike % 3 === 1) {
        const { rows } = await sql.query(`select pg_terminate_backend(pid) ${ours} order by random() limit 3`);
        struck.terminated += rows.length;
      } else {
        await sql.query("alter role limited connection limit 0");
        const { rows } = await sql.query(`select pg_terminate_backend(pid) ${ours}`);
        struck.refused += rows.length;
        await waitFor(() =>
          workers.some((worker) => worker.eventsOf("hints.lost").length > 0 && worker.worker.state === "working"),
        );
        await sql.query("alter role limited connection limit -1");
      }
      await waitFor(() => counted.effects.length > before + 8 || counted.finished.size >= wanted * 3, {
        timeout: 60_000,
        interval: 2,
        what: "work to go on",
      });
    }
    const raised = await faults.raised();
    await faults.none();
    await Promise.all(jobs.map(({ id }) => stillwake.wait(id, { timeout: "60s" })));

    const ids = jobs.map(({ id }) => id);
    const { rows } = await sql.query(
      "select state, attempt, count(*)::int from stillwake.jobs where id = any ($1) group by 1, 2",
      [ids],
    );
    const lines = await sql.query(
      "select job_id, array_agg(message order by seq) as said from stillwake.logs where job_id = any ($1) and message ~ '^\\d+ \\d$' group by 1",
      [ids],
    );
    const attempts = await sql.query(
      "select outcome, count(*)::int from stillwake.ended_attempts where job_id = any ($1) group by 1",
      [ids],
    );
    expect(counted.afterFinish()).toEqual([]);
    // A worker whose session is gone and which cannot heartbeat within the grace is considered dead. Jobs are lost in no other way.
    expect(attempts.rows.filter(({ outcome }) => outcome !== "lost")).toEqual([]);
    const lost = attempts.rows[0]?.count ?? 0;
    expect(lost).toBeLessThan(wanted / 5);
    expect(rows.reduce((sum, { state, count }) => sum + (state === "completed" ? count : 0), 0)).toBe(wanted);
    for (const { said } of lines.rows as { said: string[] }[]) {
      expect(said, "lines once and in order").toEqual([...new Set(said)].sort());
      expect(said.slice(-3).map((line) => line.slice(-1))).toEqual(["0", "1", "2"]);
    }
    expect(lines.rows).toHaveLength(wanted);
    recordFigure("transient errors: attempts taken for dead in the storm", lost, "", `of ${wanted + lost}`);
    for (const [code, count] of Object.entries(raised))
      if (count > 0) recordFigure(`transient errors: ${code} raised in the storm`, count);
    for (const [kind, count] of Object.entries(struck))
      recordFigure(`transient errors: backends ${kind} in the storm`, count);
    recordFigure(
      "transient errors: wrong retries, effects of finished steps repeated, lines twice",
      0,
      "",
      `${wanted} jobs`,
    );
    await Promise.all(workers.map(({ worker }) => worker.stop()));
    await sql.query("drop owned by limited; drop role limited");
  });
});
