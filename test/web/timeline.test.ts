// The timeline of a job as numbers, and the figures beside it. Browser tests cover how it is drawn.
import { describe, expect, it } from "vitest";
import { waitBeforeStart } from "../../web/src/pages/job/wait-time.ts";
import { parseCap } from "../../web/src/pages/pools/cap.ts";
import {
  type AttemptData,
  buildTimeline,
  type JobData,
  LogIndex,
  type LogLine,
  type StepData,
  selectRows,
  type TimelineData,
  workerTime,
} from "../../web/src/parts/timeline/timeline-model.ts";

const START = Date.parse("2030-05-01T12:00:00.000Z");
const at = (seconds: number) => new Date(START + seconds * 1000).toISOString();
const seconds = (moment: number) => (moment - START) / 1000;

const job = (overrides: Partial<JobData> = {}): JobData => ({
  state: "running",
  waitingFor: null,
  startedAt: at(0),
  endedAt: null,
  missing: [],
  children: null,
  ...overrides,
});

const attempt = (
  n: number,
  from: number,
  to: number | null,
  outcome: AttemptData["outcome"] = null,
  overrides: Partial<AttemptData> = {},
): AttemptData => ({
  epoch: String(n),
  attempt: n,
  claimedAt: at(from),
  endedAt: to === null ? null : at(to),
  outcome,
  ...overrides,
});

const step = (name: string, epoch: number, from: number, to: number): StepData => ({
  name,
  epoch: String(epoch),
  startedAt: at(from),
  savedAt: at(to),
});

const line = (name: string | null, epoch: number, when: number, overrides: Partial<LogLine> = {}): LogLine => ({
  kind: "log",
  at: at(when),
  epoch: String(epoch),
  level: "info",
  step: name,
  message: `${name} at ${when}`,
  data: null,
  ...overrides,
});

const drawn = (data: Partial<TimelineData> & { lines?: LogLine[] }) => {
  const { lines = [], ...rest } = data;
  const timeline = buildTimeline({
    job: job(),
    attempts: [],
    steps: [],
    now: START + 60_000,
    log: new LogIndex().add(lines),
    ...rest,
  })!;
  const row = (name: string) => timeline.rows.find((candidate) => candidate.name === name)!;
  const pieces = (name: string) => row(name).pieces.map(({ from, to, state }) => [seconds(from), seconds(to), state]);
  return { timeline, row, pieces };
};

describe("the timeline of a job", () => {
  it("is null before the job has started", () => {
    const data = { job: job({ state: "queued", startedAt: null }), attempts: [], steps: [], now: START };
    expect(buildTimeline(data)).toBeNull();
  });

  it("has a row for each step in the order of their start; a running step lasts until now", () => {
    const { timeline, row, pieces } = drawn({
      attempts: [attempt(1, 0, null)],
      steps: [step("clone", 1, 1, 11)],
      lines: [line("clone", 1, 1), line("scan", 1, 12), line("scan", 1, 20)],
    });
    expect(timeline.rows.map(({ name, state }) => [name, state])).toEqual([
      ["clone", "kept"],
      ["scan", "running"],
    ]);
    expect(pieces("clone")).toEqual([[1, 11, "kept"]]);
    expect(pieces("scan")).toEqual([[12, 60, "running"]]);
    expect(row("clone")).toMatchObject({ tookMs: 10_000, keptFrom: null });
    expect(row("scan").text).toBe("scan at 20");
  });

  it("names the earlier attempt whose checkpoint is used", () => {
    const { row, pieces } = drawn({
      attempts: [attempt(1, 0, 30, "lost"), attempt(2, 31, null)],
      steps: [step("clone", 1, 1, 11)],
      lines: [line("clone", 1, 1), line("scan", 1, 12), line("scan", 2, 32)],
    });
    expect(row("clone")).toMatchObject({ state: "kept", keptFrom: 1 });
    expect(row("clone").pieces[0]).toMatchObject({ earlier: true, attempt: 1 });
    // The step of the last log line ran until its worker was lost.
    expect(pieces("scan")).toEqual([
      [12, 30, "interrupted"],
      [32, 60, "running"],
    ]);
  });

  it("has a piece for each attempt at a failed step, and ends earlier steps at their last log line", () => {
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

  it("gives a step the duration of its checkpoint, whatever earlier attempts and log lines there are", () => {
    const lines = [line("scan", 1, 5), line("scan", 2, 31), line("scan", 2, 50)];
    const attempts = [attempt(1, 0, 30, "failed"), attempt(2, 30, 55, "completed")];
    const steps = [{ ...step("scan", 2, 32, 48), tookMs: 15_500 }];
    const { row, pieces } = drawn({ attempts, steps, lines });
    expect(row("scan")).toMatchObject({ state: "kept", tookMs: 15_500, allMs: 40_500 });
    expect(pieces("scan")).toEqual([
      [5, 30, "interrupted"],
      [32.5, 48, "kept"],
    ]);
    const second = drawn({ attempts: [attempts[0]!, attempt(2, 30, null)], lines });
    expect(second.row("scan")).toMatchObject({ state: "running", tookMs: 29_000 });
  });

  it("numbers attempts in order, also after a retry by hand", () => {
    const attempts = [
      attempt(1, 0, 10, "failed"),
      attempt(2, 20, 30, "failed"),
      attempt(3, 3600, 3610, "failed", { attempt: 1 }),
      attempt(4, 3620, null, null, { attempt: 2 }),
    ];
    const { timeline, row } = drawn({ attempts, steps: [step("clone", 3, 3601, 3605)], now: START + 3_700_000 });
    expect(timeline.bands.map((band) => band.attempt)).toEqual([1, 2, 3, 4]);
    expect(row("clone").keptFrom).toBe(3);
    // The second gap ended with a retry by hand.
    expect(timeline.gaps.map(({ after }) => after)).toEqual(["failed", "ended", "failed"]);
  });

  it("recognizes that a job that waits after a retry by hand had ended", () => {
    const attempts = [attempt(1, 0, 10, "failed")];
    const waits = (startedAt: string | null) =>
      drawn({ attempts, job: job({ state: "queued", startedAt }) }).timeline.gaps.map(({ after }) => after);
    expect(waits(at(0))).toEqual(["failed"]);
    expect(waits(null)).toEqual(["ended"]);
    const released = [attempt(1, 0, 10, "released"), attempt(2, 20, null, null, { attempt: 1 })];
    expect(drawn({ attempts: released }).timeline.gaps[0]).toMatchObject({ after: "released" });
  });

  it("distinguishes a lost runner from a lost worker", () => {
    const attempts = [
      attempt(1, 0, 10, "lost", { failure: { code: "RUNNER_KILLED" } }),
      attempt(2, 11, 20, "lost", { failure: { code: "LEASE_EXPIRED" } }),
      attempt(3, 21, 30, "failed", { failure: { code: "RUNNER_OOM" } }),
    ];
    expect(drawn({ attempts }).timeline.bands.map(({ runnerLost }) => runnerLost)).toEqual([true, false, false]);
    expect(drawn({ attempts }).timeline.gaps[0]).toMatchObject({ after: "lost", runnerLost: true });
  });

  it("has a row for a skipped optional step, with the reason if there is one", () => {
    const failed = {
      level: "warning",
      message: "The service is out of reach",
      data: { code: null, error: "ECONNREFUSED" },
    };
    const { row, pieces } = drawn({
      job: job({ state: "completed", endedAt: at(30), missing: ["weather", "pictures"] }),
      attempts: [attempt(1, 0, 30, "completed")],
      steps: [step("report", 1, 9, 29)],
      lines: [line("weather", 1, 2), line("weather", 1, 8, failed), line("report", 1, 9)],
    });
    expect(row("weather")).toMatchObject({ state: "skipped", text: "The service is out of reach" });
    expect(pieces("weather")).toEqual([[2, 8, "skipped"]]);
    expect(row("pictures")).toMatchObject({ state: "skipped", pieces: [], tookMs: null });
  });

  it("does not count the finished part of a list as wasted when a worker is lost", () => {
    const lines = [line("miles", 1, 2), line("miles", 1, 18), line("miles", 2, 22), line("miles", 2, 38)];
    const attempts = [attempt(1, 0, 20, "lost"), attempt(2, 21, null)];
    const half = drawn({ attempts, steps: [step("miles", 2, 5, 38)], open: new Set(["miles"]), lines });
    expect(half.pieces("miles")).toEqual([
      [2, 20, "kept"],
      [22, 60, "running"],
    ]);
    const whole = drawn({ attempts, steps: [step("miles", 2, 5, 38)], lines });
    expect(whole.pieces("miles")).toEqual([
      [2, 20, "kept"],
      [22, 38, "kept"],
    ]);
    expect(whole.row("miles").tookMs).toBe(34_000);
  });

  it("shows a wait for an event until now", () => {
    const { pieces } = drawn({
      job: job({ state: "queued", waitingFor: "event" }),
      attempts: [attempt(1, 0, 5, "slept")],
      steps: [step("draft", 1, 1, 4), step("approval", 1, 5, 5)],
      open: new Set(["approval"]),
    });
    expect(pieces("approval")).toEqual([[5, 60, "waiting"]]);
  });

  it("has one row for all children, from their spawn until the job resumed", () => {
    const spawned = line(null, 1, 4, { kind: "event", data: { spawn: "parts", children: 3 } });
    const children = { total: 3, completed: 2, failed: 1, cancelled: 0 };
    const { pieces, row } = drawn({
      job: job({ children }),
      attempts: [attempt(1, 0, 5, "slept"), attempt(2, 50, null)],
      lines: [spawned],
    });
    expect(pieces("children")).toEqual([[4, 50, "children"]]);
    expect(row("children").text).toBe("3 of 3 ended");
  });

  it("starts over with a new array of lines", () => {
    const log = new LogIndex();
    const lines = [line("one", 1, 1)];
    log.add(lines);
    lines.push(line("two", 1, 2));
    expect([...log.add(lines).steps.values()].map(({ step }) => step)).toEqual(["one", "two"]);
    expect([...log.add([line("three", 1, 3)]).steps.values()].map(({ step }) => step)).toEqual(["three"]);
  });
});

describe("the axis", () => {
  it("shortens a wait of hours and keeps everything else to scale and in order", () => {
    const { timeline } = drawn({
      job: job({ state: "completed", endedAt: at(10_820) }),
      attempts: [attempt(1, 0, 10, "slept"), attempt(2, 10_810, 10_820, "completed")],
      now: START + 20_000_000,
    });
    const [gap] = timeline.gaps;
    expect(gap).toMatchObject({ after: "slept", shortened: true });
    const width = (from: number, to: number) =>
      timeline.position(START + to * 1000) - timeline.position(START + from * 1000);
    expect(width(10, 10_810)).toBeLessThan(0.2);
    expect(width(0, 10)).toBeGreaterThan(0.35);
    expect(width(0, 5)).toBeCloseTo(width(10_810, 10_815), 6);
    expect(timeline.position(START)).toBe(0);
    expect(timeline.position(START + 10_820_000)).toBeCloseTo(1, 9);
    for (const { ms } of timeline.ticks) expect(ms <= 10_000 || ms >= 10_810_000).toBe(true);
  });

  it("gives half of the width to work, however often a job slept", () => {
    const attempts = Array.from({ length: 40 }, (_, n) => attempt(n + 1, n * 3600, n * 3600 + 1, "slept"));
    const { timeline } = drawn({
      attempts,
      job: job({ state: "queued", waitingFor: "time" }),
      now: START + 144_000_000,
    });
    const worked = timeline.bands.reduce(
      (sum, { from, to }) => sum + timeline.position(to) - timeline.position(from),
      0,
    );
    expect(worked).toBeGreaterThan(0.5);
  });

  it("keeps every position between 0 and 1 and in order, whatever the attempts are", () => {
    // A seeded generator, so that a failure can be reproduced.
    for (let seed = 1; seed <= 200; seed++) {
      let state = seed;
      const next = (limit: number) => {
        state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
        return state % limit;
      };
      let now = 0;
      const attempts: AttemptData[] = [];
      for (let n = 1; n <= 1 + next(6); n++) {
        now += next(3) * next(5000);
        const from = now;
        now += next(200);
        attempts.push(attempt(n, from, now, (["slept", "failed", "lost"] as const)[next(3)]!));
      }
      const { timeline } = drawn({ attempts, now: START + (now + next(100)) * 1000 });
      let last = 0;
      for (let tenth = 0; tenth <= 10; tenth++) {
        const place = timeline.position(timeline.from + ((timeline.to - timeline.from) * tenth) / 10);
        expect(Number.isFinite(place) && place >= last - 1e-9 && place <= 1 + 1e-9, `seed ${seed}`).toBe(true);
        last = place;
      }
    }
  });

  it("has few ticks", () => {
    for (const length of [0.05, 3, 59, 600, 5000, 90_000, 2_000_000]) {
      const { timeline } = drawn({ attempts: [attempt(1, 0, null)], now: START + length * 1000 });
      expect(timeline.ticks.length).toBeGreaterThan(1);
      expect(timeline.ticks.length).toBeLessThan(8);
    }
  });
});

describe("workerTime", () => {
  it("sums all attempts; time after the last checkpoint of a lost attempt is wasted", () => {
    const attempts = [attempt(1, 0, 30, "lost"), attempt(2, 40, 50, "slept"), attempt(3, 60, null)];
    const steps = [step("clone", 1, 0, 12), step("scan", 2, 41, 49)];
    expect(workerTime(attempts, steps, START + 65_000)).toEqual({ workedMs: 45_000, wastedMs: 18_000 });
    expect(workerTime([], [], START)).toEqual({ workedMs: 0, wastedMs: 0 });
  });
});

describe("waitBeforeStart", () => {
  const waits = (given: object, began: number | null, now = 100) => {
    const base = { createdAt: at(0), runAt: at(0), startedAt: null, endedAt: null };
    return waitBeforeStart({ ...base, ...given }, began === null ? null : at(began), START + now * 1000);
  };

  it("counts from the due time, before and after the start", () => {
    expect(waits({}, null)).toEqual({ ms: 100_000, sinceEnqueue: false });
    expect(waits({ runAt: at(90) }, null)).toEqual({ ms: 10_000, sinceEnqueue: false });
    expect(waits({ runAt: at(90) }, null, 50)).toEqual({ ms: null, sinceEnqueue: false });
    expect(waits({ runAt: at(90), startedAt: at(92) }, 92)).toEqual({ ms: 2_000, sinceEnqueue: false });
    expect(waits({ endedAt: at(7) }, null)).toEqual({ ms: 7_000, sinceEnqueue: false });
  });

  it("stays the same after a retry, and counts from the enqueue if the due time is unknown", () => {
    // A retry by hand replaces startedAt and runAt, but not the first attempt.
    expect(waits({ runAt: at(60), startedAt: at(61) }, 3)).toEqual({ ms: 3_000, sinceEnqueue: true });
    expect(waits({ runAt: at(60), startedAt: null }, 3)).toEqual({ ms: 3_000, sinceEnqueue: true });
    expect(waits({ runAt: null, startedAt: at(3) }, 3)).toEqual({ ms: 3_000, sinceEnqueue: true });
  });
});

describe("parseCap", () => {
  it("returns a whole number of at least 1, or null for an empty text", () => {
    expect(["4", " 12 ", ""].map(parseCap)).toEqual([4, 12, null]);
  });

  it("returns undefined for an invalid text, never null", () => {
    for (const text of ["1e999", "0", "-1", "2.5", "four", "99999999999", "1 2"])
      expect(parseCap(text), text).toBeUndefined();
  });
});

describe("selectRows", () => {
  it("selects the latest rows, those that are not kept and the longest, in their order", () => {
    const steps = Array.from({ length: 300 }, (_, n) => step(`step ${n}`, 1, n, n === 7 ? n + 0.9 : n + 0.1));
    const { timeline } = drawn({
      job: job({ missing: ["step x"] }),
      attempts: [attempt(1, 0, null)],
      steps,
      lines: [line("now", 1, 301)],
      now: START + 400_000,
    });
    expect(timeline.rows).toHaveLength(302);
    const shown = selectRows(timeline.rows, 30).map(({ name }) => name);
    expect(shown).toHaveLength(30);
    expect(shown).toEqual(expect.arrayContaining(["step 7", "step 299", "now", "step x"]));
    const places = shown.map((name) => timeline.rows.findIndex((row) => row.name === name));
    expect(places).toEqual([...places].sort((a, b) => a - b));
    expect(selectRows(timeline.rows.slice(0, 5), 30)).toHaveLength(5);
  });
});
