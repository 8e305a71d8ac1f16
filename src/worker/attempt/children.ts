// Fan-out and join. A spawn is stored under the lease, in order and once, and its children are jobs like any others; joining them is asking the database,
// and when they are not done the attempt ends and the job is back in the table until they are.

import { type EnqueueOptions, labelsOf, sqlOptions } from "../../client/enqueue-options.ts";
import { type Pipeline, validateInput } from "../../contract/pipeline.ts";
import type { Failure } from "../../db/calls/jobs.ts";
import type { ChildCounts, ChildRow, OnError } from "../../db/calls/long-work.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { checkLabel, toJson } from "../../payload.ts";
import type { LastingHost } from "./lasting-host.ts";

export interface SpawnOptions<Mode extends OnError = OnError>
  extends Pick<EnqueueOptions, "delay" | "runAt" | "expiresIn" | "priority" | "pool" | "attempts" | "tenant"> {
  /** The name of this spawn within the job. Default: the name of the pipeline. */
  key?: string;
  /**
   * "fail": done() throws as soon as one child has failed or was cancelled. "collect": it waits for all and tells of each how it ended. "ignore": it
   * waits for all and has undefined where one did not complete. Default "fail".
   */
  onError?: Mode;
}

/** How one child ended. */
export type ChildEnd<Result> =
  | { id: string; state: "completed"; output: Result }
  | { id: string; state: "failed" | "cancelled"; failure: Failure | null };

/** In the order of the inputs. */
export type Results<Result, Mode extends OnError> = Mode extends "collect"
  ? ChildEnd<Result>[]
  : Mode extends "ignore"
    ? (Result | undefined)[]
    : Result[];

/** A child failed for which its parent cannot do without. */
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

/** Children are counted in parts of this many: see children.sql. */
const PART = 128;
const MAX_PARTS = 80;
const MAX_JSON = 4 * 1024 * 1024;
const PAGE = 500;

export class Children<Found = unknown[]> {
  readonly name: string;
  readonly total: number;
  readonly #host: LastingHost;
  readonly #onError: OnError;

  constructor(host: LastingHost, name: string, total: number, onError: OnError) {
    this.name = name;
    this.total = total;
    this.#host = host;
    this.#onError = onError;
  }

  /** How far they are. */
  async counts(): Promise<ChildCounts> {
    const { total, completed, failed, cancelled } = await this.#state();
    return { total, completed, failed, cancelled };
  }

  /** Waits until they have ended, without holding a slot, and returns what they have returned, in the order of the inputs. */
  async done(): Promise<Found> {
    const { over, total, completed, failed, cancelled } = await this.#state();
    if (!over) {
      const left = total - completed - failed - cancelled;
      return this.#host.end(
        { kind: "slept", waitingFor: "children", awaits: this.name },
        `The job waits for ${left} of ${total} children`,
      );
    }
    if (this.#onError === "fail" && failed + cancelled > 0) {
      const [first] = await this.#host.port.children({ spawn: this.name, after: -1, limit: 1, failed: true });
      if (first) throw new ChildFailed(this.name, first);
    }
    const rows: ChildRow[] = [];
    while (rows.length < total) {
      const page = await this.#host.port.children({
        spawn: this.name,
        after: rows.at(-1)?.child_no ?? -1,
        limit: PAGE,
      });
      if (page.length === 0) break;
      rows.push(...page);
      this.#host.check();
    }
    if (rows.length < total) {
      throw new StillwakeError(
        "CHILD_FORGOTTEN",
        `Only ${rows.length} of ${total} children of "${this.name}" are left`,
        {
          remedy: "Keep their pipeline's completed jobs longer than their parent may take: keep: { completed: … }",
        },
      );
    }
    return rows.map((row) => this.#resultOf(row)) as Found;
  }

  async #state() {
    const { port, assignment, check } = this.#host;
    check();
    const state = await port.spawnState(this.name);
    if (state) return state;
    throw new StillwakeError("SPAWN_GONE", `Job ${assignment.job} has no spawn "${this.name}" any more`);
  }

  #resultOf({ id, state, output, failure }: ChildRow): unknown {
    if (this.#onError !== "collect") return state === "completed" ? (output ?? undefined) : undefined;
    return state === "completed" ? { id, state, output: output ?? undefined } : { id, state, failure };
  }
}

export async function spawnChildren<Input, Output, Result, Mode extends OnError>(
  host: LastingHost,
  pipeline: Pipeline<Input, Output, Result>,
  inputs: readonly Input[],
  { key, onError, ...options }: SpawnOptions<Mode>,
): Promise<Children<Results<Result, Mode>>> {
  if (typeof pipeline?.name !== "string" || !pipeline.settings) {
    throw new InvalidInput("spawn() was not given a pipeline", {
      field: "pipeline",
      remedy: 'Pass what pipeline("name", { … }) returned',
    });
  }
  if (!Array.isArray(inputs)) {
    throw new InvalidInput("inputs is not an array", { field: "inputs", remedy: "Pass one element per child" });
  }
  const mode = onError ?? "fail";
  if (!["fail", "collect", "ignore"].includes(mode)) {
    throw new InvalidInput(`onError cannot be ${JSON.stringify(mode)}`, {
      field: "onError",
      remedy: "Use fail, collect or ignore",
    });
  }
  const name = checkLabel(key ?? pipeline.name, "key");
  const shared = sqlOptions(options, true);
  await host.steps.begin(name);
  const { port, assignment } = host;
  const total = inputs.length;
  const { settings, options: contract } = pipeline;
  const needs = (contract.needs ?? []).map((need) => ({ kind: need.kind, name: need.name, settings: need.settings }));
  const trace = host.trace();
  for (let from = 0; ; ) {
    const part = await nextPart(pipeline, inputs, from, options.tenant ?? assignment.tenant ?? undefined);
    from = await port.spawn({
      spawn: name,
      pipeline: { name: pipeline.name, settings, needs },
      inputs: part.inputs,
      keys: part.keys,
      tenants: part.tenants,
      ...(trace && { trace }),
      options: shared,
      from,
      total,
      onError: mode,
    });
    host.check();
    if (from >= total) break;
  }
  return new Children(host, name, total, mode);
}

/** As many as fit into one message, in whole parts. */
async function nextPart<Input, Output>(
  pipeline: Pipeline<Input, Output>,
  inputs: readonly Input[],
  from: number,
  tenant: string | undefined,
): Promise<{ inputs: string[]; keys: (string | null)[]; tenants: (string | null)[] }> {
  const part = { inputs: [] as string[], keys: [] as (string | null)[], tenants: [] as (string | null)[] };
  let size = 0;
  for (let at = from; at < inputs.length; at++) {
    if (part.inputs.length % PART === 0 && (part.inputs.length >= PART * MAX_PARTS || size >= MAX_JSON)) break;
    const place = `inputs[${at}]`;
    const value = pipeline.options.input ? await validateInput(pipeline, inputs[at], place) : inputs[at];
    const json = toJson(value, place);
    const labels = labelsOf(pipeline as Pipeline, value, tenant === undefined ? {} : { tenant }, place);
    size += json.length;
    part.inputs.push(json);
    part.keys.push(labels.key);
    part.tenants.push(labels.tenant);
  }
  return part;
}
