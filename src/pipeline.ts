// A pipeline's contract: its name, the shape of its input and its policies. Safe to import from a web bundle: no Node, no database.
import { InvalidInput, type Issue } from "./errors.ts";
import { type Duration, limitMs, toInterval } from "./time.ts";

/** What zod, valibot, arktype and others implement (Standard Schema v1): the part of it that is used here. */
export interface Schema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] };

export interface PipelineOptions<Input, Output> {
  /** Any Standard Schema. Input is checked before it is stored; without one, any JSON value is accepted. */
  input?: Schema<Input, Output>;
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
    first?: Duration;
    /** The longest pause. Default "15m". */
    most?: Duration;
  };
  /** How long one attempt may take. Default: as long as it lives. */
  timeout?: Duration;
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

export interface Pipeline<Input = unknown, Output = Input> {
  readonly name: string;
  readonly options: Readonly<PipelineOptions<Input, Output>>;
  /** The settings as `stillwake.register_pipeline` takes them. */
  readonly settings: Readonly<Record<string, string | number>>;
}

/** The type a job of this pipeline is enqueued with. */
export type InputOf<P> = P extends Pipeline<infer Input, infer _> ? Input : never;

export function pipeline<Input = unknown, Output = Input>(
  name: string,
  options: PipelineOptions<Input, Output> = {},
): Pipeline<Input, Output> {
  if (typeof name !== "string" || !/^[a-z0-9][a-z0-9_.:-]{0,99}$/.test(name)) {
    throw new InvalidInput(`${JSON.stringify(name)} cannot name a pipeline`, {
      field: "name",
      remedy: "Use 1 to 100 lower-case letters, digits and _ . : - beginning with a letter or digit",
    });
  }
  const known = "input pool priority retry timeout silence failures version onOlder keep".split(" ");
  const unknown = Object.keys(options).find((key) => !known.includes(key));
  if (unknown) {
    throw new InvalidInput(`Pipeline "${name}" has an unknown option "${unknown}"`, {
      field: unknown,
      remedy: `Known options: ${known.join(", ")}`,
    });
  }
  checkPolicies(name, options);
  return Object.freeze({ name, options: Object.freeze(options), settings: Object.freeze(settingsOf(options)) });
}

function checkPolicies(name: string, options: PipelineOptions<unknown, unknown>): void {
  const refuse = (field: string, value: unknown, remedy: string) => {
    throw new InvalidInput(`${field} ${JSON.stringify(value)} of pipeline "${name}" is not valid`, { field, remedy });
  };
  const { timeout, silence, failures, version = 1, onOlder = "continue" } = options;
  limitMs(timeout, "timeout");
  limitMs(silence, "silence");
  if (!Number.isInteger(version) || version < 1 || version > 2_147_483_647) {
    refuse("version", version, "Use a whole number from 1 and raise it by one when the steps change their meaning");
  }
  if (!["continue", "restart", "wait"].includes(onOlder)) {
    refuse("onOlder", onOlder, 'Use "continue", "restart" or "wait"');
  }
  for (const [code, kind] of Object.entries(failures ?? {})) {
    if (!["retry", "fatal", "pause"].includes(kind)) {
      refuse(`failures.${code}`, kind, 'A code means "retry", "fatal" or "pause"');
    }
  }
}

function settingsOf({
  pool,
  priority,
  retry,
  keep,
}: PipelineOptions<unknown, unknown>): Record<string, string | number> {
  const settings: Record<string, string | number> = {};
  const set = (key: string, value: string | number | undefined) => {
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
  set("backoff_first", interval(retry?.first, "retry.first"));
  set("backoff_most", interval(retry?.most, "retry.most"));
  set("keep_completed", interval(keep?.completed, "keep.completed"));
  set("keep_failed", interval(keep?.failed, "keep.failed"));
  set("keep_cancelled", interval(keep?.cancelled, "keep.cancelled"));
  return settings;
}

/** Runs the pipeline's schema over an input. Says every place that is wrong, with its path. */
export async function validateInput<Input, Output>(
  pipeline: Pipeline<Input, Output>,
  input: unknown,
  at = "input",
): Promise<unknown> {
  const schema = pipeline.options.input;
  if (!schema) return input;
  const result = await schema["~standard"].validate(input);
  if (!result.issues) return result.value;
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
