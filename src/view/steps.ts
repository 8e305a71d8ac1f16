// The steps of a job, as far as a follower can know them: saved steps come from the server, running ones are derived
// from their log lines, failed optional ones from their warning and from the job's list of missing steps.
import type { Line, Snapshot, StepView } from "./snapshot.ts";
import type { StepEvent } from "./wire.ts";

export class StepList {
  readonly #steps = new Map<string, StepView>();
  #listed: readonly StepView[] = [];
  #listedFor: Snapshot["job"] | undefined;
  #changed = true;

  addSaved({ name, startedAt, savedAt, tookMs, epoch }: StepEvent): void {
    const sentence = this.#steps.get(name)?.sentence ?? null;
    this.#set({ name, state: "kept", startedAt, savedAt, tookMs, epoch, sentence });
  }

  addLine({ step, epoch, at, level, message, data, tookMs }: Line): void {
    if (step === null) return;
    const known = this.#steps.get(step);
    if (known?.state === "kept") {
      if (known.epoch === epoch) known.sentence = message;
      return;
    }
    if (level === "success" && tookMs !== null && at !== null) {
      // The end line of a step is written after its checkpoint. Of very many steps the server sends only the latest.
      const startedAt = new Date(Date.parse(at) - tookMs).toISOString();
      this.#set({ name: step, state: "kept", startedAt, savedAt: at, tookMs, epoch, sentence: message });
      return;
    }
    const missing = level === "warning" && isFailedOptional(data);
    const isSameRun = known?.state === "running" && known.epoch === epoch;
    if (isSameRun && !missing) {
      // Only the sentence changes: no new list for each of a thousand lines per second.
      known.sentence = message;
      return;
    }
    this.#set({
      name: step,
      state: missing ? "missing" : "running",
      startedAt: isSameRun ? known.startedAt : at,
      savedAt: null,
      tookMs: null,
      epoch,
      sentence: message,
    });
  }

  /** The attempt is over: running steps are interrupted. */
  interrupt(): void {
    for (const step of this.#steps.values()) if (step.state === "running") this.#set({ ...step, state: "interrupted" });
  }

  /** The job was restarted from the beginning at this time: drops earlier steps. */
  dropBefore(moment: string): void {
    for (const { name, savedAt } of this.#steps.values()) {
      if (savedAt === null || Date.parse(savedAt) < Date.parse(moment)) this.#steps.delete(name);
    }
    this.#changed = true;
  }

  dropUnsaved(): void {
    for (const { name, state } of this.#steps.values()) if (state !== "kept") this.#steps.delete(name);
    this.#changed = true;
  }

  /** In the order of their start. */
  list(job: Snapshot["job"]): readonly StepView[] {
    if (!this.#changed && job === this.#listedFor) return this.#listed;
    this.#changed = false;
    this.#listedFor = job;
    const missing = new Set(job?.missing);
    const isSettled = job !== null && job.endedAt !== null;
    const finalState = job?.state === "completed" ? ("kept" as const) : ("interrupted" as const);
    const steps = [...this.#steps.values()].map((step) => {
      if (step.state === "kept") return step;
      if (missing.has(step.name)) return { ...step, state: "missing" as const };
      return isSettled && step.state === "running" ? { ...step, state: finalState } : step;
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
    const startOf = ({ startedAt, savedAt }: StepView) => Date.parse(startedAt ?? savedAt ?? "") || Number.MAX_VALUE;
    this.#listed = steps.sort((a, b) => startOf(a) - startOf(b));
    return this.#listed;
  }

  #set(step: StepView): void {
    this.#steps.set(step.name, step);
    this.#changed = true;
  }
}

/** Recognizes the line that the worker writes for a failed optional step. */
function isFailedOptional(data: unknown): boolean {
  if (typeof data !== "object" || data === null || !("error" in data)) return false;
  return Object.keys(data).every((key) => key === "error" || key === "code");
}
