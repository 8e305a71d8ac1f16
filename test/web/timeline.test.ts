// The timeline of a job page as numbers: what lies where, what was kept, what was in wastedStarts; and the figures beside it. Drawing it is for the browser's tests.
import { describe, expect, it } from "vitest";
import { waitedToStart } from "../../web/src/pages/job/waited.ts";
import { readCap } from "../../web/src/pages/pools/cap.ts";
import {
  type AttemptGiven,
  costOf,
  type Given,
  Heard,
  type JobGiven,
  type LineGiven,
  mostTelling,
  type StepGiven,
  timelineOf,
} from "../../web/src/parts/timeline/timeline-model.ts";

const START = Date.parse("2030-05-01T12:00:00.000Z");
const at = (seconds: number) => new Date(START + seconds * 1000).toISOString();
const seconds = (moment: number) => (moment - START) / 1000;

const job = (given: Partial<JobGiven> = {}): JobGiven => ({
  state: "running",
  waitingFor: null,
  startedAt: at(0),
  endedAt: null,
  missing: [],
  children: null,
  ...given,
});

const attempt = (
  n: number,
  from: number,
  to: number | null,
  outcome: AttemptGiven["outcome"] = null,
  given: Partial<AttemptGiven> = {},
): AttemptGiven => ({
  epoch: String(n),
  attempt: n,
  claimedAt: at(from),
  endedAt: to === null ? null : at(to),
  outcome,
  ...given,
});

const step = (name: string, epoch: number, from: number, to: number): StepGiven => ({
  name,
  epoch: String(epoch),
  startedAt: at(from),
  savedAt: at(to),
});

const line = (name: string | null, epoch: number, when: number, given: Partial<LineGiven> = {}): LineGiven => ({
  kind: "log",
  at: at(when),
  epoch: String(epoch),
  level: "info",
  step: name,
  message: `${name} at ${when}`,
  data: null,
  ...given,
});

const drawn = (given: Partial<Given> & { lines?: LineGiven[] }) => {
  const { lines = [], ...rest } = given;
  const timeline = timelineOf({
    job: job(),
    attempts: [],
    kept: [],
    now: START + 60_000,
    heard: new Heard().take(lines),
    ...rest,
  })!;
  const row = (name: string) => timeline.rows.find((one) => one.name === name)!;
  const pieces = (name: string) => row(name).pieces.map(({ from, to, state }) => [seconds(from), seconds(to), state]);
  return { timeline, row, pieces };
};

describe("the timeline of a job", () => {
  it("is none before the job has begun", () => {
    const given = { job: job({ state: "queued", startedAt: null }), attempts: [], kept: [], now: START };
    expect(timelineOf(given)).toBeNull();
  });

  it("has a row for each step in the order in which they began, the one under way up to now", () => {
    const { timeline, row, pieces } = drawn({
      attempts: [attempt(1, 0, null)],
      kept: [step("clone", 1, 1, 11)],
      lines: [line("clone", 1, 1), line("scan", 1, 12), line("scan", 1, 20)],
    });
    expect(timeline.rows.map(({ name, state }) => [name, state])).toEqual([
      ["clone", "kept"],
      ["scan", "running"],
    ]);
    expect(pieces("clone")).toEqual([[1, 11, "kept"]]);
    expect(pieces("scan")).toEqual([[12, 60, "running"]]);
    expect(row("clone")).toMatchObject({ tookMs: 10_000, keptFrom: null });
    expect(row("scan").words).toBe("scan at 20");
  });

  it("says from which attempt a result is that the latest did not have to make", () => {
    const { row, pieces } = drawn({
      attempts: [attempt(1, 0, 30, "lost"), attempt(2, 31, null)],
      kept: [step("clone", 1, 1, 11)],
      lines: [line("clone", 1, 1), line("scan", 1, 12), line("scan", 2, 32)],
    });
    expect(row("clone")).toMatchObject({ state: "kept", keptFrom: 1 });
    expect(row("clone").pieces[0]).toMatchObject({ earlier: true, attempt: 1 });
    // The step that spoke last ran until its worker was lost.
    expect(pieces("scan")).toEqual([
      [12, 30, "interrupted"],
      [32, 60, "running"],
    ]);
  });

  it("shows each try at a step that never succeeded, and ends what was not at work with its last line", () => {
    const { row, pieces } = drawn({
      job: job({ state: "failed", endedAt: at(40) }),
      attempts: [attempt(1, 0, 20, "failed"), attempt(2, 20, 40, "failed")],
      lines: [line("early", 1, 1), line("early", 1, 3), line("late", 1, 5), line("late", 2, 21)],
    });
    expect(pieces("early")).toEqual([[1, 3, "interrupted"]]);
    expect(pieces("late")).toEqual([
      [5, 20, "interrupted"],
      [21, 40, "interrupted"],
    ]);
    expect(row("late")).toMatchObject({ tookMs: 19_000, allMs: 34_000 });
  });

  it("gives a step the length of the try that was kept, whatever was tried before and however its lines lie", () => {
    const lines = [line("scan", 1, 5), line("scan", 2, 31), line("scan", 2, 50)];
    const attempts = [attempt(1, 0, 30, "failed"), attempt(2, 30, 55, "completed")];
    const kept = [{ ...step("scan", 2, 32, 48), tookMs: 15_500 }];
    const { row, pieces } = drawn({ attempts, kept, lines });
    expect(row("scan")).toMatchObject({ state: "kept", tookMs: 15_500, allMs: 40_500 });
    expect(pieces("scan")).toEqual([
      [5, 30, "interrupted"],
      [32.5, 48, "kept"],
    ]);
    const second = drawn({ attempts: [attempts[0]!, attempt(2, 30, null)], lines });
    expect(second.row("scan")).toMatchObject({ state: "running", tookMs: 29_000 });
  });

  it("numbers attempts by their order, also after the job was retried by hand", () => {
    const attempts = [
      attempt(1, 0, 10, "failed"),
      attempt(2, 20, 30, "failed"),
      attempt(3, 3600, 3610, "failed", { attempt: 1 }),
      attempt(4, 3620, null, null, { attempt: 2 }),
    ];
    const { timeline, row } = drawn({ attempts, kept: [step("clone", 3, 3601, 3605)], now: START + 3_700_000 });
    expect(timeline.bands.map((band) => band.attempt)).toEqual([1, 2, 3, 4]);
    expect(row("clone").keptFrom).toBe(3);
    // Between the second and the third a person decided; the other waits were the engine's.
    expect(timeline.gaps.map(({ after }) => after)).toEqual(["failed", "ended", "failed"]);
  });

  it("knows that a job which waits after a retry by hand had ended before", () => {
    const attempts = [attempt(1, 0, 10, "failed")];
    const waits = (startedAt: string | null) =>
      drawn({ attempts, job: job({ state: "queued", startedAt }) }).timeline.gaps.map(({ after }) => after);
    expect(waits(at(0))).toEqual(["failed"]);
    expect(waits(null)).toEqual(["ended"]);
    const released = [attempt(1, 0, 10, "released"), attempt(2, 20, null, null, { attempt: 1 })];
    expect(drawn({ attempts: released }).timeline.gaps[0]).toMatchObject({ after: "released" });
  });

  it("tells a runner that died from a worker that was lost", () => {
    const attempts = [
      attempt(1, 0, 10, "lost", { failure: { code: "RUNNER_KILLED" } }),
      attempt(2, 11, 20, "lost", { failure: { code: "LEASE_EXPIRED" } }),
      attempt(3, 21, 30, "failed", { failure: { code: "RUNNER_OOM" } }),
    ];
    expect(drawn({ attempts }).timeline.bands.map(({ runner }) => runner)).toEqual([true, false, false]);
    expect(drawn({ attempts }).timeline.gaps[0]).toMatchObject({ after: "lost", runner: true });
  });

  it("has a row for an optional step that was skipped, with the reason it gave, or without where it gave none", () => {
    const failed = {
      level: "warning",
      message: "The service is out of reach",
      data: { code: null, error: "ECONNREFUSED" },
    };
    const { row, pieces } = drawn({
      job: job({ state: "completed", endedAt: at(30), missing: ["weather", "pictures"] }),
      attempts: [attempt(1, 0, 30, "completed")],
      kept: [step("report", 1, 9, 29)],
      lines: [line("weather", 1, 2), line("weather", 1, 8, failed), line("report", 1, 9)],
    });
    expect(row("weather")).toMatchObject({ state: "skipped", words: "The service is out of reach" });
    expect(pieces("weather")).toEqual([[2, 8, "skipped"]]);
    expect(row("pictures")).toMatchObject({ state: "skipped", pieces: [], tookMs: null });
  });

  it("does not call the part of a list in wastedStarts that was done before a worker was lost", () => {
    const lines = [line("miles", 1, 2), line("miles", 1, 18), line("miles", 2, 22), line("miles", 2, 38)];
    const attempts = [attempt(1, 0, 20, "lost"), attempt(2, 21, null)];
    const half = drawn({ attempts, kept: [step("miles", 2, 5, 38)], open: new Set(["miles"]), lines });
    expect(half.pieces("miles")).toEqual([
      [2, 20, "kept"],
      [22, 60, "running"],
    ]);
    const whole = drawn({ attempts, kept: [step("miles", 2, 5, 38)], lines });
    expect(whole.pieces("miles")).toEqual([
      [2, 20, "kept"],
      [22, 38, "kept"],
    ]);
    expect(whole.row("miles").tookMs).toBe(34_000);
  });

  it("shows a wait for an event as waiting, up to now", () => {
    const { pieces } = drawn({
      job: job({ state: "queued", waitingFor: "event" }),
      attempts: [attempt(1, 0, 5, "slept")],
      kept: [step("draft", 1, 1, 4), step("approval", 1, 5, 5)],
      open: new Set(["approval"]),
    });
    expect(pieces("approval")).toEqual([[5, 60, "waiting"]]);
  });

  it("has one row for all children, from when they were spawned until the job went on", () => {
    const spawned = line(null, 1, 4, { kind: "event", data: { spawn: "parts", children: 3 } });
    const children = { total: 3, completed: 2, failed: 1, cancelled: 0 };
    const { pieces, row } = drawn({
      job: job({ children }),
      attempts: [attempt(1, 0, 5, "slept"), attempt(2, 50, null)],
      lines: [spawned],
    });
    expect(pieces("children")).toEqual([[4, 50, "children"]]);
    expect(row("children").words).toBe("3 of 3 have ended");
  });

  it("forgets lines that are told anew", () => {
    const heard = new Heard();
    const lines = [line("one", 1, 1)];
    heard.take(lines);
    lines.push(line("two", 1, 2));
    expect([...heard.take(lines).words.values()].map(({ step }) => step)).toEqual(["one", "two"]);
    expect([...heard.take([line("three", 1, 3)]).words.values()].map(({ step }) => step)).toEqual(["three"]);
  });
});

describe("the axis", () => {
  it("draws a wait of hours shorter than it was, and everything else to scale and in order", () => {
    const { timeline } = drawn({
      job: job({ state: "completed", endedAt: at(10_820) }),
      attempts: [attempt(1, 0, 10, "slept"), attempt(2, 10_810, 10_820, "completed")],
      now: START + 20_000_000,
    });
    const [gap] = timeline.gaps;
    expect(gap).toMatchObject({ after: "slept", short: true });
    const width = (from: number, to: number) => timeline.place(START + to * 1000) - timeline.place(START + from * 1000);
    expect(width(10, 10_810)).toBeLessThan(0.2);
    expect(width(0, 10)).toBeGreaterThan(0.35);
    expect(width(0, 5)).toBeCloseTo(width(10_810, 10_815), 6);
    expect(timeline.place(START)).toBe(0);
    expect(timeline.place(START + 10_820_000)).toBeCloseTo(1, 9);
    for (const { at: tick } of timeline.ticks) expect(tick <= 10_000 || tick >= 10_810_000).toBe(true);
  });

  it("leaves half of itself to work however often a job has slept", () => {
    const attempts = Array.from({ length: 40 }, (_, n) => attempt(n + 1, n * 3600, n * 3600 + 1, "slept"));
    const { timeline } = drawn({
      attempts,
      job: job({ state: "queued", waitingFor: "time" }),
      now: START + 144_000_000,
    });
    const worked = timeline.bands.reduce((sum, { from, to }) => sum + timeline.place(to) - timeline.place(from), 0);
    expect(worked).toBeGreaterThan(0.5);
  });

  it("keeps every moment between its two ends, whatever the attempts are", () => {
    // A simple generator, so that a failure can be seen again by its seed.
    for (let seed = 1; seed <= 200; seed++) {
      let state = seed;
      const next = (most: number) => {
        state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
        return state % most;
      };
      let now = 0;
      const attempts: AttemptGiven[] = [];
      for (let n = 1; n <= 1 + next(6); n++) {
        now += next(3) * next(5000);
        const from = now;
        now += next(200);
        attempts.push(attempt(n, from, now, (["slept", "failed", "lost"] as const)[next(3)]!));
      }
      const { timeline } = drawn({ attempts, now: START + (now + next(100)) * 1000 });
      let last = 0;
      for (let tenth = 0; tenth <= 10; tenth++) {
        const place = timeline.place(timeline.from + ((timeline.to - timeline.from) * tenth) / 10);
        expect(Number.isFinite(place) && place >= last - 1e-9 && place <= 1 + 1e-9, `seed ${seed}`).toBe(true);
        last = place;
      }
    }
  });

  it("has few marks, at round distances", () => {
    for (const length of [0.05, 3, 59, 600, 5000, 90_000, 2_000_000]) {
      const { timeline } = drawn({ attempts: [attempt(1, 0, null)], now: START + length * 1000 });
      expect(timeline.ticks.length).toBeGreaterThan(1);
      expect(timeline.ticks.length).toBeLessThan(8);
    }
  });
});

describe("what a job cost", () => {
  it("is the time of all attempts, and in wastedStarts what was done after the last result that was kept", () => {
    const attempts = [attempt(1, 0, 30, "lost"), attempt(2, 40, 50, "slept"), attempt(3, 60, null)];
    const kept = [step("clone", 1, 0, 12), step("scan", 2, 41, 49)];
    expect(costOf(attempts, kept, START + 65_000)).toEqual({ workedMs: 45_000, vainMs: 18_000 });
    expect(costOf([], [], START)).toEqual({ workedMs: 0, vainMs: 0 });
  });
});

describe("how long a job waited to start", () => {
  const waits = (given: object, began: number | null, now = 100) => {
    const base = { createdAt: at(0), runAt: at(0), startedAt: null, endedAt: null };
    return waitedToStart({ ...base, ...given }, began === null ? null : at(began), START + now * 1000);
  };

  it("is counted from when it was due, while it waits and once it has started", () => {
    expect(waits({}, null)).toEqual({ ms: 100_000, whole: false });
    expect(waits({ runAt: at(90) }, null)).toEqual({ ms: 10_000, whole: false });
    expect(waits({ runAt: at(90) }, null, 50)).toEqual({ ms: null, whole: false });
    expect(waits({ runAt: at(90), startedAt: at(92) }, 92)).toEqual({ ms: 2_000, whole: false });
    expect(waits({ endedAt: at(7) }, null)).toEqual({ ms: 7_000, whole: false });
  });

  it("stays the same after a retry, and says so where it can only tell the time since it was enqueued", () => {
    // A retry by hand: another start, another time to run; the first attempt is what it was.
    expect(waits({ runAt: at(60), startedAt: at(61) }, 3)).toEqual({ ms: 3_000, whole: true });
    expect(waits({ runAt: at(60), startedAt: null }, 3)).toEqual({ ms: 3_000, whole: true });
    expect(waits({ runAt: null, startedAt: at(3) }, 3)).toEqual({ ms: 3_000, whole: true });
  });
});

describe("a cap that somebody writes", () => {
  it("is a whole number from 1 on, or none where nothing is written", () => {
    expect(["4", " 12 ", ""].map(readCap)).toEqual([4, 12, null]);
  });

  it("is refused where it cannot be read, and never taken for none", () => {
    for (const text of ["1e999", "0", "-1", "2.5", "four", "99999999999", "1 2"])
      expect(readCap(text), text).toBeUndefined();
  });
});

describe("of many steps", () => {
  it("those are shown that move or went wrong, the latest, and the longest; in their order", () => {
    const kept = Array.from({ length: 300 }, (_, n) => step(`step ${n}`, 1, n, n === 7 ? n + 0.9 : n + 0.1));
    const { timeline } = drawn({
      job: job({ missing: ["step x"] }),
      attempts: [attempt(1, 0, null)],
      kept,
      lines: [line("now", 1, 301)],
      now: START + 400_000,
    });
    expect(timeline.rows).toHaveLength(302);
    const shown = mostTelling(timeline.rows, 30).map(({ name }) => name);
    expect(shown).toHaveLength(30);
    expect(shown).toEqual(expect.arrayContaining(["step 7", "step 299", "now", "step x"]));
    const places = shown.map((name) => timeline.rows.findIndex((row) => row.name === name));
    expect(places).toEqual([...places].sort((one, two) => one - two));
    expect(mostTelling(timeline.rows.slice(0, 5), 30)).toHaveLength(5);
  });
});
