// The jobs of a list, newest first, and how responses change them. The first page is refetched: if the list is scrolled to the top it
// follows that page; further down its rows keep their position and new jobs are only counted. Pure functions; use-job-list.ts fetches.

interface WithId {
  id: string;
}

export interface ListState<Row extends WithId> {
  /** Identifies the filters of this list; "" before the first response. */
  query: string;
  rows: readonly Row[];
  /** The cursor of the next page; null at the end. */
  next: string | null;
  /** The newest job that was fetched, shown or not. Everything between it and the last row was fetched. */
  newest: string;
  /** The ids of the first page when it was last merged. */
  firstPageIds: ReadonlySet<string>;
  /** The pages after the first, newest first: their cursors, to refetch them, and their first ids. */
  pages: readonly { cursor: string; first: string }[];
  /** Rows added at the top since the last page was appended. */
  added: number;
  /** New jobs of the first page that are not shown yet. */
  newJobs: number;
  /** There may be more new jobs than counted. */
  hasMoreNew: boolean;
}

export interface FirstPage<Row extends WithId> {
  /** The jobs to show. */
  jobs: readonly Row[];
  cursor: string | null;
  /** It has as many jobs as requested: older jobs may no longer be on it. */
  full: boolean;
  /** The newest and the oldest id of the response, shown or not; "" if it was empty. */
  newest: string;
  oldest: string;
}

export const emptyList: ListState<never> = {
  query: "",
  rows: [],
  next: null,
  newest: "",
  firstPageIds: new Set(),
  pages: [],
  added: 0,
  newJobs: 0,
  hasMoreNew: false,
};

/** The minimum number of rows between two remembered cursors: each is a page to refetch. */
const MIN_PAGE_ROWS = 50;
/** A followed list is cut to KEPT_ROWS after this number of rows was added at its top. */
const MAX_ADDED = 1_000;
const KEPT_ROWS = 500;

export function startList<Row extends WithId>(query: string, page: FirstPage<Row>): ListState<Row> {
  return {
    ...emptyList,
    query,
    rows: page.jobs,
    next: page.cursor,
    newest: page.newest,
    firstPageIds: idsOf(page.jobs),
  };
}

/** Merges the refetched first page. `follow`: the list is scrolled to the top and may move. */
export function mergeFirstPage<Row extends WithId>(
  list: ListState<Row>,
  page: FirstPage<Row>,
  follow: boolean,
): ListState<Row> {
  const first = list.rows[0]?.id ?? "";
  const newJobs = page.jobs.filter(({ id }) => id > first).length;
  // The page does not reach down to what was fetched before: jobs between them were never fetched.
  const hasGap = page.full && page.cursor !== null && page.oldest > list.newest;
  if (!follow) {
    return newJobs === 0 && list.newJobs === 0
      ? updateRows(list, page.jobs)
      : { ...updateRows(list, page.jobs), newJobs, hasMoreNew: hasGap };
  }
  // If no new job is shown, the rows stay: a list must not become empty for a gap that may contain nothing.
  if (hasGap && newJobs > 0) return startList(list.query, page);
  const ids = idsOf(page.jobs);
  const older = list.rows.filter(({ id }) => {
    if (ids.has(id) || page.cursor === null) return false;
    if (page.full) return id < page.oldest;
    // A page may be short without being the last. A row that is no longer on it does not match any more; the page says
    // nothing about other rows.
    return !list.firstPageIds.has(id);
  });
  const next = page.cursor === null ? null : list.next;
  const newest = hasGap ? list.newest : page.newest;
  const rows = keepIfEqual(list.rows, [...page.jobs, ...older]);
  const added = list.added + newJobs;
  const merged = { ...list, rows, next, newest, firstPageIds: ids, added, newJobs: 0, hasMoreNew: false };
  return hasGap ? merged : trim(addPage(merged, page, older));
}

/** Replaces rows by their current data. */
export function updateRows<Row extends WithId>(list: ListState<Row>, jobs: readonly Row[]): ListState<Row> {
  const current = new Map(jobs.map((job) => [job.id, job]));
  if (!list.rows.some((row) => (current.get(row.id) ?? row) !== row)) return list;
  return { ...list, rows: list.rows.map((row) => current.get(row.id) ?? row) };
}

export function removeRows<Row extends WithId>(list: ListState<Row>, ids: ReadonlySet<string>): ListState<Row> {
  if (!list.rows.some(({ id }) => ids.has(id))) return list;
  return { ...list, rows: list.rows.filter(({ id }) => !ids.has(id)) };
}

/** Rows within the range of a response that are not in it: they no longer match the filters. */
export function missingRows<Row extends WithId>(
  list: Pick<ListState<Row>, "rows">,
  jobs: readonly WithId[],
  { newest, oldest }: { newest: string; oldest: string },
): Row[] {
  const returned = idsOf(jobs);
  return list.rows.filter(({ id }) => id <= newest && id >= oldest && !returned.has(id));
}

export function appendPage<Row extends WithId>(
  list: ListState<Row>,
  cursor: string,
  jobs: readonly Row[],
  next: string | null,
): ListState<Row> {
  const known = idsOf(list.rows);
  const rows = jobs.filter(({ id }) => !known.has(id));
  const pages = rows.length === 0 ? list.pages : [...list.pages, { cursor, first: rows[0]!.id }];
  return { ...list, rows: [...list.rows, ...rows], next, pages, added: 0 };
}

/** The cursor of the page that a row belongs to; undefined for the first page. */
export function pageCursor({ pages }: Pick<ListState<WithId>, "pages">, id: string): string | undefined {
  return pages.findLast(({ first }) => first >= id)?.cursor;
}

/** Rows that have moved below the first page get a page, so that they can be refetched. */
function addPage<Row extends WithId>(
  list: ListState<Row>,
  page: FirstPage<Row>,
  older: readonly Row[],
): ListState<Row> {
  if (page.cursor === null || !page.full || older.length === 0) return list;
  const below = list.pages[0]?.first ?? "";
  if (older.length < MIN_PAGE_ROWS || older[MIN_PAGE_ROWS - 1]!.id <= below) return list;
  return { ...list, pages: [{ cursor: page.cursor, first: older[0]!.id }, ...list.pages] };
}

/** Removes old rows of a list that is only followed. Scrolling to them fetches them again. */
function trim<Row extends WithId>(list: ListState<Row>): ListState<Row> {
  if (list.added <= MAX_ADDED || list.rows.length <= KEPT_ROWS) return list;
  const last = list.rows[KEPT_ROWS]!.id;
  const index = list.pages.findIndex(({ first }) => first <= last);
  const cut = list.pages[index];
  if (!cut) return list;
  return {
    ...list,
    rows: list.rows.filter(({ id }) => id > cut.first),
    next: cut.cursor,
    pages: list.pages.slice(0, index),
    added: 0,
  };
}

function keepIfEqual<Row>(before: readonly Row[], after: readonly Row[]): readonly Row[] {
  return before.length === after.length && before.every((row, index) => row === after[index]) ? before : after;
}

function idsOf(rows: readonly WithId[]): ReadonlySet<string> {
  return new Set(rows.map(({ id }) => id));
}
