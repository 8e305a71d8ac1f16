// The jobs a list holds, newest first, and how answers change them. The first page is asked for again and again: where the reader is at the top the list
// follows it; further down rows keep their place, and what is new is counted. Pure: use-job-list.ts asks.

interface Known {
  id: string;
}

export interface Held<Row extends Known> {
  /** The question that these are the answer to. */
  of: string;
  rows: readonly Row[];
  /** From where to read on; null at the end. */
  next: string | null;
  /** The newest that was looked at, whether it is shown or not: everything from there down to the last row was read. */
  newest: string;
  /** Which rows the first page brought when it was last taken over. */
  top: ReadonlySet<string>;
  /** Where pages below the first begin, newest first, so that one can be asked for again. */
  pages: readonly { cursor: string; first: string }[];
  /** How many have come in at the top since somebody last read on below. */
  pushed: number;
  /** What the first page has that is not shown yet. */
  fresh: number;
  /** There may be more of it than was counted. */
  more: boolean;
}

export interface FirstPage<Row extends Known> {
  /** Those that are shown. */
  jobs: readonly Row[];
  cursor: string | null;
  /** As many as were asked for: what is older may have been pushed out. */
  full: boolean;
  /** The newest and the oldest of the answer, shown or not; empty where there were none. */
  newest: string;
  oldest: string;
}

export const nothing: Held<never> = {
  of: "",
  rows: [],
  next: null,
  newest: "",
  top: new Set(),
  pages: [],
  pushed: 0,
  fresh: 0,
  more: false,
};

/** Marks stand at least so far apart: each one that is passed is a page asked for again. */
const MARK_EVERY = 50;
/** So many come in at the top of a list that is only followed before it is cut, and so many are left then. What somebody has read down to stays until then. */
const MAX_PUSHED = 1_000;
const LEFT_FOLLOWED = 500;

export function takeFirst<Row extends Known>(of: string, page: FirstPage<Row>): Held<Row> {
  return { ...nothing, of, rows: page.jobs, next: page.cursor, newest: page.newest, top: idsOf(page.jobs) };
}

/** The first page again. `follows`: the reader is at the top and sees it move. */
export function mergeFirst<Row extends Known>(held: Held<Row>, page: FirstPage<Row>, follows: boolean): Held<Row> {
  const first = held.rows[0]?.id ?? "";
  const fresh = page.jobs.filter(({ id }) => id > first).length;
  // Nothing of it was looked at before: what lies between it and what is held was never read.
  const isApart = page.full && page.cursor !== null && page.oldest > held.newest;
  if (!follows) {
    return fresh === 0 && held.fresh === 0
      ? updated(held, page.jobs)
      : { ...updated(held, page.jobs), fresh, more: isApart };
  }
  // While none of what is new is to be shown, what is held stays: a list must not empty itself for a gap in which there may be nothing.
  if (isApart && fresh > 0) return takeFirst(held.of, page);
  const ids = idsOf(page.jobs);
  const older = held.rows.filter(({ id }) => {
    if (ids.has(id) || page.cursor === null) return false;
    if (page.full) return id < page.oldest;
    // A page may be short without being the last: what stood on it and does so no longer does not match; of the rest it says nothing.
    return !held.top.has(id);
  });
  const next = page.cursor === null ? null : held.next;
  const newest = isApart ? held.newest : page.newest;
  const rows = same(held.rows, [...page.jobs, ...older]);
  const merged = { ...held, rows, next, newest, top: ids, pushed: held.pushed + fresh, fresh: 0, more: false };
  return isApart ? merged : trimmed(marked(merged, page, older));
}

/** Rows that are held, as they are now. */
export function updated<Row extends Known>(held: Held<Row>, jobs: readonly Row[]): Held<Row> {
  const now = new Map(jobs.map((job) => [job.id, job]));
  if (!held.rows.some((row) => (now.get(row.id) ?? row) !== row)) return held;
  return { ...held, rows: held.rows.map((row) => now.get(row.id) ?? row) };
}

export function without<Row extends Known>(held: Held<Row>, gone: ReadonlySet<string>): Held<Row> {
  if (!held.rows.some(({ id }) => gone.has(id))) return held;
  return { ...held, rows: held.rows.filter(({ id }) => !gone.has(id)) };
}

/** Rows that an answer should have named and did not: they have changed so that they no longer match. */
export function missing<Row extends Known>(
  held: Pick<Held<Row>, "rows">,
  jobs: readonly Known[],
  { newest, oldest }: { newest: string; oldest: string },
): Row[] {
  const named = idsOf(jobs);
  return held.rows.filter(({ id }) => id <= newest && id >= oldest && !named.has(id));
}

export function append<Row extends Known>(
  held: Held<Row>,
  cursor: string,
  jobs: readonly Row[],
  next: string | null,
): Held<Row> {
  const known = idsOf(held.rows);
  const added = jobs.filter(({ id }) => !known.has(id));
  const pages = added.length === 0 ? held.pages : [...held.pages, { cursor, first: added[0]!.id }];
  return { ...held, rows: [...held.rows, ...added], next, pages, pushed: 0 };
}

/** Where the page begins that a row came with; undefined for the first page. */
export function pageOf({ pages }: Pick<Held<Known>, "pages">, id: string): string | undefined {
  return pages.findLast(({ first }) => first >= id)?.cursor;
}

/** Rows that were pushed down from the first page get a page of their own, so that they too can be asked for again. */
function marked<Row extends Known>(held: Held<Row>, page: FirstPage<Row>, older: readonly Row[]): Held<Row> {
  if (page.cursor === null || !page.full || older.length === 0) return held;
  const below = held.pages[0]?.first ?? "";
  if (older.length < MARK_EVERY || older[MARK_EVERY - 1]!.id <= below) return held;
  return { ...held, pages: [{ cursor: page.cursor, first: older[0]!.id }, ...held.pages] };
}

/** Nobody looks at what has gone down so far: it is read again by whoever goes there. */
function trimmed<Row extends Known>(held: Held<Row>): Held<Row> {
  if (held.pushed <= MAX_PUSHED || held.rows.length <= LEFT_FOLLOWED) return held;
  const enough = held.rows[LEFT_FOLLOWED]!.id;
  const at = held.pages.findIndex(({ first }) => first <= enough);
  const cut = held.pages[at];
  if (!cut) return held;
  return {
    ...held,
    rows: held.rows.filter(({ id }) => id > cut.first),
    next: cut.cursor,
    pages: held.pages.slice(0, at),
    pushed: 0,
  };
}

function same<Row>(before: readonly Row[], after: readonly Row[]): readonly Row[] {
  return before.length === after.length && before.every((row, place) => row === after[place]) ? before : after;
}

function idsOf(rows: readonly Known[]): ReadonlySet<string> {
  return new Set(rows.map(({ id }) => id));
}
