// The timeline of a job: a row for each step, the attempts above them, gaps hatched. The rows are a list that the arrow
// keys move through. Details of the row under the pointer or the focus are in the head, whose space is reserved.
import {
  type CSSProperties,
  type KeyboardEvent,
  memo,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import "../../css/timeline.css";
import { escapeText, formatCount, formatDuration, formatTime, plural } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Panel } from "@stillwake/ui/parts/panel.tsx";
import { StateIcon } from "@stillwake/ui/parts/state-badge.tsx";
import { useNow } from "@stillwake/ui/parts/time.tsx";
import type { Band, Gap, Outcome } from "./timeline-axis.ts";
import {
  buildTimeline,
  type Timeline as Drawn,
  type Piece,
  type Row,
  type RowState,
  selectRows,
  type TimelineData,
} from "./timeline-model.ts";

const MAX_ROWS = 30;
/** More rows scroll. */
const MAX_VISIBLE_ROWS = 14;
/** While a job runs the timeline reserves space for further rows: what is below it moves at most twice. */
const RESERVED_ROWS = [5, 9, MAX_VISIBLE_ROWS];

export function Timeline({ data, empty }: { data: Omit<TimelineData, "now">; empty: string }) {
  const now = useNow();
  const hasEnded = data.job.endedAt !== null;
  // An ended job is not recomputed every second.
  const time = hasEnded ? 0 : now;
  const drawn = useMemo(() => buildTimeline({ ...data, now: time }), [data, time]);
  const [grows] = useState(!hasEnded);
  const [all, setAll] = useState(false);
  const [pointed, setPointed] = useState<string>();
  const [focusedRow, setFocusedRow] = useState(0);
  const rows = !drawn ? [] : all ? drawn.rows : selectRows(drawn.rows, MAX_ROWS);
  const scrolls = rows.length > MAX_VISIBLE_ROWS;
  const reserved = grows ? (RESERVED_ROWS.find((count) => count >= rows.length) ?? MAX_VISIBLE_ROWS) : 0;
  const scroller = useScrollToLast(rows.length, scrolls && grows && !hasEnded);
  if (!drawn) {
    return (
      <Panel title="Timeline" bare>
        <p className={`empty small${grows ? " timeline-not-started" : ""}`}>{empty}</p>
      </Panel>
    );
  }
  const shown = drawn.rows.find(({ name }) => name === pointed);
  const head = (
    <p className="timeline-details small untrusted">{shown ? <Details row={shown} /> : <Summary drawn={drawn} />}</p>
  );
  return (
    <Panel title="Timeline" actions={head} bare>
      <div className="timeline" data-scrolls={scrolls || undefined}>
        <div className="timeline-head" aria-hidden="true">
          <span className="timeline-name soft">{formatTime(new Date(drawn.from))}</span>
          <div className="timeline-track timeline-axis">
            {drawn.ticks.map(({ ms, position }) => (
              <span key={ms} style={{ left: percent(position) }}>
                {ms === 0 ? "0" : formatDuration(ms).replace(".0 s", " s")}
              </span>
            ))}
            <span className="timeline-end">{formatDuration(drawn.to - drawn.from)}</span>
          </div>
          <span className="timeline-took soft">{hasEnded ? formatTime(new Date(drawn.to)) : "now"}</span>
        </div>
        <div
          ref={scroller}
          className="timeline-rows"
          data-many={scrolls || undefined}
          data-grows={grows || undefined}
          style={{ "--reserved-rows": reserved } as CSSProperties}
        >
          <div className="timeline-sheet">
            <Backdrop drawn={drawn} />
            {(grows || drawn.bands.length + drawn.gaps.length > 1) && <Attempts drawn={drawn} />}
            <ol
              aria-label="Steps in the order of their start"
              onKeyDown={(event) => moveFocus(event, setFocusedRow)}
              onMouseLeave={() => setPointed(undefined)}
            >
              {rows.map((row, index) => (
                <RowLine
                  key={row.name}
                  row={row}
                  drawn={drawn}
                  focusable={index === Math.min(focusedRow, rows.length - 1)}
                  onPoint={setPointed}
                />
              ))}
            </ol>
            {rows.length === 0 && <p className="soft small timeline-none">No step has started yet.</p>}
          </div>
        </div>
        <div className="timeline-foot">
          <Legend />
          {drawn.rows.length > MAX_ROWS && (
            <Button kind="plain" aria-expanded={all} onClick={() => setAll(!all)}>
              {all
                ? `Show ${MAX_ROWS} of ${formatCount(drawn.rows.length)} steps`
                : `Show all ${formatCount(drawn.rows.length)} steps`}
            </Button>
          )}
        </div>
      </div>
    </Panel>
  );
}

const legend: [RowState, string, earlier?: true][] = [
  ["kept", "worked"],
  ["kept", "kept from an earlier attempt", true],
  ["interrupted", "wasted"],
  ["waiting", "waited"],
  ["skipped", "skipped"],
];

/** Hidden from screen readers: each row has its state as text. */
function Legend() {
  return (
    <ul className="timeline-legend small soft" aria-hidden="true">
      {legend.map(([state, label, earlier]) => (
        <li key={label}>
          <span className="timeline-piece" data-state={state} data-earlier={earlier} />
          {label}
        </li>
      ))}
    </ul>
  );
}

/** Keeps the last row, which is the running step, in view unless the user has scrolled away from it. */
function useScrollToLast(rows: number, enabled: boolean) {
  const scroller = useRef<HTMLDivElement>(null);
  const isAway = useRef(false);
  useEffect(() => {
    const box = scroller.current;
    if (!box) return;
    const onScroll = () => {
      isAway.current = box.scrollHeight - box.scrollTop - box.clientHeight > 40;
    };
    box.addEventListener("scroll", onScroll, { passive: true });
    return () => box.removeEventListener("scroll", onScroll);
  }, []);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (box && enabled && !isAway.current) box.scrollTop = box.scrollHeight;
  }, [rows, enabled]);
  return scroller;
}

const percent = (part: number) => `${(part * 100).toFixed(3)}%`;

function moveFocus(event: KeyboardEvent<HTMLOListElement>, onFocus: (row: number) => void): void {
  const rows = [...event.currentTarget.querySelectorAll<HTMLElement>("button")];
  const current = rows.indexOf(document.activeElement as HTMLElement);
  const to = { ArrowDown: current + 1, ArrowUp: current - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (to === undefined || current < 0) return;
  event.preventDefault();
  const next = Math.min(rows.length - 1, Math.max(0, to));
  rows[next]!.focus();
  onFocus(next);
}

const iconStates = {
  kept: "completed",
  running: "running",
  waiting: "queued",
  skipped: "cancelled",
  interrupted: "failed",
  children: "queued",
} as const;

const RowLine = memo(function RowLine({
  row,
  drawn,
  focusable,
  onPoint,
}: {
  row: Row;
  drawn: Drawn;
  focusable: boolean;
  onPoint: (name: string) => void;
}) {
  const point = () => onPoint(row.name);
  return (
    <li>
      <button
        type="button"
        className="timeline-row"
        data-state={row.state}
        tabIndex={focusable ? 0 : -1}
        onMouseEnter={point}
        onFocus={point}
        onClick={point}
      >
        <span className="timeline-name">
          <StateIcon state={iconStates[row.state]} />
          <span className="untrusted">{escapeText(row.name)}</span>
        </span>
        <span className="timeline-track" aria-hidden="true">
          {row.pieces.map((piece) => (
            <span
              key={`${piece.state} ${piece.from}`}
              className="timeline-piece"
              data-state={piece.state}
              data-earlier={piece.earlier || undefined}
              style={placeOnAxis(piece, drawn)}
            />
          ))}
          {row.state === "skipped" && <span className="timeline-skipped">skipped</span>}
        </span>
        <span className="timeline-took number">{row.tookMs === null ? "–" : formatDuration(row.tookMs)}</span>
        <span className="hidden">{stateText(row)}</span>
      </button>
    </li>
  );
});

function placeOnAxis({ from, to }: Pick<Piece, "from" | "to">, { position }: Drawn) {
  const start = position(from);
  return { left: percent(start), width: percent(position(to) - start) };
}

/** Behind all rows: the gaps, and the ends of failed and lost attempts. */
function Backdrop({ drawn }: { drawn: Drawn }) {
  const cuts = drawn.bands.filter(({ outcome, to }) => (outcome === "lost" || outcome === "failed") && to < drawn.to);
  return (
    <div className="timeline-backdrop" aria-hidden="true">
      <div className="timeline-track">
        {drawn.gaps.map((gap) => (
          <span key={gap.from} className="timeline-gap" style={placeOnAxis(gap, drawn)} />
        ))}
        {cuts.map(({ to }) => (
          <span key={to} className="timeline-cut" style={{ left: percent(drawn.position(to)) }} />
        ))}
      </div>
    </div>
  );
}

function Attempts({ drawn }: { drawn: Drawn }) {
  return (
    <div className="timeline-attempts">
      <span className="timeline-name soft">attempts</span>
      <div className="timeline-track" aria-hidden="true">
        {drawn.bands.map((band) => (
          <span
            key={band.from}
            className="timeline-band"
            data-outcome={band.outcome ?? "running"}
            style={placeOnAxis(band, drawn)}
            title={bandText(band)}
          >
            {outcomeText(band.outcome, band.runnerLost)}
          </span>
        ))}
        {drawn.gaps.map((gap) => (
          <span key={gap.from} className="timeline-wait" style={placeOnAxis(gap, drawn)} title={gapText(gap)}>
            {formatDuration(gap.to - gap.from)}
          </span>
        ))}
      </div>
      <span className="timeline-took number">{formatCount(drawn.bands.length)}</span>
      <span className="hidden">
        {drawn.bands.map((band) => bandText(band)).join(". ")}. {drawn.gaps.map((gap) => gapText(gap)).join(". ")}
      </span>
    </div>
  );
}

export function outcomeText(outcome: Outcome | null, runnerLost: boolean): string {
  switch (outcome) {
    case null:
      return "running";
    case "lost":
      return runnerLost ? "runner lost" : "worker lost";
    default:
      return outcome;
  }
}

const bandText = ({ attempt, outcome, runnerLost, from, to }: Band) =>
  `Attempt ${attempt}: ${outcomeText(outcome, runnerLost)} after ${formatDuration(to - from)}`;

const gapTexts: Record<Gap["after"], string> = {
  slept: "Slept or waited without a worker",
  failed: "Waited for the next attempt",
  lost: "Waited for a worker after one was lost",
  released: "Waited for another worker",
  paused: "Was paused",
  completed: "Ended, then retried",
  cancelled: "Ended, then retried",
  ended: "Ended, then retried",
};

const gapText = ({ after, runnerLost, from, to, shortened }: Gap) => {
  const reason = after === "lost" && runnerLost ? "Waited for a worker after a runner was lost" : gapTexts[after];
  return `${reason}: ${formatDuration(to - from)}${shortened ? ", drawn shorter" : ""}`;
};

/** For screen readers, which have no bar. */
function stateText({ state, keptFrom, pieces }: Row): string {
  const starts = pieces.length > 1 ? `, started ${pieces.length} times` : "";
  switch (state) {
    case "kept":
      return keptFrom === null ? `completed${starts}` : `kept from attempt ${keptFrom}${starts}`;
    case "running":
      return `running${starts}`;
    case "waiting":
      return "waiting";
    case "skipped":
      return "optional, skipped";
    case "interrupted":
      return `not finished${starts}`;
    case "children":
      return "child jobs";
  }
}

function Details({ row }: { row: Row }) {
  const { name, pieces, text, state, tookMs, allMs } = row;
  const first = pieces[0];
  const last = pieces.at(-1);
  const when =
    first && last
      ? `${formatTime(new Date(first.from))} – ${state === "running" ? "now" : formatTime(new Date(last.to))}`
      : "";
  const detail = text === null ? "" : state === "skipped" ? `skipped: ${text}` : text;
  return (
    <>
      <strong>{escapeText(name)}</strong>{" "}
      {[
        stateText(row),
        tookMs !== null && formatDuration(tookMs),
        tookMs !== null && allMs - tookMs > 50 && `${formatDuration(allMs)} in all attempts`,
        when,
      ]
        .filter(Boolean)
        .join(" · ")}
      {detail && <span className="soft"> {escapeText(detail)}</span>}
    </>
  );
}

function Summary({ drawn: { rows, gaps, bands } }: { drawn: Drawn }) {
  const steps = rows.filter(({ state }) => state !== "children");
  const longest = steps.reduce<Row | undefined>(
    (longest, row) => ((row.tookMs ?? 0) > (longest?.tookMs ?? 0) ? row : longest),
    undefined,
  );
  const skipped = steps.filter(({ state }) => state === "skipped").length;
  const waited = gaps.reduce((sum, { after, from, to }) => sum + (after === "ended" ? 0 : to - from), 0);
  const parts = [
    steps.length === 0 ? "no steps" : plural(steps.length, "step"),
    longest && `longest: ${escapeText(longest.name)}, ${formatDuration(longest.tookMs!)}`,
    skipped > 0 && `${skipped} skipped`,
    bands.length > 1 && plural(bands.length, "attempt"),
    waited > 0 && `waited ${formatDuration(waited)} between attempts`,
  ];
  return <span className="soft">{parts.filter(Boolean).join(" · ")}</span>;
}
