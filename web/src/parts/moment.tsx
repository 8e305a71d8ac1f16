// A moment as its distance from now, with the exact time for those who point at it. One clock ticks for all of them.
import { useSyncExternalStore } from "react";
import { serverNow } from "../api/clock.ts";
import { distance, span, wholeTime } from "./words.ts";

let now = 0;
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = serverNow();
    for (const one of listeners) one();
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** The time where the jobs are, to the second. While nobody was looking the clock stood still, and is set again by the first who does. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => {
    if (timer === undefined) now = Math.floor(serverNow() / 1000) * 1000;
    return now;
  });
}

export function Moment({ at }: { at: string | null }) {
  const time = useNow();
  if (at === null) return <span className="soft">–</span>;
  return (
    <time dateTime={at} title={wholeTime(at)} className="number">
      {distance(at, time)}
    </time>
  );
}

/** How long something took, or takes: it counts on while there is no end. */
export function Span({ from, to }: { from: string | null; to: string | null }) {
  const time = useNow();
  if (from === null) return <span className="soft">–</span>;
  return <span className="number">{span((to ? Date.parse(to) : time) - Date.parse(from))}</span>;
}
