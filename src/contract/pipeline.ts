// The contract of a pipeline: its name, its input schema and its policies. Part of `stillwake/contract`.
import { InvalidInput, type Issue } from "../errors.ts";
import { type Duration, durationMs, limitMs, toInterval } from "../time.ts";
import { checkStandardSchema, isInteger, rejectUnknownOptions } from "../validate.ts";
import type { Breaker } from "./breaker.ts";
import { checkLabelPaths, type LabelFunction, type LabelPath, labelPaths, rejectUnknownPaths } from "./labels.ts";
import { checkName, type Limit } from "./limit.ts";
import { checkSealedPaths, withPlaceholders } from "./sealed-paths.ts";

/** The part of Standard Schema v1 (zod, valibot, arktype and others) that is used here. */
export interface Schema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    /** For libraries that implement Standard JSON Schema. */
    readonly jsonSchema?: { readonly input: JsonSchemaOf; readonly output?: JsonSchemaOf | undefined } | undefined;
  };
}

type JsonSchemaOf = (options: { target: string }) => unknown;

type SchemaResult<Output> = { readonly value: Output; readonly issues?: undefined } | { readonly issues: SchemaIssues };

export interface PipelineOptions<Input, Output, Result = unknown> {
  /** Any Standard Schema. Input is checked before it is stored; without one, any JSON value is accepted. */
  input?: Schema<Input, Output>;
  /**
   * Paths of the stored input whose values only workers can read: "githubToken", "auth.password", "accounts.*.token".
   * The enqueueing client seals them with its sealKeys, or they are references: secret("name").
   */
  sealed?: readonly string[];
  /** Schema of the job's return value, checked before a job completes. Types the results of spawned jobs. */
  output?: Schema<unknown, Result>;
  /** The pool whose workers run it. Default "default". */
  pool?: string;
  /** Higher runs first, -1000 to 1000. Default 0. */
  priority?: number;
  retry?: {
    /** Total attempts, including the first. Default 3. */
    attempts?: number;
    /** A job that crashes its runner or worker this many times fails as POISONED. Default 3. */
    crashes?: number;
    /** The pause after the first failure; it doubles with each further failure. Default "2s". */
    initial?: Duration;
    /** The longest pause. Default "15m". */
    max?: Duration;
    /**
     * The sentence shown when the job fails because its worker crashed or its attempt timed out too often, where no
     * pipeline code can report it: at most 300 characters, with {attempts} as placeholder. Default: the runtime's text.
     */
    exhausted?: string;
  };
  /**
   * At most `keyLimit` active jobs (queued, running, sleeping or paused) have the same key. A path of the input, such as
   * "projectId" or "repo.owner", or several, holds for every caller: code, HTTP, SQL, the command line, schedules. A function
   * holds only where code enqueues with this contract. Undefined or null: no key.
   */
  key?: LabelPath<Output> | readonly LabelPath<Output>[] | LabelFunction<Output>;
  /** Active jobs that can have the same key. Default 1. */
  keyLimit?: number;
  /**
   * What happens to a job whose key is taken: it joins the active job (the call returns that job's id), waits until that job ends (first
   * in, first out), replaces it (cancels it and all that wait), or is rejected with KEY_TAKEN. Default "join".
   */
  onConflict?: OnConflict;
  /**
   * The tenant of the job. Tenants take turns: the jobs of one do not wait behind those of another. A path of the input, or a
   * function, as for `key`.
   */
  tenant?: LabelPath<Output> | LabelFunction<Output>;
  /** Jobs that can run concurrently, over all workers. Default: limited by slots only. */
  concurrency?: number;
  /** Limits and breakers that its jobs depend on. No job starts while one of them is exhausted or open. */
  needs?: readonly (Limit | Breaker)[];
  /** The watchdog completes waiting jobs whose progress reports that all work is done (done = total). Default false. */
  completeByProgress?: boolean;
  /** The longest duration of one attempt. Default: unlimited. */
  timeout?: Duration;
  /**
   * After this long an attempt releases its job between two steps or two batches of job.each(), and is not counted: for
   * platforms that stop a process after a fixed time. Default: never.
   */
  releaseAfter?: Duration;
  /** An attempt without activity for this long (a tick, a log line, progress, output of a command) is ended. Default "10m". */
  silence?: Duration;
  /**
   * How a failure is handled, by its code: "retry" by policy, "fatal" without retry, "pause" until an operator resumes
   * it. "*" is for all other codes; default "retry".
   */
  failures?: Record<string, FailureKind>;
  /** The version of the code, a whole number from 1. A worker claims no job started under a newer version. Default 1. */
  version?: number;
  /**
   * What happens to a job started under an older version: it continues from its checkpoints, restarts without them, or
   * waits for a worker of its version. Default "continue".
   */
  onOlder?: "continue" | "restart" | "wait";
  /** The minimum retention of an ended job, by its final state; "forever" is allowed. Default 14 days, failed 30 days. */
  keep?: { completed?: Duration | "forever"; failed?: Duration | "forever"; cancelled?: Duration | "forever" };
}

export type FailureKind = "retry" | "fatal" | "pause";

export type OnConflict = "join" | "wait" | "replace" | "reject";

export type PipelineSettings = Readonly<Record<string, string | number | boolean | readonly string[] | object | null>>;

export interface Pipeline<Input = unknown, Output = Input, Result = unknown> {
  readonly name: string;
  readonly options: Readonly<PipelineOptions<Input, Output, Result>>;
  /** The settings as `stillwake.register_pipeline` takes them. */
  readonly settings: PipelineSettings;
}

/** Validates a job's return value with the pipeline's output schema. */
export async function validateOutput(pipeline: Pipeline, value: unknown): Promise<unknown> {
  const result = await pipeline.options.output!["~standard"].validate(value);
  if (!result.issues) return result.value;
  const remedy = "Return a value that fits the output schema";
  throw issuesError(`Output of pipeline "${pipeline.name}"`, "output", result.issues, remedy);
}

/** The input type of a pipeline, as callers pass it; unknown for a pipeline that is given by its name. */
export type InputOf<P> = P extends Pipeline<infer Input, infer _, infer _> ? Input : unknown;

/** The type of a pipeline's result, by its output schema; unknown without one. */
export type OutputOf<P> = P extends Pipeline<infer _, infer _, infer Result> ? Result : unknown;

// biome-ignore lint/suspicious/noExplicitAny: a pipeline of any types.
export type AnyPipeline = Pipeline<any, any, any>;

export function pipeline<Input = unknown, Output = Input, Result = unknown>(
  name: string,
  options: PipelineOptions<Input, Output, Result> = {},
): Pipeline<Input, Output, Result> {
  checkName(name, "pipeline");
  const known =
    "input sealed output pool priority retry key keyLimit onConflict tenant concurrency needs completeByProgress timeout releaseAfter silence failures version onOlder keep".split(
      " ",
    );
  const owner = `Pipeline "${name}"`;
  rejectUnknownOptions(options, known, owner);
  rejectUnknownOptions(options.retry, ["attempts", "crashes", "initial", "max", "exhausted"], owner, "retry");
  rejectUnknownOptions(options.keep, ["completed", "failed", "cancelled"], owner, "keep");
  checkStandardSchema(options.input, "input", `pipeline "${name}"`);
  checkStandardSchema(options.output, "output", `pipeline "${name}"`);
  if (options.sealed !== undefined) checkSealedPaths(name, options.sealed);
  checkPolicies(name, options);
  const settings = toSettings(options);
  let complete: PipelineSettings | undefined;
  return Object.freeze({
    name,
    options: Object.freeze(options),
    // Computed when the contract is registered: converting the schema takes longer than creating the contract.
    get settings() {
      if (!complete) {
        // Labels are read from the stored input, which is the output of the schema.
        const stored = toJsonSchema(options.input, "output");
        rejectUnknownPaths(name, "key", options.key, stored);
        rejectUnknownPaths(name, "tenant", options.tenant, stored);
        complete = Object.freeze({ ...settings, input_schema: toJsonSchema(options.input, "input") });
      }
      return complete;
    },
  });
}

// biome-ignore lint/suspicious/noExplicitAny: the parameter types of a contract's functions do not matter here.
function checkPolicies(name: string, options: PipelineOptions<any, any, any>): void {
  const reject = (field: string, value: unknown, remedy: string) => {
    throw new InvalidInput(`${field} ${JSON.stringify(value)} of pipeline "${name}" is not valid`, { field, remedy });
  };
  const { timeout, silence, failures, version = 1, onOlder = "continue", pool = "default", priority = 0 } = options;
  limitMs(timeout, "timeout");
  limitMs(options.releaseAfter, "releaseAfter");
  limitMs(silence, "silence");
  checkName(pool, "pool", "pool");
  if (!isInteger(priority, -1000, 1000)) reject("priority", priority, "Use a whole number from -1000 to 1000");
  const { attempts = 3, crashes = 3, initial, max } = options.retry ?? {};
  if (!isInteger(attempts, 1, 1000)) {
    reject("retry.attempts", attempts, "Use a whole number from 1 to 1000; 1 means that a failed job is not retried");
  }
  if (!isInteger(crashes, 1, 1000)) reject("retry.crashes", crashes, "Use a whole number from 1 to 1000");
  if (durationMs(max ?? "15m", "retry.max") < durationMs(initial ?? "2s", "retry.initial")) {
    reject("retry.max", max ?? "15m", "Make it at least as long as retry.initial");
  }
  if (!isInteger(version, 1, 2_147_483_647)) {
    reject("version", version, "Use a whole number from 1 and raise it by one when the steps change their meaning");
  }
  if (!["continue", "restart", "wait"].includes(onOlder)) {
    reject("onOlder", onOlder, 'Use "continue", "restart" or "wait"');
  }
  const exhausted = options.retry?.exhausted ?? "none";
  if (
    typeof exhausted !== "string" ||
    !/^[^\0\p{Cs}]{1,300}$/u.test(exhausted) ||
    /[{}]/.test(exhausted.replaceAll("{attempts}", ""))
  ) {
    reject(
      "retry.exhausted",
      exhausted,
      "Use a sentence of at most 300 characters; its only placeholder is {attempts}",
    );
  }
  const { key, keyLimit = 1, onConflict = "join", tenant, concurrency = 1, needs = [] } = options;
  checkLabelPaths(name, "key", key, options.sealed);
  checkLabelPaths(name, "tenant", tenant, options.sealed);
  if (!isInteger(keyLimit, 1, 1000)) reject("keyLimit", keyLimit, "Use a whole number from 1 to 1000");
  if (!isInteger(concurrency, 1, 1_000_000)) reject("concurrency", concurrency, "Use a whole number from 1");
  if (!conflicts.includes(onConflict)) reject("onConflict", onConflict, `Use one of ${conflicts.join(", ")}`);
  if (!Array.isArray(needs) || needs.some((need) => need?.kind !== "limit" && need?.kind !== "breaker")) {
    reject("needs", needs, 'Pass an array of the results of limit("name", { … }) and breaker("name", { … })');
  }
  for (const [code, kind] of Object.entries(failures ?? {})) {
    if (!["retry", "fatal", "pause"].includes(kind)) {
      reject(`failures.${code}`, kind, 'Use "retry", "fatal" or "pause"');
    }
  }
}

export const conflicts: readonly OnConflict[] = ["join", "wait", "replace", "reject"];

// biome-ignore lint/suspicious/noExplicitAny: the parameter types of a contract's functions do not matter here.
function toSettings(options: PipelineOptions<any, any, any>): PipelineSettings {
  const { pool, priority, retry, keep, needs = [] } = options;
  const settings: Record<string, string | number | boolean | readonly string[] | null> = {};
  const set = (key: string, value: string | number | boolean | undefined) => {
    if (value !== undefined) settings[key] = value;
  };
  const interval = (value: Duration | undefined, field: string) =>
    value === undefined ? undefined : toInterval(value, field);
  const retention = (value: Duration | "forever" | undefined, field: string) =>
    value === "forever" ? "100 years" : interval(value, field);
  set("pool", pool);
  set("priority", priority);
  set("max_attempts", retry?.attempts);
  set("crash_limit", retry?.crashes);
  set("backoff_initial", interval(retry?.initial, "retry.initial"));
  set("backoff_max", interval(retry?.max, "retry.max"));
  set("keep_completed", retention(keep?.completed, "keep.completed"));
  set("keep_failed", retention(keep?.failed, "keep.failed"));
  set("keep_cancelled", retention(keep?.cancelled, "keep.cancelled"));
  set("key_limit", options.keyLimit);
  set("on_conflict", options.onConflict);
  set("complete_by_progress", options.completeByProgress);
  // Always sent, so that registering a contract without them removes what an earlier version had set.
  set("concurrency", options.concurrency ?? 0);
  settings.key = labelPaths(options.key) ?? null;
  settings.tenant = labelPaths(options.tenant) ?? null;
  settings.exhausted = retry?.exhausted ?? null;
  settings.sealed = options.sealed ?? [];
  settings.limits = needs.filter(({ kind }) => kind === "limit").map(({ name }) => name);
  settings.breakers = needs.filter(({ kind }) => kind === "breaker").map(({ name }) => name);
  return settings;
}

/** In characters of JSON. */
const MAX_SCHEMA = 60_000;

/** The JSON Schema of a side of the schema; null without one, if it has no JSON form (a Date, for example), or if too large. */
function toJsonSchema(schema: Schema | undefined, side: "input" | "output"): object | null {
  try {
    const converted = schema?.["~standard"].jsonSchema?.[side]?.({ target: "draft-2020-12" });
    return converted && JSON.stringify(converted).length < MAX_SCHEMA ? converted : null;
  } catch {
    return null;
  }
}

/**
 * Validates an input with the pipeline's schema, as enqueue() does, and returns the schema's result. The error has one
 * issue per invalid path.
 */
export async function validateInput<Input, Output>(
  pipeline: Pipeline<Input, Output>,
  input: unknown,
  at = "input",
): Promise<Output> {
  const schema = pipeline.options.input;
  if (!schema) return input as Output;
  const { sealed = [] } = pipeline.options;
  const replaced = sealed.length > 0 ? withPlaceholders(input, sealed) : undefined;
  const result = await schema["~standard"].validate(replaced ? replaced.input : input);
  if (!result.issues) return replaced ? (replaced.restore(result.value) as Output) : result.value;
  throw inputError(pipeline.name, at, result.issues);
}

type SchemaIssues = readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[];

export function inputError(pipeline: string, at: string, issues: SchemaIssues): InvalidInput {
  return issuesError(`Input for pipeline "${pipeline}"`, at, issues, "Change the input to fit the pipeline's schema");
}

function issuesError(subject: string, at: string, found: SchemaIssues, remedy: string): InvalidInput {
  const issues: Issue[] = found.map(({ path, message }) => ({ path: pathOf(at, path), message }));
  const list = issues.map(({ path, message }) => `${path}: ${message}`).join("; ");
  return new InvalidInput(`${subject} is not valid: ${list}`, { issues, field: issues[0]?.path ?? at, remedy });
}

function pathOf(at: string, path: readonly unknown[] = []): string {
  return path.reduce<string>((text, segment) => {
    const key = typeof segment === "object" && segment !== null && "key" in segment ? segment.key : segment;
    return typeof key === "number" ? `${text}[${key}]` : `${text}.${String(key)}`;
  }, at);
}
