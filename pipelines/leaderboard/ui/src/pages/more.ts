// The rows of a leaderboard behind the first page, as many pages as somebody wants to see. Each begins where the one before it ends now, and they are read
// again whenever that has moved, so that nobody is shown twice or left out for long.
import { call, Refused } from "@stillwake/kit/ui/ask.ts";
import { useEffect, useState } from "react";
import type { Board, Contributor } from "../nouns.ts";

interface Read {
  rows: Contributor[];
  pages: number;
  cursor: string | null;
}

/** Look-ups go in batches of so many: more often there is little to see. */
const BATCH = 50;

export function useMore(board: Board, wanted: number): Read & { busy: boolean; error: Refused | undefined } {
  const [read, setRead] = useState<Read>({ rows: [], pages: 0, cursor: null });
  const [error, setError] = useState<Refused>();
  const { id, status, lookups, contributors } = board;
  const first = contributors.cursor;
  const version = `${status} ${Math.floor(lookups.processed / BATCH)}`;
  useEffect(() => {
    setError(undefined);
    if (wanted === 0 || first === null) {
      setRead({ rows: [], pages: 0, cursor: null });
      return;
    }
    const leaving = new AbortController();
    readOn(id, first, wanted, leaving.signal).then(
      (answer) => leaving.signal.aborted || setRead(answer),
      (refused) => {
        if (!leaving.signal.aborted && refused instanceof Refused) setError(refused);
      },
    );
    return () => leaving.abort();
  }, [id, first, wanted, version]);
  const cursor = read.pages === 0 ? first : read.cursor;
  return { ...read, cursor, busy: wanted > read.pages && cursor !== null && !error, error };
}

async function readOn(id: string, first: string, wanted: number, signal: AbortSignal): Promise<Read> {
  const rows: Contributor[] = [];
  let cursor: string | null = first;
  let pages = 0;
  for (; pages < wanted && cursor !== null; pages++) {
    const path: string = `leaderboard/${id}?limit=100&cursor=${encodeURIComponent(cursor)}`;
    const { contributors } = await call<Board>("GET", path, undefined, signal);
    rows.push(...contributors.rows);
    cursor = contributors.cursor;
  }
  return { rows, pages, cursor };
}
