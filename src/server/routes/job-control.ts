// Enqueues, cancels, retries, pauses, resumes and signals jobs.
import { z } from "zod";
import type { EnqueueOptions } from "../../client/enqueue-options.ts";
import { rejectPlainValues } from "../../contract/sealed-paths.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { withoutUndefined } from "../../validate.ts";
import { checkEnqueueLimits, checkPipelineLimit } from "../http/access.ts";
import { toProblem } from "../http/problem.ts";
import { type Call, mergeBody, operation } from "../operation.ts";
import * as schemas from "../schemas.ts";
import { findJob } from "./jobs.ts";

const label = z.string().min(1).max(500);
const duration = z.string().max(50);
const reason = z.string().max(2000);
/** An offset can move the last day of the year 9999 into the year 10000, which Postgres cannot parse. */
const timestamp = z.iso
  .datetime({ offset: true })
  .refine((text) => new Date(text).getUTCFullYear() <= 9999, "Must be before the year 10000");

const options = {
  key: label.optional(),
  onConflict: z.enum(["join", "wait", "replace", "reject"]).optional(),
  tenant: label.optional(),
  delay: duration.optional(),
  runAt: timestamp.optional(),
  expiresIn: duration.optional(),
  expiresAt: timestamp.optional(),
  priority: z.int().min(-1000).max(1000).optional(),
  pool: label.optional(),
  attempts: z.int().min(1).max(1000).optional(),
  webhook: z
    .union([z.string().max(2000), z.strictObject({ endpoint: label.optional(), url: z.string().max(2000).optional() })])
    .optional(),
};

const OneJob = z.strictObject({
  pipeline: label,
  input: schemas.Json.optional(),
  idempotencyKey: label.optional(),
  ...options,
});
const ManyJobs = z.strictObject({
  pipeline: label,
  inputs: z.array(schemas.Json).min(1).max(1000),
  idempotencyKeys: z.array(label.nullable()).max(1000).optional(),
  ...options,
});

export const enqueue = operation({
  summary: "Enqueues one job, or many of one pipeline",
  description:
    "Send `input` for one job, `inputs` for many. The response is sent when the jobs are durable. The header Idempotency-Key is equal to idempotencyKey. The input is validated with the schema that the pipeline was registered with. `key` and `tenant` are not computed from the input, as the contract does in code: send them.",
  uncounted: () => true,
  body: z.union([OneJob, ManyJobs]),
  response: z.union([schemas.Enqueued, z.object({ jobs: z.array(schemas.Enqueued) })]),
  status: 201,
  async handle({ body, caller, request, stillwake, context }) {
    const { pipeline: name, runAt, expiresAt, ...rest } = body;
    checkPipelineLimit(caller, name);
    const info = await context.pipeline(name);
    checkEnqueueLimits(caller, info, body);
    const inputs = "inputs" in body ? body.inputs : [body.input === undefined ? {} : body.input];
    const validated = inputs.map((input, index) => {
      const at = "inputs" in body ? `inputs[${index}]` : "input";
      rejectPlainValues(info.sealed, input, at);
      return context.validateInput(info, input, at);
    });
    const {
      input: _input,
      inputs: _inputs,
      idempotencyKey,
      idempotencyKeys,
      ...others
    } = rest as Record<string, unknown>;
    const shared: EnqueueOptions = { ...withoutUndefined(others) };
    if (runAt !== undefined) shared.runAt = new Date(runAt);
    if (expiresAt !== undefined) shared.expiresAt = new Date(expiresAt);
    if (caller.tenant !== null) {
      if (shared.tenant !== undefined && shared.tenant !== caller.tenant) {
        throw new InvalidInput("The token belongs to another tenant", { field: "tenant", remedy: "Leave tenant out" });
      }
      shared.tenant = caller.tenant;
      shared.boundTo = caller.tenant;
    }
    if ("inputs" in body) {
      const keys = idempotencyKeys as (string | null)[] | undefined;
      return {
        jobs: await stillwake.enqueueMany(name, validated, { ...shared, ...(keys && { idempotencyKeys: keys }) }),
      };
    }
    const key = idempotencyKey ?? request.headers.get("idempotency-key") ?? undefined;
    const idempotent = key === undefined ? {} : { idempotencyKey: key as string };
    return stillwake.enqueue(name, validated[0], { ...shared, ...idempotent });
  },
});

const Reason = z.strictObject({ reason: reason.optional() }).optional();

/** An operation on one job that the caller may see. */
function control<Body extends z.ZodType>(
  summary: string,
  body: Body | undefined,
  run: (call: Call<unknown, z.output<Body>>, id: string, by: string) => Promise<string | undefined>,
) {
  return operation({
    summary,
    ...(body && { body }),
    response: schemas.Controlled,
    audit: mergeBody,
    async handle(call: Call<unknown, z.output<Body>>) {
      const { id, state } = await findJob(call);
      await call.recordBefore({ state });
      return { id, state: await run(call, id, call.caller.name) };
    },
  });
}

export const cancel = control(
  "Cancels a waiting job, or requests that a running one stops",
  Reason,
  ({ stillwake, body }, id, by) => stillwake.cancel(id, { by, ...withoutUndefined(body) }),
);

export const retry = control(
  "Runs a failed or cancelled job again, from its checkpoints or from the start",
  z.strictObject({ fromStart: z.boolean().optional() }).optional(),
  ({ stillwake, body }, id, by) => stillwake.retry(id, { by, ...withoutUndefined(body) }),
);

export const pause = control("Pauses a job until it is resumed", Reason, ({ stillwake, body }, id, by) =>
  stillwake.pause(id, { by, ...withoutUndefined(body) }),
);

export const resume = control("Requeues a paused job at its old position", undefined, ({ stillwake }, id, by) =>
  stillwake.resume(id, { by }),
);

export const signal = operation({
  summary: "Sends an event to a job, which waits for it now or later",
  body: z.strictObject({ event: label, data: schemas.Json.optional() }),
  response: schemas.Signalled,
  async handle(call) {
    const { id, state } = await findJob(call);
    await call.recordBefore({ state, event: call.body.event });
    const { event, data = null } = call.body;
    return { id, ...(await call.stillwake.signal(id, event, data, { by: call.caller.name })) };
  },
});

const JobIds = z.strictObject({ ids: z.array(z.uuid()).min(1).max(200) });
const Results = z.object({
  jobs: z.array(
    z.object({ id: z.uuid(), state: z.enum(schemas.jobStates).optional(), problem: schemas.Problem.optional() }),
  ),
});

/** The problem of one job does not fail the others. */
async function controlEach(call: Call<unknown, { ids: string[] }>, run: (id: string) => Promise<string>) {
  const jobs: { id: string; state?: string; problem?: unknown }[] = [];
  const before: { id: string; state: string }[] = [];
  await call.recordBefore({ jobs: before });
  for (const id of new Set(call.body.ids)) {
    try {
      before.push({ id, state: (await findJob({ ...call, params: { id } })).state });
      jobs.push({ id, state: await run(id) });
    } catch (error) {
      if (!(error instanceof StillwakeError) || toProblem(error).internal) throw error;
      jobs.push({ id, problem: toProblem(error).problem });
    }
  }
  return { jobs };
}

export const cancelMany = operation({
  summary: "Cancels many jobs; returns a problem for each that could not be cancelled",
  body: JobIds.extend({ reason: reason.optional() }),
  response: Results,
  handle: (call) =>
    controlEach(call, (id) =>
      call.stillwake.cancel(id, { by: call.caller.name, ...(call.body.reason && { reason: call.body.reason }) }),
    ),
});

export const retryMany = operation({
  summary: "Runs many failed or cancelled jobs again",
  body: JobIds.extend({ fromStart: z.boolean().optional() }),
  response: Results,
  handle: (call) =>
    controlEach(call, (id) =>
      call.stillwake.retry(id, {
        by: call.caller.name,
        ...(call.body.fromStart && { fromStart: call.body.fromStart }),
      }),
    ),
});
