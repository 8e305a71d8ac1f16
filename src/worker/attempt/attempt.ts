// One attempt, from the claimed job to its outcome. Runs in a runner process or, without isolation, in the worker's own.

import { type Pipeline, validateOutput } from "../../contract/pipeline.ts";
import { OUTPUT_LIMIT, toJson } from "../../payload.ts";
import { limitMs } from "../../time.ts";
import type { Assignment, PipelineFacts } from "../runner/port.ts";
import { killTree } from "../runner/process-tree.ts";
import { JobContext } from "./context.ts";
import type { ContextHost } from "./context-host.ts";
import { outcomeOfError, sentenceOf } from "./failure.ts";
import type { Implementation } from "./implement.ts";
import { type Outcome, outcomeOfStop } from "./outcome.ts";

export interface AttemptHost extends ContextHost {
  pool: string;
  /** Rejects with what user code threw where nobody could catch it. */
  uncaught?: Promise<never>;
}

export async function runAttempt(
  implementation: Implementation,
  assignment: Assignment,
  host: AttemptHost,
): Promise<Outcome> {
  const { job, epoch, pipeline, attempt, trace } = assignment;
  const { budget } = implementation.pipeline.options;
  if (budget !== undefined) {
    host.handOnAt = Math.min(host.handOnAt ?? Number.POSITIVE_INFINITY, performance.now() + limitMs(budget, "budget"));
  }
  const context = new JobContext(host, assignment, implementation);
  const info = { job, pipeline, attempt, epoch, pool: host.pool, carrier: trace };
  const outcome = await host.tracing.attempt(info, async (note) => {
    const [reached, error] = await reach(implementation, assignment, context, host);
    note(reached.kind, error === undefined ? undefined : context.redactor.hideError(error));
    return reached;
  });
  if (outcome.kind === "failed") {
    const { failure } = outcome;
    context.write("error", sentenceOf(failure), failure.step, {
      code: failure.code,
      error: failure.message,
      stack: failure.stack,
    });
  }
  const last = context.end(outcome);
  // What it started and left behind, daemons included, ends with it.
  if (context.mark) await killTree(context.mark);
  await context.giveBack();
  return last;
}

/** The outcome, and the error it came from for whoever traces. */
async function reach(
  implementation: Implementation,
  assignment: Assignment,
  context: JobContext,
  host: AttemptHost,
): Promise<[Outcome, unknown?]> {
  const { stop, port } = host;
  const { version = 1, onOlder = "continue" } = implementation.pipeline.options;
  try {
    if (assignment.version !== null && assignment.version < version) await port.adopt(version, onOlder === "restart");
    const running = implementation.run(context, assignment.input);
    const over = context.overslept();
    const value = await Promise.race(host.uncaught ? [running, over, host.uncaught] : [running, over]);
    const output: Outcome = { kind: "completed" };
    const { pipeline } = implementation;
    const returned =
      pipeline.options.output && !context.asleep ? await validateOutput(pipeline as Pipeline, value) : value;
    if (returned !== undefined) output.output = JSON.parse(toJson(returned, "output", OUTPUT_LIMIT));
    // User code that caught the signal of its own sleep is asleep all the same.
    if (context.asleep) return [context.asleep];
    // A job that finished although it was told to stop has finished: only a lost lease makes that worthless.
    return [stop.reason?.stop.kind === "replaced" ? { kind: "replaced" } : output];
  } catch (error) {
    // What it has kept is the way it came; the next attempt goes on from there.
    if (stop.reason?.stop.kind === "budget" && context.saved > 0) return [{ kind: "released", reason: "handed_on" }];
    if (stop.reason) return [outcomeOfStop(stop.reason.stop)];
    if (context.asleep) return [context.asleep];
    return [outcomeOfError(error, implementation, context.stepOf(error)), error];
  }
}

/** What the keeper must know of a pipeline: everything but its code. */
export function factsOf({ pipeline }: Implementation): PipelineFacts {
  const { version = 1, onOlder = "continue", timeout, silence = "10m" } = pipeline.options;
  return {
    name: pipeline.name,
    settings: pipeline.settings,
    needs: (pipeline.options.needs ?? []).map(({ kind, name, settings }) => ({ kind, name, settings })),
    version,
    onOlder,
    timeoutMs: limitMs(timeout, "timeout"),
    silenceMs: limitMs(silence, "silence"),
  };
}
