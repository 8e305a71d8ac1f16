// A job in time, drawn: one row per step, attempts above them, hatched where nobody worked. The rows are a list that can be walked with the arrow keys; what one
// points at, by mouse, finger or keyboard, is said in its heading, which is always there, so that nothing moves.
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
import "../../look/timeline.css";
import { Button } from "../button.tsx";
import { useNow } from "../moment.tsx";
import { Panel } from "../panel.tsx";
import { StateShape } from "../state-mark.tsx";
import { clockTime, count, inert, several, span } from "../words.ts";
import type { Band, Gap, Outcome } from "./timeline-axis.ts";
import {
  type Timeline as Drawn,
  type Given,
  mostTelling,
  type Piece,
  type Row,
  type RowState,
  timelineOf,
} from "./timeline-model.ts";

/** More than fit on a screen say less, not more. */
const MAX_ROWS = 30;
/** So many are shown without a scroll bar. */
const AT_ONCE = 14;
/** One that is watched keeps room for rows to come: what is below it moves twice at most, however many steps there are. */
const ROOMS = [5, 9, AT_ONCE];

export function Timeline({ given, empty }: { given: Omit<Given, "now">; empty: string }) {
  const now = useNow();
  const still = given.job.endedAt !== null;
  const time = still ? 0 : now;
  const drawn = useMemo(() => timelineOf({ ...given, now: time }), [given, time]);
  // One that is watched while it grows keeps its height, so that nothing below it moves.
  const [grows] = useState(!still);
  const [all, setAll] = useState(false);
  const [pointed, setPointed] = useState<string>();
  const [reached, setReached] = useState(0);
  const rows = !drawn ? [] : all ? drawn.rows : mostTelling(drawn.rows, MAX_ROWS);
  const isMany = rows.length > AT_ONCE;
  const room = grows ? (ROOMS.find((one) => one >= rows.length) ?? AT_ONCE) : 0;
  const scroller = useLatestInView(rows.length, isMany && grows && !still);
  if (!drawn) {
    return (
      <Panel title="Timeline" bare>
        <p className={`empty small${grows ? " timeline-unbegun" : ""}`}>{empty}</p>
      </Panel>
    );
  }
  const shown = drawn.rows.find(({ name }) => name === pointed);
  const said = (
    <p className="timeline-said small foreign">{shown ? <Details row={shown} /> : <Summary drawn={drawn} />}</p>
  );
  return (
    <Panel title="Timeline" acts={said} bare>
      <div className="timeline" data-scrolls={isMany || undefined}>
        <div className="timeline-head" aria-hidden="true">
          <span className="timeline-name soft">{clockTime(new Date(drawn.from))}</span>
          <div className="timeline-track timeline-axis">
            {drawn.ticks.map(({ at, place }) => (
              <span key={at} style={{ left: percent(place) }}>
                {at === 0 ? "0" : span(at).replace(".0 s", " s")}
              </span>
            ))}
            <span className="timeline-end">{span(drawn.to - drawn.from)}</span>
          </div>
          <span className="timeline-took soft">{still ? clockTime(new Date(drawn.to)) : "now"}</span>
        </div>
        <div
          ref={scroller}
          className="timeline-rows"
          data-many={isMany || undefined}
          data-grows={grows || undefined}
          style={{ "--room": room } as CSSProperties}
        >
          <div className="timeline-sheet">
            <Backdrop drawn={drawn} />
            {(grows || drawn.bands.length + drawn.gaps.length > 1) && <Attempts drawn={drawn} />}
            <ol
              aria-label="Steps in the order in which they began"
              onKeyDown={(event) => walk(event, setReached)}
              onMouseLeave={() => setPointed(undefined)}
            >
              {rows.map((row, at) => (
                <RowLine
                  key={row.name}
                  row={row}
                  drawn={drawn}
                  reachable={at === Math.min(reached, rows.length - 1)}
                  onPoint={setPointed}
                />
              ))}
            </ol>
            {rows.length === 0 && <p className="soft small timeline-none">No step has said or kept anything yet.</p>}
          </div>
        </div>
        <div className="timeline-foot">
          <Legend />
          {drawn.rows.length > MAX_ROWS && (
            <Button kind="plain" aria-expanded={all} onClick={() => setAll(!all)}>
              {all
                ? `Show ${MAX_ROWS} of ${count(drawn.rows.length)} steps`
                : `Show all ${count(drawn.rows.length)} steps`}
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
  ["interrupted", "tried in wastedStarts"],
  ["waiting", "waited"],
  ["skipped", "skipped"],
];

/** For the eye alone: each row says in words what came of it. */
function Legend() {
  return (
    <ul className="timeline-legend small soft" aria-hidden="true">
      {legend.map(([state, words, earlier]) => (
        <li key={words}>
          <span className="timeline-piece" data-state={state} data-earlier={earlier} />
          {words}
        </li>
      ))}
    </ul>
  );
}

/** What is under way is the last row: it stays in view, unless somebody has scrolled away from it. */
function useLatestInView(rows: number, wanted: boolean) {
  const scroller = useRef<HTMLDivElement>(null);
  const away = useRef(false);
  useEffect(() => {
    const box = scroller.current;
    if (!box) return;
    const note = () => {
      away.current = box.scrollHeight - box.scrollTop - box.clientHeight > 40;
    };
    box.addEventListener("scroll", note, { passive: true });
    return () => box.removeEventListener("scroll", note);
  }, []);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (box && wanted && !away.current) box.scrollTop = box.scrollHeight;
  }, [rows, wanted]);
  return scroller;
}

const percent = (part: number) => `${(part * 100).toFixed(3)}%`;

function walk(event: KeyboardEvent<HTMLOListElement>, onReached: (at: number) => void): void {
  const rows = [...event.currentTarget.querySelectorAll<HTMLElement>("button")];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (to === undefined || at < 0) return;
  event.preventDefault();
  const next = Math.min(rows.length - 1, Math.max(0, to));
  rows[next]!.focus();
  onReached(next);
}

const shapes = {
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
  reachable,
  onPoint,
}: {
  row: Row;
  drawn: Drawn;
  reachable: boolean;
  onPoint: (name: string) => void;
}) {
  const point = () => onPoint(row.name);
  return (
    <li>
      <button
        type="button"
        className="timeline-row"
        data-state={row.state}
        tabIndex={reachable ? 0 : -1}
        onMouseEnter={point}
        onFocus={point}
        onClick={point}
      >
        <span className="timeline-name">
          <StateShape state={shapes[row.state]} />
          <span className="foreign">{inert(row.name)}</span>
        </span>
        <span className="timeline-track" aria-hidden="true">
          {row.pieces.map((piece) => (
            <span
              key={`${piece.state} ${piece.from}`}
              className="timeline-piece"
              data-state={piece.state}
              data-earlier={piece.earlier || undefined}
              style={spanOf(piece, drawn)}
            />
          ))}
          {row.state === "skipped" && <span className="timeline-skipped">skipped</span>}
        </span>
        <span className="timeline-took number">{row.tookMs === null ? "–" : span(row.tookMs)}</span>
        <span className="hidden">{stateWords(row)}</span>
      </button>
    </li>
  );
});

function spanOf({ from, to }: Pick<Piece, "from" | "to">, { place }: Drawn) {
  const start = place(from);
  return { left: percent(start), width: percent(place(to) - start) };
}

/** Where nobody worked, and where one attempt became the next: behind all rows. */
function Backdrop({ drawn }: { drawn: Drawn }) {
  const cuts = drawn.bands.filter(({ outcome, to }) => (outcome === "lost" || outcome === "failed") && to < drawn.to);
  return (
    <div className="timeline-backdrop" aria-hidden="true">
      <div className="timeline-track">
        {drawn.gaps.map((gap) => (
          <span key={gap.from} className="timeline-gap" style={spanOf(gap, drawn)} />
        ))}
        {cuts.map(({ to }) => (
          <span key={to} className="timeline-cut" style={{ left: percent(drawn.place(to)) }} />
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
            style={spanOf(band, drawn)}
            title={bandWords(band)}
          >
            {outcomeWords(band.outcome, band.runner)}
          </span>
        ))}
        {drawn.gaps.map((gap) => (
          <span key={gap.from} className="timeline-wait" style={spanOf(gap, drawn)} title={gapWords(gap)}>
            {span(gap.to - gap.from)}
          </span>
        ))}
      </div>
      <span className="timeline-took number">{count(drawn.bands.length)}</span>
      <span className="hidden">
        {drawn.bands.map((band) => bandWords(band)).join(". ")}. {drawn.gaps.map((gap) => gapWords(gap)).join(". ")}
      </span>
    </div>
  );
}

/** How an attempt ended, in a word or two. */
export function outcomeWords(outcome: Outcome | null, runner: boolean): string {
  switch (outcome) {
    case null:
      return "running";
    case "lost":
      return runner ? "runner lost" : "worker lost";
    case "released":
      return "handed back";
    default:
      return outcome;
  }
}

const bandWords = ({ attempt, outcome, runner, from, to }: Band) =>
  `Attempt ${attempt}: ${outcomeWords(outcome, runner)} after ${span(to - from)}`;

const afterWords: Record<Gap["after"], string> = {
  slept: "Slept or waited; no worker was held",
  failed: "Waited to be tried again",
  lost: "Waited for a worker after one was lost",
  released: "Waited for another worker",
  paused: "Was paused",
  completed: "Had ended, until it was retried",
  cancelled: "Had ended, until it was retried",
  ended: "Had ended, until somebody retried it",
};

const gapWords = ({ after, runner, from, to, short }: Gap) => {
  const why = after === "lost" && runner ? "Waited for a worker after a runner was lost" : afterWords[after];
  return `${why}: ${span(to - from)}${short ? ", drawn shorter than it was" : ""}`;
};

/** In words, for those who do not see the bar. */
function stateWords({ state, keptFrom, pieces }: Row): string {
  const tries = pieces.length > 1 ? `, begun ${pieces.length} times` : "";
  switch (state) {
    case "kept":
      return keptFrom === null ? `kept${tries}` : `kept from attempt ${keptFrom}${tries}`;
    case "running":
      return `running${tries}`;
    case "waiting":
      return "waiting";
    case "skipped":
      return "optional, skipped";
    case "interrupted":
      return `not finished${tries}`;
    case "children":
      return "jobs that it has spawned";
  }
}

function Details({ row }: { row: Row }) {
  const { name, pieces, words, state, tookMs, allMs } = row;
  const first = pieces[0];
  const last = pieces.at(-1);
  const when =
    first && last
      ? `${clockTime(new Date(first.from))} – ${state === "running" ? "now" : clockTime(new Date(last.to))}`
      : "";
  const said = words === null ? "" : state === "skipped" ? `skipped: ${words}` : words;
  return (
    <>
      <strong>{inert(name)}</strong>{" "}
      {[
        stateWords(row),
        tookMs !== null && span(tookMs),
        tookMs !== null && allMs - tookMs > 50 && `${span(allMs)} with all tries`,
        when,
      ]
        .filter(Boolean)
        .join(" · ")}
      {said && <span className="soft"> {inert(said)}</span>}
    </>
  );
}

function Summary({ drawn: { rows, gaps, bands } }: { drawn: Drawn }) {
  const steps = rows.filter(({ state }) => state !== "children");
  const longest = steps.reduce<Row | undefined>(
    (most, row) => ((row.tookMs ?? 0) > (most?.tookMs ?? 0) ? row : most),
    undefined,
  );
  const skipped = steps.filter(({ state }) => state === "skipped").length;
  const waited = gaps.reduce((sum, { after, from, to }) => sum + (after === "ended" ? 0 : to - from), 0);
  const parts = [
    steps.length === 0 ? "no steps" : several(steps.length, "step"),
    longest && `the longest is ${inert(longest.name)} with ${span(longest.tookMs!)}`,
    skipped > 0 && `${skipped} skipped`,
    bands.length > 1 && several(bands.length, "attempt"),
    waited > 0 && `waited ${span(waited)} in between`,
  ];
  return <span className="soft">{parts.filter(Boolean).join(" · ")}</span>;
}
