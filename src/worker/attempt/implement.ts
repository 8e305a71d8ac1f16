// implement(): connects a pipeline with the function that runs its jobs. Worker files export its result.

import type { Pipeline } from "../../contract/pipeline.ts";
import { InvalidInput } from "../../errors.ts";
import type { JobContext } from "./context.ts";
import type { FailurePolicy } from "./failure.ts";

export type ImplementOptions = Pick<FailurePolicy, "classify" | "explain">;

export interface Implementation<Input = unknown, Output = Input, Result = unknown> extends ImplementOptions {
  readonly pipeline: Pipeline<Input, Output>;
  run(job: JobContext, input: Output): Promise<Result> | Result;
}

// biome-ignore lint/suspicious/noExplicitAny: an implementation of any pipeline, regardless of its types.
export type AnyImplementation = Implementation<any, any, any>;

/** Symbol.for, so that two copies of the package in one process recognize each other's implementations. */
const BRAND = Symbol.for("stillwake.implementation");

export function implement<Input, Output, Declared, Result extends Declared>(
  pipeline: Pipeline<Input, Output, Declared>,
  run: (job: JobContext, input: Output) => Promise<Result> | Result,
  options: ImplementOptions = {},
): Implementation<Input, Output, Result> {
  if (typeof pipeline?.name !== "string" || !pipeline.settings) {
    throw new InvalidInput("The first argument of implement() is not a pipeline", {
      field: "pipeline",
      remedy: 'Pass the result of pipeline("name", { … })',
    });
  }
  if (typeof run !== "function") {
    throw new InvalidInput(`Pipeline "${pipeline.name}" has no function to run`, {
      field: "run",
      remedy: "Pass it as the second argument: implement(contract, async (job, input) => { … })",
    });
  }
  return Object.freeze({ ...options, pipeline, run, [BRAND]: true });
}

export function isImplementation(value: unknown): value is Implementation {
  return typeof value === "object" && value !== null && BRAND in value;
}
