// How many jobs ended, over time: columns of three parts on a quiet grid, drawn by hand. Pointing at a column, or going along them with the arrow keys,
// says its numbers; for those who do not see it there is the same as a table.
import { useEffect, useId, useRef, useState } from "react";
import "../../look/chart.css";
import { clockTime, count, several } from "../words.ts";
import { countScale, stack, timeTicks } from "./chart-scale.ts";

interface Part {
  at: string;
  completed: number;
  failed: number;
  cancelled: number;
}

const HEIGHT = 200;
const LEFT = 48;
const RIGHT = 8;
const ABOVE = 8;
const BELOW = 24;
const kinds = ["completed", "cancelled", "failed"] as const;

export function EndedChart({ parts, spanMs }: { parts: readonly Part[]; spanMs: number }) {
  const [width, measure] = useWidth();
  const [at, setAt] = useState<number>();
  const id = useId();
  const each = spanMs / Math.max(1, parts.length);
  const most = Math.max(0, ...parts.map(sum));
  const { top, ticks } = countScale(most);
  const inner = { width: Math.max(0, width - LEFT - RIGHT), height: HEIGHT - ABOVE - BELOW };
  const column = inner.width / Math.max(1, parts.length);
  const begins = parts.length > 0 ? Date.parse(parts[0]!.at) : 0;
  const x = (moment: number) => LEFT + ((moment - begins) / spanMs) * inner.width;
  const shown = at === undefined ? undefined : parts[Math.min(at, parts.length - 1)];
  const move = (to: number) => setAt(Math.min(parts.length - 1, Math.max(0, to)));

  return (
    <figure className="chart">
      <figcaption className="chart-says small" id={id}>
        {shown ? (
          <span className="number">{sentence(shown, each)}</span>
        ) : (
          <ul className="legend">
            {kinds.map((kind) => (
              <li key={kind} data-kind={kind}>
                {kind} <span className="number">{count(total(parts, kind))}</span>
              </li>
            ))}
          </ul>
        )}
      </figcaption>
      <div
        ref={measure}
        className="chart-area"
        role="slider"
        tabIndex={0}
        aria-label="Ended jobs over time"
        aria-valuemin={0}
        aria-valuemax={Math.max(0, parts.length - 1)}
        aria-valuenow={at ?? Math.max(0, parts.length - 1)}
        aria-valuetext={shown ? sentence(shown, each) : "Arrow keys go through the parts of the time"}
        onPointerMove={({ clientX, currentTarget }) => {
          const place = clientX - currentTarget.getBoundingClientRect().left - LEFT;
          if (column > 0) move(Math.floor(place / column));
        }}
        onPointerLeave={() => setAt(undefined)}
        onBlur={() => setAt(undefined)}
        onKeyDown={(event) => {
          const last = parts.length - 1;
          const from = at ?? parts.length;
          const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
          if (event.key === "Escape") setAt(undefined);
          if (to === undefined) return;
          event.preventDefault();
          move(to);
        }}
      >
        <svg width={width} height={HEIGHT} aria-hidden="true">
          {ticks.map((tick) => {
            const y = ABOVE + inner.height * (1 - tick / top);
            return (
              <g key={tick}>
                <line className="grid-line" x1={LEFT} x2={width - RIGHT} y1={y} y2={y} />
                <text className="axis" x={LEFT - 8} y={y + 4} textAnchor="end">
                  {count(tick)}
                </text>
              </g>
            );
          })}
          {width > 0 &&
            timeTicks(begins, begins + spanMs, Math.max(2, Math.floor(inner.width / 70)))
              .filter((tick) => x(tick) < width - 20)
              .map((tick) => (
                <text key={tick} className="axis" x={x(tick)} y={HEIGHT - 6} textAnchor="middle">
                  {clockTime(new Date(tick)).slice(0, 5)}
                </text>
              ))}
          {at !== undefined && (
            <rect className="pointed" x={LEFT + at * column} y={ABOVE} width={column} height={inner.height} />
          )}
          {parts.map((part, place) => {
            const heights = stack(
              kinds.map((kind) => part[kind]),
              top,
              inner.height,
            );
            return kinds.map(
              (kind, level) =>
                part[kind] > 0 && (
                  <rect
                    key={`${kind} ${part.at}`}
                    data-kind={kind}
                    x={LEFT + place * column + gap(column) / 2}
                    y={ABOVE + heights[level]!.y}
                    width={Math.max(1, column - gap(column))}
                    height={heights[level]!.height}
                  />
                ),
            );
          })}
        </svg>
        {most === 0 && <span className="chart-none soft small">No job ended in this time</span>}
      </div>
      <table className="hidden">
        <caption>Jobs that ended, by time</caption>
        <thead>
          <tr>
            <th>From</th>
            {kinds.map((kind) => (
              <th key={kind}>{kind}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {parts
            .filter((part) => sum(part) > 0)
            .map((part) => (
              <tr key={part.at}>
                <td>{clockTime(part.at)}</td>
                {kinds.map((kind) => (
                  <td key={kind}>{part[kind]}</td>
                ))}
              </tr>
            ))}
        </tbody>
      </table>
    </figure>
  );
}

function sentence(part: Part, eachMs: number): string {
  const from = clockTime(part.at);
  const to = clockTime(new Date(Date.parse(part.at) + eachMs));
  const said = kinds.filter((kind) => part[kind] > 0).map((kind) => `${count(part[kind])} ${kind}`);
  return `${from} to ${to}: ${said.length > 0 ? said.join(", ") : several(0, "job")}`;
}

function sum({ completed, failed, cancelled }: Part): number {
  return completed + failed + cancelled;
}

function total(parts: readonly Part[], kind: (typeof kinds)[number]): number {
  return parts.reduce((so, part) => so + part[kind], 0);
}

const gap = (column: number) => (column > 4 ? 1.5 : 0);

/** As wide as there is room. */
function useWidth(): [number, (element: HTMLElement | null) => void] {
  const [width, setWidth] = useState(0);
  const [element, setElement] = useState<HTMLElement | null>(null);
  const last = useRef(0);
  useEffect(() => {
    if (!element) return;
    const look = () => {
      const now = Math.floor(element.clientWidth);
      if (now !== last.current) setWidth(now);
      last.current = now;
    };
    look();
    const observer = new ResizeObserver(look);
    observer.observe(element);
    return () => observer.disconnect();
  }, [element]);
  return [width, setElement];
}
