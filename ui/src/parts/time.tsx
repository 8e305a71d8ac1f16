// Times relative to now, with the exact time as a tooltip, and durations that count up. One timer serves all of them.
import { useSyncExternalStore } from "react";
import { serverNow } from "../api/server-clock.ts";
import { formatDateTime, formatDuration, formatRelative } from "../format.ts";

let now = 0;
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = serverNow();
    for (const notify of listeners) notify();
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** The server's time, updated every second. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => {
    // Without subscribers the timer is off and `now` is old.
    if (timer === undefined) now = Math.floor(serverNow() / 1000) * 1000;
    return now;
  });
}

export function RelativeTime({ at }: { at: string | null }) {
  const time = useNow();
  if (at === null) return <span className="soft">–</span>;
  return (
    <time dateTime={at} title={formatDateTime(at)} className="number">
      {formatRelative(at, time)}
    </time>
  );
}

/** Counts up while there is no end. */
export function Duration({ from, to }: { from: string | null; to: string | null }) {
  const time = useNow();
  if (from === null) return <span className="soft">–</span>;
  return <span className="number">{formatDuration((to ? Date.parse(to) : time) - Date.parse(from))}</span>;
}
