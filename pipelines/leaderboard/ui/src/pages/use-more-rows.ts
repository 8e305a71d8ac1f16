// The rows of a leaderboard after the first page. All pages are read again when the end of the first page or the number
// of look-ups has changed, so that no contributor is missing or listed twice for long.
import { RequestError, request } from "@stillwake/ui/api/request.ts";
import { useEffect, useState } from "react";
import type { Board, Contributor } from "../types.ts";

interface MoreRows {
  rows: Contributor[];
  pages: number;
  cursor: string | null;
}

/** The size of a batch of look-ups: the rows are read again after each batch. */
const LOOKUP_BATCH = 50;

export function useMoreRows(
  board: Board,
  pages: number,
): MoreRows & { busy: boolean; error: RequestError | undefined } {
  const [loaded, setLoaded] = useState<MoreRows>({ rows: [], pages: 0, cursor: null });
  const [error, setError] = useState<RequestError>();
  const { id, status, lookups, contributors } = board;
  const first = contributors.cursor;
  const version = `${status} ${Math.floor(lookups.processed / LOOKUP_BATCH)}`;
  useEffect(() => {
    setError(undefined);
    if (pages === 0 || first === null) {
      setLoaded({ rows: [], pages: 0, cursor: null });
      return;
    }
    const controller = new AbortController();
    const { signal } = controller;
    readPages(id, first, pages, signal).then(
      (result) => signal.aborted || setLoaded(result),
      (failure) => {
        if (!signal.aborted && failure instanceof RequestError) setError(failure);
      },
    );
    return () => controller.abort();
  }, [id, first, pages, version]);
  const cursor = loaded.pages === 0 ? first : loaded.cursor;
  return { ...loaded, cursor, busy: pages > loaded.pages && cursor !== null && !error, error };
}

async function readPages(id: string, first: string, max: number, signal: AbortSignal): Promise<MoreRows> {
  const rows: Contributor[] = [];
  let cursor: string | null = first;
  let pages = 0;
  for (; pages < max && cursor !== null; pages++) {
    const query: { limit: number; cursor: string } = { limit: 100, cursor };
    const { contributors } = await request<Board>("GET", `api/leaderboard/${id}`, { query, signal });
    rows.push(...contributors.rows);
    cursor = contributors.cursor;
  }
  return { rows, pages, cursor };
}
