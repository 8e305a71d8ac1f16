// How static analysis fails, in the words of the person who waits. An abort of the step is passed on as it is.

import { tell } from "@stillwake/kit/user-error";
import { ExecError } from "stillwake/worker";
import { TooMuch } from "./batches.ts";
import { storable } from "./collect.ts";

/** Semgrep works in a process of its own below the one we started: when the kernel takes that one, this one says so and ends in order. */
const RAN_OUT = /\bout of memory\b|\bSIGKILL\b|\bsignal (?:9|KILL)\b|\bexit code:? -9\b/i;

export function analysisFailed(error: unknown, reason?: string): unknown {
  if (error instanceof TooMuch) {
    return tell("Static analysis found more than can be read - scanning skipped", { code: "ANALYSIS_TOO_MUCH" });
  }
  if (!(error instanceof ExecError) || error.kind === "aborted") return error;
  if (error.kind === "oom" || RAN_OUT.test(reason ?? error.stderr.slice(0, 64 * 1024))) {
    return tell("Static analysis ran out of memory - scanning skipped", { code: "ANALYSIS_MEMORY", cause: error });
  }
  if (error.kind === "timeout" || error.kind === "silence") {
    return tell("Static analysis timed out - scanning skipped", { code: "ANALYSIS_TIMEOUT", cause: error });
  }
  const line =
    reason ??
    firstLine(error.stderr) ??
    (error.signal ? `it was ended by ${error.signal}` : `exit code ${error.exitCode}`);
  return tell(`Static analysis failed: ${storable(line, 300)}`, { code: "ANALYSIS_FAILED", cause: error });
}

export function firstLine(text: string): string | undefined {
  return /\S[^\r\n]*/.exec(text.slice(0, 64 * 1024))?.[0].trimEnd();
}
