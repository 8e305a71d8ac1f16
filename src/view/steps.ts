// The steps of a job as far as a follower can tell: those whose result is kept are told by the server, those under way are known by their lines, optional ones that
// failed by the warning they leave and, at the end, by the job's own list.
import type { Line, Snapshot, StepSeen } from "./snapshot.ts";
import type { StepTold } from "./wire.ts";

export class StepList {
  readonly #steps = new Map<string, StepSeen>();
  #seen: readonly StepSeen[] = [];
  #seenFor: Snapshot["job"] | undefined;
  #changed = true;

  keep({ name, startedAt, savedAt, tookMs, epoch }: StepTold): void {
    const sentence = this.#steps.get(name)?.sentence ?? null;
    this.#set({ name, state: "kept", startedAt, savedAt, tookMs, epoch, sentence });
  }

  hear({ step, epoch, at, level, message, data, tookMs }: Line): void {
    if (step === null) return;
    const known = this.#steps.get(step);
    if (known?.state === "kept") {
      if (known.epoch === epoch) known.sentence = message;
      return;
    }
    if (level === "success" && tookMs !== null && at !== null) {
      // Its last words, which come after its result was kept. Of very many steps the server tells only the latest.
      const startedAt = new Date(Date.parse(at) - tookMs).toISOString();
      this.#set({ name: step, state: "kept", startedAt, savedAt: at, tookMs, epoch, sentence: message });
      return;
    }
    const missing = level === "warning" && isFailedOptional(data);
    const goesOn = known?.state === "running" && known.epoch === epoch;
    if (goesOn && !missing) {
      // Only the words have changed, which is no reason for a new list a thousand times a second.
      known.sentence = message;
      return;
    }
    this.#set({
      name: step,
      state: missing ? "missing" : "running",
      startedAt: goesOn ? known.startedAt : at,
      savedAt: null,
      tookMs: null,
      epoch,
      sentence: message,
    });
  }

  /** The attempt is over: what was under way is so no longer. */
  interrupt(): void {
    for (const step of this.#steps.values()) if (step.state === "running") this.#set({ ...step, state: "interrupted" });
  }

  /** The job has begun anew at this moment: what was there before is no more. */
  forgetBefore(moment: string): void {
    for (const { name, savedAt } of this.#steps.values()) {
      if (savedAt === null || Date.parse(savedAt) < Date.parse(moment)) this.#steps.delete(name);
    }
    this.#changed = true;
  }

  forget(): void {
    for (const { name, state } of this.#steps.values()) if (state !== "kept") this.#steps.delete(name);
    this.#changed = true;
  }

  /** In the order in which they began. */
  seen(job: Snapshot["job"]): readonly StepSeen[] {
    if (!this.#changed && job === this.#seenFor) return this.#seen;
    this.#changed = false;
    this.#seenFor = job;
    const missing = new Set(job?.missing);
    const ended = job !== null && job.endedAt !== null;
    const atLast = job?.state === "completed" ? ("kept" as const) : ("interrupted" as const);
    const steps = [...this.#steps.values()].map((step) => {
      if (step.state === "kept") return step;
      if (missing.has(step.name)) return { ...step, state: "missing" as const };
      return ended && step.state === "running" ? { ...step, state: atLast } : step;
    });
    for (const name of missing) {
      if (this.#steps.has(name)) continue;
      steps.push({
        name,
        state: "missing",
        startedAt: null,
        savedAt: null,
        tookMs: null,
        epoch: null,
        sentence: null,
      });
    }
    const began = ({ startedAt, savedAt }: StepSeen) => Date.parse(startedAt ?? savedAt ?? "") || Number.MAX_VALUE;
    this.#seen = steps.sort((one, two) => began(one) - began(two));
    return this.#seen;
  }

  #set(step: StepSeen): void {
    this.#steps.set(step.name, step);
    this.#changed = true;
  }
}

/** The line that the worker writes when an optional step is given up. */
function isFailedOptional(data: unknown): boolean {
  if (typeof data !== "object" || data === null || !("error" in data)) return false;
  return Object.keys(data).every((key) => key === "error" || key === "code");
}
