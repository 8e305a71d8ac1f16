// One clock for all moments of a page: that of the server, as far as its answers tell it.
import { useSyncExternalStore } from "react";

let behind = 0;
let now = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

export function useNow(): number {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      now = Date.now() + behind;
      timer ??= setInterval(() => {
        now = Date.now() + behind;
        for (const one of listeners) one();
      }, 1000);
      return () => {
        listeners.delete(listener);
        if (listeners.size > 0) return;
        clearInterval(timer);
        timer = undefined;
      };
    },
    () => now,
  );
}

/** The date of an answer, which has whole seconds: a clock here that is off by no more than two of them is left alone. */
export function serverSaid(date: string | null): void {
  if (date === null || Number.isNaN(Date.parse(date))) return;
  const off = Date.parse(date) + 500 - Date.now();
  behind = Math.abs(off) > 2000 ? off : 0;
}
