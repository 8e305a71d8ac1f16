// Schedules: validation, occurrences and daylight saving time, overlap and catchUp, and who creates the jobs.
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { settleAndClaim } from "../../src/db/calls/worker.ts";
import { runDoctor } from "../../src/db/doctor.ts";
import { pipeline, schedule } from "../../src/index.ts";
import { startClock, stopClock, waitFor } from "../../src/testing/index.ts";
import { connect, connectedDatabase } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";
import { round } from "../support/processes/fault-checks.ts";

const { database, stillwake, client: sql } = await connectedDatabase();
const tick = pipeline<{ n?: number }>("tick");

beforeAll(async () => {
  await stillwake.register(tick, pipeline("elsewhere", { pool: "elsewhere" }));
  await stopClock(sql);
});
beforeEach(async () => {
  await sql.query("delete from stillwake.schedules");
  await sql.query("truncate stillwake.live_jobs, stillwake.leases, stillwake.ended_jobs, stillwake.idempotency_keys");
  await at("2030-01-07T12:00:30Z");
});

/** Sets the database's clock, which is frozen. */
async function at(time: string): Promise<void> {
  await sql.query("update stillwake.test_clock set stopped_at = $1, shift = '0'", [time]);
}

async function set(name: string, settings: Record<string, unknown>): Promise<boolean> {
  const { rows } = await sql.query("select stillwake.set_schedule($1, $2) as changed", [
    name,
    JSON.stringify({ pipeline: "tick", ...settings }),
  ]);
  return rows[0].changed;
}

/** The result of run_schedules(), as "act occurrence". */
async function runSchedules(): Promise<string[]> {
  const { rows } = await sql.query("select act, occurrence, count::int from stillwake.run_schedules()");
  return rows.map(({ act, occurrence, count }) => `${act} ${count > 1 ? `${count} to ` : ""}${occurrence}`);
}

async function row(name: string): Promise<Record<string, unknown>> {
  const { rows } = await sql.query("select * from stillwake.schedules where name = $1", [name]);
  return rows[0];
}

async function occurrences(cron: string, zone: string, after: string, count: number): Promise<string[]> {
  const { rows } = await sql.query("select occurrence, at from stillwake.upcoming($1, $2, $3, $4)", [
    cron,
    zone,
    count,
    after,
  ]);
  return rows.map((item) => `${item.occurrence} = ${item.at.toISOString().slice(0, 16)}Z`);
}

async function jobs(): Promise<{ id: string; occurrence: string; state: string }[]> {
  const { rows } = await sql.query(
    "select id, origin ->> 'occurrence' as occurrence, state, waiting_for from stillwake.jobs order by (origin ->> 'at')::timestamptz, id",
  );
  return rows;
}

async function end(id: string): Promise<void> {
  await sql.query("select stillwake.cancel($1)", [id]);
}

describe("registration rejects", () => {
  it.each([
    ["", "five fields", /minute, hour/],
    ["* * * *", "five fields", /minute, hour/],
    ["0 * * * * *", "five fields", /no seconds/],
    ["@reboot", "five fields", /@hourly/],
    ["60 * * * *", 'minute.*"60" is not within 0 to 59', /values from 0 to 59/],
    ["* 24 * * *", "hour.*not within 0 to 23", /values/],
    ["* * 0 * *", "day of the month.*not within 1 to 31", /values/],
    ["* * * 13 *", "month.*not within 1 to 12", /jan to dec/],
    ["* * * * 8", "day of the week.*not within 0 to 7", /sun to sat/],
    ["* * * mai *", "month.*not within", /jan to dec/],
    ["-5 * * * *", "minute.*cannot be read", /values/],
    ["1.5 * * * *", "minute.*cannot be read", /values/],
    ["1,,2 * * * *", "minute.*cannot be read", /values/],
    ["0 0 L * *", "day of the month.*L, W and #", /List the days/],
    ["0 0 15W * *", "day of the month.*L, W and #", /List the days/],
    ["0 0 * * 5#2", "day of the week.*L, W and #", /List the days/],
    ["0 0 * * 5L", "day of the week.*L, W and #", /List the days/],
    ["0 0 ? * *", "day of the month.*\\? is not supported", /Write \*/],
    ["0 22-2 * * *", "hour.*end is before its start", /22-23,0-2/],
    ["*/0 * * * *", "minute.*step", /restarts with each field/],
    ["*/90 * * * *", "minute.*step", /restarts with each field/],
    ["5/15 * * * *", "minute.*no range", /5-59\/15/],
    ["*-5 * * * *", "minute.*range that starts with", /values/],
    ["0 0 30 2 *", "never matches a day", /day of the month that exists in one of its months/],
    ["0 0 31 4,6,9,11 *", "never matches a day", /one of its months/],
    ["*/99999999999 * * * *", "minute.*cannot be read", /values/],
  ])("cron %j", async (cron, message, hint) => {
    await expect(set("bad", { cron })).rejects.toMatchObject({
      code: "SW001",
      detail: "cron",
      message: expect.stringMatching(message),
      hint: expect.stringMatching(hint),
    });
  });

  it.each([
    ["name", "Bad Name", { cron: "@daily" }],
    ["zone", "x", { cron: "@daily", zone: "Berlin" }],
    ["zone", "x", { cron: "@daily", zone: "europe/berlin" }],
    ["zone", "x", { cron: "@daily", zone: "UTC+2" }],
    ["zone", "x", { cron: "@daily", zone: "CEST" }],
    ["pipeline", "x", { cron: "@daily", pipeline: "unknown" }],
    ["overlap", "x", { cron: "@daily", overlap: "maybe" }],
    ["catch_up", "x", { cron: "@daily", catch_up: "some" }],
    ["crn", "x", { cron: "@daily", crn: "" }],
    ["delay", "x", { cron: "@daily", options: { delay: "1 hour" } }],
    ["priority", "x", { cron: "@daily", options: { priority: 5000 } }],
    ["pool", "x", { cron: "@daily", options: { pool: "nowhere" } }],
    ["expires_in", "x", { cron: "@daily", options: { expires_in: "soon" } }],
    ["webhook", "x", { cron: "@daily", options: { webhook: "nowhere" } }],
    ["inputs[0]", "x", { cron: "@daily", input: "x".repeat(300_000) }],
  ])("%s", async (field, name, settings) => {
    await expect(set(name, settings)).rejects.toMatchObject({ detail: field, hint: expect.stringMatching(/\w/) });
    expect((await sql.query("select from stillwake.schedules")).rowCount).toBe(0);
  });

  it("a misspelt zone, and suggests the right one", async () => {
    for (const [zone, offset, name] of [
      ["GMT+2", "UTC+2", "Etc/GMT-2"],
      ["utc-05:00", "UTC-5", "Etc/GMT+5"],
    ] as const) {
      const refused: { hint: string } = await set("x", { cron: "@daily", zone }).catch((error) => error);
      expect(refused.hint).toContain(`Use a city such as Europe/Berlin`);
      expect(refused.hint).toContain(`or ${name}, which is always ${offset}:`);
      const { rows } = await sql.query(
        "select extract(hour from utc_offset)::int as hours from pg_timezone_names where name = $1",
        [name],
      );
      expect(rows).toEqual([{ hours: Number(offset.slice(3)) }]);
    }
    const beyond: { hint: string } = await set("x", { cron: "@daily", zone: "UTC+25" }).catch((error) => error);
    expect(beyond.hint).toBe("Use a city such as Europe/Berlin, which follows daylight saving time.");
    await expect(set("x", { cron: "@daily", zone: "new york" })).rejects.toMatchObject({
      hint: "Did you mean America/New_York?",
    });
  });

  it("obvious mistakes in the contract itself", () => {
    const bad = (options: object) => () => schedule("nightly", { cron: "@daily", pipeline: tick, ...options } as never);
    expect(() => schedule("Not A Name", { cron: "@daily", pipeline: tick })).toThrow(/is not a valid schedule name/);
    expect(bad({ cron: "* * *" })).toThrow(/cron/);
    expect(bad({ cron: 5 })).toThrow(/cron/);
    expect(bad({ zone: "" })).toThrow(/zone/);
    expect(bad({ pipeline: undefined })).toThrow(/no pipeline/);
    expect(bad({ overlap: "wait" })).toThrow(/overlap/);
    expect(bad({ catchUp: "every" })).toThrow(/catchUp/);
    expect(bad({ crn: 1 })).toThrow(/unknown option "crn"/);
    expect(bad({ options: { delay: "1h" } })).toThrow(/unknown option "delay"/);
  });
});

describe("a cron expression", () => {
  it.each([
    ["0 9-17/4 * * mon-fri", "2030-01-04T10:00Z", ["2030-01-04T13:00", "2030-01-04T17:00", "2030-01-07T09:00"]],
    ["0 0 * * fri-sun", "2030-01-07T00:00Z", ["2030-01-11T00:00", "2030-01-12T00:00", "2030-01-13T00:00"]],
    ["0 0 * * 7", "2030-01-07T00:00Z", ["2030-01-13T00:00"]],
    ["0 0 13 * fri", "2030-01-07T00:00Z", ["2030-01-11T00:00", "2030-01-13T00:00", "2030-01-18T00:00"]],
    ["0 0 */2 * mon", "2030-01-01T00:00Z", ["2030-01-07T00:00", "2030-01-21T00:00", "2030-02-11T00:00"]],
    ["0 0 29 feb *", "2030-01-01T00:00Z", ["2032-02-29T00:00", "2036-02-29T00:00"]],
    ["@hourly", "2030-01-01T00:00Z", ["2030-01-01T01:00+00:00"]],
    ["@daily", "2030-01-01T00:00Z", ["2030-01-02T00:00"]],
    ["@weekly", "2030-01-01T00:00Z", ["2030-01-06T00:00"]],
    ["@monthly", "2030-01-01T00:00Z", ["2030-02-01T00:00"]],
    ["@yearly", "2030-01-01T00:00Z", ["2031-01-01T00:00"]],
    ["  5   4\t* * * ", "2030-01-01T00:00Z", ["2030-01-01T04:05"]],
    ["0 0 1 JAN,Jul *", "2030-02-01T00:00Z", ["2030-07-01T00:00", "2031-01-01T00:00"]],
  ])("%s after %s", async (cron, after, expected) => {
    const found = await occurrences(cron, "UTC", after, expected.length);
    expect(found.map((line) => line.split(" ")[0])).toEqual(expected);
  });
});

describe("daylight saving time", () => {
  it.each([
    [
      "Berlin skips 02:00 to 03:00: occurrences in between run at 03:00",
      "0,30 2,3 * * *",
      "Europe/Berlin",
      "2024-03-30T12:00Z",
      [
        "2024-03-31T02:00 = 2024-03-31T01:00Z",
        "2024-03-31T02:30 = 2024-03-31T01:00Z",
        "2024-03-31T03:00 = 2024-03-31T01:00Z",
        "2024-03-31T03:30 = 2024-03-31T01:30Z",
        "2024-04-01T02:00 = 2024-04-01T00:00Z",
      ],
    ],
    [
      "Berlin has 02:00 to 03:00 twice: it runs the first time",
      "30 1-3 * * *",
      "Europe/Berlin",
      "2024-10-26T12:00Z",
      [
        "2024-10-27T01:30 = 2024-10-26T23:30Z",
        "2024-10-27T02:30 = 2024-10-27T00:30Z",
        "2024-10-27T03:30 = 2024-10-27T02:30Z",
      ],
    ],
    [
      "Berlin, registered in the second of the two hours: not again",
      "30 2 * * *",
      "Europe/Berlin",
      "2024-10-27T01:15Z",
      ["2024-10-28T02:30 = 2024-10-28T01:30Z"],
    ],
    [
      "Berlin, an interval: no occurrence in the skipped hour",
      "*/30 * * * *",
      "Europe/Berlin",
      "2024-03-31T00:15Z",
      [
        "2024-03-31T01:30+01:00 = 2024-03-31T00:30Z",
        "2024-03-31T03:00+02:00 = 2024-03-31T01:00Z",
        "2024-03-31T03:30+02:00 = 2024-03-31T01:30Z",
      ],
    ],
    [
      "Berlin, an interval in autumn",
      "*/30 * * * *",
      "Europe/Berlin",
      "2024-10-27T00:15Z",
      [
        "2024-10-27T02:30+02:00 = 2024-10-27T00:30Z",
        "2024-10-27T02:00+01:00 = 2024-10-27T01:00Z",
        "2024-10-27T02:30+01:00 = 2024-10-27T01:30Z",
        "2024-10-27T03:00+01:00 = 2024-10-27T02:00Z",
      ],
    ],
    [
      "all 24 hours written out are an interval too",
      "0 0-23 * * *",
      "Europe/Berlin",
      "2024-03-31T00:15Z",
      ["2024-03-31T03:00+02:00 = 2024-03-31T01:00Z"],
    ],
    [
      "New York in spring",
      "30 2 * * *",
      "America/New_York",
      "2024-03-09T12:00Z",
      ["2024-03-10T02:30 = 2024-03-10T07:00Z", "2024-03-11T02:30 = 2024-03-11T06:30Z"],
    ],
    [
      "New York in autumn",
      "30 1 * * *",
      "America/New_York",
      "2024-11-02T12:00Z",
      ["2024-11-03T01:30 = 2024-11-03T05:30Z", "2024-11-04T01:30 = 2024-11-04T06:30Z"],
    ],
    [
      "Lord Howe jumps by half an hour",
      "15,45 2 * * *",
      "Australia/Lord_Howe",
      "2023-09-30T12:00Z",
      [
        "2023-10-01T02:15 = 2023-09-30T15:30Z",
        "2023-10-01T02:45 = 2023-09-30T15:45Z",
        "2023-10-02T02:15 = 2023-10-01T15:15Z",
      ],
    ],
    [
      "Lord Howe goes back by half an hour",
      "45 1 * * *",
      "Australia/Lord_Howe",
      "2024-04-06T12:00Z",
      ["2024-04-07T01:45 = 2024-04-06T14:45Z", "2024-04-08T01:45 = 2024-04-07T15:15Z"],
    ],
    [
      "Apia has no 30 December 2011: its occurrences run at the start of the 31st",
      "0 9 * * *",
      "Pacific/Apia",
      "2011-12-29T12:00Z",
      [
        "2011-12-29T09:00 = 2011-12-29T19:00Z",
        "2011-12-30T09:00 = 2011-12-30T10:00Z",
        "2011-12-31T09:00 = 2011-12-30T19:00Z",
      ],
    ],
    [
      "Apia, an interval: the day is skipped",
      "0 * * * *",
      "Pacific/Apia",
      "2011-12-30T08:30Z",
      ["2011-12-29T23:00-10:00 = 2011-12-30T09:00Z", "2011-12-31T00:00+14:00 = 2011-12-30T10:00Z"],
    ],
    [
      "Apia, an interval on a skipped day",
      "0 * 30 dec *",
      "Pacific/Apia",
      "2011-12-01T00:00Z",
      ["2012-12-30T00:00+14:00 = 2012-12-29T10:00Z"],
    ],
    [
      "São Paulo skips midnight",
      "0 0 * * *",
      "America/Sao_Paulo",
      "2018-11-03T12:00Z",
      ["2018-11-04T00:00 = 2018-11-04T03:00Z", "2018-11-05T00:00 = 2018-11-05T02:00Z"],
    ],
    [
      "São Paulo has the last hour of a day twice, an interval on that day alone",
      "30 * 17 feb *",
      "America/Sao_Paulo",
      "2018-02-18T00:45Z",
      [
        "2018-02-17T23:30-02:00 = 2018-02-18T01:30Z",
        "2018-02-17T23:30-03:00 = 2018-02-18T02:30Z",
        "2019-02-17T00:30-03:00 = 2019-02-17T03:30Z",
      ],
    ],
    [
      "St. John's goes back over midnight, an interval on the day before alone",
      "30 * 6 nov *",
      "America/St_Johns",
      "2010-11-07T01:45Z",
      ["2010-11-06T23:30-02:30 = 2010-11-07T02:00Z", "2010-11-06T23:30-03:30 = 2010-11-07T03:00Z"],
    ],
    [
      "Troll jumps by two hours",
      "30 1,2 * * *",
      "Antarctica/Troll",
      "2024-03-30T12:00Z",
      [
        "2024-03-31T01:30 = 2024-03-31T01:00Z",
        "2024-03-31T02:30 = 2024-03-31T01:00Z",
        "2024-04-01T01:30 = 2024-03-31T23:30Z",
      ],
    ],
    [
      "Troll goes back by two hours",
      "30 1,2 * * *",
      "Antarctica/Troll",
      "2024-10-26T12:00Z",
      [
        "2024-10-27T01:30 = 2024-10-26T23:30Z",
        "2024-10-27T02:30 = 2024-10-27T00:30Z",
        "2024-10-28T01:30 = 2024-10-28T01:30Z",
      ],
    ],
    [
      "Casablanca changes its clocks for Ramadan",
      "30 2 * * *",
      "Africa/Casablanca",
      "2023-03-18T12:00Z",
      ["2023-03-19T02:30 = 2023-03-19T01:30Z", "2023-03-20T02:30 = 2023-03-20T02:30Z"],
    ],
  ])("%s", async (_, cron, zone, after, expected) => {
    expect(await occurrences(cron, zone, after, expected.length)).toEqual(expected);
  });

  it("a skipped occurrence becomes a job when the clocks jump, a repeated one becomes one job", async () => {
    await at("2024-03-30T12:00:00Z");
    await set("skipped", { cron: "30 2 * * *", zone: "Europe/Berlin" });
    await at("2024-03-31T00:59:59Z");
    expect(await runSchedules()).toEqual([]);
    await at("2024-03-31T01:00:00Z");
    expect(await runSchedules()).toEqual(["fired 2024-03-31T02:30"]);
    await at("2024-10-26T12:00:00Z");
    await sql.query("delete from stillwake.schedules");
    await set("twice", { cron: "30 2 * * *", zone: "Europe/Berlin", overlap: "allow" });
    for (const [time, acts] of [
      ["2024-10-27T00:30:00Z", ["fired 2024-10-27T02:30"]],
      ["2024-10-27T01:30:00Z", []],
      ["2024-10-28T01:30:00Z", ["fired 2024-10-28T02:30"]],
    ] as const) {
      await at(time);
      expect(await runSchedules()).toEqual(acts);
    }
  });
});

describe("overlap: the job of the previous occurrence is still live", () => {
  it('"skip": the occurrence has no job, and is counted', async () => {
    await set("x", { cron: "* * * * *" });
    await at("2030-01-07T12:01:00Z");
    expect(await runSchedules()).toEqual(["fired 2030-01-07T12:01+00:00"]);
    await at("2030-01-07T12:02:00Z");
    expect(await runSchedules()).toEqual(["skipped 2030-01-07T12:02+00:00"]);
    expect(await row("x")).toMatchObject({ skipped: "1", fired: "1", last_occurrence: "2030-01-07T12:01+00:00" });
    await end((await jobs())[0]!.id);
    await at("2030-01-07T12:03:00Z");
    expect(await runSchedules()).toEqual(["fired 2030-01-07T12:03+00:00"]);
  });

  it('"queue": the new job waits for the previous one', async () => {
    await set("x", { cron: "* * * * *", overlap: "queue" });
    for (const minute of ["01", "02", "03"]) {
      await at(`2030-01-07T12:${minute}:00Z`);
      expect(await runSchedules()).toEqual([`fired 2030-01-07T12:${minute}+00:00`]);
    }
    expect((await jobs()).map((job) => (job as { waiting_for?: string }).waiting_for)).toEqual([null, "key", "key"]);
    await end((await jobs())[0]!.id);
    const { rows } = await sql.query("select waiting_for from stillwake.live_jobs order by id");
    expect(rows.map((item) => item.waiting_for)).toEqual([null, "key"]);
  });

  it('"replace": the previous job is cancelled, and the new one runs when it has stopped', async () => {
    await set("x", { cron: "* * * * *", overlap: "replace" });
    await at("2030-01-07T12:01:00Z");
    await runSchedules();
    const [first] = await jobs();
    const claimed = await sql.query("select * from stillwake.claim('w', 'default', '{tick}', 5)");
    expect(claimed.rows.map(({ job_id }) => job_id)).toEqual([first!.id]);
    await at("2030-01-07T12:02:00Z");
    expect(await runSchedules()).toEqual(["fired 2030-01-07T12:02+00:00"]);
    const { rows } = await sql.query(
      "select cancel ->> 'reason' as reason, waiting_for from stillwake.live_jobs order by id",
    );
    expect(rows).toEqual([
      { reason: "Replaced by the job of 2030-01-07T12:02+00:00", waiting_for: null },
      { reason: null, waiting_for: "key" },
    ]);
    const { job_id, epoch, lease_id } = claimed.rows[0];
    await sql.query("select stillwake.settle($1)", [
      JSON.stringify([{ job: job_id, epoch, lease: lease_id, outcome: "cancelled" }]),
    ]);
    expect((await sql.query("select waiting_for from stillwake.live_jobs")).rows).toEqual([{ waiting_for: null }]);
  });

  it('"allow": both run', async () => {
    await set("x", { cron: "* * * * *", overlap: "allow" });
    for (const minute of ["01", "02"]) {
      await at(`2030-01-07T12:${minute}:00Z`);
      await runSchedules();
    }
    expect((await sql.query("select * from stillwake.claim('w', 'default', '{tick}', 5)")).rowCount).toBe(2);
  });
});

describe("catchUp: occurrences that passed while nothing fired schedules", () => {
  it.each([
    ["one", ["fired 2030-01-07T12:10", "missed 9 to 2030-01-07T12:09"]],
    ["none", ["missed 10 to 2030-01-07T12:10"]],
    ["all", Array.from({ length: 10 }, (_, n) => `fired 2030-01-07T12:${String(n + 1).padStart(2, "0")}`)],
  ])('"%s"', async (catchUp, acts) => {
    // Minutes of one hour, so that no occurrence is on time.
    await set("x", { cron: "1-10 12 * * *", overlap: "allow", catch_up: catchUp });
    await at("2030-01-07T12:31:00Z");
    expect((await runSchedules()).sort()).toEqual(acts);
    expect(await row("x")).toMatchObject({
      missed: String({ one: 9, none: 10, all: 0 }[catchUp]),
      next_occurrence: "2030-01-08T12:01",
      last_occurrence: catchUp === "none" ? null : "2030-01-07T12:10",
    });
    expect(await runSchedules()).toEqual([]);
  });

  it.each(["one", "none"])(
    '"%s": an occurrence that is less than a minute late is on time, and no older occurrence runs with it',
    async (catchUp) => {
      await set("x", { cron: "* * * * *", overlap: "allow", catch_up: catchUp });
      await at("2030-01-07T12:05:40Z");
      expect(await runSchedules()).toEqual(["missed 4 to 2030-01-07T12:04+00:00", "fired 2030-01-07T12:05+00:00"]);
    },
  );

  it("is done in bounded portions, in order, until it is finished", async () => {
    await set("x", { cron: "*/4 * * * *", overlap: "allow", catch_up: "all" });
    await set("y", { cron: "* * * * *", overlap: "allow", catch_up: "one" });
    await at("2030-01-09T12:00:30Z");
    let calls = 0;
    for (let acts = await runSchedules(); acts.length > 0; acts = await runSchedules()) {
      expect(acts.filter((act) => act.startsWith("fired")).length).toBeLessThanOrEqual(100);
      calls += 1;
    }
    // 720 jobs of one schedule, and 2880 occurrences of the other.
    expect(calls).toBe(9);
    const found = (await jobs()).map(({ occurrence }) => occurrence);
    expect(found).toHaveLength(2 * 24 * 15 + 1);
    expect(new Set(found).size).toBe(2 * 24 * 15);
    expect(await row("y")).toMatchObject({
      missed: String(2 * 24 * 60 - 1),
      last_occurrence: "2030-01-09T12:00+00:00",
    });
  });

  it("occurrences of a pause are not caught up", async () => {
    await set("x", { cron: "* * * * *" });
    await sql.query("select stillwake.pause_schedule('x', 'me')");
    expect(await row("x")).toMatchObject({ paused_by: "me", due_at: null });
    await at("2030-01-07T12:10:30Z");
    expect(await runSchedules()).toEqual([]);
    expect(await set("x", { cron: "* * * * *", input: { n: 2 } })).toBe(true);
    expect(await runSchedules()).toEqual([]);
    await sql.query("select stillwake.resume_schedule('x')");
    expect(await row("x")).toMatchObject({ next_occurrence: "2030-01-07T12:11+00:00", missed: "0", paused_by: null });
    await at("2030-01-07T12:11:00Z");
    expect(await runSchedules()).toEqual(["fired 2030-01-07T12:11+00:00"]);
  });
});

describe("a definition", () => {
  it("that is set again changes nothing; a new cron starts now; other settings keep the next occurrence", async () => {
    expect(await set("x", { cron: "0 13 * * *" })).toBe(true);
    const before = await row("x");
    await at("2030-01-07T13:05:00Z");
    expect(await set("x", { cron: "0 13 * * *" })).toBe(false);
    expect(await row("x")).toEqual(before);
    // A new input does not lose the occurrence of 13:00, which has not been fired.
    expect(await set("x", { cron: "0 13 * * *", input: { n: 2 } })).toBe(true);
    expect(await row("x")).toMatchObject({ next_occurrence: "2030-01-07T13:00" });
    expect(await set("x", { cron: "30 13 * * *", input: { n: 2 } })).toBe(true);
    expect(await row("x")).toMatchObject({ next_occurrence: "2030-01-07T13:30" });
    expect(await set("x", { cron: "30 13 * * *", input: { n: 2 }, zone: "Asia/Kolkata" })).toBe(true);
    expect(await row("x")).toMatchObject({ next_occurrence: "2030-01-08T13:30", created_at: before.created_at });
  });

  it("that is set back creates no second job of an occurrence", async () => {
    await set("x", { cron: "1 12 * * *", overlap: "allow" });
    await at("2030-01-07T12:01:00Z");
    expect(await runSchedules()).toEqual(["fired 2030-01-07T12:01"]);
    // A restored backup of the table, or a clock that was set back.
    await sql.query(
      "update stillwake.schedules set next_occurrence = last_occurrence, next_at = last_at, due_at = last_at",
    );
    expect(await runSchedules()).toEqual(["joined 2030-01-07T12:01"]);
    expect(await jobs()).toHaveLength(1);
  });

  it("that is removed keeps its jobs", async () => {
    await set("x", { cron: "* * * * *" });
    await at("2030-01-07T12:01:00Z");
    await runSchedules();
    expect(await stillwake.schedules.remove("x")).toBe(true);
    expect(await stillwake.schedules.remove("x")).toBe(false);
    expect(await jobs()).toHaveLength(1);
    await expect(stillwake.schedules.pause("x")).rejects.toMatchObject({ code: "INVALID_INPUT", field: "name" });
    await expect(stillwake.schedules.resume("x")).rejects.toMatchObject({ remedy: expect.stringMatching(/Known/) });
    await expect(stillwake.schedules.upcoming("x")).rejects.toMatchObject({ code: "INVALID_INPUT" });
  });
});

describe("firing occurrences", () => {
  it("a claim of the pool creates the job and returns it, with its occurrence", async () => {
    await set("x", { cron: "* * * * *", input: { n: 7 } });
    await set("y", { cron: "* * * * *", pipeline: "elsewhere" });
    await at("2030-01-07T12:01:10Z");
    const request = { worker: "w", pool: "default", pipelines: ["tick", "elsewhere"], limit: 5, lease: "1 minute" };
    const { claimed } = await settleAndClaim(stillwake.database, [], request);
    const origin = { schedule: "x", occurrence: "2030-01-07T12:01+00:00", at: "2030-01-07T12:01:00Z" };
    expect(claimed).toMatchObject([{ pipeline: "tick", input: { n: 7 }, origin }]);
    const scheduled = { name: "x", occurrence: origin.occurrence, at: new Date("2030-01-07T12:01:00Z") };
    expect((await stillwake.get(claimed[0]!.job_id)).schedule).toEqual(scheduled);
    // The other pool's occurrence is left to its workers.
    expect(await row("y")).toMatchObject({ fired: "0" });

    // The origin of a job stays with it to its end, and after a retry.
    await sql.query("select stillwake.fail($1, $2, $3, '{}', true)", [
      claimed[0]!.job_id,
      claimed[0]!.epoch,
      claimed[0]!.lease_id,
    ]);
    expect(await stillwake.get(claimed[0]!.job_id)).toMatchObject({ state: "failed", schedule: scheduled });
    await stillwake.retry(claimed[0]!.job_id);
    expect(await stillwake.get(claimed[0]!.job_id)).toMatchObject({ state: "queued", schedule: scheduled });
  });

  it("the watchdog fires occurrences of every pool, and reports it", async () => {
    await set("x", { cron: "* * * * *" });
    await set("y", { cron: "* * * * *", pipeline: "elsewhere", catch_up: "none" });
    await at("2030-01-07T12:03:10Z");
    const acts = (await stillwake.watchdog()).filter(({ note }) => note.startsWith("schedule"));
    expect(acts).toEqual(
      expect.arrayContaining([
        { act: "fired", count: 1, note: "schedule x: 2030-01-07T12:03+00:00" },
        { act: "missed", count: 2, note: "schedule y: 2030-01-07T12:02+00:00, not processed in time" },
        { act: "fired", count: 1, note: "schedule y: 2030-01-07T12:03+00:00" },
      ]),
    );
  });

  it("an occurrence that another transaction fires is skipped", async () => {
    await set("x", { cron: "* * * * *", overlap: "allow" });
    await at("2030-01-07T12:01:00Z");
    const second = await connect(database.url);
    try {
      await second.query("begin");
      // Waiting for the other transaction here would be a deadlock.
      await sql.query("set lock_timeout = '1s'");
      expect((await second.query("select act from stillwake.run_schedules()")).rows).toEqual([{ act: "fired" }]);
      expect(await runSchedules()).toEqual([]);
      await second.query("commit");
      expect(await runSchedules()).toEqual([]);
      expect(await jobs()).toHaveLength(1);
    } finally {
      await sql.query("reset lock_timeout");
    }
  });

  it("an occurrence that fails blocks neither others nor claims, stores the error, and is tried again a minute later", async () => {
    await set("a", { cron: "* * * * *", options: { key: "taken", on_conflict: "reject" } });
    await set("b", { cron: "* * * * *" });
    await sql.query("select stillwake.enqueue('tick', '{}', '{\"key\": \"taken\"}')");
    await at("2030-01-07T12:01:00Z");
    const claimed = await sql.query("select * from stillwake.claim('w', 'default', '{tick}', 5)");
    expect(claimed.rowCount).toBe(2);
    expect(await row("a")).toMatchObject({
      last_error: expect.stringMatching(/Key "taken".*is taken/),
      next_occurrence: "2030-01-07T12:01+00:00",
      due_at: new Date("2030-01-07T12:02:00Z"),
      fired: "0",
    });
    expect(await row("b")).toMatchObject({ fired: "1", last_error: null });
    await sql.query("select stillwake.settle($1)", [
      JSON.stringify(
        claimed.rows.map(({ job_id, epoch, lease_id }) => ({
          job: job_id,
          epoch,
          lease: lease_id,
          outcome: "completed",
        })),
      ),
    ]);
    await at("2030-01-07T12:02:00Z");
    expect(await runSchedules()).toEqual(
      expect.arrayContaining(["fired 2030-01-07T12:01+00:00", "skipped 2030-01-07T12:02+00:00"]),
    );
    expect(await row("a")).toMatchObject({ last_error: null });
  });

  it.each(["one", "none"])('a failed occurrence is not late when it is tried again: catchUp "%s"', async (catchUp) => {
    await set("x", {
      cron: "* * * * *",
      overlap: "allow",
      catch_up: catchUp,
      options: { key: "taken", on_conflict: "reject" },
    });
    const { rows } = await sql.query("select stillwake.enqueue('tick', '{}', '{\"key\": \"taken\"}') as id");
    for (const minute of ["01", "02", "03", "04"]) {
      await at(`2030-01-07T12:${minute}:01Z`);
      expect(await runSchedules()).toEqual(["failed 2030-01-07T12:01+00:00"]);
    }
    // Occurrences in between are not counted with each attempt.
    expect(await row("x")).toMatchObject({ missed: "0", next_occurrence: "2030-01-07T12:01+00:00" });
    await end(rows[0].id);
    await sql.query("update stillwake.schedules set options = '{}'");
    await at("2030-01-07T12:05:02Z");
    expect(await runSchedules()).toEqual([
      "fired 2030-01-07T12:01+00:00",
      "missed 3 to 2030-01-07T12:04+00:00",
      "fired 2030-01-07T12:05+00:00",
    ]);
    expect(await row("x")).toMatchObject({ missed: "3", fired: "2", last_error: null });
  });

  it("a failed occurrence is late if no call tried it again in time", async () => {
    await set("x", { cron: "1 * * * *", catch_up: "none", options: { key: "taken", on_conflict: "reject" } });
    const { rows } = await sql.query("select stillwake.enqueue('tick', '{}', '{\"key\": \"taken\"}') as id");
    await at("2030-01-07T12:01:00Z");
    expect(await runSchedules()).toEqual(["failed 2030-01-07T12:01+00:00"]);
    await end(rows[0].id);
    await at("2030-01-07T12:30:00Z");
    expect(await runSchedules()).toEqual(["missed 2030-01-07T12:01+00:00"]);
  });

  it("an occurrence that waits for a lock delays neither others nor claims, and is tried again soon", async () => {
    for (let n = 0; n < 8; n++)
      await set(`a${n}`, { cron: "* * * * *", catch_up: "none", options: { key: "held", on_conflict: "wait" } });
    await set("b", { cron: "* * * * *" });
    const second = await connect(database.url);
    try {
      await second.query("begin");
      await second.query("select stillwake.enqueue('tick', '{}', '{\"key\": \"held\"}')");
      await at("2030-01-07T12:01:00Z");
      await sql.query("set statement_timeout = '20s'");
      const from = performance.now();
      const { rows } = await sql.query("select origin from stillwake.claim('w', 'default', '{tick}', 5)");
      const tookMs = performance.now() - from;
      expect(rows).toMatchObject([{ origin: { schedule: "b" } }]);
      // Half a second in total, not for each of the eight.
      expect(tookMs).toBeLessThan(3500);
      recordFigure("a claim that finds eight schedules waiting for a held lock takes", Math.round(tookMs), "ms");
      expect((await sql.query("show lock_timeout")).rows).toEqual([{ lock_timeout: "0" }]);
      for (let n = 0; n < 8; n++)
        expect(await row(`a${n}`)).toMatchObject({
          last_error: expect.stringMatching(/lock/),
          next_occurrence: "2030-01-07T12:01+00:00",
          due_at: new Date("2030-01-07T12:01:15Z"),
        });
      await second.query("commit");
      await at("2030-01-07T12:01:15Z");
      expect(await runSchedules()).toEqual(Array.from({ length: 8 }, () => "fired 2030-01-07T12:01+00:00"));
    } finally {
      await sql.query("reset statement_timeout");
    }
  });

  it("a worker that settles and claims in one call does not deadlock with a schedule that replaces its job", {
    // Half a second is short when many tests run: one observation in time is enough.
    retry: 3,
  }, async () => {
    await set("x", { cron: "* * * * *", overlap: "replace" });
    await at("2030-01-07T12:01:00Z");
    const [first] = (await sql.query("select * from stillwake.claim('w1', 'default', '{tick}', 1, '1 hour')")).rows;
    await sql.query("select stillwake.enqueue('tick')");
    const [own] = (await sql.query("select * from stillwake.claim('w2', 'default', '{tick}', 1, '1 hour')")).rows;
    expect([first.origin.schedule, own.origin]).toEqual(["x", null]);
    await at("2030-01-07T12:02:00Z");
    const second = await connect(database.url);
    await second.query("begin");
    await second.query("select from stillwake.leases where id = $1 for update", [first.lease_id]);
    const settlement = { job: own.job_id, epoch: own.epoch, lease: own.lease_id, outcome: "completed" };
    const turn = sql.query("select stillwake.settle_and_claim($1, 'w2', 'default', '{tick}', 1, '1 hour')", [
      JSON.stringify([settlement]),
    ]);
    let ended = false;
    void turn.finally(() => (ended = true)).catch(() => {});
    const waits = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    // It gives up after half a second, which a slow machine may miss.
    await waitFor(async () => ended || (await second.query(waits)).rowCount === 1, {
      what: "the schedule to wait for the lock",
      interval: 5,
    });
    // The opposite lock order of the first call, without a deadlock.
    await second.query("set local lock_timeout = '400ms'");
    await second.query("select from stillwake.leases where id = $1 for update", [own.lease_id]);
    await second.query("commit");
    await turn;
    expect((await stillwake.get(own.job_id)).state).toBe("completed");
  });

  it("a claim creates at most a hundred jobs, and the next one continues", async () => {
    for (let n = 0; n < 12; n++) await set(`a${n}`, { cron: `${n}-59/12 * * * *`, overlap: "allow", catch_up: "all" });
    await set("z", { cron: "0 12 9 1 *", catch_up: "none" });
    await at("2030-01-09T12:00:30Z");
    const count = async () => (await sql.query("select count(*)::int as n from stillwake.live_jobs")).rows[0].n;
    const from = performance.now();
    await sql.query("select stillwake.claim('w', 'default', '{tick}', 1)");
    recordFigure("a claim while 12 schedules catch up two days takes", Math.round(performance.now() - from), "ms");
    expect(await count()).toBe(100);
    for (let n = 1; n < 12; n++) await sql.query("select stillwake.claim('w', 'default', '{tick}', 1)");
    expect(await count()).toBe(1200);
    const fired = "select distinct fired::int from stillwake.schedules where name like 'a%'";
    expect((await sql.query(fired)).rows).toEqual([{ fired: 100 }]);
    // An occurrence that is on time waits for one turn of the others, not for their whole backlog.
    expect(await row("z")).toMatchObject({ fired: "0" });
    await sql.query("select stillwake.claim('w', 'default', '{tick}', 1)");
    expect(await row("z")).toMatchObject({ fired: "1", missed: "0" });
  });

  it("no occurrence is fired while its pool is paused; catchUp applies when it is resumed", async () => {
    await set("x", { cron: "* * * * *", pipeline: "elsewhere" });
    await set("y", { cron: "* * * * *" });
    await sql.query("select stillwake.pause_pool('elsewhere')");
    await at("2030-01-07T12:05:30Z");
    await stillwake.watchdog();
    expect(await row("x")).toMatchObject({ fired: "0", missed: "0" });
    expect(await row("y")).toMatchObject({ fired: "1" });
    expect((await sql.query("select stillwake.run_due_schedules('elsewhere') as at")).rows).toEqual([{ at: null }]);
    await sql.query("select stillwake.resume_pool('elsewhere')");
    await stillwake.watchdog();
    expect(await row("x")).toMatchObject({ fired: "1", missed: "4" });
  });

  it("jobs go to the current pool of the pipeline, unless the schedule names one", async () => {
    await stillwake.register(pipeline("mover"));
    await set("x", { cron: "* * * * *", pipeline: "mover" });
    await set("y", { cron: "* * * * *", pipeline: "mover", options: { pool: "default" } });
    await sql.query("select stillwake.register_pipeline('mover', '{\"pool\": \"elsewhere\"}')");
    expect([(await row("x")).pool, (await row("y")).pool]).toEqual(["elsewhere", "default"]);
    await at("2030-01-07T12:01:00Z");
    const { rows } = await sql.query("select stillwake.run_due_schedules('elsewhere') as at");
    expect(rows).toEqual([{ at: new Date("2030-01-07T12:02:00Z") }]);
    expect([(await row("x")).fired, (await row("y")).fired]).toEqual(["1", "0"]);
  });

  it("a full worker gets the next due time; upcoming() is limited", async () => {
    const tend = async () => (await sql.query("select stillwake.run_due_schedules('default') as at")).rows[0].at;
    expect(await tend()).toBe(null);
    await set("x", { cron: "0 13 * * *" });
    expect(await tend()).toEqual(new Date("2030-01-07T13:00:00Z"));
    const upcoming = async (count: number | null) =>
      (await sql.query("select from stillwake.upcoming('x', $1::integer)", [count])).rowCount;
    expect(await upcoming(null)).toBe(10);
    expect(await upcoming(20_000)).toBe(10_000);
    await expect(set("y", { cron: `${"0,".repeat(300)}0 * * * *` })).rejects.toThrow(/609 characters/);
  });

  it("a claim reads one page while none is due, however many schedules there are", async () => {
    const claims = async () => {
      const found: { us: number; pages: number }[] = [];
      for (let n = 0; n < 5; n++) {
        const { rows } = await sql.query(
          "explain (analyze, buffers, timing off, format json) select c.* from generate_series(1, 200) g, stillwake.claim('w' || g, 'default', '{tick}') c",
        );
        const [answer] = rows[0]["QUERY PLAN"];
        found.push({ us: answer["Execution Time"] * 5, pages: answer.Plan["Shared Hit Blocks"] / 200 });
      }
      return found.reduce((a, b) => (a.us < b.us ? a : b));
    };
    const without = await claims();
    await set("many", { cron: "0 0 1 1 *", pipeline: "elsewhere" });
    await sql.query(
      `insert into stillwake.schedules select (jsonb_populate_record(s, jsonb_build_object('name', 'many-' || g))).*
      from stillwake.schedules s cross join generate_series(1, 5000) g`,
    );
    const many = await claims();
    recordFigure("what 5,000 schedules that are not due cost a claim", Math.round(many.us - without.us), "µs");
    recordFigure("what 5,000 schedules that are not due cost a claim", round(many.pages - without.pages), "pages");
    // A full scan would read hundreds.
    expect(many.pages - without.pages).toBeLessThan(5);
  });
});

describe("waking up", () => {
  it("next_due() and demand() return the next occurrence of a pool, for workers that know its pipeline", async () => {
    await set("x", { cron: "30 13 * * *" });
    const due = async (text: string) => (await sql.query(`select ${text} as due`)).rows[0].due?.toISOString() ?? null;
    expect(await due("stillwake.next_due()")).toBe("2030-01-07T13:30:00.000Z");
    expect(await due("stillwake.next_due(array['default'])")).toBe("2030-01-07T13:30:00.000Z");
    expect(await due("stillwake.next_due(array['elsewhere'])")).toBe(null);
    expect(await due("stillwake.next_due(array['default'], array['tick'])")).toBe("2030-01-07T13:30:00.000Z");
    expect(await due("stillwake.next_due(array['default'], array['elsewhere'])")).toBe(null);
    const demand = "(select next_due from stillwake.demand() where pool = 'default')";
    expect(await due(demand)).toBe("2030-01-07T13:30:00.000Z");
    await sql.query("select stillwake.pause_schedule('x')");
    expect(await due("stillwake.next_due()")).toBe(null);
    await set("y", { cron: "0 14 * * *", options: { pool: "elsewhere" } });
    expect(await due("stillwake.next_due(array['elsewhere'])")).toBe("2030-01-07T14:00:00.000Z");
    expect(await due(demand)).toBe(null);
  });

  it("registering and resuming send a hint to the pool", async () => {
    const listener = await connect(database.url);
    const hints: string[] = [];
    listener.on("notification", ({ payload }) => hints.push(payload ?? ""));
    await listener.query('listen "stillwake.hint"');
    await sql.query("select stillwake.listen('w', 'default', '1 hour')");
    await set("x", { cron: "@daily" });
    await set("x", { cron: "@daily" });
    await sql.query("select stillwake.pause_schedule('x')");
    await sql.query("select stillwake.resume_schedule('x')");
    await listener.query("select 1");
    expect(hints).toEqual(["default", "default"]);
    await sql.query("select stillwake.unlisten('w')");
  });
});

describe("monitoring", () => {
  it("sw.schedules.list() returns next, last, late, skipped, missed and the last error; doctor reports late ones", async () => {
    const nightly = schedule("nightly", {
      cron: "30 2 * * *",
      zone: "Europe/Berlin",
      pipeline: tick,
      input: { n: 1 },
      options: { priority: 3, tenant: "acme" },
    });
    expect(await stillwake.schedules.set(nightly)).toBe(true);
    expect(await stillwake.schedules.set(nightly)).toBe(false);
    expect(await stillwake.schedules.list()).toEqual([
      {
        name: "nightly",
        cron: "30 2 * * *",
        zone: "Europe/Berlin",
        pipeline: "tick",
        input: { n: 1 },
        overlap: "skip",
        catchUp: "one",
        next: { occurrence: "2030-01-08T02:30", at: new Date("2030-01-08T01:30:00Z") },
        lateMs: 0,
        last: null,
        lastError: null,
        fired: 0,
        skipped: 0,
        missed: 0,
        paused: null,
      },
    ]);
    const found = async () => (await runDoctor({ url: database.url })).find(({ check }) => check === "schedules");
    expect(await found()).toMatchObject({ level: "ok" });
    await at("2030-01-08T01:32:30Z");
    expect(await stillwake.schedules.list()).toMatchObject([{ lateMs: 150_000 }]);
    expect(await found()).toMatchObject({ level: "warning", found: expect.stringContaining("nightly") });
    await stillwake.watchdog();
    const [state] = await stillwake.schedules.list();
    expect(state).toMatchObject({ lateMs: 0, fired: 1, last: { occurrence: "2030-01-08T02:30" } });
    const job = await stillwake.get(state!.last!.job);
    expect(job).toMatchObject({ priority: 3, tenant: "acme", input: { n: 1 }, schedule: { name: "nightly" } });
    await stillwake.schedules.pause("nightly", { by: "me" });
    expect(await stillwake.schedules.list()).toMatchObject([{ next: null, paused: { by: "me" } }]);
    await stillwake.schedules.resume("nightly");
    expect(await stillwake.schedules.upcoming("nightly", 2)).toEqual([
      { occurrence: "2030-01-09T02:30", at: new Date("2030-01-09T01:30:00Z") },
      { occurrence: "2030-01-10T02:30", at: new Date("2030-01-10T01:30:00Z") },
    ]);
    const preview = schedule("not-stored", { cron: "0 12 24 12 *", pipeline: "tick" });
    expect(await stillwake.schedules.upcoming(preview, 1)).toEqual([
      { occurrence: "2030-12-24T12:00", at: new Date("2030-12-24T12:00:00Z") },
    ]);
  });

  it("the contract computes key and tenant from the validated input", async () => {
    const { z } = await import("zod");
    const keyed = pipeline("keyed", {
      input: z.object({ org: z.string(), n: z.number().default(5) }),
      key: (input) => input.org,
      tenant: (input) => input.org,
    });
    await expect(
      stillwake.schedules.set(schedule("k", { cron: "@daily", pipeline: keyed, input: { org: 1 } as never })),
    ).rejects.toMatchObject({ code: "INVALID_INPUT", field: "input.org" });
    await stillwake.schedules.set(schedule("k", { cron: "* * * * *", pipeline: keyed, input: { org: "acme" } }));
    await at("2030-01-07T12:01:00Z");
    await runSchedules();
    const { jobs: found } = await stillwake.list({ pipeline: "keyed" });
    expect(found).toMatchObject([{ key: "acme", tenant: "acme", input: { org: "acme", n: 5 } }]);
  });
});

describe("three concurrent workers", () => {
  it("create one job per occurrence", async () => {
    await startClock(sql);
    await set("x", { cron: "* * * * *", overlap: "allow", catch_up: "all" });
    const workers = await Promise.all(
      [1, 2, 3].map(async () => {
        const client = await connect(database.url);
        return client;
      }),
    );
    for (let round = 0; round < 20; round++) {
      await sql.query("update stillwake.test_clock set shift = shift + interval '3 minutes'");
      await Promise.all(
        workers.map((client, n) => client.query("select stillwake.claim($1, 'default', '{tick}', 1)", [`w${n}`])),
      );
    }
    await runSchedules();
    const { rows } = await sql.query(
      "select count(*)::int as jobs, count(distinct origin ->> 'occurrence')::int as occurrences, (select fired::int from stillwake.schedules) as fired from stillwake.jobs",
    );
    expect(rows[0].jobs).toBe(rows[0].occurrences);
    expect(rows[0].fired).toBe(rows[0].occurrences);
    expect(rows[0].occurrences).toBeGreaterThanOrEqual(60);
    for (const client of workers) await client.end();
    await stopClock(sql);
  });
});
