// A moment as its distance from now, with the exact time for those who point at it. One clock ticks for all of them.
import { useSyncExternalStore } from "react";
import { distance, span, wholeTime } from "./words.ts";

let now = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Date.now();
    for (const one of listeners) one();
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** The time, to the second. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
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
