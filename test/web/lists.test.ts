// What pages of the dashboard work out for themselves: how often they ask, where lines of a chart stand, and how a list that moves keeps its rows.
import { describe, expect, it } from "vitest";
import { aheadBy } from "../../web/src/api/clock.ts";
import { refreshMs } from "../../web/src/api/refresh.ts";
import {
  append,
  mergeFirst,
  missing,
  pageOf,
  takeFirst,
  updated,
  without,
} from "../../web/src/pages/jobs/list-state.ts";
import { appliesTo, cancelledWords, changed, retriedWords } from "../../web/src/pages/jobs/outcome.ts";
import { shareOf } from "../../web/src/pages/jobs/share.ts";
import type { Row } from "../../web/src/pages/jobs/slim.ts";
import { troublesOf } from "../../web/src/pages/overview/troubles.ts";
import { countScale, stack, timeTicks } from "../../web/src/parts/chart/chart-scale.ts";
import { type Reason, waitsFor } from "../../web/src/parts/waits.ts";

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
const ids = ({ rows: held }: { rows: readonly { id: string }[] }) => held.map(({ id }) => Number(id));

describe("a page that looks again", () => {
  const seen = { visible: true, untouchedMs: 0, moving: true, failures: 0 };

  it("asks quickly while something moves, slower when nothing does, and not at all when nobody looks", () => {
    expect(refreshMs(seen)).toBe(2000);
    expect(refreshMs({ ...seen, fleeting: true })).toBe(1500);
    expect(refreshMs({ ...seen, fleeting: true, untouchedMs: 11 * 60_000 })).toBe(false);
    expect(refreshMs({ ...seen, moving: false })).toBe(5000);
    expect(refreshMs({ ...seen, moving: false, untouchedMs: 61_000 })).toBe(15_000);
    expect(refreshMs({ ...seen, visible: false })).toBe(false);
    expect(refreshMs({ ...seen, untouchedMs: 11 * 60_000 })).toBe(false);
  });

  it("asks a server that does not answer ever slower, and does not give up on it", () => {
    const waits = [1, 2, 3, 4, 20].map((failures) => refreshMs({ ...seen, failures }));
    expect(waits).toEqual([2000, 4000, 8000, 15_000, 15_000]);
    expect(refreshMs({ ...seen, failures: 3, untouchedMs: 1e9 })).toBe(false);
  });
});

describe("the clock of the server", () => {
  const date = "Mon, 16 Nov 2026 12:00:00 GMT";
  const noon = Date.parse(date) + 500;

  it("is taken for this one's where they differ by no more than an answer can tell", () => {
    expect(aheadBy(date, noon - 100, noon + 100)).toBe(0);
    expect(aheadBy(date, noon + 1900, noon + 2100)).toBe(0);
  });

  it("is known by how far it is ahead or behind, and by no answer that was slow or says no time", () => {
    expect(aheadBy(date, noon - 300_100, noon - 299_900)).toBe(300_000);
    expect(aheadBy(date, noon + 299_900, noon + 300_100)).toBe(-300_000);
    expect(aheadBy(date, noon - 300_000, noon - 290_000)).toBeUndefined();
    expect(aheadBy(null, noon, noon)).toBeUndefined();
  });
});

describe("a chart", () => {
  it("ends its axis at a round number with four whole steps, not far above the most", () => {
    for (let most = 0; most < 1500; most++) {
      const { top, ticks } = countScale(most);
      expect(top).toBeGreaterThanOrEqual(most);
      expect(ticks).toHaveLength(5);
      expect(ticks.every(Number.isInteger)).toBe(true);
      if (most > 8) expect(top).toBeLessThanOrEqual(most * 2.01);
    }
    expect(countScale(1e9).top).toBe(1e9);
  });

  it("marks round moments, no more than there is room for", () => {
    const from = Date.parse("2026-05-04T10:07:13Z");
    const hour = timeTicks(from, from + 3_600_000, 7);
    expect(hour.length).toBeGreaterThan(3);
    expect(hour.length).toBeLessThanOrEqual(7);
    for (const tick of hour) expect(new Date(tick).getUTCSeconds()).toBe(0);
    expect(new Set(hour.map((tick, place) => tick - (hour[place - 1] ?? tick))).size).toBe(2);
    expect(timeTicks(from, from + 86_400_000, 4).length).toBeLessThanOrEqual(4);
  });

  it("shows one failure among a thousand", () => {
    const [completed, cancelled, failed] = stack([1000, 0, 1], 1200, 160);
    expect(completed!.height).toBeCloseTo(133.3, 1);
    expect(cancelled!.height).toBe(0);
    expect(failed!.height).toBe(2);
    expect(failed!.y).toBeCloseTo(160 - 133.3 - 2, 1);
  });
});

describe("a list of jobs", () => {
  const first = page(rows(100, 91), "91");

  it("takes new jobs in at the top where its reader follows, and keeps what was read below", () => {
    const held = append(takeFirst("q", first), "91", rows(90, 81), "81");
    const merged = mergeFirst(held, page(rows(103, 94), "94"), true);
    expect(ids(merged)).toEqual(rows(103, 81).map(({ id }) => Number(id)));
    expect(merged).toMatchObject({ next: "81", fresh: 0 });
  });

  it("keeps every row in its place for a reader further down, and counts what is new", () => {
    const held = takeFirst("q", first);
    const merged = mergeFirst(held, page([row(102), row(101), ...rows(100, 93)], "93"), false);
    expect(ids(merged)).toEqual(ids(held));
    expect(merged).toMatchObject({ fresh: 2, more: false });
    expect(mergeFirst(merged, page(rows(102, 93), "93"), true).fresh).toBe(0);
  });

  it("begins anew where so much is new that there is a gap", () => {
    const far = page(rows(300, 291), "291");
    expect(mergeFirst(takeFirst("q", first), far, false)).toMatchObject({ fresh: 10, more: true });
    const anew = mergeFirst(append(takeFirst("q", first), "91", rows(90, 81), "81"), far, true);
    expect(ids(anew)).toEqual(rows(300, 291).map(({ id }) => Number(id)));
    expect(anew.next).toBe("291");
  });

  it("lets go of what no longer matches, but not of what was pushed down", () => {
    const few = takeFirst("q", page(rows(5, 1), null));
    expect(ids(mergeFirst(few, page([row(5), row(3)], null), true))).toEqual([5, 3]);
    const sparse = takeFirst("q", page(rows(5, 1), "x"));
    expect(ids(mergeFirst(sparse, page([], "x"), true))).toEqual([]);
    const pushed = mergeFirst(takeFirst("q", first), page(rows(102, 93), "93"), true);
    expect(ids(pushed)).toEqual(rows(102, 91).map(({ id }) => Number(id)));
    const long = append(takeFirst("q", first), "91", rows(90, 81), "81");
    expect(ids(mergeFirst(long, page([row(99)], null), true)), "there is nothing below the last page").toEqual([99]);
  });

  it("of which only some are shown keeps them while the rest changes", () => {
    const shown = [row(85), row(84)];
    const held = append(takeFirst("q", page(rows(100, 91), "91", [])), "91", shown, "81");
    expect(mergeFirst(held, page(rows(100, 91), "91", []), true).rows).toBe(held.rows);
    const busy = mergeFirst(held, page(rows(105, 96), "96", [row(104)]), true);
    expect(ids(busy)).toEqual([104, 85, 84]);
    // A gap in which nothing to be shown was seen yet.
    const apart = mergeFirst(busy, page(rows(200, 191), "191", []), true);
    expect(ids(apart)).toEqual([104, 85, 84]);
    expect(ids(mergeFirst(apart, page(rows(202, 193), "193", [row(202)]), true))).toEqual([202]);
  });

  it("knows which rows an answer should have named, and lets go of those that are gone", () => {
    const held = append(takeFirst("q", first), "91", rows(90, 81), "81");
    const some = rows(90, 81).filter((_, place) => place !== 3);
    const lost = missing(held, some, { newest: row(90).id, oldest: row(82).id });
    expect(lost).toEqual([row(87)]);
    expect(missing(held, [], { newest: "~", oldest: "" })).toHaveLength(20);
    expect(ids(without(held, new Set([row(87).id])))).not.toContain(87);
    expect(without(held, new Set(["none"]))).toBe(held);
  });

  it("that is only followed does not grow without end, and can be read on from where it was cut", () => {
    let held = takeFirst("q", page(rows(1000, 951), "951"));
    for (let newest = 1030; newest <= 6000; newest += 30) {
      held = mergeFirst(held, page(rows(newest, newest - 49), String(newest - 49)), true);
      expect(held.rows.length).toBeLessThan(2000);
      const last = Number(held.rows.at(-1)!.id);
      expect(held.rows.length, "none is left out").toBe(newest - last + 1);
      expect(Number(held.next), "nor between these and what is read next").toBe(last);
      // A page that is asked for again, of 200 jobs, has every row that is said to be on it.
      const far = held.rows.filter(({ id }) => Number(pageOf(held, id) ?? id) - Number(id) > 200);
      expect(far).toEqual([]);
    }
    const read = append(takeFirst("q", page(rows(5000, 4951), "4951")), "4951", rows(4950, 1), null);
    const one = mergeFirst(read, page(rows(5001, 4952), "4952"), true);
    expect(one.rows, "what somebody has read down to stays").toHaveLength(5001);
    expect(held.rows.length).toBeGreaterThan(400);
    expect(held.pages.length).toBeGreaterThan(1);
  });

  it("changes only when something has changed, so that nothing is drawn for nothing", () => {
    const held = takeFirst("q", first);
    expect(mergeFirst(held, first, true).rows).toBe(held.rows);
    expect(mergeFirst(held, first, false)).toBe(held);
    expect(updated(held, [row(7)])).toBe(held);
    expect(updated(held, [row(95, "running")]).rows[5]?.state).toBe("running");
  });

  it("knows with which page a row came, and takes none twice", () => {
    const held = append(append(takeFirst("q", first), "91", rows(91, 81), "81"), "81", rows(80, 71), null);
    expect(ids(held)).toEqual(rows(100, 71).map(({ id }) => Number(id)));
    expect(pageOf(held, row(95).id)).toBeUndefined();
    expect(pageOf(held, row(85).id)).toBe("91");
    expect(pageOf(held, row(71).id)).toBe("81");
    expect(held.next).toBeNull();
  });
});

describe("a job that is queued", () => {
  const now = Date.parse("2026-05-04T12:00:00Z");
  const past = "2026-05-04T11:59:59Z";
  const later = "2026-05-04T12:00:01Z";
  const why = (waitingFor: Reason | null, runAt: string | null) =>
    waitsFor({ state: "queued", waitingFor, runAt }, now);

  it("waits for what its row says until that time has come, and for a worker from then on, as the server counts it", () => {
    expect(why(null, past)).toBe("machine");
    for (const reason of ["time", "retry", "limit", "children", "event"] as const) {
      expect(why(reason, later)).toBe(reason);
      expect(why(reason, past)).toBe("machine");
    }
    expect(why("children", null)).toBe("children");
    expect(why("key", past)).toBe("key");
    expect(waitsFor({ state: "running", waitingFor: null, runAt: past }, now)).toBeNull();
  });

  it("is as far as its children are while it waits for them and has said nothing itself", () => {
    const parent = {
      state: "queued",
      waitingFor: "children",
      progress: null,
      children: { total: 5, completed: 2, failed: 1, cancelled: 0 },
    } as const;
    expect(shareOf(parent)).toEqual({ percent: 60, of: { done: 3, total: 5 } });
    expect(shareOf({ ...parent, progress: { fraction: 0 } })?.percent).toBe(60);
    expect(shareOf({ ...parent, progress: { fraction: 0.25 } })?.percent).toBe(25);
    expect(shareOf({ ...parent, state: "running", waitingFor: null })).toBeUndefined();
    const counted = { ...parent, state: "running", waitingFor: null, progress: { done: 3, total: 4 } } as const;
    expect(shareOf(counted)).toEqual({ percent: 75, of: { done: 3, total: 4 } });
    expect(shareOf({ ...counted, state: "completed" })).toBeUndefined();
  });
});

describe("what wants attention", () => {
  const calm = {
    breakers: [],
    pools: [{ name: "default", paused: null, claimable: 7 }],
    machines: [{ pool: "default" }],
    schedules: [],
    endpoints: [],
    ended: { completed: 6, failed: 4, cancelled: 0 },
    word: "the last hour",
  };
  const now = Date.parse("2026-05-04T12:00:00Z");
  const words = {
    count: String,
    several: (value: number, one: string, many = `${one}s`) => `${value} ${value === 1 ? one : many}`,
    span: (ms: number) => `${ms / 1000} s`,
    distance: (at: string | Date, from: number) => `in ${(new Date(at).getTime() - from) / 1000} s`,
  };
  const what = (more: Partial<Parameters<typeof troublesOf>[0]>) =>
    troublesOf({ ...calm, ...more }, now, words).map(({ what: said, why }) => [said, why]);

  it("is nothing while every pool with work has a worker and most of what ends is completed", () => {
    expect(what({})).toEqual([]);
    expect(what({ ended: { completed: 0, failed: 4, cancelled: 0 } })).toEqual([]);
  });

  it("is a pool that has work and no worker, whatever the rest has", () => {
    const gpu = { name: "gpu", paused: null, claimable: 3 };
    expect(what({ pools: [...calm.pools, gpu, { name: "idle", paused: null, claimable: 0 }] })).toEqual([
      ["No worker serves pool gpu: 3 jobs wait", "Start one: npx stillwake worker --pool gpu"],
    ]);
    const paused = { at: "2026-05-04T11:00:00Z", by: "ana", reason: "new disks" };
    expect(what({ pools: [{ ...gpu, paused }] })).toEqual([["Pool gpu is paused by ana", "new disks."]]);
  });

  it("is that most of what ended has failed", () => {
    expect(what({ ended: { completed: 5, failed: 5, cancelled: 0 } })).toEqual([
      ["5 of 10 jobs that ended in the last hour failed", ""],
    ]);
    expect(what({ ended: { completed: 0, failed: 5, cancelled: 0 } })[0]![0]).toBe(
      "All 5 jobs that ended in the last hour failed",
    );
  });

  it("is an open breaker, with its reason and its time in sentences of their own", () => {
    const breaker = {
      name: "github",
      state: "open",
      reason: "503 from the API",
      resumeAt: "2026-05-04T12:00:30Z",
    } as const;
    expect(what({ breakers: [breaker] })).toEqual([
      ["Breaker github is open", "503 from the API. Tried again in 30 s."],
    ]);
    expect(what({ breakers: [{ ...breaker, reason: "Down!", resumeAt: null }] })[0]![1]).toBe("Down!");
    expect(what({ breakers: [{ ...breaker, state: "closed" }] })).toEqual([]);
  });
});

describe("what came of many jobs", () => {
  const problem = (detail: string, code = "NOT_ALLOWED") => ({ problem: { code, detail } });

  it("is said of each of them once", () => {
    const job = "Job 01a1e457-8da4-7378-a20b-bb481090d6cf";
    expect(
      cancelledWords([
        { id: "1", before: "queued", state: "cancelled" },
        { id: "2", before: "paused", state: "cancelled" },
        { id: "3", before: "running", state: "running" },
        { id: "4", before: "completed", state: "completed" },
        { id: "5", before: "cancelled", state: "cancelled" },
        { id: "6", ...problem(`${job} does not exist`, "JOB_NOT_FOUND") },
      ]),
    ).toBe("2 cancelled, 1 asked to stop, 2 had already ended, 1 no longer there");
    expect(
      retriedWords([
        { id: "1", state: "queued" },
        { id: "2", ...problem(`${job} is completed`) },
        { id: "3", ...problem(`${job} has not ended`) },
      ]),
    ).toBe("1 retried, 1 left, as completed, 1 left, as not ended");
  });

  it("is asked only of those to which it applies, and shown at once", () => {
    const every = ["queued", "running", "paused", "completed", "failed", "cancelled"] as const;
    expect(every.filter((state) => appliesTo("cancel", state))).toEqual(["queued", "running", "paused"]);
    expect(every.filter((state) => appliesTo("retry", state))).toEqual(["failed", "cancelled"]);
    const queued = { id: "1", state: "queued", waitingFor: "retry", endedAt: null } as Row;
    const at = "2026-05-04T12:00:00.000Z";
    expect(changed(queued, "cancelled", at)).toMatchObject({ state: "cancelled", waitingFor: null, endedAt: at });
    expect(changed({ ...queued, state: "failed", endedAt: at }, "queued", at)).toMatchObject({ endedAt: null });
    expect(changed(queued, "queued", at)).toBe(queued);
  });
});
