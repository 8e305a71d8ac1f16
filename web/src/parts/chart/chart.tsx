// Ended jobs over time as stacked columns. The pointer or the arrow keys select a column and show its numbers; screen readers get a table.
import { useEffect, useId, useRef, useState } from "react";
import "../../css/chart.css";
import { formatCount, formatTime, plural } from "@stillwake/ui/format.ts";
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
  const [selected, setSelected] = useState<number>();
  const id = useId();
  const partMs = spanMs / Math.max(1, parts.length);
  const max = Math.max(0, ...parts.map(sum));
  const { top, ticks } = countScale(max);
  const inner = { width: Math.max(0, width - LEFT - RIGHT), height: HEIGHT - ABOVE - BELOW };
  const column = inner.width / Math.max(1, parts.length);
  const start = parts.length > 0 ? Date.parse(parts[0]!.at) : 0;
  const x = (time: number) => LEFT + ((time - start) / spanMs) * inner.width;
  const shown = selected === undefined ? undefined : parts[Math.min(selected, parts.length - 1)];
  const select = (index: number) => setSelected(Math.min(parts.length - 1, Math.max(0, index)));

  return (
    <figure className="chart">
      <figcaption className="chart-caption small" id={id}>
        {shown ? (
          <span className="number">{partText(shown, partMs)}</span>
        ) : (
          <ul className="legend">
            {kinds.map((kind) => (
              <li key={kind} data-kind={kind}>
                {kind} <span className="number">{formatCount(total(parts, kind))}</span>
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
        aria-valuenow={selected ?? Math.max(0, parts.length - 1)}
        aria-valuetext={shown ? partText(shown, partMs) : "Use the arrow keys to select a time"}
        onPointerMove={({ clientX, currentTarget }) => {
          const position = clientX - currentTarget.getBoundingClientRect().left - LEFT;
          if (column > 0) select(Math.floor(position / column));
        }}
        onPointerLeave={() => setSelected(undefined)}
        onBlur={() => setSelected(undefined)}
        onKeyDown={(event) => {
          const last = parts.length - 1;
          const from = selected ?? parts.length;
          const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
          if (event.key === "Escape") setSelected(undefined);
          if (to === undefined) return;
          event.preventDefault();
          select(to);
        }}
      >
        <svg width={width} height={HEIGHT} aria-hidden="true">
          {ticks.map((tick) => {
            const y = ABOVE + inner.height * (1 - tick / top);
            return (
              <g key={tick}>
                <line className="grid-line" x1={LEFT} x2={width - RIGHT} y1={y} y2={y} />
                <text className="axis" x={LEFT - 8} y={y + 4} textAnchor="end">
                  {formatCount(tick)}
                </text>
              </g>
            );
          })}
          {width > 0 &&
            timeTicks(start, start + spanMs, Math.max(2, Math.floor(inner.width / 70)))
              .filter((tick) => x(tick) < width - 20)
              .map((tick) => (
                <text key={tick} className="axis" x={x(tick)} y={HEIGHT - 6} textAnchor="middle">
                  {formatTime(new Date(tick)).slice(0, 5)}
                </text>
              ))}
          {selected !== undefined && (
            <rect className="selected" x={LEFT + selected * column} y={ABOVE} width={column} height={inner.height} />
          )}
          {parts.map((part, index) => {
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
                    x={LEFT + index * column + gap(column) / 2}
                    y={ABOVE + heights[level]!.y}
                    width={Math.max(1, column - gap(column))}
                    height={heights[level]!.height}
                  />
                ),
            );
          })}
        </svg>
        {max === 0 && <span className="chart-none soft small">No job ended in this time</span>}
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
                <td>{formatTime(part.at)}</td>
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

function partText(part: Part, partMs: number): string {
  const from = formatTime(part.at);
  const to = formatTime(new Date(Date.parse(part.at) + partMs));
  const counts = kinds.filter((kind) => part[kind] > 0).map((kind) => `${formatCount(part[kind])} ${kind}`);
  return `${from} to ${to}: ${counts.length > 0 ? counts.join(", ") : plural(0, "job")}`;
}

function sum({ completed, failed, cancelled }: Part): number {
  return completed + failed + cancelled;
}

function total(parts: readonly Part[], kind: (typeof kinds)[number]): number {
  return parts.reduce((total, part) => total + part[kind], 0);
}

const gap = (column: number) => (column > 4 ? 1.5 : 0);

/** The width of the element. */
function useWidth(): [number, (element: HTMLElement | null) => void] {
  const [width, setWidth] = useState(0);
  const [element, setElement] = useState<HTMLElement | null>(null);
  const last = useRef(0);
  useEffect(() => {
    if (!element) return;
    const update = () => {
      const now = Math.floor(element.clientWidth);
      if (now !== last.current) setWidth(now);
      last.current = now;
    };
    update();
    const observer = new ResizeObserver(update);
    observer.observe(element);
    return () => observer.disconnect();
  }, [element]);
  return [width, setElement];
}
