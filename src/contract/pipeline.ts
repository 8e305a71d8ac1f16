// A pipeline's contract: its name, the shape of its input and its policies. Safe to import from a web bundle: no Node, no database.

import { InvalidInput, type Issue } from "../errors.ts";
import { type Duration, limitMs, toInterval } from "../time.ts";
import type { Breaker } from "./breaker.ts";
import { checkName, type Limit } from "./limit.ts";
import { checkPaths, withPlaceholders } from "./sealed-paths.ts";

/** What zod, valibot, arktype and others implement (Standard Schema v1): the part of it that is used here. */
export interface Schema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    /** Those that can describe themselves (Standard JSON Schema). */
    readonly jsonSchema?: { readonly input: (options: { target: string }) => unknown } | undefined;
  };
}

type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] };

export interface PipelineOptions<Input, Output, Result = unknown> {
  /** Any Standard Schema. Input is checked before it is stored; without one, any JSON value is accepted. */
  input?: Schema<Input, Output>;
  /**
   * Paths of the input, as it is stored, whose values only workers may see: "githubToken", "auth.password", "accounts.*.token". They are sealed
   * before they are stored, with the sealKeys of whoever enqueues, or are references: secret("name").
   */
  sealed?: readonly string[];
  /** What its jobs return, for those who spawn them. Checked before a job completes. */
  output?: Schema<unknown, Result>;
  /** Whose machines run it. Default "default". */
  pool?: string;
  /** Higher runs first, -1000 to 1000. Default 0. */
  priority?: number;
  retry?: {
    /** Attempts in all, the first included. Default 3. */
    attempts?: number;
    /** A job that takes its runner or worker with it this many times is ended as POISONED. Default 3. */
    crashes?: number;
    /** The pause after the first failure; it doubles with each further one. Default "2s". */
    initial?: Duration;
    /** The longest pause. Default "15m". */
    max?: Duration;
    /**
     * What a person reads when the job ends because its machine crashed or its time ran out once too often, and no code could say so: at most 300
     * characters, with {attempts} for how often. Default: what the runtime says of it.
     */
    exhausted?: string;
  };
  /**
   * At most one active job has the same key, one that is queued, running, sleeping or paused. Undefined or null: this one has none.
   */
  key?(input: Output): string | null | undefined;
  /** How many active jobs may have the same key. Default 1. */
  keyLimit?: number;
  /**
   * What becomes of a job whose key is taken: it joins the active one (the call answers that one's id), waits until it has ended, first come
   * first served, replaces it (cancels it, and all that wait), or is refused with KEY_TAKEN. Default "join".
   */
  onConflict?: OnConflict;
  /** Whose job it is. Tenants take turns: the jobs of one do not wait behind those of another. */
  tenant?(input: Output): string | null | undefined;
  /** Jobs that may run at once, on all workers together. Default: as many as there are slots. */
  concurrency?: number;
  /** Limits and breakers without which its jobs cannot do anything: they are not started while one of them is used up or open. */
  needs?: readonly (Limit | Breaker)[];
  /** The watchdog completes waiting jobs whose progress says that nothing is left to do (done of total). Default false. */
  ghosts?: boolean;
  /** How long one attempt may take. Default: as long as it lives. */
  timeout?: Duration;
  /**
   * After this long an attempt hands its job on, uncharged, where it is between two steps or two batches of job.each(): for platforms that end a
   * process after a fixed time. Default: never.
   */
  budget?: Duration;
  /** An attempt whose runner gives no sign of life for this long (a tick, a log line, progress, output of a command) is ended. Default "10m". */
  silence?: Duration;
  /**
   * What a failure means, by its code: "retry" by policy, "fatal" at once, "pause" until somebody resumes it. "*" is for all other codes;
   * default "retry".
   */
  failures?: Record<string, FailureKind>;
  /**
   * The version of the code, a whole number from 1. A worker takes no job begun under a newer version than its own. Default 1.
   */
  version?: number;
  /** A job begun under an older version goes on with its checkpoints, starts again without them, or waits for its own code. Default "continue". */
  onOlder?: "continue" | "restart" | "wait";
  /** How long an ended job is kept at least, by how it ended; "forever" is allowed. Default 14 days, failed 30 days. */
  keep?: { completed?: Duration; failed?: Duration; cancelled?: Duration };
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

/** Runs the pipeline's schema over what a job has returned. */
export async function validateOutput(pipeline: Pipeline, value: unknown): Promise<unknown> {
  const result = await pipeline.options.output!["~standard"].validate(value);
  if (!result.issues) return result.value;
  const issues: Issue[] = result.issues.map((issue) => ({
    path: pathOf("output", issue.path),
    message: issue.message,
  }));
  throw new InvalidInput(
    `What pipeline "${pipeline.name}" returned is not valid: ${issues.map(({ path, message }) => `${path}: ${message}`).join("; ")}`,
    { issues, field: issues[0]?.path ?? "output", remedy: "Return what its output schema says, or change the schema" },
  );
}

/** The type a job of this pipeline is enqueued with. */
export type InputOf<P> = P extends Pipeline<infer Input, infer _> ? Input : never;

export function pipeline<Input = unknown, Output = Input, Result = unknown>(
  name: string,
  options: PipelineOptions<Input, Output, Result> = {},
): Pipeline<Input, Output, Result> {
  checkName(name, "pipeline");
  const known =
    "input sealed output pool priority retry key keyLimit onConflict tenant concurrency needs ghosts timeout budget silence failures version onOlder keep".split(
      " ",
    );
  refuseUnknown(name, "", options, known);
  refuseUnknown(name, "retry", options.retry, ["attempts", "crashes", "initial", "max", "exhausted"]);
  refuseUnknown(name, "keep", options.keep, ["completed", "failed", "cancelled"]);
  checkPolicies(name, options);
  if (options.sealed !== undefined) checkPaths(name, options.sealed);
  const settings = settingsOf(options);
  let whole: PipelineSettings | undefined;
  return Object.freeze({
    name,
    options: Object.freeze(options),
    // Asked for when it is registered: to describe a schema takes longer than to make the contract.
    get settings() {
      whole ??= Object.freeze({ ...settings, input_schema: describe(options.input) });
      return whole;
    },
  });
}

function refuseUnknown(name: string, part: string, given: object | undefined, known: readonly string[]): void {
  const unknown = Object.keys(given ?? {}).find((key) => !known.includes(key));
  if (unknown === undefined) return;
  const field = part === "" ? unknown : `${part}.${unknown}`;
  throw new InvalidInput(`Pipeline "${name}" has an unknown option "${field}"`, {
    field,
    remedy: `Known options${part && ` of ${part}`}: ${known.join(", ")}`,
  });
}

// biome-ignore lint/suspicious/noExplicitAny: what the functions of a contract take is of no concern here.
function checkPolicies(name: string, options: PipelineOptions<any, any, any>): void {
  const refuse = (field: string, value: unknown, remedy: string) => {
    throw new InvalidInput(`${field} ${JSON.stringify(value)} of pipeline "${name}" is not valid`, { field, remedy });
  };
  const { timeout, silence, failures, version = 1, onOlder = "continue" } = options;
  limitMs(timeout, "timeout");
  limitMs(options.budget, "budget");
  limitMs(silence, "silence");
  if (!Number.isInteger(version) || version < 1 || version > 2_147_483_647) {
    refuse("version", version, "Use a whole number from 1 and raise it by one when the steps change their meaning");
  }
  if (!["continue", "restart", "wait"].includes(onOlder)) {
    refuse("onOlder", onOlder, 'Use "continue", "restart" or "wait"');
  }
  const exhausted = options.retry?.exhausted ?? "none";
  if (
    typeof exhausted !== "string" ||
    !/^[^\0\p{Cs}]{1,300}$/u.test(exhausted) ||
    /[{}]/.test(exhausted.replaceAll("{attempts}", ""))
  ) {
    refuse(
      "retry.exhausted",
      exhausted,
      "Use a sentence of at most 300 characters; its only placeholder is {attempts}",
    );
  }
  const { key, keyLimit = 1, onConflict = "join", tenant, concurrency = 1, needs = [] } = options;
  const whole = (value: number, most: number) => Number.isInteger(value) && value >= 1 && value <= most;
  for (const [field, value] of Object.entries({ key, tenant })) {
    if (value !== undefined && typeof value !== "function") refuse(field, value, "Pass a function of the input");
  }
  if (!whole(keyLimit, 1000)) refuse("keyLimit", keyLimit, "Use a whole number from 1 to 1000");
  if (!whole(concurrency, 1_000_000)) refuse("concurrency", concurrency, "Use a whole number from 1");
  if (!conflicts.includes(onConflict)) refuse("onConflict", onConflict, `Use one of ${conflicts.join(", ")}`);
  if (!Array.isArray(needs) || needs.some((need) => need?.kind !== "limit" && need?.kind !== "breaker")) {
    refuse("needs", needs, 'Pass what limit("name", { … }) and breaker("name", { … }) returned, in an array');
  }
  for (const [code, kind] of Object.entries(failures ?? {})) {
    if (!["retry", "fatal", "pause"].includes(kind)) {
      refuse(`failures.${code}`, kind, 'A code means "retry", "fatal" or "pause"');
    }
  }
}

export const conflicts: readonly OnConflict[] = ["join", "wait", "replace", "reject"];

// biome-ignore lint/suspicious/noExplicitAny: what the functions of a contract take is of no concern here.
function settingsOf(options: PipelineOptions<any, any, any>): PipelineSettings {
  const { pool, priority, retry, keep, needs = [] } = options;
  const settings: Record<string, string | number | boolean | readonly string[] | null> = {};
  const set = (key: string, value: string | number | boolean | undefined) => {
    if (value !== undefined) settings[key] = value;
  };
  const interval = (value: Duration | undefined, field: string) => {
    if (value === undefined) return undefined;
    return value === "forever" ? "100 years" : toInterval(value, field);
  };
  set("pool", pool);
  set("priority", priority);
  set("max_attempts", retry?.attempts);
  set("crash_limit", retry?.crashes);
  set("backoff_initial", interval(retry?.initial, "retry.initial"));
  set("backoff_max", interval(retry?.max, "retry.max"));
  set("keep_completed", interval(keep?.completed, "keep.completed"));
  set("keep_failed", interval(keep?.failed, "keep.failed"));
  set("keep_cancelled", interval(keep?.cancelled, "keep.cancelled"));
  set("key_limit", options.keyLimit);
  set("on_conflict", options.onConflict);
  set("ghosts", options.ghosts);
  // Always said: a gate that is no longer named must not stay shut, a path that is no longer sealed must not stay so, nor a sentence that is not meant any more.
  set("concurrency", options.concurrency ?? 0);
  settings.exhausted = retry?.exhausted ?? null;
  settings.sealed = options.sealed ?? [];
  settings.limits = needs.filter(({ kind }) => kind === "limit").map(({ name }) => name);
  settings.breakers = needs.filter(({ kind }) => kind === "breaker").map(({ name }) => name);
  return settings;
}

const MAX_DESCRIPTION = 60_000;

/** The schema as JSON Schema; null where it has none, cannot say (a Date has no JSON form) or would say too much. */
function describe(schema: Schema | undefined): object | null {
  try {
    const described = schema?.["~standard"].jsonSchema?.input({ target: "draft-2020-12" });
    return described && JSON.stringify(described).length < MAX_DESCRIPTION ? described : null;
  } catch {
    return null;
  }
}

/** Runs the pipeline's schema over an input. Says every place that is wrong, with its path. */
export async function validateInput<Input, Output>(
  pipeline: Pipeline<Input, Output>,
  input: unknown,
  at = "input",
): Promise<unknown> {
  const schema = pipeline.options.input;
  if (!schema) return input;
  const { sealed = [] } = pipeline.options;
  const shown = sealed.length > 0 ? withPlaceholders(input, sealed) : undefined;
  const result = await schema["~standard"].validate(shown ? shown.input : input);
  if (!result.issues) return shown ? shown.back(result.value) : result.value;
  const issues: Issue[] = result.issues.map((issue) => ({ path: pathOf(at, issue.path), message: issue.message }));
  throw new InvalidInput(
    `Input for pipeline "${pipeline.name}" is not valid: ${issues.map(({ path, message }) => `${path}: ${message}`).join("; ")}`,
    { issues, field: issues[0]?.path ?? at, remedy: "Change the input to fit the pipeline's schema" },
  );
}

function pathOf(at: string, path: readonly unknown[] = []): string {
  return path.reduce<string>((text, segment) => {
    const key = typeof segment === "object" && segment !== null && "key" in segment ? segment.key : segment;
    return typeof key === "number" ? `${text}[${key}]` : `${text}.${String(key)}`;
  }, at);
}
