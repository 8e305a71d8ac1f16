// Asks for the jobs that a list shows: the first page again and again, older ones when the reader comes near them, and the page in view again while
// something on it can still change.
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { call, Refused } from "../../api/call.ts";
import { serverNow } from "../../api/clock.ts";
import { isOver, type JobFilters, type nouns, useJobs } from "../../api/nouns.ts";
import { waitsFor } from "../../parts/waits.ts";
import {
  append,
  type FirstPage,
  type Held,
  mergeFirst,
  missing,
  nothing,
  pageOf,
  takeFirst,
  updated,
  without,
} from "./list-state.ts";
import { keptList } from "./return.ts";
import { type Row, slim } from "./slim.ts";

const FIRST = 50;
const PAGE = 200;
/** A page may be short, or empty, without being the last. So many are read before somebody has to ask for more. */
const PAGES_AT_ONCE = 25;
/** Rows that a list no longer names are asked for one by one, so many at a time. */
const SINGLY = 20;

interface JobList {
  held: Held<Row>;
  error: Refused | null;
  /** The question has changed and its answer is not there yet. */
  changing: boolean;
  /** Older jobs are being read. */
  reading: boolean;
  /** Older jobs could not be read. */
  broken: Refused | undefined;
  /** So much was looked through without finding anything that reading has stopped. */
  weary: boolean;
  readOn(): void;
  /** Shows what is new. */
  catchUp(): void;
  /** Rows that were changed from here. */
  change(rows: readonly Row[]): void;
}

/** `waiting` is looked for here: the server does not know it as a filter. `seen` is the row at the middle of the window. */
export function useJobList(
  filters: JobFilters,
  waiting: string | undefined,
  follows: () => boolean,
  seen?: string,
): JobList {
  const of = JSON.stringify([filters, waiting]);
  const first = useJobs({ ...filters, limit: FIRST });
  const [held, setHeld] = useState<Held<Row>>(() => keptList(of)?.held ?? nothing);
  const [reading, setReading] = useState(false);
  const [broken, setBroken] = useState<Refused>();
  const [weary, setWeary] = useState(false);
  const abort = useRef<AbortController>(undefined);
  const page = useRef<FirstPage<Row>>(undefined);
  const latest = useRef(held);
  latest.current = held;

  const answer = first.isPlaceholderData ? undefined : first.data;
  useEffect(() => {
    if (!answer) return;
    const now = firstPage(answer, waiting);
    page.current = now;
    const isFollowed = follows();
    setHeld((before) => (before.of === of ? mergeFirst(before, now, isFollowed) : takeFirst(of, now)));
    if (isFollowed) return;
    const oldest = answer.cursor === null ? "" : now.oldest;
    return lookAgain(latest, of, answer.jobs, { newest: LAST, oldest }, setHeld);
  }, [answer, of, waiting, follows]);

  useEffect(() => {
    setBroken(undefined);
    setWeary(false);
    setReading(false);
    return () => abort.current?.abort();
  }, [of]);

  // Ended jobs stay as they are, so a page of them is not asked for again.
  const cursor = seen === undefined ? undefined : pageOf(held, seen);
  const moves = useMemo(() => cursor !== undefined && isMoving(held, cursor), [held, cursor]);
  const again = useJobs({ ...filters, limit: PAGE, cursor }, moves);
  useEffect(() => {
    if (!again.data || again.isPlaceholderData) return;
    const { jobs, cursor: rest } = again.data;
    setHeld((before) => updated(before, jobs.map(slim)));
    const newest = latest.current.pages.find((one) => one.cursor === cursor)?.first ?? "";
    const oldest = rest === null ? "" : (jobs.at(-1)?.id ?? LAST);
    return lookAgain(latest, of, jobs, { newest, oldest }, setHeld);
  }, [again.data, again.isPlaceholderData]);

  const { next } = held;
  const readOn = useCallback(() => {
    if (next === null) return;
    const own = new AbortController();
    abort.current?.abort();
    abort.current = own;
    setReading(true);
    setBroken(undefined);
    setWeary(false);
    void readOlder(next, filters, waiting, own.signal)
      .then(({ jobs, cursor, read }) => {
        if (own.signal.aborted) return;
        setHeld((before) => (before.of === of ? append(before, next, jobs, cursor) : before));
        setWeary(jobs.length === 0 && cursor !== null && read >= PAGES_AT_ONCE);
      })
      .catch((error) => own.signal.aborted || setBroken(error))
      .finally(() => own.signal.aborted || setReading(false));
    // The filters are in `of`.
  }, [next, of]);

  const catchUp = useCallback(() => {
    const newest = page.current;
    if (newest) setHeld((before) => mergeFirst(before, newest, true));
  }, []);
  const change = useCallback((rows: readonly Row[]) => setHeld((before) => updated(before, rows)), []);

  return { held, error: first.error, changing: held.of !== of, reading, broken, weary, readOn, catchUp, change };
}

/** After every id. */
const LAST = "~";

function firstPage({ jobs, cursor }: nouns.JobPage, waiting: string | undefined): FirstPage<Row> {
  const ends = { newest: jobs[0]?.id ?? "", oldest: jobs.at(-1)?.id ?? "" };
  return { jobs: matching(jobs, waiting), cursor, full: jobs.length >= FIRST, ...ends };
}

/** Rows between two that an answer no longer names: each is shown as it is now, in its place, or goes when it is no longer there. */
function lookAgain(
  held: { current: Held<Row> },
  of: string,
  named: readonly nouns.Job[],
  bounds: { newest: string; oldest: string },
  setHeld: (change: (before: Held<Row>) => Held<Row>) => void,
): (() => void) | undefined {
  if (held.current.of !== of) return undefined;
  // What has ended stays as it is.
  const ids = missing(held.current, named, bounds).filter(({ state }) => !isOver(state));
  if (ids.length === 0) return undefined;
  const own = new AbortController();
  for (const { id } of ids.slice(0, SINGLY)) {
    call<nouns.Job>("GET", `/v1/jobs/${id}`, { signal: own.signal }).then(
      (job) => own.signal.aborted || setHeld((before) => updated(before, [slim(job)])),
      (error) => {
        if (!(error instanceof Refused) || error.status !== 404) return;
        setHeld((before) => without(before, new Set([id])));
      },
    );
  }
  return () => own.abort();
}

function isMoving({ rows, pages }: Held<Row>, cursor: string): boolean {
  const first = pages.find((page) => page.cursor === cursor)?.first;
  const from = rows.findIndex(({ id }) => id === first);
  return rows.slice(from, from + PAGE).some(({ state }) => !isOver(state));
}

async function readOlder(from: string, filters: JobFilters, waiting: string | undefined, signal: AbortSignal) {
  let cursor: string | null = from;
  let read = 0;
  const jobs: Row[] = [];
  while (cursor !== null && jobs.length < FIRST && read < PAGES_AT_ONCE) {
    const query: JobFilters = { ...filters, limit: PAGE, cursor };
    const answer: nouns.JobPage = await call("GET", "/v1/jobs", { query, signal });
    jobs.push(...matching(answer.jobs, waiting));
    cursor = answer.cursor;
    read += 1;
  }
  return { jobs, cursor, read };
}

function matching(jobs: readonly nouns.Job[], waiting: string | undefined): Row[] {
  const now = serverNow();
  return jobs.filter((job) => waiting === undefined || waitsFor(job, now) === waiting).map(slim);
}
