// The page around the view, as far as the parts without a DOM of their own need it. Each of these may be missing: the same code runs while a server renders and
// in tests.

interface Surroundings {
  document?: {
    readonly visibilityState: string;
    addEventListener(type: string, listener: () => void): void;
    removeEventListener(type: string, listener: () => void): void;
  };
  addEventListener?(type: string, listener: () => void): void;
  removeEventListener?(type: string, listener: () => void): void;
  requestAnimationFrame?(call: () => void): number;
  cancelAnimationFrame?(handle: number): void;
}

const around = globalThis as unknown as Surroundings;

/** Whether the page is in a tab that nobody sees. */
export function isHidden(): boolean {
  return around.document?.visibilityState === "hidden";
}

/** Calls when somebody comes to the page or leaves it, and when the network is back. Answers how to stop that. */
export function onTurn(call: () => void): () => void {
  around.document?.addEventListener("visibilitychange", call);
  around.addEventListener?.("online", call);
  around.addEventListener?.("pageshow", call);
  return () => {
    around.document?.removeEventListener("visibilitychange", call);
    around.removeEventListener?.("online", call);
    around.removeEventListener?.("pageshow", call);
  };
}

/** Calls when somebody looks at the page again. */
export function onReturn(call: () => void): () => void {
  return onTurn(() => {
    if (!isHidden()) call();
  });
}

/**
 * Calls once, with the next picture that is drawn after so long. A page that nobody looks at draws none, and yet time goes on for its title and for tests: then
 * a quarter of a second later. Answers how to stop it.
 */
export function onNextFrame(call: () => void, afterMs = 0): () => void {
  let frame: number | undefined;
  let resting: ReturnType<typeof setTimeout> | undefined;
  const stop = () => {
    clearTimeout(timer);
    clearTimeout(resting);
    if (frame !== undefined) around.cancelAnimationFrame?.(frame);
  };
  const once = () => {
    stop();
    call();
  };
  const draw = () => {
    frame = around.requestAnimationFrame?.(once);
  };
  const rest = Math.max(0, afterMs);
  const timer = setTimeout(once, rest + (around.requestAnimationFrame ? 250 : 50));
  // Less than a picture is no rest.
  if (rest > 16) resting = setTimeout(draw, rest);
  else draw();
  return stop;
}
