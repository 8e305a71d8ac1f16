// What pages of the dashboard work out for themselves: how often they ask, where lines of a chart stand, and how a list that moves keeps its rows.
import { describe, expect, it } from "vitest";
import { refreshMs } from "../web/src/api/refresh.ts";
import { append, mergeFirst, pageOf, takeFirst, updated } from "../web/src/pages/jobs/held.ts";
import { cancelledWords, retriedWords } from "../web/src/pages/jobs/outcome.ts";
import { countScale, stack, timeTicks } from "../web/src/parts/chart-scale.ts";

const row = (n: number, state = "completed") => ({ id: String(n).padStart(4, "0"), state });
const rows = (from: number, to: number) => Array.from({ length: from - to + 1 }, (_, place) => row(from - place));
const ids = ({ rows: held }: { rows: readonly { id: string }[] }) => held.map(({ id }) => Number(id));

describe("a page that looks again", () => {
  const seen = { visible: true, untouchedMs: 0, moving: true, failures: 0 };

  it("asks quickly while something moves, slower when nothing does, and not at all when nobody looks", () => {
    expect(refreshMs(seen)).toBe(2000);
    expect(refreshMs({ ...seen, moving: false })).toBe(15_000);
    expect(refreshMs({ ...seen, visible: false })).toBe(false);
    expect(refreshMs({ ...seen, untouchedMs: 11 * 60_000 })).toBe(false);
  });

  it("asks a server that does not answer ever slower, and does not give up on it", () => {
    const waits = [1, 2, 3, 4, 20].map((failures) => refreshMs({ ...seen, failures }));
    expect(waits).toEqual([2000, 4000, 8000, 15_000, 15_000]);
    expect(refreshMs({ ...seen, failures: 3, untouchedMs: 1e9 })).toBe(8000);
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
  const first = { jobs: rows(100, 91), cursor: "91", full: true };

  it("takes new jobs in at the top where its reader follows, and keeps what was read below", () => {
    const held = append(takeFirst("q", first), "91", rows(90, 81), "81");
    const merged = mergeFirst(held, { jobs: rows(103, 94), cursor: "94", full: true }, true);
    expect(ids(merged)).toEqual(rows(103, 81).map(({ id }) => Number(id)));
    expect(merged).toMatchObject({ next: "81", fresh: 0 });
  });

  it("keeps every row in its place for a reader further down, and counts what is new", () => {
    const held = takeFirst("q", first);
    const merged = mergeFirst(held, { jobs: [row(102), row(101), ...rows(100, 93)], cursor: "93", full: true }, false);
    expect(ids(merged)).toEqual(ids(held));
    expect(merged).toMatchObject({ fresh: 2, more: false });
    expect(mergeFirst(merged, { jobs: rows(102, 93), cursor: "93", full: true }, true).fresh).toBe(0);
  });

  it("begins anew where so much is new that there is a gap", () => {
    const far = { jobs: rows(300, 291), cursor: "291", full: true };
    expect(mergeFirst(takeFirst("q", first), far, false)).toMatchObject({ fresh: 10, more: true });
    const anew = mergeFirst(append(takeFirst("q", first), "91", rows(90, 81), "81"), far, true);
    expect(ids(anew)).toEqual(rows(300, 291).map(({ id }) => Number(id)));
    expect(anew.next).toBe("291");
  });

  it("lets go of what no longer matches, but not of what was pushed down", () => {
    const few = takeFirst("q", { jobs: rows(5, 1), cursor: null, full: false });
    expect(ids(mergeFirst(few, { jobs: [row(5), row(3)], cursor: null, full: false }, true))).toEqual([5, 3]);
    const sparse = takeFirst("q", { jobs: rows(5, 1), cursor: "x", full: false });
    expect(ids(mergeFirst(sparse, { jobs: [], cursor: "x", full: false }, true))).toEqual([]);
    const pushed = mergeFirst(takeFirst("q", first), { jobs: rows(102, 93), cursor: "93", full: true }, true);
    expect(ids(pushed)).toEqual(rows(102, 91).map(({ id }) => Number(id)));
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
});
