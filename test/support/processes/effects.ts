// A pipeline in the test's process whose steps count their effects. A step is finished when `job.step` has returned:
// from then on its effect must not happen again, whatever fails.
import { pipeline } from "../../../src/index.ts";
import { type Implementation, implement, type JobContext } from "../../../src/worker/index.ts";

interface Effect {
  job: string;
  step: string;
  epoch: number;
  at: number;
}

export interface Effects {
  implementation: Implementation;
  effects: Effect[];
  /** When each step was first finished, by job and step. */
  finished: Map<string, number>;
  /** Effects of steps that were already finished. */
  afterFinish(): Effect[];
  /** The number of effects beyond the first of each step. */
  repeats(): number;
}

export interface EffectsOptions {
  pool?: string;
  steps?: number;
  /** How long a step takes. */
  stepMs?: number;
  attempts?: number;
  before?(job: JobContext): Promise<void>;
}

export function countedEffects(name: string, options: EffectsOptions = {}): Effects {
  const { pool = name, steps = 3, stepMs = 0, attempts = 100, before } = options;
  const effects: Effect[] = [];
  const finished = new Map<string, number>();
  const late: Effect[] = [];
  const contract = pipeline(name, { pool, retry: { attempts, crashes: 1000, initial: "10ms", max: "100ms" } });
  const implementation = implement(contract, async (job) => {
    await before?.(job);
    for (let number = 1; number <= steps; number++) {
      const step = `step ${number}`;
      await job.step(step, async ({ fencingToken }) => {
        const effect = { job: job.id, step, epoch: fencingToken, at: performance.now() };
        effects.push(effect);
        if (finished.has(`${job.id} ${step}`)) late.push(effect);
        if (stepMs > 0) await new Promise((resolve) => setTimeout(resolve, stepMs));
      });
      const key = `${job.id} ${step}`;
      if (!finished.has(key)) finished.set(key, performance.now());
    }
    return "done";
  });
  return {
    implementation,
    effects,
    finished,
    afterFinish: () => late,
    repeats: () => effects.length - new Set(effects.map(({ job, step }) => `${job} ${step}`)).size,
  };
}
