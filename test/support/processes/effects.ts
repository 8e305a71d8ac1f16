// A pipeline in the process of the test whose steps have effects that are counted. A step is finished once `job.step` has returned: from then
// on its effect must never happen again, whatever breaks.
import { pipeline } from "../../../src/index.ts";
import { type Implementation, implement, type JobContext } from "../../../src/worker/index.ts";

interface Effect {
  job: string;
  step: string;
  epoch: bigint;
  at: number;
}

export interface Effects {
  implementation: Implementation;
  effects: Effect[];
  /** When each step was first known to be finished, by job and step. */
  finished: Map<string, number>;
  /** Effects of steps that were finished when they began. */
  afterFinish(): Effect[];
  /** Effects above one per step, of whatever step. */
  repeats(): number;
}

export interface EffectsOptions {
  pool?: string;
  steps?: number;
  /** How long a step works. */
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
