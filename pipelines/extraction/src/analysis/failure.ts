// Turns failures of static analysis into messages for people. An aborted step is passed on as it is.
import { userError } from "@stillwake/kit/failures";
import { ExecError } from "stillwake/worker";
import { storable } from "../untrusted.ts";
import { OutputTooLarge } from "./batches.ts";

/** Semgrep runs in a child of the started process, which reports that the kernel killed it and exits normally. */
const OUT_OF_MEMORY = /\bout of memory\b|\bSIGKILL\b|\bsignal (?:9|KILL)\b|\bexit code:? -9\b/i;

export function explainAnalysisFailure(error: unknown, reason?: string): unknown {
  if (error instanceof OutputTooLarge) {
    return userError("Static analysis output is too large - scanning skipped", { code: "ANALYSIS_TOO_MUCH" });
  }
  if (!(error instanceof ExecError) || error.kind === "aborted") return error;
  if (error.kind === "oom" || OUT_OF_MEMORY.test(reason ?? error.stderr.slice(0, 64 * 1024))) {
    return userError("Static analysis ran out of memory - scanning skipped", { code: "ANALYSIS_MEMORY", cause: error });
  }
  if (error.kind === "timeout" || error.kind === "silence") {
    return userError("Static analysis timed out - scanning skipped", { code: "ANALYSIS_TIMEOUT", cause: error });
  }
  const line =
    reason ?? firstLine(error.stderr) ?? (error.signal ? `killed by ${error.signal}` : `exit code ${error.exitCode}`);
  return userError(`Static analysis failed: ${storable(line, 300)}`, { code: "ANALYSIS_FAILED", cause: error });
}

export function firstLine(text: string): string | undefined {
  return /\S[^\r\n]*/.exec(text.slice(0, 64 * 1024))?.[0].trimEnd();
}
