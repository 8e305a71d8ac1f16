// The table of jobs. Only the rows in the viewport are rendered. Selected rows can be cancelled or retried.

import { formatCount, plural } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { ErrorCallout } from "@stillwake/ui/parts/panel.tsx";
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useCallback, useEffect, useLayoutEffect, useRef, useState, useSyncExternalStore } from "react";
import { usePermissions } from "../../api/permissions.ts";
import { BulkBar } from "./bulk.tsx";
import { type JobListFilters, toApiFilters } from "./filters.tsx";
import { JobRow } from "./row.tsx";
import { restoreList, saveList, useJobList } from "./use-job-list.ts";

/** The same heights as in jobs.css. Rows of one height need not be measured. */
const ROW_PX = 56;
const PHONE_ROW_PX = 88;
/** Older jobs are fetched when this number of rows is left below the viewport. */
const PREFETCH_ROWS = 200;

export function JobTable({ filters: listFilters, empty }: { filters: JobListFilters; empty: ReactNode }) {
  const { operate } = usePermissions();
  const { filters, waiting } = toApiFilters(listFilters);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [visible, setVisible] = useState<string>();
  const hasSelection = useRef(false);
  hasSelection.current = selected.size > 0;
  // Rows must not move while some of them are selected.
  const isFollowing = useCallback(() => isAtTop() && !hasSelection.current, []);
  const jobList = useJobList(filters, waiting, isFollowing, visible);
  const { list, error, changing, reading, readError, stopped, readOlder, showNew } = jobList;
  const { rows, next } = list;

  const latestList = useRef(list);
  latestList.current = list;
  useLayoutEffect(() => {
    const restored = restoreList(latestList.current.query);
    // In the next frame: the navigation first scrolls to the top.
    const frame = restored && requestAnimationFrame(() => scrollTo(0, restored.scrollY));
    return () => {
      if (frame) cancelAnimationFrame(frame);
      saveList(latestList.current, scrollY);
    };
  }, []);

  const body = useRef<HTMLTableSectionElement>(null);
  const [top, setTop] = useState(0);
  useLayoutEffect(() => {
    const now = body.current ? body.current.getBoundingClientRect().top + scrollY : 0;
    if (Math.abs(now - top) > 1) setTop(now);
  });
  const rowHeight = useIsPhone() ? PHONE_ROW_PX : ROW_PX;
  const virtual = useWindowVirtualizer({
    count: rows.length,
    estimateSize: () => rowHeight,
    overscan: 10,
    scrollMargin: top,
  });
  useEffect(() => virtual.measure(), [virtual, rowHeight]);
  const items = virtual.getVirtualItems();
  const from = items[0]?.index ?? 0;
  const to = items.at(-1)?.index ?? -1;

  const middle = rows[Math.floor((from + to) / 2)]?.id;
  useEffect(() => setVisible(middle), [middle]);
  const isNearEnd = to >= rows.length - PREFETCH_ROWS && next !== null && list.query !== "" && !changing;
  useEffect(() => {
    if (isNearEnd && !reading && !readError && !stopped) readOlder();
  }, [isNearEnd, reading, readError, stopped, readOlder]);
  // A return to the top, or the end of a selection, shows the changes since then.
  const wasFollowing = useRef(true);
  const hasNoSelection = selected.size === 0;
  useEffect(() => {
    const update = () => {
      const follows = isFollowing();
      if (follows && !wasFollowing.current) showNew();
      wasFollowing.current = follows;
    };
    update();
    addEventListener("scroll", update, { passive: true });
    return () => removeEventListener("scroll", update);
  }, [hasNoSelection, isFollowing, showNew]);

  useEffect(() => setSelected(new Set()), [list.query]);
  const lastSelected = useRef(0);
  const select = useCallback((index: number, isSelected: boolean, isRange: boolean) => {
    const [first, last] = isRange
      ? [Math.min(lastSelected.current, index), Math.max(lastSelected.current, index)]
      : [index, index];
    lastSelected.current = index;
    setSelected((before) => {
      const after = new Set(before);
      const range = latestList.current.rows.slice(first, last + 1);
      for (const { id } of range) isSelected ? after.add(id) : after.delete(id);
      return after;
    });
  }, []);

  const errorCallout = error && <ErrorCallout error={error} />;
  if (list.query === "") return errorCallout ?? <p className="empty jobs-loading">Loading…</p>;
  if (rows.length === 0 && next === null && !reading) {
    return (
      <div className="jobs-loading" aria-busy={changing}>
        {errorCallout ?? empty}
      </div>
    );
  }
  const isAllSelected = selected.size > 0 && selected.size === rows.length;
  return (
    <div className="jobs" data-changing={changing || undefined}>
      {errorCallout}
      {list.newJobs > 0 && (
        <div className="new-jobs">
          <Button
            kind="main"
            onClick={() => {
              scrollTo(0, 0);
              showNew();
            }}
          >
            {plural(
              list.newJobs,
              list.hasMoreNew ? "or more new jobs" : "new job",
              list.hasMoreNew ? "or more new jobs" : "new jobs",
            )}
          </Button>
        </div>
      )}
      <table className="table jobs-table" aria-rowcount={next === null ? rows.length + 1 : -1} aria-busy={changing}>
        <caption className="hidden">Jobs, newest first</caption>
        <thead>
          <tr aria-rowindex={1}>
            {operate && (
              <th className="job-select">
                <label>
                  <input
                    type="checkbox"
                    className="select-box"
                    aria-label={`Select all ${formatCount(rows.length)} loaded jobs`}
                    checked={isAllSelected}
                    ref={(box) => {
                      if (box) box.indeterminate = selected.size > 0 && !isAllSelected;
                    }}
                    onChange={() => setSelected(isAllSelected ? new Set() : new Set(rows.map(({ id }) => id)))}
                  />
                </label>
              </th>
            )}
            <th className="job-state">State</th>
            <th className="job-name">Job</th>
            <th className="job-progress">Progress</th>
            <th className="number job-took">Took</th>
            <th className="number job-age">Created</th>
            <th className="job-id">Id</th>
          </tr>
        </thead>
        <tbody ref={body}>
          <Spacer height={from * rowHeight} />
          {items.map(({ index }) => (
            <JobRow
              key={rows[index]!.id}
              job={rows[index]!}
              index={index}
              selected={operate ? selected.has(rows[index]!.id) : undefined}
              onSelect={select}
            />
          ))}
          <Spacer height={(rows.length - 1 - to) * rowHeight} />
        </tbody>
      </table>
      <div className="foot soft small">
        {readError ? (
          <>
            <ErrorCallout error={readError} />
            <Button onClick={readOlder}>Try again</Button>
          </>
        ) : stopped ? (
          <>
            No match in many older jobs. <Button onClick={readOlder}>Search older jobs</Button>
          </>
        ) : next === null ? (
          `${plural(rows.length, "job")} in total`
        ) : (
          "Loading older jobs…"
        )}
      </div>
      {selected.size > 0 && (
        <BulkBar selected={selected} rows={rows} onChanged={jobList.update} onDone={() => setSelected(new Set())} />
      )}
    </div>
  );
}

/** Takes the space of rows that are not rendered. */
function Spacer({ height }: { height: number }) {
  if (height <= 0) return null;
  return (
    // biome-ignore lint/a11y/noAriaHiddenOnFocusable: it contains nothing focusable.
    <tr aria-hidden="true" className="spacer">
      <td colSpan={7} style={{ height }} />
    </tr>
  );
}

function isAtTop(): boolean {
  return scrollY < ROW_PX;
}

const narrow = matchMedia("(max-width: 860px)");

function useIsPhone(): boolean {
  return useSyncExternalStore(
    (listener) => {
      narrow.addEventListener("change", listener);
      return () => narrow.removeEventListener("change", listener);
    },
    () => narrow.matches,
  );
}
