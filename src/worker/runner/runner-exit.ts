// Validates what a runner process sends, and names the cause of its exit. User code can forge any message.
import type { Failure } from "../../db/calls/job.ts";
import { oomKills } from "../../memory.ts";
import { toStorableText } from "../attempt/failure.ts";
import type { Outcome } from "../attempt/outcome.ts";
import type { LoadedPipeline } from "./port.ts";

/** JSON has no Infinity: it arrives as null. */
export function restoreInfinity(pipeline: LoadedPipeline): LoadedPipeline {
  return {
    ...pipeline,
    timeoutMs: pipeline.timeoutMs ?? Number.POSITIVE_INFINITY,
    silenceMs: pipeline.silenceMs ?? Number.POSITIVE_INFINITY,
  };
}

export function checkOutcome(outcome: Outcome): Outcome {
  const kinds: Outcome["kind"][] = ["completed", "failed", "slept", "paused", "cancelled", "released", "replaced"];
  if (kinds.includes(outcome?.kind)) return outcome;
  return {
    kind: "failed",
    fatal: false,
    failure: { name: "Protocol", code: "PROTOCOL", message: "The runner sent no valid outcome" },
  };
}

/** `stderrTail` is the end of its stderr, `oomKills` the kernel's counter when the runner started. */
export function describeExit(
  runner: { stderrTail: string; oomKills: number | undefined },
  code: number | null,
  signal: NodeJS.Signals | null,
): Failure {
  const died = (reason: string, message: string): Failure => ({
    name: "RunnerDied",
    code: `RUNNER_${reason}`,
    message,
  });
  if (/heap out of memory|Allocation failed/i.test(runner.stderrTail)) {
    return died("OOM", "The runner ran out of memory: its JavaScript heap was full");
  }
  const kills = oomKills();
  if (signal === "SIGKILL" && kills !== undefined && runner.oomKills !== undefined && kills > runner.oomKills) {
    return died("OOM", "The runner was killed by SIGKILL: the machine ran out of memory");
  }
  if (signal) return died("KILLED", `The runner was killed by ${signal}`);
  if (code === 137)
    return died("OOM", "The runner exited with code 137: killed, usually because the machine ran out of memory");
  if (code === null) return died("START", `The runner could not be started: ${runner.stderrTail}`);
  const lastLine = runner.stderrTail.trim().split("\n").at(-1);
  return died("EXITED", `The runner exited with code ${code}${lastLine ? `: ${toStorableText(lastLine, 300)}` : ""}`);
}
