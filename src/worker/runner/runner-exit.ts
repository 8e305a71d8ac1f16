// What a runner says and what its death means, read with care: user code can send what it likes, and a dead process says little.
import type { Failure } from "../../db/calls/jobs.ts";
import { clean } from "../attempt/failure.ts";
import type { Outcome } from "../attempt/outcome.ts";
import { oomKills } from "./memory.ts";
import type { PipelineFacts } from "./port.ts";

/** JSON has no Infinity. */
export function limitsBack(facts: PipelineFacts): PipelineFacts {
  return {
    ...facts,
    timeoutMs: facts.timeoutMs ?? Number.POSITIVE_INFINITY,
    silenceMs: facts.silenceMs ?? Number.POSITIVE_INFINITY,
  };
}

/** User code can send what it likes. */
export function checked(outcome: Outcome): Outcome {
  const kinds: Outcome["kind"][] = ["completed", "failed", "slept", "paused", "cancelled", "released", "replaced"];
  if (kinds.includes(outcome?.kind)) return outcome;
  return {
    kind: "failed",
    fatal: false,
    failure: { name: "Protocol", code: "PROTOCOL", message: "The runner sent no outcome" },
  };
}

/** Names what a runner died of. `lastWords` is the end of its stderr, `oomKills` the machine's counter when it started. */
export function causeOf(
  runner: { lastWords: string; oomKills: number | undefined },
  code: number | null,
  signal: NodeJS.Signals | null,
): Failure {
  const died = (reason: string, message: string): Failure => ({
    name: "RunnerDied",
    code: `RUNNER_${reason}`,
    message,
  });
  if (/heap out of memory|Allocation failed/i.test(runner.lastWords)) {
    return died("OOM", "The runner ran out of memory: its JavaScript heap was full");
  }
  const kills = oomKills();
  if (signal === "SIGKILL" && kills !== undefined && runner.oomKills !== undefined && kills > runner.oomKills) {
    return died("OOM", "The runner was killed by SIGKILL: the machine ran out of memory");
  }
  if (signal) return died("KILLED", `The runner was killed by ${signal}`);
  if (code === 137) return died("OOM", "The runner ended with exit code 137: killed, most often for want of memory");
  if (code === null) return died("START", `The runner could not be started: ${runner.lastWords}`);
  const words = runner.lastWords.trim().split("\n").at(-1);
  return died("EXITED", `The runner ended with exit code ${code}${words ? `: ${clean(words, 300)}` : ""}`);
}
