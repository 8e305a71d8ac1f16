// Jobs come in, and people change their minds about them.
import { z } from "zod";
import type { Enqueued } from "../client.ts";
import { InvalidInput, JobNotFound, KeyTaken, StillwakeError } from "../errors.ts";
import type { EnqueueOptions } from "../options.ts";
import { refusePlain } from "../sealed.ts";
import { conform } from "./conform.ts";
import { jobOf } from "./jobs.ts";
import { type Call, operation, withBody } from "./operation.ts";
import { problemOf } from "./problem.ts";
import * as shapes from "./shapes.ts";

const label = z.string().min(1).max(500);
const duration = z.string().max(50);
const reason = z.string().max(2000);

const options = {
  key: label.optional(),
  onConflict: z.enum(["join", "wait", "replace", "reject"]).optional(),
  tenant: label.optional(),
  delay: duration.optional(),
  runAt: z.iso.datetime({ offset: true }).optional(),
  expiresIn: duration.optional(),
  expiresAt: z.iso.datetime({ offset: true }).optional(),
  priority: z.int().min(-1000).max(1000).optional(),
  pool: label.optional(),
  attempts: z.int().min(1).max(1000).optional(),
  webhook: z
    .union([z.string().max(2000), z.strictObject({ endpoint: label.optional(), url: z.string().max(2000).optional() })])
    .optional(),
};

const One = z.strictObject({
  pipeline: label,
  input: shapes.Json.optional(),
  idempotencyKey: label.optional(),
  ...options,
});
const Many = z.strictObject({
  pipeline: label,
  inputs: z.array(shapes.Json).min(1).max(1000),
  idempotencyKeys: z.array(label.nullable()).max(1000).optional(),
  ...options,
});

export const enqueue = operation({
  summary: "Enqueues one job, or many of one pipeline",
  about:
    "`input` for one job, `inputs` for many. The answer comes when they are durable. The header Idempotency-Key stands for idempotencyKey. The input is held against the schema the pipeline was registered with. `key` and `tenant` are not made from the input here, as the contract does in code: say them.",
  body: z.union([One, Many]),
  answer: z.union([shapes.Enqueued, z.object({ jobs: z.array(shapes.Enqueued) })]),
  status: 201,
  async handle({ body, who, reading, request, stillwake, house }) {
    const { pipeline: name, runAt, expiresAt, ...rest } = body;
    const info = await house.pipeline(name);
    const inputs = "inputs" in body ? body.inputs : [body.input ?? {}];
    const checked = inputs.map((input, index) => {
      const at = "inputs" in body ? `inputs[${index}]` : "input";
      refusePlain(info.sealed, input, at);
      return conform(house.schemas, info, input, at);
    });
    const {
      input: _input,
      inputs: _inputs,
      idempotencyKey,
      idempotencyKeys,
      ...others
    } = rest as Record<string, unknown>;
    const given = said(others);
    const shared: EnqueueOptions = { ...given };
    if (runAt !== undefined) shared.runAt = new Date(runAt);
    if (expiresAt !== undefined) shared.expiresAt = new Date(expiresAt);
    if (who.tenant !== null) {
      if (shared.tenant !== undefined && shared.tenant !== who.tenant) {
        throw new InvalidInput("The token is of another tenant", { field: "tenant", remedy: "Leave tenant out" });
      }
      shared.tenant = who.tenant;
      if (shared.key !== undefined && (shared.onConflict ?? info.onConflict) === "replace") {
        await refuseToReplace(stillwake, name, shared.key, who.tenant);
      }
    }
    if ("inputs" in body) {
      const keys = idempotencyKeys as (string | null)[] | undefined;
      const many = { ...shared, ...(keys && { idempotencyKeys: keys }) };
      const jobs = await quietly(reading, who, () => stillwake.enqueueMany(name, checked, many));
      await refuseOthers(reading, who, jobs);
      return { jobs };
    }
    const key = idempotencyKey ?? request.headers.get("idempotency-key") ?? undefined;
    const once = key === undefined ? {} : { idempotencyKey: key as string };
    const done = await quietly(reading, who, () => stillwake.enqueue(name, checked[0], { ...shared, ...once }));
    await refuseOthers(reading, who, [done]);
    return done;
  },
});

/** A key or an idempotency key that another tenant has taken is taken; whose job has it is not told. */
async function refuseOthers(reading: Call["reading"], who: Call["who"], jobs: Enqueued[]): Promise<void> {
  if (who.tenant === null) return;
  for (const { id } of jobs.filter(({ existing }) => existing)) await reading.get(id).catch(rethrowAsTaken);
}

/** Nobody ends the job of another tenant by wanting its key. */
async function refuseToReplace(stillwake: Call["stillwake"], pipeline: string, key: string, tenant: string) {
  for (const state of ["queued", "running", "paused"] as const) {
    for (let cursor: string | null | undefined; cursor !== null; ) {
      const page = await stillwake.list({ pipeline, key, state, limit: 200, ...(cursor && { cursor }) });
      if (page.jobs.some((job) => job.tenant !== tenant)) throw taken();
      cursor = page.cursor;
    }
  }
}

/** A refusal names the job that has the key: to its own tenant alone. */
async function quietly<T>(reading: Call["reading"], who: Call["who"], enqueue: () => Promise<T>): Promise<T> {
  try {
    return await enqueue();
  } catch (error) {
    if (who.tenant === null || !(error instanceof KeyTaken)) throw error;
    if (error.jobId === undefined) throw taken();
    await reading.get(error.jobId).catch(rethrowAsTaken);
    throw error;
  }
}

function rethrowAsTaken(error: unknown): never {
  throw error instanceof JobNotFound ? taken() : error;
}

function taken(): KeyTaken {
  return new KeyTaken("The key, or the idempotency key, is taken", {
    remedy: "Put something of your own into it: keys are one space for all who use a pipeline",
  });
}

function said<T extends object>(body: T | undefined): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(body ?? {}).filter(([, value]) => value !== undefined)) as never;
}

const Reason = z.strictObject({ reason: reason.optional() }).optional();

export const cancel = operation({
  summary: "Ends a waiting job, asks a running one to stop",
  body: Reason,
  answer: shapes.Controlled,
  record: withBody,
  async handle(call) {
    const { id, state } = await jobOf(call);
    call.before({ state });
    return { id, state: await call.stillwake.cancel(id, { by: call.who.name, ...said(call.body) }) };
  },
});

export const retry = operation({
  summary: "Runs a failed or cancelled job again, from its checkpoints or from the start",
  body: z.strictObject({ fromStart: z.boolean().optional() }).optional(),
  answer: shapes.Controlled,
  record: withBody,
  async handle(call) {
    const { id, state } = await jobOf(call);
    call.before({ state });
    return { id, state: await call.stillwake.retry(id, { by: call.who.name, ...said(call.body) }) };
  },
});

export const pause = operation({
  summary: "Sets a job aside until it is resumed",
  body: Reason,
  answer: shapes.Controlled,
  record: withBody,
  async handle(call) {
    const { id, state } = await jobOf(call);
    call.before({ state });
    return { id, state: (await call.stillwake.pause(id, { by: call.who.name, ...said(call.body) }))! };
  },
});

export const resume = operation({
  summary: "Puts a paused job back in its place in line",
  answer: shapes.Controlled,
  async handle(call) {
    const { id, state } = await jobOf(call);
    call.before({ state });
    return { id, state: (await call.stillwake.resume(id, { by: call.who.name }))! };
  },
});

export const signal = operation({
  summary: "Says something to a job that waits for it, now or later",
  body: z.strictObject({ event: label, data: shapes.Json.optional() }),
  answer: shapes.Controlled,
  async handle(call) {
    const { id, state } = await jobOf(call);
    call.before({ state, event: call.body.event });
    const { event, data = null } = call.body;
    return { id, state: await call.stillwake.signal(id, event, data, { by: call.who.name }) };
  },
});

const Several = z.strictObject({ ids: z.array(z.uuid()).min(1).max(200) });
const Results = z.object({
  jobs: z.array(
    z.object({ id: z.uuid(), state: z.enum(shapes.jobStates).optional(), problem: shapes.Problem.optional() }),
  ),
});

async function each(call: Call<unknown, { ids: string[] }>, act: (id: string) => Promise<string>) {
  const jobs: { id: string; state?: string; problem?: unknown }[] = [];
  const before: { id: string; state: string }[] = [];
  call.before({ jobs: before });
  for (const id of new Set(call.body.ids)) {
    try {
      before.push({ id, state: (await jobOf({ ...call, params: { id } })).state });
      jobs.push({ id, state: await act(id) });
    } catch (error) {
      if (!(error instanceof StillwakeError) || problemOf(error).inside) throw error;
      jobs.push({ id, problem: problemOf(error).problem });
    }
  }
  return { jobs };
}

export const cancelMany = operation({
  summary: "Cancels many jobs; what could not be is answered with its problem",
  body: Several.extend({ reason: reason.optional() }),
  answer: Results,
  handle: (call) =>
    each(call, (id) =>
      call.stillwake.cancel(id, { by: call.who.name, ...(call.body.reason && { reason: call.body.reason }) }),
    ),
});

export const retryMany = operation({
  summary: "Runs many failed or cancelled jobs again",
  body: Several.extend({ fromStart: z.boolean().optional() }),
  answer: Results,
  handle: (call) =>
    each(call, (id) =>
      call.stillwake.retry(id, { by: call.who.name, ...(call.body.fromStart && { fromStart: call.body.fromStart }) }),
    ),
});
