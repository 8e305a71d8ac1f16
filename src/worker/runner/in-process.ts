// Runs attempts in the worker's own process: for tests, small apps, and small jobs at a high rate. It cannot kill: code
// that does not stop is abandoned, and a blocked event loop blocks the heartbeats too.
import type { Tracing } from "../../tracing.ts";
import { runAttempt, toLoadedPipeline } from "../attempt/attempt.ts";
import { attemptTag } from "../attempt/attempt-state.ts";
import type { Implementation } from "../attempt/implement.ts";
import { faultPointByStop, type ShouldCrash } from "./fault-point.ts";
import type { Assignment, LoadedPipeline, Port, Run, Runners } from "./port.ts";
import { killTree, startGuard } from "./process-tree.ts";
import { StopSignal } from "./stop-signal.ts";

export interface InProcessRunnerOptions {
  implementations: Implementation[];
  tracing: Tracing;
  processTag: string;
  graceMs: number;
  env: Readonly<Record<string, string | undefined>>;
  crash?: ShouldCrash | undefined;
  /** performance.now() from which an attempt releases its job at the next step or batch. */
  releaseAt?: number;
}

export class InProcessRunner implements Runners {
  readonly #options: InProcessRunnerOptions;
  readonly #byName: Map<string, Implementation>;
  readonly #onExec = () => {
    this.#guard ??= startGuard(this.#options.processTag);
  };
  #guard: { close(): void } | undefined;

  constructor(options: InProcessRunnerOptions) {
    this.#options = options;
    this.#byName = new Map(options.implementations.map((code) => [code.pipeline.name, code]));
  }

  async start(): Promise<LoadedPipeline[]> {
    // Silence cannot be detected here: it would be this event loop that is blocked.
    return this.#options.implementations.map((code) => ({
      ...toLoadedPipeline(code),
      silenceMs: Number.POSITIVE_INFINITY,
    }));
  }

  run(assignment: Assignment, port: Port): Run {
    const stop = new StopSignal();
    const { tracing, processTag, graceMs, env, crash, releaseAt = Number.POSITIVE_INFINITY } = this.#options;
    // No object spread: tens of thousands of these are created per second.
    const outcome = runAttempt(this.#byName.get(assignment.pipeline)!, assignment, {
      port,
      stop,
      tracing,
      processTag,
      graceMs,
      lingerMs: 0,
      env,
      faultPoint: faultPointByStop(crash, stop),
      releaseAt,
      onStray: doNothing,
      onExec: this.#onExec,
    });
    const kill = async () => {
      // The code is abandoned; its commands can be killed and must not run when the next attempt starts.
      if (this.#guard) await killTree(attemptTag(processTag, assignment));
      return false;
    };
    return { outcome, stop: async (reason) => stop.stop(reason), kill };
  }

  async stop(): Promise<void> {
    if (!this.#guard) return;
    await killTree(this.#options.processTag);
    this.#guard.close();
  }
}

function doNothing(): void {}
