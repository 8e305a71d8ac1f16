// The rows in view of a list that may be very long, and what can be done with those that are selected.
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useCallback, useEffect, useLayoutEffect, useRef, useState, useSyncExternalStore } from "react";
import type { Refused } from "../../api/call.ts";
import { useMay } from "../../api/who.ts";
import { Button } from "../../parts/button.tsx";
import { count, several } from "../../parts/words.ts";
import { BulkBar } from "./bulk.tsx";
import { type Chosen, questionOf } from "./filters.tsx";
import { keepList, keptList } from "./return.ts";
import { JobRow } from "./row.tsx";
import { useJobList } from "./use-job-list.ts";

/** As jobs.css has them. Rows of one height need not be measured. */
const ROW_PX = 56;
const PHONE_ROW_PX = 88;
const NEAR_END = 200;

export function JobTable({
  chosen,
  empty,
  wrong,
}: {
  chosen: Chosen;
  empty: ReactNode;
  wrong: (error: Refused) => ReactNode;
}) {
  const { operate } = useMay();
  const { filters, waiting } = questionOf(chosen);
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const [seen, setSeen] = useState<string>();
  const hasPicked = useRef(false);
  hasPicked.current = picked.size > 0;
  // What somebody has selected must not move under their hand.
  const follows = useCallback(() => isAtTop() && !hasPicked.current, []);
  const list = useJobList(filters, waiting, follows, seen);
  const { held, reading, broken, weary, readOn, catchUp } = list;
  const { rows, next } = held;

  const left = useRef(held);
  left.current = held;
  useLayoutEffect(() => {
    const back = keptList(left.current.of);
    // A page begins at its top; this is after that.
    const frame = back && requestAnimationFrame(() => scrollTo(0, back.y));
    return () => {
      if (frame) cancelAnimationFrame(frame);
      keepList(left.current, scrollY);
    };
  }, []);

  const body = useRef<HTMLTableSectionElement>(null);
  const [top, setTop] = useState(0);
  useLayoutEffect(() => {
    const now = body.current ? body.current.getBoundingClientRect().top + scrollY : 0;
    if (Math.abs(now - top) > 1) setTop(now);
  });
  const high = useIsPhone() ? PHONE_ROW_PX : ROW_PX;
  const virtual = useWindowVirtualizer({
    count: rows.length,
    estimateSize: () => high,
    overscan: 10,
    scrollMargin: top,
  });
  useEffect(() => virtual.measure(), [virtual, high]);
  const items = virtual.getVirtualItems();
  const from = items[0]?.index ?? 0;
  const to = items.at(-1)?.index ?? -1;

  const middle = rows[Math.floor((from + to) / 2)]?.id;
  useEffect(() => setSeen(middle), [middle]);
  const isNear = to >= rows.length - NEAR_END && next !== null && held.of !== "" && !list.changing;
  useEffect(() => {
    if (isNear && !reading && !broken && !weary) readOn();
  }, [isNear, reading, broken, weary, readOn]);
  // Whoever comes back to the top, or lets go of what was selected, sees what has come and gone meanwhile.
  const followed = useRef(true);
  const isFree = picked.size === 0;
  useEffect(() => {
    const look = () => {
      const isFollowed = follows();
      if (isFollowed && !followed.current) catchUp();
      followed.current = isFollowed;
    };
    look();
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, [isFree, follows, catchUp]);

  const question = held.of;
  useEffect(() => setPicked(new Set()), [question]);
  const lastPick = useRef(0);
  const latest = useRef(rows);
  latest.current = rows;
  const pick = useCallback((index: number, isPicked: boolean, isRange: boolean) => {
    const [first, last] = isRange
      ? [Math.min(lastPick.current, index), Math.max(lastPick.current, index)]
      : [index, index];
    lastPick.current = index;
    setPicked((before) => {
      const after = new Set(before);
      for (const { id } of latest.current.slice(first, last + 1)) isPicked ? after.add(id) : after.delete(id);
      return after;
    });
  }, []);

  if (held.of === "") return list.error ? wrong(list.error) : <p className="empty jobs-begin">One moment…</p>;
  if (rows.length === 0 && next === null && !reading) {
    return (
      <div className="jobs-begin" aria-busy={list.changing}>
        {list.error ? wrong(list.error) : empty}
      </div>
    );
  }
  const isAll = picked.size > 0 && picked.size === rows.length;
  return (
    <div className="jobs" data-changing={list.changing || undefined}>
      {list.error && wrong(list.error)}
      {held.fresh > 0 && (
        <div className="fresh">
          <Button
            kind="main"
            onClick={() => {
              scrollTo(0, 0);
              catchUp();
            }}
          >
            {several(
              held.fresh,
              held.more ? "or more new jobs" : "new job",
              held.more ? "or more new jobs" : "new jobs",
            )}
          </Button>
        </div>
      )}
      <table
        className="table jobs-table"
        aria-rowcount={next === null ? rows.length + 1 : -1}
        aria-busy={list.changing}
      >
        <caption className="hidden">Jobs, newest first</caption>
        <thead>
          <tr aria-rowindex={1}>
            {operate && (
              <th className="job-pick">
                <label>
                  <input
                    type="checkbox"
                    className="pick"
                    aria-label={`Select all ${count(rows.length)} that are shown`}
                    checked={isAll}
                    ref={(box) => {
                      if (box) box.indeterminate = picked.size > 0 && !isAll;
                    }}
                    onChange={() => setPicked(isAll ? new Set() : new Set(rows.map(({ id }) => id)))}
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
          <Room height={from * high} />
          {items.map(({ index }) => (
            <JobRow
              key={rows[index]!.id}
              job={rows[index]!}
              index={index}
              picked={operate ? picked.has(rows[index]!.id) : undefined}
              onPick={pick}
            />
          ))}
          <Room height={(rows.length - 1 - to) * high} />
        </tbody>
      </table>
      <div className="jobs-end soft small">
        {broken ? (
          <>
            {wrong(broken)}
            <Button onClick={readOn}>Read on</Button>
          </>
        ) : weary ? (
          <>
            Nothing in a long stretch of older jobs. <Button onClick={readOn}>Look further back</Button>
          </>
        ) : next === null ? (
          `${several(rows.length, "job")}, and no older ones`
        ) : (
          "Reading older jobs…"
        )}
      </div>
      {picked.size > 0 && (
        <BulkBar picked={picked} rows={rows} onChanged={list.change} onDone={() => setPicked(new Set())} />
      )}
    </div>
  );
}

/** The room of rows that are not drawn. */
function Room({ height }: { height: number }) {
  if (height <= 0) return null;
  return (
    // biome-ignore lint/a11y/noAriaHiddenOnFocusable: nothing in it takes the focus.
    <tr aria-hidden="true" className="room">
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
