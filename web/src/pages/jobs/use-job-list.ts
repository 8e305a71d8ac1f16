// Asks for the jobs that a list shows: the first page again and again, older ones when the reader comes near them, and the page in view again while
// something on it can still change.
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { call, type Refused } from "../../api/call.ts";
import { isOver, type JobFilters, type nouns, useJobs } from "../../api/nouns.ts";
import { append, type FirstPage, type Held, mergeFirst, nothing, pageOf, takeFirst, updated } from "./held.ts";
import { keptList } from "./return.ts";
import { type Row, slim } from "./slim.ts";

const FIRST = 50;
const PAGE = 200;
/** A page may be short, or empty, without being the last. So many are read before somebody has to ask for more. */
const PAGES_AT_ONCE = 25;

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
}

/** `waiting` is looked for here: the server does not know it as a filter. `seen` is the row at the middle of the window, and whether it is the top. */
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

  const answer = first.isPlaceholderData ? undefined : first.data;
  useEffect(() => {
    if (!answer) return;
    const now = { jobs: matching(answer.jobs, waiting), cursor: answer.cursor, full: answer.jobs.length >= FIRST };
    page.current = now;
    setHeld((before) => (before.of === of ? mergeFirst(before, now, follows()) : takeFirst(of, now)));
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
    if (again.data && !again.isPlaceholderData) setHeld((before) => updated(before, again.data.jobs.map(slim)));
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
    const latest = page.current;
    if (latest) setHeld((before) => mergeFirst(before, latest, true));
  }, []);

  return { held, error: first.error, changing: held.of !== of, reading, broken, weary, readOn, catchUp };
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

function matching(jobs: readonly nouns.Job[], waiting: string | undefined) {
  return jobs.filter(({ waitingFor }) => waiting === undefined || waitingFor === waiting).map(slim);
}
