// Runs one attempt, from the claimed job to its outcome: in a runner process, or in the worker's process without isolation.
import { type Pipeline, validateOutput } from "../../contract/pipeline.ts";
import type { Failure } from "../../db/calls/job.ts";
import { OUTPUT_LIMIT, toJson } from "../../payload.ts";
import { limitMs } from "../../time.ts";
import type { Assignment, LoadedPipeline } from "../runner/port.ts";
import { killTree } from "../runner/process-tree.ts";
import { type AttemptHost, AttemptState } from "./attempt-state.ts";
import { JobContext } from "./context.ts";
import { outcomeOfError, sentenceOf } from "./failure.ts";
import type { Implementation } from "./implement.ts";
import { type Outcome, outcomeOfStop } from "./outcome.ts";
import { remedyForWithheld } from "./withheld-database.ts";

export async function runAttempt(
  implementation: Implementation,
  assignment: Assignment,
  host: AttemptHost,
): Promise<Outcome> {
  const { job, epoch, pipeline, pool, trace } = assignment;
  const { releaseAfter } = implementation.pipeline.options;
  const ownMs = releaseAfter === undefined ? Number.POSITIVE_INFINITY : limitMs(releaseAfter, "releaseAfter");
  const releaseAt = Math.min(host.releaseAt ?? Number.POSITIVE_INFINITY, performance.now() + ownMs);
  const attempt = new AttemptState(host, assignment, implementation, releaseAt);
  const info = { job, pipeline, attempt: assignment.attempt, epoch, pool, carrier: trace };
  const outcome = await host.tracing.attempt(info, async (note) => {
    const [reached, error] = await runCode(implementation, attempt);
    note(reached.kind, error === undefined ? undefined : attempt.redactor.redactError(error));
    return reached;
  });
  if (outcome.kind === "failed") {
    const { failure } = outcome;
    attempt.logWriter.write("error", sentenceOf(failure), failure.step, {
      code: failure.code,
      error: failure.message,
      stack: failure.stack,
    });
  }
  const last = attempt.end(outcome);
  // Kills everything its commands have left running, daemons included.
  if (attempt.commandTag) await killTree(attempt.commandTag);
  await attempt.returnLimits();
  return last;
}

/** Returns the outcome and, for tracing, the error that led to it. */
async function runCode(implementation: Implementation, attempt: AttemptState): Promise<[Outcome, unknown?]> {
  const { stop, port, uncaught } = attempt.host;
  const { assignment } = attempt;
  const { pipeline } = implementation;
  const { version = 1, onOlder = "continue" } = pipeline.options;
  try {
    if (assignment.version !== null && assignment.version < version) await port.adopt(version, onOlder === "restart");
    const running = implementation.run(new JobContext(attempt), assignment.input);
    const abandoned = attempt.whenAbandoned();
    const orStopped = <T>(work: Promise<T> | T) =>
      Promise.race(uncaught ? [work, abandoned, uncaught] : [work, abandoned]);
    const value = await orStopped(running);
    if (attempt.hasOpenCalls && !attempt.suspended && !stop.reason) await orStopped(attempt.finishCalls());
    const completed: Outcome = { kind: "completed" };
    const validates = pipeline.options.output && !attempt.suspended;
    const output = validates ? await validateOutput(pipeline as Pipeline, value) : value;
    if (output !== undefined) completed.output = JSON.parse(toJson(output, "output", OUTPUT_LIMIT));
    // User code may have caught the error that suspended it.
    if (attempt.suspended) return [attempt.suspended];
    // A job that finished after it was stopped counts as finished, unless the attempt was replaced.
    return [stop.reason?.stop.kind === "replaced" ? { kind: "replaced" } : completed];
  } catch (error) {
    // With a saved checkpoint the next attempt resumes from there, so the time was not wasted.
    if (stop.reason?.stop.kind === "max_duration" && attempt.savedCount > 0) {
      return [{ kind: "released", reason: "released:time" }];
    }
    if (stop.reason) return [outcomeOfStop(stop.reason.stop)];
    if (attempt.suspended) return [attempt.suspended];
    const outcome = outcomeOfError(error, implementation, attempt.stepOf(error));
    if (outcome.kind === "failed") addRemedy(outcome.failure, error, attempt.host);
    return [outcome, error];
  }
}

function addRemedy(failure: Failure, error: unknown, { withheld, env }: AttemptHost): void {
  const remedy = withheld && remedyForWithheld(error, withheld, env);
  if (remedy) failure.message = `${failure.message || failure.code || "The connection failed"}. ${remedy}`;
}

/** What the keeper needs to know of a pipeline. Plain data: a runner sends it over the pipe. */
export function toLoadedPipeline({ pipeline }: Implementation): LoadedPipeline {
  const { version = 1, onOlder = "continue", timeout, silence = "10m" } = pipeline.options;
  return {
    name: pipeline.name,
    settings: pipeline.settings,
    dependencies: (pipeline.options.needs ?? []).map(({ kind, name, settings }) => ({ kind, name, settings })),
    version,
    onOlder,
    timeoutMs: limitMs(timeout, "timeout"),
    silenceMs: limitMs(silence, "silence"),
  };
}
