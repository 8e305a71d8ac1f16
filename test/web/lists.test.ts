// Pure parts of the dashboard: the refresh policy, the server clock, chart scales, the job list, problems and summaries.
import { describe, expect, it } from "vitest";
import { refreshInterval } from "../../ui/src/api/refresh.ts";
import { clockOffset } from "../../ui/src/api/server-clock.ts";
import {
  appendPage,
  mergeFirstPage,
  missingRows,
  pageCursor,
  removeRows,
  startList,
  updateRows,
} from "../../web/src/pages/jobs/list-state.ts";
import { appliesTo, summarizeCancel, summarizeRetry, withState } from "../../web/src/pages/jobs/outcome.ts";
import { type JobRowData, progressOf } from "../../web/src/pages/jobs/row-data.ts";
import { findProblems } from "../../web/src/pages/overview/problems.ts";
import { countScale, stack, timeTicks } from "../../web/src/parts/chart/chart-scale.ts";
import { type WaitingReason, waitingReason } from "../../web/src/parts/waiting-reason.ts";

const row = (n: number, state = "completed") => ({ id: String(n).padStart(4, "0"), state });
const rows = (from: number, to: number) => Array.from({ length: from - to + 1 }, (_, place) => row(from - place));
/** A page of which all, or those that match, are shown. */
const page = (
  jobs: { id: string; state: string }[],
  cursor: string | null,
  shown = jobs,
  full = jobs.length >= 10,
) => ({
  jobs: shown,
  cursor,
  full,
  newest: jobs[0]?.id ?? "",
  oldest: jobs.at(-1)?.id ?? "",
});
const ids = ({ rows: list }: { rows: readonly { id: string }[] }) => list.map(({ id }) => Number(id));

describe("the refresh interval", () => {
  const active = { visible: true, idleMs: 0, changing: true, failures: 0 };

  it("is short while something changes, longer when nothing does, and off when the page is not used", () => {
    expect(refreshInterval(active)).toBe(2000);
    expect(refreshInterval({ ...active, urgent: true })).toBe(1500);
    expect(refreshInterval({ ...active, urgent: true, idleMs: 11 * 60_000 })).toBe(false);
    expect(refreshInterval({ ...active, changing: false })).toBe(5000);
    expect(refreshInterval({ ...active, changing: false, idleMs: 61_000 })).toBe(15_000);
    expect(refreshInterval({ ...active, visible: false })).toBe(false);
    expect(refreshInterval({ ...active, visible: false, hiddenMs: 15_000 })).toBe(15_000);
    expect(refreshInterval({ ...active, idleMs: 11 * 60_000 })).toBe(false);
  });

  it("grows while the server does not respond, up to a maximum", () => {
    const waits = [1, 2, 3, 4, 20].map((failures) => refreshInterval({ ...active, failures }));
    expect(waits).toEqual([2000, 4000, 8000, 15_000, 15_000]);
    expect(refreshInterval({ ...active, failures: 3, idleMs: 1e9 })).toBe(false);
  });
});

describe("the clock of the server", () => {
  const date = "Mon, 16 Nov 2026 12:00:00 GMT";
  const noon = Date.parse(date) + 500;

  it("is taken as equal within the tolerance of a response", () => {
    expect(clockOffset(date, noon - 100, noon + 100)).toBe(0);
    expect(clockOffset(date, noon + 1900, noon + 2100)).toBe(0);
  });

  it("has an offset, unless the response was slow or has no date", () => {
    expect(clockOffset(date, noon - 300_100, noon - 299_900)).toBe(300_000);
    expect(clockOffset(date, noon + 299_900, noon + 300_100)).toBe(-300_000);
    expect(clockOffset(date, noon - 300_000, noon - 290_000)).toBeUndefined();
    expect(clockOffset(null, noon, noon)).toBeUndefined();
  });
});

describe("a chart", () => {
  it("has an axis of four whole steps that ends not far above the maximum", () => {
    for (let max = 0; max < 1500; max++) {
      const { top, ticks } = countScale(max);
      expect(top).toBeGreaterThanOrEqual(max);
      expect(ticks).toHaveLength(5);
      expect(ticks.every(Number.isInteger)).toBe(true);
      if (max > 8) expect(top).toBeLessThanOrEqual(max * 2.01);
    }
    expect(countScale(1e9).top).toBe(1e9);
  });

  it("has ticks at round times, at most the given number", () => {
    const from = Date.parse("2026-05-04T10:07:13Z");
    const hour = timeTicks(from, from + 3_600_000, 7);
    expect(hour.length).toBeGreaterThan(3);
    expect(hour.length).toBeLessThanOrEqual(7);
    for (const tick of hour) expect(new Date(tick).getUTCSeconds()).toBe(0);
    expect(new Set(hour.map((tick, place) => tick - (hour[place - 1] ?? tick))).size).toBe(2);
    expect(timeTicks(from, from + 86_400_000, 4).length).toBeLessThanOrEqual(4);
  });

  it("shows one failure among a thousand jobs", () => {
    const [completed, cancelled, failed] = stack([1000, 0, 1], 1200, 160);
    expect(completed!.height).toBeCloseTo(133.3, 1);
    expect(cancelled!.height).toBe(0);
    expect(failed!.height).toBe(2);
    expect(failed!.y).toBeCloseTo(160 - 133.3 - 2, 1);
  });
});

describe("a list of jobs", () => {
  const first = page(rows(100, 91), "91");

  it("adds new jobs at the top while it is followed, and keeps older pages", () => {
    const list = appendPage(startList("q", first), "91", rows(90, 81), "81");
    const merged = mergeFirstPage(list, page(rows(103, 94), "94"), true);
    expect(ids(merged)).toEqual(rows(103, 81).map(({ id }) => Number(id)));
    expect(merged).toMatchObject({ next: "81", newJobs: 0 });
  });

  it("keeps the position of rows while it is not followed, and counts new jobs", () => {
    const list = startList("q", first);
    const merged = mergeFirstPage(list, page([row(102), row(101), ...rows(100, 93)], "93"), false);
    expect(ids(merged)).toEqual(ids(list));
    expect(merged).toMatchObject({ newJobs: 2, hasMoreNew: false });
    expect(mergeFirstPage(merged, page(rows(102, 93), "93"), true).newJobs).toBe(0);
  });

  it("starts over if there are so many new jobs that there is a gap", () => {
    const far = page(rows(300, 291), "291");
    expect(mergeFirstPage(startList("q", first), far, false)).toMatchObject({ newJobs: 10, hasMoreNew: true });
    const reset = mergeFirstPage(appendPage(startList("q", first), "91", rows(90, 81), "81"), far, true);
    expect(ids(reset)).toEqual(rows(300, 291).map(({ id }) => Number(id)));
    expect(reset.next).toBe("291");
  });

  it("removes rows that no longer match, but not rows that have moved down", () => {
    const few = startList("q", page(rows(5, 1), null));
    expect(ids(mergeFirstPage(few, page([row(5), row(3)], null), true))).toEqual([5, 3]);
    const sparse = startList("q", page(rows(5, 1), "x"));
    expect(ids(mergeFirstPage(sparse, page([], "x"), true))).toEqual([]);
    const pushed = mergeFirstPage(startList("q", first), page(rows(102, 93), "93"), true);
    expect(ids(pushed)).toEqual(rows(102, 91).map(({ id }) => Number(id)));
    const long = appendPage(startList("q", first), "91", rows(90, 81), "81");
    expect(ids(mergeFirstPage(long, page([row(99)], null), true)), "nothing follows the last page").toEqual([99]);
  });

  it("keeps filtered rows while other jobs change", () => {
    const shown = [row(85), row(84)];
    const list = appendPage(startList("q", page(rows(100, 91), "91", [])), "91", shown, "81");
    expect(mergeFirstPage(list, page(rows(100, 91), "91", []), true).rows).toBe(list.rows);
    const busy = mergeFirstPage(list, page(rows(105, 96), "96", [row(104)]), true);
    expect(ids(busy)).toEqual([104, 85, 84]);
    // A gap without a new row to show.
    const apart = mergeFirstPage(busy, page(rows(200, 191), "191", []), true);
    expect(ids(apart)).toEqual([104, 85, 84]);
    expect(ids(mergeFirstPage(apart, page(rows(202, 193), "193", [row(202)]), true))).toEqual([202]);
  });

  it("finds rows that a response should contain, and removes rows", () => {
    const list = appendPage(startList("q", first), "91", rows(90, 81), "81");
    const some = rows(90, 81).filter((_, place) => place !== 3);
    const lost = missingRows(list, some, { newest: row(90).id, oldest: row(82).id });
    expect(lost).toEqual([row(87)]);
    expect(missingRows(list, [], { newest: "~", oldest: "" })).toHaveLength(20);
    expect(ids(removeRows(list, new Set([row(87).id])))).not.toContain(87);
    expect(removeRows(list, new Set(["none"]))).toBe(list);
  });

  it("is trimmed while it is only followed, and can be continued from there", () => {
    let list = startList("q", page(rows(1000, 951), "951"));
    for (let newest = 1030; newest <= 6000; newest += 30) {
      list = mergeFirstPage(list, page(rows(newest, newest - 49), String(newest - 49)), true);
      expect(list.rows.length).toBeLessThan(2000);
      const last = Number(list.rows.at(-1)!.id);
      expect(list.rows.length, "no row is missing").toBe(newest - last + 1);
      expect(Number(list.next), "no row is missing before the next page").toBe(last);
      // A refetched page of 200 jobs contains every row that belongs to it.
      const far = list.rows.filter(({ id }) => Number(pageCursor(list, id) ?? id) - Number(id) > 200);
      expect(far).toEqual([]);
    }
    const read = appendPage(startList("q", page(rows(5000, 4951), "4951")), "4951", rows(4950, 1), null);
    const one = mergeFirstPage(read, page(rows(5001, 4952), "4952"), true);
    expect(one.rows, "pages that were read stay").toHaveLength(5001);
    expect(list.rows.length).toBeGreaterThan(400);
    expect(list.pages.length).toBeGreaterThan(1);
  });

  it("is the same object if nothing has changed", () => {
    const list = startList("q", first);
    expect(mergeFirstPage(list, first, true).rows).toBe(list.rows);
    expect(mergeFirstPage(list, first, false)).toBe(list);
    expect(updateRows(list, [row(7)])).toBe(list);
    expect(updateRows(list, [row(95, "running")]).rows[5]?.state).toBe("running");
  });

  it("knows the page of a row, and contains no row twice", () => {
    const list = appendPage(appendPage(startList("q", first), "91", rows(91, 81), "81"), "81", rows(80, 71), null);
    expect(ids(list)).toEqual(rows(100, 71).map(({ id }) => Number(id)));
    expect(pageCursor(list, row(95).id)).toBeUndefined();
    expect(pageCursor(list, row(85).id)).toBe("91");
    expect(pageCursor(list, row(71).id)).toBe("81");
    expect(list.next).toBeNull();
  });
});

describe("a queued job", () => {
  const now = Date.parse("2026-05-04T12:00:00Z");
  const past = "2026-05-04T11:59:59Z";
  const later = "2026-05-04T12:00:01Z";
  const reason = (waitingFor: WaitingReason | null, runAt: string | null) =>
    waitingReason({ state: "queued", waitingFor, runAt }, now);

  it("waits for its reason until its time has come, and for a worker after that", () => {
    expect(reason(null, past)).toBe("machine");
    for (const waitingFor of ["time", "retry", "limit", "children", "event"] as const) {
      expect(reason(waitingFor, later)).toBe(waitingFor);
      expect(reason(waitingFor, past)).toBe("machine");
    }
    expect(reason("children", null)).toBe("children");
    expect(reason("key", past)).toBe("key");
    expect(waitingReason({ state: "running", waitingFor: null, runAt: past }, now)).toBeNull();
  });

  it("has the progress of its children while it waits for them and has reported none", () => {
    const parent = {
      state: "queued",
      waitingFor: "children",
      progress: null,
      children: { total: 5, completed: 2, failed: 1, cancelled: 0 },
    } as const;
    expect(progressOf(parent)).toEqual({ percent: 60, items: { done: 3, total: 5 } });
    expect(progressOf({ ...parent, progress: { fraction: 0 } })?.percent).toBe(60);
    expect(progressOf({ ...parent, progress: { fraction: 0.25 } })?.percent).toBe(25);
    expect(progressOf({ ...parent, state: "running", waitingFor: null })).toBeUndefined();
    const counted = { ...parent, state: "running", waitingFor: null, progress: { done: 3, total: 4 } } as const;
    expect(progressOf(counted)).toEqual({ percent: 75, items: { done: 3, total: 4 } });
    expect(progressOf({ ...counted, state: "completed" })).toBeUndefined();
  });
});

describe("problems", () => {
  const calm = {
    breakers: [],
    pools: [{ name: "default", paused: null, claimable: 7 }],
    machines: [{ pool: "default" }],
    schedules: [],
    endpoints: [],
    ended: { completed: 6, failed: 4, cancelled: 0 },
    timeRange: "the last hour",
  };
  const now = Date.parse("2026-05-04T12:00:00Z");
  const formatters = {
    formatCount: String,
    plural: (value: number, singular: string, many = `${singular}s`) => `${value} ${value === 1 ? singular : many}`,
    formatDuration: (ms: number) => `${ms / 1000} s`,
    formatRelative: (at: string | Date, from: number) => `in ${(new Date(at).getTime() - from) / 1000} s`,
  };
  const problems = (more: Partial<Parameters<typeof findProblems>[0]>) =>
    findProblems({ ...calm, ...more }, now, formatters).map(({ what, why }) => [what, why]);

  it("are none while every pool with jobs has a worker and most jobs complete", () => {
    expect(problems({})).toEqual([]);
    expect(problems({ ended: { completed: 0, failed: 4, cancelled: 0 } })).toEqual([]);
  });

  it("include a pool with jobs and without a worker, and a paused pool", () => {
    const gpu = { name: "gpu", paused: null, claimable: 3 };
    expect(problems({ pools: [...calm.pools, gpu, { name: "idle", paused: null, claimable: 0 }] })).toEqual([
      ["No worker serves pool gpu: 3 jobs wait", "Start one: npx stillwake worker --pool gpu"],
    ]);
    const paused = { at: "2026-05-04T11:00:00Z", by: "ana", reason: "new disks" };
    expect(problems({ pools: [{ ...gpu, paused }] })).toEqual([["Pool gpu is paused by ana", "new disks."]]);
  });

  it("include a high rate of failures", () => {
    expect(problems({ ended: { completed: 5, failed: 5, cancelled: 0 } })).toEqual([
      ["5 of 10 jobs that ended in the last hour failed", ""],
    ]);
    expect(problems({ ended: { completed: 0, failed: 5, cancelled: 0 } })[0]![0]).toBe(
      "All 5 jobs that ended in the last hour failed",
    );
  });

  it("include an open breaker, with its reason and the time of its next probe", () => {
    const breaker = {
      name: "github",
      state: "open",
      reason: "503 from the API",
      resumeAt: "2026-05-04T12:00:30Z",
    } as const;
    expect(problems({ breakers: [breaker] })).toEqual([
      ["Breaker github is open", "503 from the API. Next probe in 30 s."],
    ]);
    expect(problems({ breakers: [{ ...breaker, reason: "Down!", resumeAt: null }] })[0]![1]).toBe("Down!");
    expect(problems({ breakers: [{ ...breaker, state: "closed" }] })).toEqual([]);
  });
});

describe("an action on many jobs", () => {
  const problem = (detail: string, code = "NOT_ALLOWED") => ({ problem: { code, detail } });

  it("has a summary that counts each job once", () => {
    const job = "Job 01a1e457-8da4-7378-a20b-bb481090d6cf";
    expect(
      summarizeCancel([
        { id: "1", before: "queued", state: "cancelled" },
        { id: "2", before: "paused", state: "cancelled" },
        { id: "3", before: "running", state: "running" },
        { id: "4", before: "completed", state: "completed" },
        { id: "5", before: "cancelled", state: "cancelled" },
        { id: "6", ...problem(`${job} does not exist`, "JOB_NOT_FOUND") },
      ]),
    ).toBe("2 cancelled, 1 stopping, 2 had already ended, 1 not found");
    expect(
      summarizeRetry([
        { id: "1", state: "queued" },
        { id: "2", ...problem(`${job} is completed`) },
        { id: "3", ...problem(`${job} has not ended`) },
      ]),
    ).toBe("1 retried, 1 unchanged because completed, 1 unchanged because not ended");
  });

  it("applies only to jobs in a matching state, and shows their new state at once", () => {
    const every = ["queued", "running", "paused", "completed", "failed", "cancelled"] as const;
    expect(every.filter((state) => appliesTo("cancel", state))).toEqual(["queued", "running", "paused"]);
    expect(every.filter((state) => appliesTo("retry", state))).toEqual(["failed", "cancelled"]);
    const queued = { id: "1", state: "queued", waitingFor: "retry", endedAt: null } as JobRowData;
    const at = "2026-05-04T12:00:00.000Z";
    expect(withState(queued, "cancelled", at)).toMatchObject({ state: "cancelled", waitingFor: null, endedAt: at });
    expect(withState({ ...queued, state: "failed", endedAt: at }, "queued", at)).toMatchObject({ endedAt: null });
    expect(withState(queued, "queued", at)).toBe(queued);
  });
});
