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
  /** Which rows the first page brought when it was last taken over. */
  top: ReadonlySet<string>;
  /** Where later pages begin, so that one can be asked for again. */
  pages: readonly { cursor: string; first: string }[];
  /** What the first page has that is not shown yet. */
  fresh: number;
  /** There may be more of it than was counted. */
  more: boolean;
}

export interface FirstPage<Row extends Known> {
  jobs: readonly Row[];
  cursor: string | null;
  /** As many as were asked for: what is older may have been pushed out. */
  full: boolean;
}

export const nothing: Held<never> = { of: "", rows: [], next: null, top: new Set(), pages: [], fresh: 0, more: false };

export function takeFirst<Row extends Known>(of: string, page: FirstPage<Row>): Held<Row> {
  return { ...nothing, of, rows: page.jobs, next: page.cursor, top: idsOf(page.jobs) };
}

/** The first page again. `follows`: the reader is at the top and sees it move. */
export function mergeFirst<Row extends Known>(held: Held<Row>, page: FirstPage<Row>, follows: boolean): Held<Row> {
  const newest = held.rows[0]?.id ?? "";
  const fresh = page.jobs.filter(({ id }) => id > newest).length;
  // All of it is new: what lies between it and what is held was never read.
  const isApart = page.full && page.cursor !== null && fresh === page.jobs.length && held.rows.length > 0;
  if (!follows) {
    return fresh === 0 && held.fresh === 0
      ? updated(held, page.jobs)
      : { ...updated(held, page.jobs), fresh, more: isApart };
  }
  if (isApart) return takeFirst(held.of, page);
  const ids = idsOf(page.jobs);
  const last = page.jobs.at(-1)?.id ?? "";
  const older = held.rows.filter(({ id }) => {
    if (ids.has(id)) return false;
    // It stood on the first page and does so no longer: it no longer matches, unless new ones have pushed it down.
    if (held.top.has(id)) return page.full && id < last;
    return id < last || !page.full;
  });
  const next = page.cursor === null ? null : held.next;
  return { ...held, rows: same(held.rows, [...page.jobs, ...older]), next, top: ids, fresh: 0, more: false };
}

/** Rows that are held, as they are now. */
export function updated<Row extends Known>(held: Held<Row>, jobs: readonly Row[]): Held<Row> {
  const now = new Map(jobs.map((job) => [job.id, job]));
  if (!held.rows.some((row) => (now.get(row.id) ?? row) !== row)) return held;
  return { ...held, rows: held.rows.map((row) => now.get(row.id) ?? row) };
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
  return { ...held, rows: [...held.rows, ...added], next, pages };
}

/** Where the page begins that a row came with; undefined for the first page. */
export function pageOf({ pages }: Pick<Held<Known>, "pages">, id: string): string | undefined {
  return pages.findLast(({ first }) => first >= id)?.cursor;
}

function same<Row>(before: readonly Row[], after: readonly Row[]): readonly Row[] {
  return before.length === after.length && before.every((row, place) => row === after[place]) ? before : after;
}

function idsOf(rows: readonly Known[]): ReadonlySet<string> {
  return new Set(rows.map(({ id }) => id));
}
