// Fault points for tests: the moments before and after a step's result is kept. A runner that was started with STILLWAKE_CRASH="after:cloning"
// kills itself the first time it gets there; in one process the attempt ends as if its runner had died. Nothing happens without being asked.
import type { StopSignal } from "./stop-signal.ts";

/** Called at the point; may not return. */
export type CrashPoint = (point: "before" | "after", step: string) => void;
/** Whether to crash there. */
export type CrashWish = (point: "before" | "after", step: string) => boolean;

/** For a runner: the second attempt at a job goes on. */
export function crashByKill(
  env: Readonly<Record<string, string | undefined>>,
  attempt: number,
): CrashPoint | undefined {
  const wanted = env.STILLWAKE_CRASH;
  if (!wanted || attempt > 1) return undefined;
  return (point, step) => {
    if (wanted === `${point}:${step}`) process.kill(process.pid, "SIGKILL");
  };
}

/** For an attempt in this process, which must live on: nothing the attempt still does counts. */
export function crashByStop(wish: CrashWish | undefined, stop: StopSignal): CrashPoint | undefined {
  if (!wish) return undefined;
  return (point, step) => {
    if (!wish(point, step)) return;
    stop.stop({ kind: "crash", at: `${point} step "${step}" was kept` });
    stop.throwIfStopped();
  };
}
