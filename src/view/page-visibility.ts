// Visibility and animation frames of the page. Each global may be missing: the same code runs during server rendering and in tests.

interface PageGlobals {
  document?: {
    readonly visibilityState: string;
    addEventListener(type: string, listener: () => void): void;
    removeEventListener(type: string, listener: () => void): void;
  };
  addEventListener?(type: string, listener: () => void): void;
  removeEventListener?(type: string, listener: () => void): void;
  requestAnimationFrame?(callback: () => void): number;
  cancelAnimationFrame?(handle: number): void;
}

const page = globalThis as unknown as PageGlobals;

/** Whether the page is in a background tab. */
export function isHidden(): boolean {
  return page.document?.visibilityState === "hidden";
}

/** Calls when the page becomes visible or hidden, and when the network is back. Returns a function that stops it. */
export function onVisibilityChange(callback: () => void): () => void {
  page.document?.addEventListener("visibilitychange", callback);
  page.addEventListener?.("online", callback);
  page.addEventListener?.("pageshow", callback);
  return () => {
    page.document?.removeEventListener("visibilitychange", callback);
    page.removeEventListener?.("online", callback);
    page.removeEventListener?.("pageshow", callback);
  };
}

/** Calls when the page becomes visible. */
export function onVisible(callback: () => void): () => void {
  return onVisibilityChange(() => {
    if (!isHidden()) callback();
  });
}

/**
 * Calls once, with the first animation frame after `afterMs`. A hidden page has no frames: it is called 250 ms later
 * instead, because its title still changes. Returns a function that cancels it.
 */
export function onNextFrame(callback: () => void, afterMs = 0): () => void {
  let frame: number | undefined;
  let delay: ReturnType<typeof setTimeout> | undefined;
  const cancel = () => {
    clearTimeout(fallback);
    clearTimeout(delay);
    if (frame !== undefined) page.cancelAnimationFrame?.(frame);
  };
  const run = () => {
    cancel();
    callback();
  };
  const requestFrame = () => {
    frame = page.requestAnimationFrame?.(run);
  };
  const waitMs = Math.max(0, afterMs);
  const fallback = setTimeout(run, waitMs + (page.requestAnimationFrame ? 250 : 50));
  // Less than one frame is not worth a timer.
  if (waitMs > 16) delay = setTimeout(requestFrame, waitMs);
  else requestFrame();
  return cancel;
}
