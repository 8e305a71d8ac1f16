// Cron and daylight saving time. Compares every occurrence of thirty zones over ten years with an independent oracle
// (support/database/cron-oracle.ts), then fires the same occurrences: three concurrent schedulers run at random times, with
// long gaps, and each local time becomes one job.
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { stopClock } from "../../src/testing/index.ts";
import {
  type ExpectedOccurrence,
  expectedOccurrences,
  type Regime,
  regimesOf,
  type Spec,
} from "../support/database/cron-oracle.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";

const database = await freshDatabase();
// Thousands of calls, none of which has to survive a crash.
const options = "-c synchronous_commit=off";
const schedulers = [1, 2, 3].map(() => new pg.Client({ connectionString: database.url, options }));
const sql = schedulers[0]!;

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const years = Array.from({ length: 10 }, (_, n) => 2015 + n);
const from = Date.UTC(years[0]!, 0, 1);
const to = Date.UTC(years.at(-1)! + 1, 0, 1);

/** Changes of 30 minutes, one hour and two hours, at midnight and at night, by law and for Ramadan; and zones without any. */
const wanted =
  `Europe/Berlin Europe/London Europe/Dublin Europe/Lisbon Europe/Istanbul Europe/Moscow Europe/Athens America/New_York America/Los_Angeles
  America/St_Johns America/Sao_Paulo America/Havana America/Santiago America/Asuncion America/Scoresbysund America/Caracas Africa/Casablanca
  Africa/Cairo Africa/Juba Asia/Beirut Asia/Tehran Asia/Gaza Asia/Amman Asia/Pyongyang Asia/Kolkata Asia/Kathmandu Australia/Lord_Howe
  Pacific/Apia Pacific/Chatham Antarctica/Troll`.split(/\s+/);

const night: Spec = { cron: "30 2 * * *", minutes: [30], hours: [2] };
const weekend: Spec = { cron: "0,10 0,1,3,23 * * 0,6", minutes: [0, 10], hours: [0, 1, 3, 23], weekdays: [0, 6] };
const sunday: Spec = { cron: "15,45 2 * * sun", minutes: [15, 45], hours: [2], weekdays: [0] };
const either: Spec = {
  cron: "0 2 13 mar-may fri",
  minutes: [0],
  hours: [2],
  days: [13],
  months: [3, 4, 5],
  weekdays: [5],
};
const hourly: Spec = FULL
  ? { cron: "30 * * 3,4,10,11 sun", minutes: [30], months: [3, 4, 10, 11], weekdays: [0] }
  : { cron: "30 * * * sun", minutes: [30], weekdays: [0] };
const quarter: Spec = { cron: "*/15 * * * *", minutes: [0, 15, 30, 45] };

const clocks = new Map<string, Regime[]>();
const zones: string[] = [];

beforeAll(async () => {
  for (const client of schedulers) await client.connect();
  await stopClock(sql);
  await setClock(from);
  await sql.query("select stillwake.register_pipeline('tick')");
  for (const zone of wanted) {
    clocks.set(zone, regimesOf(zone, from - 4 * DAY, to + 4 * DAY));
    // Postgres does not look up zone names that a schedule already has.
    const settings = { cron: "@yearly", zone, pipeline: "tick" };
    await sql.query("select stillwake.set_schedule($1, $2)", [nameOf("known", zone), JSON.stringify(settings)]);
  }
  await sql.query("select stillwake.pause_schedule(name) from stillwake.schedules");
  for (const zone of wanted) if (!(await differs(zone))) zones.push(zone);
});
afterAll(async () => {
  for (const client of schedulers) await client.end();
});

async function setClock(at: number): Promise<void> {
  await sql.query("update stillwake.test_clock set stopped_at = $1, shift = '0'", [new Date(at)]);
}

/** Node and Postgres each have a copy of the time zones, and rules change: checks that both have the same version. */
async function differs(zone: string): Promise<boolean> {
  const moments: number[] = [];
  for (let at = from; at < to; at += DAY) moments.push(at);
  for (const change of changesOf(zone)) moments.push(change - 1000, change);
  const { rows } = await sql.query(
    "select extract(epoch from (at at time zone $1) - (at at time zone 'UTC'))::int * 1000 as shift from unnest($2::timestamptz[]) with ordinality u (at, n) order by n",
    [zone, moments.map((at) => new Date(at))],
  );
  const regimes = clocks.get(zone)!;
  return moments.some((at, index) => regimes.findLast((regime) => regime.from <= at)!.offset !== rows[index].shift);
}

function nameOf(kind: string, zone: string): string {
  return `${kind}-${zone.toLowerCase().replace("/", ".")}`;
}

/** The database's occurrences of a cron, as many as expected and one more, which must be after the range. */
async function compare(spec: Spec, zone: string, after: number, until: number): Promise<number> {
  const expected = expectedOccurrences(spec, clocks.get(zone)!, after, until);
  const { rows } = await sql.query(
    "select occurrence || ' ' || extract(epoch from at)::bigint as line, at from stillwake.upcoming($1, $2, $3, $4)",
    [spec.cron, zone, expected.length + 1, new Date(after)],
  );
  const beyond = rows.pop();
  expect(
    rows.map(({ line }) => line),
    `${spec.cron} in ${zone}`,
  ).toEqual(expected.map(lineOf));
  expect(beyond.at.getTime()).toBeGreaterThan(until);
  return expected.length;
}

function lineOf({ occurrence, at }: ExpectedOccurrence): string {
  return `${occurrence} ${at / 1000}`;
}

/** The times at which the clocks of a zone change. */
function changesOf(zone: string): number[] {
  return clocks
    .get(zone)!
    .slice(1)
    .map((regime) => regime.from);
}

describe("the occurrences of 30 zones over 10 years", () => {
  it("are computed from the same time zone rules by both", () => {
    recordFigure("zones of which Node and Postgres have the same clocks", zones.length, "", `of ${wanted.length}`);
    expect(zones.length).toBeGreaterThanOrEqual(wanted.length - 3);
  });

  it("match the oracle, for times of day", async () => {
    let occurrences = 0;
    for (const zone of zones) {
      occurrences += await compare(night, zone, from, to);
      for (const spec of FULL ? [weekend, sunday, either] : []) occurrences += await compare(spec, zone, from, to);
      if (FULL) continue;
      for (const change of changesOf(zone)) {
        occurrences += await compare(weekend, zone, change - 3 * DAY, change + 5 * DAY);
        occurrences += await compare(either, zone, change - 3 * DAY, change + 40 * DAY);
      }
    }
    recordFigure(
      "occurrences computed at times of day, all as the oracle has them",
      occurrences,
      "",
      "30 zones, 10 years",
    );
  }, 300_000);

  it("match the oracle, for intervals", async () => {
    let occurrences = 0;
    for (const zone of zones) {
      if (FULL) occurrences += await compare(hourly, zone, from, to);
      for (const change of changesOf(zone)) {
        occurrences += await compare(quarter, zone, change - 20 * HOUR, change + 20 * HOUR);
        occurrences += await compare(hourly, zone, change - 2 * DAY, change + 9 * DAY);
      }
    }
    const changes = zones.reduce((sum, zone) => sum + changesOf(zone).length, 0);
    recordFigure(
      "occurrences of intervals, all equal to the oracle's",
      occurrences,
      "",
      `${changes} changes of clocks`,
    );
    expect(changes).toBeGreaterThan(400);
  }, 300_000);
});

describe("three schedulers replay the years", () => {
  // The full run has ten years for every zone; the default run one year each, with the weeks around clock changes.
  const windows = () =>
    zones.flatMap((zone, index) => {
      const year = years[index % years.length]!;
      const changes = changesOf(zone).filter((at) => new Date(at).getUTCFullYear() === year);
      const centres = changes.length > 0 ? changes : [Date.UTC(year, 3, 15)];
      return centres.map((at) => ({ chosen: [zone], begin: at - 9 * DAY, end: at + 9 * DAY }));
    });
  const whole = () =>
    years.map((year) => ({ chosen: zones, begin: Date.UTC(year, 0, 1), end: Date.UTC(year + 1, 0, 1) }));

  it(
    "with gaps of random length, and each local time becomes one job",
    async () => {
      const random = dice(20_261_115);
      const found = { occurrences: 0, twice: 0, missing: 0, ticks: 0, joined: 0, most: 0 };
      for (const { chosen, begin, end } of FULL ? whole() : windows()) {
        await setClock(begin);
        const expected = new Set<string>();
        for (const zone of chosen) {
          for (const [kind, spec] of Object.entries({ night, sunday, hourly })) {
            const name = nameOf(kind, zone);
            await sql.query("select stillwake.set_schedule($1, $2)", [
              name,
              JSON.stringify({ cron: spec.cron, zone, pipeline: "tick", overlap: "allow", catch_up: "all" }),
            ]);
            for (const occurrence of expectedOccurrences(spec, clocks.get(zone)!, begin, end))
              expected.add(`${name} ${lineOf(occurrence)}`);
          }
        }
        const near = chosen.flatMap(changesOf).filter((at) => at > begin && at < end);
        for (let at = begin, gap = 0; ; at = Math.min(end, at + gap)) {
          await setClock(at);
          found.joined += await lookTogether();
          found.ticks += 1;
          if (at === end) break;
          // Frequent calls around clock changes, and occasional outages of up to a week.
          const close = near.some((change) => change > at - 3 * HOUR && change < at + DAY);
          const length = random() < 0.05 ? 7 * DAY * random() : 4 * DAY * random() ** 2;
          gap = Math.round(close ? HOUR * (0.2 + 3 * random()) : length);
          found.most = Math.max(found.most, gap);
        }

        const { rows } = await sql.query(
          `select origin ->> 'schedule' || ' ' || (origin ->> 'occurrence') || ' ' || extract(epoch from (origin ->> 'at')::timestamptz)::bigint as line, count(*)::int as n
        from stillwake.live_jobs group by 1`,
        );
        const fired = new Set(rows.map(({ line }) => line));
        const missing = [...expected].filter((line) => !fired.has(line));
        found.occurrences += expected.size;
        found.twice += rows.reduce((sum, { n }) => sum + n - 1, 0);
        found.missing += missing.length;
        expect(missing.slice(0, 5)).toEqual([]);
        expect([...fired].filter((line) => !expected.has(line)).slice(0, 5)).toEqual([]);
        await sql.query("select stillwake.remove_schedule(name) from stillwake.schedules where paused_at is null");
        await sql.query("truncate stillwake.live_jobs, stillwake.idempotency_keys");
      }
      const note = `${found.ticks} calls by 3 schedulers, gaps up to ${Math.round(found.most / HOUR)} h`;
      recordFigure("occurrences replayed", found.occurrences, "", note);
      recordFigure("occurrences that became two jobs", found.twice, "", note);
      recordFigure("occurrences that became none", found.missing, "", note);
      expect(found).toMatchObject({ twice: 0, missing: 0, joined: 0 });
    },
    FULL ? 3_600_000 : 300_000,
  );

  /** All three run until nothing is due. Returns how often the job of an occurrence existed already. */
  async function lookTogether(): Promise<number> {
    let joined = 0;
    for (;;) {
      const responses = await Promise.all(
        schedulers.map((client) => client.query("select act from stillwake.run_schedules(1000)")),
      );
      const acts = responses.flatMap(({ rows }) => rows.map(({ act }) => act));
      joined += acts.filter((act) => act !== "fired").length;
      if (acts.length === 0) return joined;
    }
  }
});

/** A seeded random generator. */
function dice(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 4_294_967_296;
    return state / 4_294_967_296;
  };
}
