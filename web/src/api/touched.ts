// When somebody last touched the page. Nobody for long: it rests, and says so.
import { useEffect, useSyncExternalStore } from "react";
import { REST_AFTER_MS } from "./refresh.ts";

let touchedAt = performance.now();
let resting = false;
const listeners = new Set<() => void>();

function look(): void {
  const rests = performance.now() - touchedAt > REST_AFTER_MS;
  if (rests === resting) return;
  resting = rests;
  for (const listener of listeners) listener();
}

export function sinceTouched(): number {
  return performance.now() - touchedAt;
}

/** True when nobody has touched the page for so long that it no longer asks. */
export function useResting(onWake: () => void): boolean {
  useEffect(() => {
    const touch = () => {
      const slept = resting;
      touchedAt = performance.now();
      look();
      if (slept) onWake();
    };
    const timer = setInterval(look, 5_000);
    for (const name of ["pointerdown", "keydown", "wheel", "focus"]) addEventListener(name, touch, { passive: true });
    return () => {
      clearInterval(timer);
      for (const name of ["pointerdown", "keydown", "wheel", "focus"]) removeEventListener(name, touch);
    };
  }, [onWake]);
  return useIsResting();
}

/** The same for parts of a page: they are told, and leave the waking to the frame. */
export function useIsResting(): boolean {
  return useSyncExternalStore(subscribe, () => resting);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
