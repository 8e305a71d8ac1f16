// Fault points for tests: the moments before and after the checkpoint of a step is saved. A runner started with
// STILLWAKE_CRASH="after:cloning" kills itself the first time it reaches that point; in process, the attempt ends as if
// its runner had died.
import type { StopSignal } from "./stop-signal.ts";

/** Called at each point; may not return. */
export type FaultPoint = (point: "before" | "after", step: string) => void;
/** Whether to crash at the point. */
export type ShouldCrash = (point: "before" | "after", step: string) => boolean;

/** For a runner process. Only the first attempt crashes. */
export function faultPointByKill(
  env: Readonly<Record<string, string | undefined>>,
  attempt: number,
): FaultPoint | undefined {
  const crashAt = env.STILLWAKE_CRASH;
  if (!crashAt || attempt > 1) return undefined;
  return (point, step) => {
    if (crashAt === `${point}:${step}`) process.kill(process.pid, "SIGKILL");
  };
}

/** For an attempt in this process, which must survive: stops the attempt, so that nothing it still does is saved. */
export function faultPointByStop(shouldCrash: ShouldCrash | undefined, stop: StopSignal): FaultPoint | undefined {
  if (!shouldCrash) return undefined;
  return (point, step) => {
    if (!shouldCrash(point, step)) return;
    stop.stop({ kind: "crash", at: `${point} the checkpoint of step "${step}"` });
    stop.throwIfStopped();
  };
}
