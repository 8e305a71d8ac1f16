// A pipeline's code: the contract and the function that does the work. Worker files export what implement() returns.

import type { Pipeline } from "../../contract/pipeline.ts";
import { InvalidInput } from "../../errors.ts";
import type { JobContext } from "./context.ts";
import type { Judge } from "./failure.ts";

export type ImplementOptions = Pick<Judge, "classify" | "explain">;

export interface Implementation<Input = unknown, Output = Input, Result = unknown> extends ImplementOptions {
  readonly pipeline: Pipeline<Input, Output>;
  run(job: JobContext, input: Output): Promise<Result> | Result;
}

// biome-ignore lint/suspicious/noExplicitAny: the implementation of some pipeline, whatever its types.
export type AnyImplementation = Implementation<any, any, any>;

/** Two copies of the package in one process, as a linked one makes, know one another's. */
const SIGN = Symbol.for("stillwake.implementation");

export function implement<Input, Output, Declared, Result extends Declared>(
  pipeline: Pipeline<Input, Output, Declared>,
  run: (job: JobContext, input: Output) => Promise<Result> | Result,
  options: ImplementOptions = {},
): Implementation<Input, Output, Result> {
  if (typeof pipeline?.name !== "string" || !pipeline.settings) {
    throw new InvalidInput("implement() was not given a pipeline", {
      field: "pipeline",
      remedy: 'Pass what pipeline("name", { … }) returned',
    });
  }
  if (typeof run !== "function") {
    throw new InvalidInput(`Pipeline "${pipeline.name}" was given no function to run`, {
      field: "run",
      remedy: "Pass it as the second argument: implement(contract, async (job, input) => { … })",
    });
  }
  return Object.freeze({ ...options, pipeline, run, [SIGN]: true });
}

export function isImplementation(value: unknown): value is Implementation {
  return typeof value === "object" && value !== null && SIGN in value;
}
