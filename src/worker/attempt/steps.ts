// The steps of one attempt. A step with a checkpoint is not run again. A step without one runs within its limits, is
// retried by its policy, and returns only when its result is stored. A critical step that fails fails the attempt; an
// optional one is logged and listed as missing.
import { setTimeout as delay } from "node:timers/promises";
import { Pause, RateLimited } from "../../contract/job-errors.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { findUnstorable } from "../../payload.ts";
import { backoffMs, type Duration, durationMs, limitMs } from "../../time.ts";
import { rejectUnknownOptions } from "../../validate.ts";
import type { Assignment } from "../runner/port.ts";
import type { AttemptHost } from "./attempt-state.ts";
import { checkpointKind, decodeCheckpoint, encodeCheckpoint, FAILED } from "./checkpoint-codec.ts";
import { classify, type FailurePolicy, sentenceOf, toFailure } from "./failure.ts";
import type { LogWriter } from "./log-writer.ts";
import { formatMs, Stopped, Suspended } from "./outcome.ts";

export interface StepOptions<Result = unknown> {
  /** Log line written when the step starts. */
  start?: string;
  /** Log line that is stored together with the result. */
  end?: string | ((result: Result) => string);
  /** Maximum duration of one try. */
  timeout?: Duration;
  /** Maximum time without a log line, progress or output of a command. */
  silence?: Duration;
  /** Tries within this attempt before the attempt fails. Default: one. */
  retry?: { attempts: number; initial?: Duration; max?: Duration };
}

/** Refuses what the compiler refuses, for callers in JavaScript. */
export function checkStep(name: string, options: unknown, run: unknown): void {
  const owner = `Step "${name}"`;
  rejectUnknownOptions(
    (options ?? undefined) as object | undefined,
    ["start", "end", "timeout", "silence", "retry"],
    owner,
  );
  const { retry } = (options ?? {}) as StepOptions;
  rejectUnknownOptions(retry, ["attempts", "initial", "max"], owner, "retry");
  if (typeof run === "function") return;
  throw new InvalidInput(`${owner} has no function`, {
    field: "run",
    remedy: "Pass the code of the step as the last argument",
  });
}

/** The name and signal of a step, and its tokens for external systems. */
export interface StepScope {
  readonly name: string;
  readonly signal: AbortSignal;
  /** The same in every attempt: external systems can use it to recognize a repeated call. */
  readonly idempotencyKey: string;
  /** Grows with every attempt: external systems can use it to reject a replaced attempt. */
  readonly fencingToken: number;
}

type StepCode<Result> = (scope: StepScope) => Promise<Result> | Result;

/** A checkpoint: decoded, and as stored. */
interface Checkpoint {
  value: unknown;
  raw: unknown;
}

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

  get fencingToken(): number {
    return Number(this.#assignment.epoch);
  }
}

export function attemptEnded(job: string): StillwakeError {
  return new StillwakeError("ATTEMPT_ENDED", `This attempt of job ${job} has ended`, {
    remedy: "Await everything the job does before its function returns",
  });
}

/** A step exceeded its timeout or its silence limit. */
class StepLimit extends StillwakeError {}

export class Steps {
  readonly #host: AttemptHost;
  readonly #assignment: Assignment;
  readonly #policy: FailurePolicy;
  readonly #log: LogWriter;
  readonly #names = new Set<string>();
  readonly #running: string[] = [];
  /** Optional steps that failed. */
  readonly missing: string[] = [];
  /** Checkpoints that this attempt has saved. */
  savedCount = 0;
  /** Whether a step of this attempt has run. Until then its code repeats what an earlier attempt has done. */
  hasRun = false;
  #ended = false;
  #checkpoints: Promise<Map<string, unknown>> | undefined;
  #failed: { error: unknown; step: string } | undefined;
  /** performance.now() of the last log line, progress or output. */
  #activeAt = 0;

  constructor(host: AttemptHost, assignment: Assignment, policy: FailurePolicy, log: LogWriter) {
    this.#host = host;
    this.#assignment = assignment;
    this.#policy = policy;
    this.#log = log;
  }

  /** The running step that was started last. */
  get current(): string | undefined {
    return this.#running.at(-1);
  }

  get runningCount(): number {
    return this.#running.length;
  }

  stepOf(error: unknown): string | undefined {
    return this.#failed?.error === error ? this.#failed?.step : undefined;
  }

  /** Saves nothing from now on. Returns true when a step is still running. */
  end(): boolean {
    this.#ended = true;
    return this.#running.length > 0;
  }

  recordActivity(): void {
    this.#activeAt = performance.now();
  }

  async critical<Result>(name: string, options: StepOptions<Result>, run: StepCode<Result>): Promise<Result> {
    const pending = this.begin(name);
    const saved = pending && (await pending);
    // A step that is no longer optional runs again if it failed.
    return saved && checkpointKind(saved.raw) !== "failed"
      ? (this.resultOf(name, saved) as Result)
      : this.#runAndSave(name, options, run);
  }

  async optional<Result>(
    name: string,
    options: StepOptions<Result>,
    run: StepCode<Result>,
  ): Promise<Result | undefined> {
    const saved = await this.begin(name);
    if (saved && checkpointKind(saved.raw) === "failed") {
      this.missing.push(name);
      return undefined;
    }
    if (saved) return this.resultOf(name, saved) as Result;
    try {
      return await this.#runAndSave(name, options, run);
    } catch (error) {
      if (this.#endsAttempt(error)) throw error;
      const failure = toFailure(error, this.#policy, name);
      this.missing.push(name);
      this.#log.write("warning", sentenceOf(failure), name, { code: failure.code, error: failure.message });
      this.#log.flush();
      // Later attempts of the job neither try nor pay for it again.
      await this.#host.port.saveCheckpoint(name, FAILED, 0);
      return undefined;
    }
  }

  /**
   * Checks the name, returns the checkpoint if there is one, and otherwise waits until the lease is confirmed and
   * effects may start. Returns undefined without a promise when the step may start at once.
   */
  begin(name: string): Promise<Checkpoint | undefined> | undefined {
    const { port, stop } = this.#host;
    checkName(name);
    this.#log.rejectSecretInName(name, "a step");
    if (this.#names.has(name)) {
      throw new InvalidInput(`Step "${name}" was already used in this job`, {
        field: "name",
        remedy: "Give each step a unique name; in a loop, include the item's id",
      });
    }
    this.#names.add(name);
    stop.throwIfStopped();
    const confirmed = port.confirmLease();
    // At epoch 1 the job was never claimed before and has no checkpoints.
    if (this.#assignment.epoch === "1" && !confirmed) return undefined;
    return this.#findCheckpoint(name, confirmed);
  }

  async #findCheckpoint(name: string, confirmed: Promise<void> | undefined): Promise<Checkpoint | undefined> {
    const { port, stop } = this.#host;
    if (this.#assignment.epoch !== "1") {
      this.#checkpoints ??= port.checkpoints().then((rows) => new Map(rows.map(({ step, output }) => [step, output])));
      const checkpoints = await this.#checkpoints;
      if (checkpoints.has(name)) {
        port.stepEnded({ step: name, tookMs: 0, outcome: "kept" });
        const raw = checkpoints.get(name);
        return { value: decodeCheckpoint(raw), raw };
      }
    }
    if (confirmed) await confirmed;
    stop.throwIfStopped();
    if (this.#ended) throw attemptEnded(this.#assignment.job);
    return undefined;
  }

  /** The saved result of a step. The position of a list and the wait for an event are stored as checkpoints too. */
  resultOf(name: string, { value, raw }: Checkpoint): unknown {
    const kind = checkpointKind(raw);
    if (kind !== "position" && kind !== "wait" && kind !== "timeout") return value;
    const earlier = kind === "position" ? "list of job.each()" : "wait of job.waitFor()";
    throw new InvalidInput(`"${name}" is a step now, but an earlier attempt saved it as a ${earlier}`, {
      field: "name",
      remedy: "Give the step another name, or raise the version of the pipeline",
    });
  }

  /** Whether the error decides what happens to the job, rather than being a failure of the step. */
  #endsAttempt(error: unknown): boolean {
    if (this.#host.stop.reason || this.#ended) return true;
    if ([Stopped, Suspended, RateLimited, Pause].some((type) => error instanceof type)) return true;
    const verdict = classify(error, this.#policy);
    return typeof verdict === "object" && !("retryIn" in verdict);
  }

  #scope(name: string, signal: () => AbortSignal): StepScope {
    return new Scope(name, this.#assignment, signal);
  }

  /**
   * Runs a step's work as a tracked step: log lines at both ends, span, reports to the keeper. The work calls `writeEnd`
   * with its result just before it saves the checkpoint, so that the last line is stored with it.
   */
  async track<Result>(
    name: string,
    options: StepOptions<Result>,
    work: (writeEnd: (result: Result) => void) => Promise<Result>,
  ): Promise<Result> {
    const { port, tracing } = this.#host;
    const log = this.#log;
    this.hasRun = true;
    if (options.start !== undefined) log.write("info", options.start, name);
    this.#running.push(name);
    this.recordActivity();
    const startedAt = performance.now();
    port.stepStarted(name);
    let outcome: "completed" | "failed" | "skipped" = "failed";
    let code: string | undefined;
    let ended = false;
    let endError: { error: unknown } | undefined;
    const writeEnd = (result: Result) => {
      // A library may run the code of a transaction again after a conflict.
      if (ended) return;
      ended = true;
      const tookMs = Math.round(performance.now() - startedAt);
      try {
        const message = typeof options.end === "function" ? options.end(result) : options.end;
        if (message !== undefined) log.write("success", message, name, { took_ms: tookMs });
      } catch (error) {
        // The work is done: its result is saved before the error fails the attempt.
        endError = { error };
      }
    };
    try {
      const result = await tracing.step(name, async (note) => {
        try {
          return await work(writeEnd);
        } catch (error) {
          if (error instanceof Stopped) note("stopped");
          else if (log.redactor.hasSecrets) note("failed", log.redactor.redactError(error));
          throw error;
        }
      });
      outcome = "completed";
      if (endError) throw endError.error;
      return result;
    } catch (error) {
      // A suspended step has not failed: a later attempt runs it.
      if (error instanceof Suspended) outcome = "skipped";
      else code = log.redactor.redactValue(toFailure(error).code) as string | undefined;
      this.#failed = { error, step: name };
      throw error;
    } finally {
      this.#running.splice(this.#running.lastIndexOf(name), 1);
      const tookMs = performance.now() - startedAt;
      port.stepEnded(code === undefined ? { step: name, tookMs, outcome } : { step: name, tookMs, outcome, code });
    }
  }

  #runAndSave<Result>(name: string, options: StepOptions<Result>, run: StepCode<Result>): Promise<Result> {
    return this.track(name, options, async (writeEnd) => {
      const { port, stop, faultPoint } = this.#host;
      const startedAt = performance.now();
      const value = await this.runWithLimits(name, options, run);
      // A stopped attempt still saves a finished result; a replaced one must not write.
      if (stop.reason?.stop.kind === "replaced") throw stop.reason;
      if (this.#ended) throw attemptEnded(this.#assignment.job);
      const json = encodeCheckpoint(value, `The result of step "${name}"`);
      this.#log.warnOfSecretInResult(name, json);
      // Decoded, so that the first result equals the one read from the checkpoint.
      const isObject = typeof value === "object" && value !== null;
      const result = (isObject ? decodeCheckpoint(JSON.parse(json)) : value === 0 ? 0 : value) as Result;
      writeEnd(result);
      faultPoint?.("before", name);
      this.#log.flush();
      await port.saveCheckpoint(name, json, performance.now() - startedAt);
      this.savedCount += 1;
      faultPoint?.("after", name);
      return result;
    });
  }

  /** Runs code within the limits of a step, with the retries of its policy. `step`: the step that the warnings belong to. */
  runWithLimits<Result>(
    name: string,
    options: StepOptions<Result>,
    run: StepCode<Result>,
    step = name,
  ): Promise<Result> | Result {
    return options.retry ? this.#runWithRetries(name, options, run, step) : this.#runOnce(name, options, run);
  }

  async #runWithRetries<Result>(
    name: string,
    options: StepOptions<Result>,
    run: StepCode<Result>,
    step: string,
  ): Promise<Result> {
    const { attempts = 1, initial = "1s", max = "1m" } = options.retry ?? {};
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#runOnce(name, options, run);
      } catch (error) {
        const { stop } = this.#host;
        if (attempt >= attempts || this.#endsAttempt(error)) throw error;
        const verdict = classify(error, this.#policy);
        if (verdict === "fatal") throw error;
        const pauseMs =
          typeof verdict === "object" && "retryIn" in verdict
            ? durationMs(verdict.retryIn, "retryIn")
            : backoffMs(attempt - 1, durationMs(initial, "retry.initial"), durationMs(max, "retry.max"));
        const failure = toFailure(error, this.#policy, step);
        // A sentence of explain() is logged unchanged; the numbers are in the data.
        const message =
          failure.sentence ?? `${sentenceOf(failure)} (try ${attempt} of ${attempts}, again in ${formatMs(pauseMs)})`;
        const data = { code: failure.code, try: attempt, tries: attempts, pause_ms: Math.round(pauseMs) };
        this.#log.write("warning", message, step, step === name ? data : { ...data, batch: name });
        await delay(pauseMs, undefined, { signal: stop.signal }).catch(() => stop.throwIfStopped());
      }
    }
  }

  /** One try. Most steps have no limits and need no timers. */
  #runOnce<Result>(name: string, options: StepOptions<Result>, run: StepCode<Result>): Promise<Result> | Result {
    if (options.timeout !== undefined || options.silence !== undefined) return this.#runLimited(name, options, run);
    return run(this.#scope(name, () => this.#host.stop.signal));
  }

  async #runLimited<Result>(name: string, options: StepOptions<Result>, run: StepCode<Result>): Promise<Result> {
    const { stop, graceMs, port } = this.#host;
    const controller = new AbortController();
    const signal = AbortSignal.any([stop.signal, controller.signal]);
    const limits = watchLimits(
      name,
      options,
      () => this.#activeAt,
      (error) => controller.abort(error),
    );
    this.recordActivity();
    if (options.timeout !== undefined) port.setStepTimeout(name, durationMs(options.timeout, "timeout"));
    const work = Promise.resolve(run(this.#scope(name, () => signal)));
    const abandoned = new Promise<never>((_, reject) => {
      controller.signal.addEventListener("abort", () => {
        // The grace period in which the code can stop by itself.
        void delay(graceMs, undefined, { ref: false }).then(() => {
          this.#host.onStray();
          reject(controller.signal.reason);
        });
      });
    });
    abandoned.catch(() => {});
    try {
      const value = await Promise.race([work, abandoned]);
      if (controller.signal.aborted) throw controller.signal.reason;
      return value;
    } catch (error) {
      work.catch(() => {});
      throw controller.signal.aborted && !stop.reason ? controller.signal.reason : error;
    } finally {
      limits.close();
      if (options.timeout !== undefined) port.setStepTimeout(name, null);
    }
  }
}

function watchLimits(
  name: string,
  options: StepOptions<never>,
  activeAt: () => number,
  onExceeded: (error: StepLimit) => void,
): { close(): void } {
  const timeoutMs = limitMs(options.timeout, "timeout");
  const silenceMs = limitMs(options.silence, "silence");
  const deadline = performance.now() + timeoutMs;
  let timer: NodeJS.Timeout;
  const check = () => {
    const now = performance.now();
    if (now >= deadline) {
      const message = `Step "${name}" was still running after ${formatMs(timeoutMs)}`;
      onExceeded(new StepLimit("STEP_TIMEOUT", message, { retryable: true }));
    } else if (now - activeAt() >= silenceMs) {
      const message = `Step "${name}" was silent for ${formatMs(silenceMs)}`;
      onExceeded(new StepLimit("STEP_SILENT", message, { retryable: true }));
    } else {
      timer = setTimeout(check, Math.min(deadline - now, activeAt() + silenceMs - now, 2 ** 30));
    }
  };
  timer = setTimeout(check, Math.min(timeoutMs, silenceMs, 2 ** 30));
  return { close: () => clearTimeout(timer) };
}

function checkName(name: string): void {
  if (typeof name === "string" && name.length >= 1 && name.length <= 200 && !findUnstorable(name)) return;
  throw new InvalidInput(`${JSON.stringify(name)} is not a valid step name`, {
    field: "name",
    remedy: "Use a string of 1 to 200 characters",
  });
}
