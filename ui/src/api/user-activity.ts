// Time since the last input on the page. After PAUSE_AFTER_MS without input, refreshing pauses and the page says so.
import { useEffect, useSyncExternalStore } from "react";
import { PAUSE_AFTER_MS } from "./refresh.ts";

const INPUTS = ["pointerdown", "keydown", "wheel", "focus"];
const CHECK_EVERY_MS = 5_000;

let lastInputAt = performance.now();
let paused = false;
const listeners = new Set<() => void>();

function update(): void {
  const next = getIdleMs() > PAUSE_AFTER_MS;
  if (next === paused) return;
  paused = next;
  for (const listener of listeners) listener();
}

export function getIdleMs(): number {
  return performance.now() - lastInputAt;
}

/** For the frame of the pages: watches the input. `onResume` is called when a paused page is used again. */
export function useActivityMonitor(onResume: () => void): boolean {
  useEffect(() => {
    const onInput = () => {
      const wasPaused = paused;
      lastInputAt = performance.now();
      update();
      if (wasPaused) onResume();
    };
    const timer = setInterval(update, CHECK_EVERY_MS);
    for (const name of INPUTS) addEventListener(name, onInput, { passive: true });
    return () => {
      clearInterval(timer);
      for (const name of INPUTS) removeEventListener(name, onInput);
    };
  }, [onResume]);
  return useRefreshPaused();
}

/** For parts of a page: whether refreshing is paused. */
export function useRefreshPaused(): boolean {
  return useSyncExternalStore(subscribe, () => paused);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
