// Attempts in this very process: for tests, small apps and small jobs at a high rate. The same attempt as in a runner, without the pipe. What it
// cannot do is kill: code that does not stop is given up, and a blocked event loop blocks the heartbeats as well.
import type { Tracing } from "../../tracing.ts";
import { factsOf, runAttempt } from "../attempt/attempt.ts";
import { markOf } from "../attempt/context-host.ts";
import type { Implementation } from "../attempt/implement.ts";
import { type CrashWish, crashByStop } from "./fault-point.ts";
import type { Assignment, Crew, PipelineFacts, Port, Run } from "./port.ts";
import { killTree, startGuard } from "./process-tree.ts";
import { StopSignal } from "./stop-signal.ts";

export interface OwnCrewOptions {
  implementations: Implementation[];
  tracing: Tracing;
  pool: string;
  mark: string;
  graceMs: number;
  env: Readonly<Record<string, string | undefined>>;
  crash?: CrashWish | undefined;
  /** See ContextHost. */
  handOnAt?: number;
}

export class OwnCrew implements Crew {
  readonly #options: OwnCrewOptions;
  readonly #byName: Map<string, Implementation>;
  readonly #onExec = () => {
    this.#guard ??= startGuard(this.#options.mark);
  };
  #guard: { close(): void } | undefined;

  constructor(options: OwnCrewOptions) {
    this.#options = options;
    this.#byName = new Map(options.implementations.map((one) => [one.pipeline.name, one]));
  }

  async start(): Promise<PipelineFacts[]> {
    // The tick of a runner has no meaning here: if this loop stood still, nobody would notice.
    return this.#options.implementations.map((one) => ({ ...factsOf(one), silenceMs: Number.POSITIVE_INFINITY }));
  }

  run(assignment: Assignment, port: Port): Run {
    const stop = new StopSignal();
    const { tracing, pool, mark, graceMs, env, crash, handOnAt = Number.POSITIVE_INFINITY } = this.#options;
    // Written out: tens of thousands of these are made in a second.
    const outcome = runAttempt(this.#byName.get(assignment.pipeline)!, assignment, {
      port,
      stop,
      tracing,
      pool,
      mark,
      graceMs,
      lingerMs: 0,
      env,
      crashPoint: crashByStop(crash, stop),
      handOnAt,
      onStray: doNothing,
      onExec: this.#onExec,
    });
    const kill = async () => {
      // The code itself is given up; its commands can be killed, and must not be at work when the next attempt begins.
      if (this.#guard) await killTree(markOf(mark, assignment));
      return false;
    };
    return { outcome, stop: async (reason) => stop.stop(reason), kill };
  }

  async stop(): Promise<void> {
    if (!this.#guard) return;
    await killTree(this.#options.mark);
    this.#guard.close();
  }
}

function doNothing(): void {}
