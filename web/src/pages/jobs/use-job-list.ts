// Fetches the jobs of a list: the first page repeatedly, older pages when they come near the viewport, and the page in
// the viewport again while a job on it can still change.
import { RequestError, request } from "@stillwake/ui/api/request.ts";
import { serverNow } from "@stillwake/ui/api/server-clock.ts";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { type api, hasEnded, type JobFilters, useJobs } from "../../api/resources.ts";
import { waitingReason } from "../../parts/waiting-reason.ts";
import {
  appendPage,
  emptyList,
  type FirstPage,
  type ListState,
  mergeFirstPage,
  missingRows,
  pageCursor,
  removeRows,
  startList,
  updateRows,
} from "./list-state.ts";
import { type JobRowData, toRowData } from "./row-data.ts";

type JobListState = ListState<JobRowData>;

const FIRST_PAGE_SIZE = 50;
const PAGE_SIZE = 200;
/** A page can be short or empty without being the last. After this number of pages without a match, reading stops. */
const MAX_PAGES_AT_ONCE = 25;
/** Rows that are no longer in a response are fetched one by one, at most this number at a time. */
const MAX_SINGLE_FETCHES = 20;

// The list that was left last, for a return with the back button.
let savedList: { list: JobListState; scrollY: number } | undefined;
let isBackNavigation = false;

addEventListener("popstate", () => {
  isBackNavigation = true;
});
// wouter dispatches this event when a link is followed.
addEventListener("pushState", () => {
  isBackNavigation = false;
});

export function saveList(list: JobListState, scrollY: number): void {
  savedList = { list, scrollY };
}

/** The saved list, after a back navigation to the same query. */
export function restoreList(query: string): { list: JobListState; scrollY: number } | undefined {
  return isBackNavigation && savedList?.list.query === query ? savedList : undefined;
}

interface JobList {
  list: JobListState;
  error: RequestError | null;
  /** The filters have changed, and the response has not arrived yet. */
  changing: boolean;
  /** Older jobs are being fetched. */
  reading: boolean;
  /** Older jobs could not be fetched. */
  readError: RequestError | undefined;
  /** Reading has stopped after many pages without a match. */
  stopped: boolean;
  readOlder(): void;
  showNew(): void;
  /** Updates rows that an action has changed. */
  update(rows: readonly JobRowData[]): void;
}

/** The server has no filter for `waiting`: it is applied here. `visible` is the row in the middle of the viewport. */
export function useJobList(
  filters: JobFilters,
  waiting: string | undefined,
  isFollowing: () => boolean,
  visible?: string,
): JobList {
  const query = JSON.stringify([filters, waiting]);
  const first = useJobs({ ...filters, limit: FIRST_PAGE_SIZE });
  const [list, setList] = useState<JobListState>(() => restoreList(query)?.list ?? emptyList);
  const [reading, setReading] = useState(false);
  const [readError, setReadError] = useState<RequestError>();
  const [stopped, setStopped] = useState(false);
  const abort = useRef<AbortController>(undefined);
  const firstPage = useRef<FirstPage<JobRowData>>(undefined);
  const latest = useRef(list);
  latest.current = list;

  const response = first.isPlaceholderData ? undefined : first.data;
  useEffect(() => {
    if (!response) return;
    const page = toFirstPage(response, waiting);
    firstPage.current = page;
    const follow = isFollowing();
    setList((before) => (before.query === query ? mergeFirstPage(before, page, follow) : startList(query, page)));
    if (follow) return;
    const oldest = response.cursor === null ? "" : page.oldest;
    return refetchMissing(latest, query, response.jobs, { newest: AFTER_ALL_IDS, oldest }, setList);
  }, [response, query, waiting, isFollowing]);

  useEffect(() => {
    setReadError(undefined);
    setStopped(false);
    setReading(false);
    return () => abort.current?.abort();
  }, [query]);

  // Ended jobs do not change: a page of ended jobs is not refetched.
  const cursor = visible === undefined ? undefined : pageCursor(list, visible);
  const isChanging = useMemo(() => cursor !== undefined && canChange(list, cursor), [list, cursor]);
  const current = useJobs({ ...filters, limit: PAGE_SIZE, cursor }, isChanging);
  useEffect(() => {
    if (!current.data || current.isPlaceholderData) return;
    const { jobs, cursor: next } = current.data;
    setList((before) => updateRows(before, jobs.map(toRowData)));
    const newest = latest.current.pages.find((page) => page.cursor === cursor)?.first ?? "";
    const oldest = next === null ? "" : (jobs.at(-1)?.id ?? AFTER_ALL_IDS);
    return refetchMissing(latest, query, jobs, { newest, oldest }, setList);
  }, [current.data, current.isPlaceholderData]);

  const { next } = list;
  const readOlder = useCallback(() => {
    if (next === null) return;
    const controller = new AbortController();
    abort.current?.abort();
    abort.current = controller;
    setReading(true);
    setReadError(undefined);
    setStopped(false);
    void fetchOlder(next, filters, waiting, controller.signal)
      .then(({ jobs, cursor, pages }) => {
        if (controller.signal.aborted) return;
        setList((before) => (before.query === query ? appendPage(before, next, jobs, cursor) : before));
        setStopped(jobs.length === 0 && cursor !== null && pages >= MAX_PAGES_AT_ONCE);
      })
      .catch((error) => controller.signal.aborted || setReadError(error))
      .finally(() => controller.signal.aborted || setReading(false));
    // The filters are part of the query.
  }, [next, query]);

  const showNew = useCallback(() => {
    const page = firstPage.current;
    if (page) setList((before) => mergeFirstPage(before, page, true));
  }, []);
  const update = useCallback((rows: readonly JobRowData[]) => setList((before) => updateRows(before, rows)), []);

  const changing = list.query !== query;
  return { list, error: first.error, changing, reading, readError, stopped, readOlder, showNew, update };
}

/** Sorts after every id. */
const AFTER_ALL_IDS = "~";

function toFirstPage({ jobs, cursor }: api.JobPage, waiting: string | undefined): FirstPage<JobRowData> {
  const range = { newest: jobs[0]?.id ?? "", oldest: jobs.at(-1)?.id ?? "" };
  return { jobs: filterWaiting(jobs, waiting), cursor, full: jobs.length >= FIRST_PAGE_SIZE, ...range };
}

/** Fetches rows that are no longer in a response: each is updated, or removed if the job no longer exists. */
function refetchMissing(
  list: { current: JobListState },
  query: string,
  returned: readonly api.Job[],
  range: { newest: string; oldest: string },
  setList: (change: (before: JobListState) => JobListState) => void,
): (() => void) | undefined {
  if (list.current.query !== query) return undefined;
  const missing = missingRows(list.current, returned, range).filter(({ state }) => !hasEnded(state));
  if (missing.length === 0) return undefined;
  const controller = new AbortController();
  const { signal } = controller;
  for (const { id } of missing.slice(0, MAX_SINGLE_FETCHES)) {
    request<api.Job>("GET", `/v1/jobs/${id}`, { signal }).then(
      (job) => signal.aborted || setList((before) => updateRows(before, [toRowData(job)])),
      (error) => {
        if (!(error instanceof RequestError) || error.status !== 404) return;
        setList((before) => removeRows(before, new Set([id])));
      },
    );
  }
  return () => controller.abort();
}

function canChange({ rows, pages }: JobListState, cursor: string): boolean {
  const first = pages.find((page) => page.cursor === cursor)?.first;
  const from = rows.findIndex(({ id }) => id === first);
  return rows.slice(from, from + PAGE_SIZE).some(({ state }) => !hasEnded(state));
}

async function fetchOlder(from: string, filters: JobFilters, waiting: string | undefined, signal: AbortSignal) {
  let cursor: string | null = from;
  let pages = 0;
  const jobs: JobRowData[] = [];
  while (cursor !== null && jobs.length < FIRST_PAGE_SIZE && pages < MAX_PAGES_AT_ONCE) {
    const query: JobFilters = { ...filters, limit: PAGE_SIZE, cursor };
    const page: api.JobPage = await request("GET", "/v1/jobs", { query, signal });
    jobs.push(...filterWaiting(page.jobs, waiting));
    cursor = page.cursor;
    pages += 1;
  }
  return { jobs, cursor, pages };
}

function filterWaiting(jobs: readonly api.Job[], waiting: string | undefined): JobRowData[] {
  const now = serverNow();
  return jobs.filter((job) => waiting === undefined || waitingReason(job, now) === waiting).map(toRowData);
}
