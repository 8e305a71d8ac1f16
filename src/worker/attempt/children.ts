// job.spawn(): enqueues children and waits for them. A spawn is stored under the lease, in order and once. When
// children are still running, the attempt ends and the job waits in the database without occupying a slot.

import { type EnqueueOptions, resolveLabels, toSqlOptions } from "../../client/enqueue-options.ts";
import { type Pipeline, validateInput } from "../../contract/pipeline.ts";
import type { Failure } from "../../db/calls/job.ts";
import type { ChildCounts, ChildRow, OnError } from "../../db/calls/long-work.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { checkLabel, toJson } from "../../payload.ts";
import { formatPlural } from "../../text/format.ts";
import type { AttemptState } from "./attempt-state.ts";

export interface SpawnOptions<Mode extends OnError = OnError>
  extends Pick<EnqueueOptions, "delay" | "runAt" | "expiresIn" | "priority" | "pool" | "attempts" | "tenant"> {
  /** The name of this spawn within the job. Default: the name of the pipeline. */
  key?: string;
  /**
   * "fail": done() throws as soon as one child has failed or was cancelled. "collect": done() waits for all and returns the state of each.
   * "ignore": done() waits for all and returns undefined for those that did not complete. Default "fail".
   */
  onError?: Mode;
}

/** The final state of one child. */
export type ChildEnd<Result> =
  | { id: string; state: "completed"; output: Result }
  | { id: string; state: "failed" | "cancelled"; failure: Failure | null };

/** In the order of the inputs. */
export type Results<Result, Mode extends OnError> = Mode extends "collect"
  ? ChildEnd<Result>[]
  : Mode extends "ignore"
    ? (Result | undefined)[]
    : Result[];

/** Thrown by done() with onError "fail" when a child failed or was cancelled. */
export class ChildFailed extends StillwakeError {
  readonly jobId: string;
  readonly failure: Failure | null;

  constructor(spawn: string, { id, child_no, state, failure }: ChildRow) {
    const why = failure?.sentence ?? failure?.message;
    super(
      "CHILD_FAILED",
      `Child ${child_no} of "${spawn}" (job ${id}) ${state === "failed" ? "has failed" : "was cancelled"}${why ? `: ${why}` : ""}`,
      { remedy: "Retrying this job retries its children that have not completed" },
    );
    this.jobId = id;
    this.failure = failure;
  }
}

/** SQL counts children in groups of this size, see children.sql. All groups of a call but the last are full. */
const GROUP = 128;
const MAX_GROUPS_PER_CALL = 80;
const MAX_JSON_PER_CALL = 4 * 1024 * 1024;
const PAGE = 500;

export class Children<Found = unknown[]> {
  readonly name: string;
  readonly total: number;
  readonly #attempt: AttemptState;
  readonly #onError: OnError;

  constructor(attempt: AttemptState, name: string, total: number, onError: OnError) {
    this.name = name;
    this.total = total;
    this.#attempt = attempt;
    this.#onError = onError;
  }

  /** How many have finished, by state. */
  async counts(): Promise<ChildCounts> {
    const { total, completed, failed, cancelled } = await this.#state();
    return { total, completed, failed, cancelled };
  }

  /** Waits until all have finished, without occupying a slot, and returns their outputs in the order of the inputs. */
  async done(): Promise<Found> {
    const { over, total, completed, failed, cancelled } = await this.#state();
    if (!over) {
      const left = total - completed - failed - cancelled;
      return this.#attempt.suspend(
        { kind: "slept", waitingFor: "children", awaits: this.name },
        `The job waits for ${left} of ${formatPlural(total, "child", "children")}`,
      );
    }
    if (this.#onError === "fail" && failed + cancelled > 0) {
      const [first] = await this.#attempt.host.port.children({ spawn: this.name, after: -1, limit: 1, failed: true });
      if (first) throw new ChildFailed(this.name, first);
    }
    const rows: ChildRow[] = [];
    while (rows.length < total) {
      const page = await this.#attempt.host.port.children({
        spawn: this.name,
        after: rows.at(-1)?.child_no ?? -1,
        limit: PAGE,
      });
      if (page.length === 0) break;
      rows.push(...page);
      this.#attempt.check();
    }
    if (rows.length < total) {
      throw new StillwakeError(
        "CHILD_FORGOTTEN",
        `Only ${rows.length} of ${formatPlural(total, "child", "children")} of "${this.name}" are still stored`,
        {
          remedy: "Keep the completed jobs of their pipeline longer than the parent runs: keep: { completed: … }",
        },
      );
    }
    return rows.map((row) => this.#resultOf(row)) as Found;
  }

  async #state() {
    this.#attempt.check();
    const state = await this.#attempt.host.port.spawnState(this.name);
    if (state) return state;
    throw new StillwakeError(
      "SPAWN_GONE",
      `The spawn "${this.name}" of job ${this.#attempt.assignment.job} no longer exists`,
    );
  }

  #resultOf({ id, state, output, failure }: ChildRow): unknown {
    if (this.#onError !== "collect") return state === "completed" ? (output ?? undefined) : undefined;
    return state === "completed" ? { id, state, output: output ?? undefined } : { id, state, failure };
  }
}

export async function spawnChildren<Input, Output, Result, Mode extends OnError>(
  attempt: AttemptState,
  pipeline: Pipeline<Input, Output, Result>,
  inputs: readonly Input[],
  { key, onError, ...options }: SpawnOptions<Mode>,
): Promise<Children<Results<Result, Mode>>> {
  const steps = attempt.beginStep();
  if (typeof pipeline?.name !== "string" || !pipeline.settings) {
    throw new InvalidInput("The first argument of spawn() is not a pipeline", {
      field: "pipeline",
      remedy: 'Pass the result of pipeline("name", { … })',
    });
  }
  if (!Array.isArray(inputs)) {
    throw new InvalidInput("inputs is not an array", { field: "inputs", remedy: "Pass one element per child" });
  }
  const mode = onError ?? "fail";
  if (!["fail", "collect", "ignore"].includes(mode)) {
    throw new InvalidInput(`onError must be "fail", "collect" or "ignore", not ${JSON.stringify(mode)}`, {
      field: "onError",
      remedy: "Choose one of the three",
    });
  }
  const name = checkLabel(key ?? pipeline.name, "key");
  const sqlOptions = toSqlOptions(options, true);
  await steps.begin(name);
  const { port, tracing } = attempt.host;
  const total = inputs.length;
  const { settings, options: contract } = pipeline;
  const dependencies = (contract.needs ?? []).map((need) => ({
    kind: need.kind,
    name: need.name,
    settings: need.settings,
  }));
  const trace = tracing.inject();
  for (let from = 0; ; ) {
    const tenant = options.tenant ?? attempt.assignment.tenant ?? undefined;
    const batch = await nextBatch(pipeline, inputs, from, tenant);
    from = await port.spawn({
      spawn: name,
      pipeline: { name: pipeline.name, settings, dependencies },
      inputs: batch.inputs,
      keys: batch.keys,
      tenants: batch.tenants,
      ...(trace && { trace }),
      options: sqlOptions,
      from,
      total,
      onError: mode,
    });
    attempt.check();
    if (from >= total) break;
  }
  return new Children(attempt, name, total, mode);
}

/** The inputs of the next call, as many as fit into one. */
async function nextBatch<Input, Output>(
  pipeline: Pipeline<Input, Output>,
  inputs: readonly Input[],
  from: number,
  tenant: string | undefined,
): Promise<{ inputs: string[]; keys: (string | null)[]; tenants: (string | null)[] }> {
  const batch = { inputs: [] as string[], keys: [] as (string | null)[], tenants: [] as (string | null)[] };
  let size = 0;
  for (let index = from; index < inputs.length; index++) {
    const isFull = batch.inputs.length >= GROUP * MAX_GROUPS_PER_CALL || size >= MAX_JSON_PER_CALL;
    if (isFull && batch.inputs.length % GROUP === 0) break;
    const path = `inputs[${index}]`;
    const value = pipeline.options.input ? await validateInput(pipeline, inputs[index], path) : inputs[index];
    const json = toJson(value, path);
    const labels = resolveLabels(pipeline as Pipeline, value, tenant === undefined ? {} : { tenant }, path);
    size += json.length;
    batch.inputs.push(json);
    batch.keys.push(labels.key);
    batch.tenants.push(labels.tenant);
  }
  return batch;
}
