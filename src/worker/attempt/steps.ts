// The steps of one attempt. A step that has a checkpoint is not run again; one that has none runs within its limits, is tried again as its
// own policy says, and returns only when its result is durable. A critical step that fails ends the attempt; an optional one leaves a
// warning and a gap.
import { setTimeout as delay } from "node:timers/promises";
import { Pause, RateLimited } from "../../contract/job-errors.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { unstorable } from "../../payload.ts";
import { backoffMs, type Duration, durationMs, limitMs } from "../../time.ts";
import type { Tracing } from "../../tracing.ts";
import type { CrashPoint } from "../runner/fault-point.ts";
import type { Assignment, Port } from "../runner/port.ts";
import type { StopSignal } from "../runner/stop-signal.ts";
import { decode, encode } from "./checkpoint-codec.ts";
import { classify, failureOf, type Judge, sentenceOf } from "./failure.ts";
import type { Journal } from "./log-writer.ts";
import { Asleep, inWords, Stopped } from "./outcome.ts";

export interface StepOptions<Result = unknown> {
  /** Said when it begins. */
  start?: string;
  /** Said when its result is kept. */
  end?: string | ((result: Result) => string);
  /** How long one try may take. */
  timeout?: Duration;
  /** How long it may go without a log line, progress or output of a command. */
  silence?: Duration;
  /** Tries within this attempt, before the attempt fails. Default: one. */
  retry?: { attempts: number; initial?: Duration; max?: Duration };
}

/** Which step, and the tokens for effects outside: what a step function is told. */
export interface StepScope {
  readonly name: string;
  readonly signal: AbortSignal;
  /** The same in every attempt: for outside systems that recognise a repeated call. */
  readonly idempotencyKey: string;
  /** Grows with every attempt: for outside systems that refuse a replaced one. */
  readonly fencingToken: bigint;
}

type StepCode<Result> = (scope: StepScope) => Promise<Result> | Result;

class Scope implements StepScope {
  readonly name: string;
  readonly #assignment: Assignment;
  readonly #signal: () => AbortSignal;

  constructor(name: string, assignment: Assignment, signal: () => AbortSignal) {
    this.name = name;
    this.#assignment = assignment;
    this.#signal = signal;
  }

  get signal(): AbortSignal {
    return this.#signal();
  }

  get idempotencyKey(): string {
    return `${this.#assignment.job}:${this.name}`;
  }

  get fencingToken(): bigint {
    return BigInt(this.#assignment.epoch);
  }
}

export function attemptEnded(job: string): StillwakeError {
  return new StillwakeError("ATTEMPT_ENDED", `This attempt at job ${job} has ended`, {
    remedy: "Await everything the job does before its function returns",
  });
}

/** A step went past its own limit. */
class StepLimit extends StillwakeError {}

export interface StepsHost {
  port: Port;
  stop: StopSignal;
  graceMs: number;
  tracing: Tracing;
  /** Code that did not stop when it was told to is still running in this process. */
  onStray(): void;
  crashPoint?: CrashPoint | undefined;
}

export class Steps {
  readonly #host: StepsHost;
  readonly #assignment: Assignment;
  readonly #judge: Judge;
  readonly #journal: Journal;
  readonly #names = new Set<string>();
  readonly #active: string[] = [];
  readonly missing: string[] = [];
  /** Results that this attempt has kept. */
  saved = 0;
  #ended = false;
  #kept: Promise<Map<string, unknown>> | undefined;
  #failed: { error: unknown; step: string } | undefined;
  /** performance.now() of the last thing the work itself said. */
  #heardAt = 0;

  constructor(host: StepsHost, assignment: Assignment, judge: Judge, journal: Journal) {
    this.#host = host;
    this.#assignment = assignment;
    this.#judge = judge;
    this.#journal = journal;
  }

  /** The step that was begun last and still runs. */
  get current(): string | undefined {
    return this.#active.at(-1);
  }

  /** True when at most one is under way. */
  get alone(): boolean {
    return this.#active.length <= 1;
  }

  stepOf(error: unknown): string | undefined {
    return this.#failed?.error === error ? this.#failed?.step : undefined;
  }

  /** The attempt is over: nothing more is kept. True when a step still runs. */
  end(): boolean {
    this.#ended = true;
    return this.#active.length > 0;
  }

  heard(): void {
    this.#heardAt = performance.now();
  }

  async critical<Result>(name: string, options: StepOptions<Result>, run: StepCode<Result>): Promise<Result> {
    const kept = this.begin(name);
    const found = kept && (await kept);
    return found ? (this.resultOf(name, found) as Result) : this.#run(name, options, run);
  }

  async optional<Result>(
    name: string,
    options: StepOptions<Result>,
    run: StepCode<Result>,
  ): Promise<Result | undefined> {
    const kept = await this.begin(name);
    if (kept) return this.resultOf(name, kept) as Result;
    try {
      return await this.#run(name, options, run);
    } catch (error) {
      if (this.#concernsJob(error)) throw error;
      const failure = failureOf(error, this.#judge, name);
      this.missing.push(name);
      this.#journal.write("warning", sentenceOf(failure), name, { code: failure.code, error: failure.message });
      return undefined;
    }
  }

  /** Checks the name, answers the kept result if there is one, and waits until effects may begin. Undefined when it may begin at once. */
  begin(name: string): Promise<{ value: unknown; raw: unknown } | undefined> | undefined {
    const { port, stop } = this.#host;
    checkName(name);
    this.#journal.refuseName(name, "a step");
    if (this.#names.has(name)) {
      throw new InvalidInput(`Step "${name}" was already used in this job`, {
        field: "name",
        remedy: "Give each step a name of its own; in a loop, put the item's id into it",
      });
    }
    this.#names.add(name);
    stop.throwIfStopped();
    const proof = port.leased();
    // A job that was never claimed before has no checkpoints.
    if (this.#assignment.epoch === "1" && !proof) return undefined;
    return this.#look(name, proof);
  }

  async #look(name: string, proof: Promise<void> | undefined): Promise<{ value: unknown; raw: unknown } | undefined> {
    const { port, stop } = this.#host;
    if (this.#assignment.epoch !== "1") {
      this.#kept ??= port.checkpoints().then((rows) => new Map(rows.map(({ step, output }) => [step, output])));
      const kept = await this.#kept;
      if (kept.has(name)) {
        port.stepEnded({ step: name, tookMs: 0, outcome: "kept" });
        const raw = kept.get(name);
        return { value: decode(raw), raw };
      }
    }
    if (proof) await proof;
    stop.throwIfStopped();
    if (this.#ended) throw attemptEnded(this.#assignment.job);
    return undefined;
  }

  /** What a step has returned before. The place of a list or the wait for an event is no result. */
  resultOf(name: string, { value, raw }: { value: unknown; raw: unknown }): unknown {
    const kind = kindOf(raw);
    if (kind !== "place" && kind !== "wait" && kind !== "timeout") return value;
    throw new InvalidInput(`"${name}" was a ${kind === "place" ? "list" : "wait"} before, and is a step now`, {
      field: "name",
      remedy: "Give the step a name of its own, or raise the version of the pipeline",
    });
  }

  /** It says how the job goes on, not that a step has failed. */
  #concernsJob(error: unknown): boolean {
    if (this.#host.stop.reason || this.#ended) return true;
    if ([Stopped, Asleep, RateLimited, Pause].some((kind) => error instanceof kind)) return true;
    const verdict = classify(error, this.#judge);
    return typeof verdict === "object" && !("retryIn" in verdict);
  }

  scope(name: string, signal: () => AbortSignal): StepScope {
    return new Scope(name, this.#assignment, signal);
  }

  /** Runs a step between its two messages. */
  async tell<Result>(name: string, options: StepOptions<Result>, work: () => Promise<Result>): Promise<Result> {
    const { port, tracing } = this.#host;
    const journal = this.#journal;
    if (options.start !== undefined) journal.write("info", options.start, name);
    this.#active.push(name);
    this.heard();
    const began = performance.now();
    port.stepStarted(name);
    let outcome: "completed" | "failed" | "skipped" = "failed";
    let code: string | undefined;
    try {
      const result = await tracing.step(name, async (note) => {
        try {
          return await work();
        } catch (error) {
          if (error instanceof Stopped) note("stopped");
          else if (journal.redactor.hides) note("failed", journal.redactor.hideError(error));
          throw error;
        }
      });
      outcome = "completed";
      if (options.end !== undefined) {
        const tookMs = Math.round(performance.now() - began);
        journal.write("success", typeof options.end === "function" ? options.end(result) : options.end, name, {
          took_ms: tookMs,
        });
      }
      return result;
    } catch (error) {
      // The job goes on with it another time.
      if (error instanceof Asleep) outcome = "skipped";
      else code = journal.redactor.hideIn(failureOf(error).code) as string | undefined;
      this.#failed = { error, step: name };
      throw error;
    } finally {
      this.#active.splice(this.#active.lastIndexOf(name), 1);
      const tookMs = performance.now() - began;
      port.stepEnded(code === undefined ? { step: name, tookMs, outcome } : { step: name, tookMs, outcome, code });
    }
  }

  #run<Result>(name: string, options: StepOptions<Result>, run: StepCode<Result>): Promise<Result> {
    return this.tell(name, options, async () => {
      const began = performance.now();
      const value = await this.within(name, options, run);
      // A result that is there is kept, whatever the attempt was told meanwhile; only a replaced one may not write.
      if (this.#host.stop.reason?.stop.kind === "replaced") throw this.#host.stop.reason;
      if (this.#ended) throw attemptEnded(this.#assignment.job);
      const json = encode(value, `The result of step "${name}"`);
      this.#journal.checkResult(name, json);
      this.#host.crashPoint?.("before", name);
      this.#journal.handOver();
      await this.#host.port.saveCheckpoint(name, json, performance.now() - began);
      this.saved += 1;
      this.#host.crashPoint?.("after", name);
      // What comes back now is what comes back after a crash.
      if (typeof value === "object" && value !== null) return decode(JSON.parse(json)) as Result;
      return (value === 0 ? 0 : value) as Result;
    });
  }

  /** Runs code within the limits of a step, as often as its policy says. */
  within<Result>(name: string, options: StepOptions<Result>, run: StepCode<Result>): Promise<Result> | Result {
    return options.retry ? this.#tries(name, options, run) : this.#once(name, options, run);
  }

  async #tries<Result>(name: string, options: StepOptions<Result>, run: StepCode<Result>): Promise<Result> {
    const { attempts = 1, initial = "1s", max = "1m" } = options.retry ?? {};
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#once(name, options, run);
      } catch (error) {
        const { stop } = this.#host;
        if (attempt >= attempts || this.#concernsJob(error)) throw error;
        const verdict = classify(error, this.#judge);
        if (verdict === "fatal") throw error;
        const pauseMs =
          typeof verdict === "object" && "retryIn" in verdict
            ? durationMs(verdict.retryIn, "retryIn")
            : backoffMs(attempt - 1, durationMs(initial, "retry.initial"), durationMs(max, "retry.max"));
        const failure = failureOf(error, this.#judge, name);
        // A sentence of the author's own is said as it is; the figures are beside it.
        const words =
          failure.sentence ?? `${sentenceOf(failure)} (try ${attempt} of ${attempts}, again in ${inWords(pauseMs)})`;
        const data = { code: failure.code, try: attempt, tries: attempts, pause_ms: Math.round(pauseMs) };
        this.#journal.write("warning", words, name, data);
        await delay(pauseMs, undefined, { signal: stop.signal }).catch(() => stop.throwIfStopped());
      }
    }
  }

  /** One try within its limits. Without limits there is nothing to set up: most steps have none. */
  #once<Result>(name: string, options: StepOptions<Result>, run: StepCode<Result>): Promise<Result> | Result {
    if (options.timeout !== undefined || options.silence !== undefined) return this.#limited(name, options, run);
    return run(this.scope(name, () => this.#host.stop.signal));
  }

  async #limited<Result>(name: string, options: StepOptions<Result>, run: StepCode<Result>): Promise<Result> {
    const { stop, graceMs } = this.#host;
    const controller = new AbortController();
    const signal = AbortSignal.any([stop.signal, controller.signal]);
    const limits = watch(
      name,
      options,
      () => this.#heardAt,
      (error) => controller.abort(error),
    );
    this.heard();
    const { port } = this.#host;
    if (options.timeout !== undefined) port.limit(name, durationMs(options.timeout, "timeout"));
    const work = Promise.resolve(run(this.scope(name, () => signal)));
    const over = new Promise<never>((_, reject) => {
      controller.signal.addEventListener("abort", () => {
        // It was told; it has a moment to come to an end by itself.
        void delay(graceMs, undefined, { ref: false }).then(() => {
          this.#host.onStray();
          reject(controller.signal.reason);
        });
      });
    });
    over.catch(() => {});
    try {
      const value = await Promise.race([work, over]);
      if (controller.signal.aborted) throw controller.signal.reason;
      return value;
    } catch (error) {
      work.catch(() => {});
      throw controller.signal.aborted && !stop.reason ? controller.signal.reason : error;
    } finally {
      limits.close();
      if (options.timeout !== undefined) port.limit(name, null);
    }
  }
}

function watch(
  name: string,
  options: StepOptions<never>,
  heardAt: () => number,
  exceed: (error: StepLimit) => void,
): { close(): void } {
  const timeoutMs = limitMs(options.timeout, "timeout");
  const silenceMs = limitMs(options.silence, "silence");
  const deadline = performance.now() + timeoutMs;
  let timer: NodeJS.Timeout;
  const look = () => {
    const now = performance.now();
    if (now >= deadline) {
      exceed(
        new StepLimit("STEP_TIMEOUT", `Step "${name}" was still running after ${inWords(timeoutMs)}`, {
          retryable: true,
        }),
      );
    } else if (now - heardAt() >= silenceMs) {
      exceed(
        new StepLimit("STEP_SILENT", `Step "${name}" gave no sign of life for ${inWords(silenceMs)}`, {
          retryable: true,
        }),
      );
    } else {
      timer = setTimeout(look, Math.min(deadline - now, heardAt() + silenceMs - now, 2 ** 30));
    }
  };
  timer = setTimeout(look, Math.min(timeoutMs, silenceMs, 2 ** 30));
  return { close: () => clearTimeout(timer) };
}

/** What a checkpoint is when it is not the result of a step: "place", "wait" or "timeout". */
export function kindOf(raw: unknown): string | undefined {
  const mark = (raw as { $stillwake?: [string] } | null | undefined)?.$stillwake;
  return Array.isArray(mark) ? mark[0] : undefined;
}

function checkName(name: string): void {
  if (typeof name === "string" && name.length >= 1 && name.length <= 200 && !unstorable(name)) return;
  throw new InvalidInput(`${JSON.stringify(name)} cannot name a step`, {
    field: "name",
    remedy: "Use a text of 1 to 200 characters",
  });
}
