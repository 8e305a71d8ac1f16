// Jobs come in, and people change their minds about them.
import { z } from "zod";
import type { EnqueueOptions } from "../../client/enqueue-options.ts";
import { refusePlain } from "../../contract/sealed-paths.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { problemOf } from "../http/problem.ts";
import { conform } from "../http/validate-input.ts";
import { type Call, operation, withBody } from "../operation.ts";
import * as shapes from "../shapes.ts";
import { jobOf } from "./jobs.ts";

const label = z.string().min(1).max(500);
const duration = z.string().max(50);
const reason = z.string().max(2000);
/** An offset can carry the last day of the year 9999 into one that Postgres does not read. */
const moment = z.iso
  .datetime({ offset: true })
  .refine((given) => new Date(given).getUTCFullYear() <= 9999, "Must be before the year 10000");

const options = {
  key: label.optional(),
  onConflict: z.enum(["join", "wait", "replace", "reject"]).optional(),
  tenant: label.optional(),
  delay: duration.optional(),
  runAt: moment.optional(),
  expiresIn: duration.optional(),
  expiresAt: moment.optional(),
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
  async handle({ body, who, request, stillwake, house }) {
    const { pipeline: name, runAt, expiresAt, ...rest } = body;
    const info = await house.pipeline(name);
    const inputs = "inputs" in body ? body.inputs : [body.input === undefined ? {} : body.input];
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
      shared.boundTo = who.tenant;
    }
    if ("inputs" in body) {
      const keys = idempotencyKeys as (string | null)[] | undefined;
      return {
        jobs: await stillwake.enqueueMany(name, checked, { ...shared, ...(keys && { idempotencyKeys: keys }) }),
      };
    }
    const key = idempotencyKey ?? request.headers.get("idempotency-key") ?? undefined;
    const once = key === undefined ? {} : { idempotencyKey: key as string };
    return stillwake.enqueue(name, checked[0], { ...shared, ...once });
  },
});

function said<T extends object>(body: T | undefined): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(body ?? {}).filter(([, value]) => value !== undefined)) as never;
}

const Reason = z.strictObject({ reason: reason.optional() }).optional();

/** One act on one job that the caller may see, on record from before it is done. */
function control<Body extends z.ZodType>(
  summary: string,
  body: Body | undefined,
  act: (call: Call<unknown, z.output<Body>>, id: string, by: string) => Promise<string | undefined>,
) {
  return operation({
    summary,
    ...(body && { body }),
    answer: shapes.Controlled,
    record: withBody,
    async handle(call: Call<unknown, z.output<Body>>) {
      const { id, state } = await jobOf(call);
      await call.before({ state });
      return { id, state: await act(call, id, call.who.name) };
    },
  });
}

export const cancel = control("Ends a waiting job, asks a running one to stop", Reason, ({ stillwake, body }, id, by) =>
  stillwake.cancel(id, { by, ...said(body) }),
);

export const retry = control(
  "Runs a failed or cancelled job again, from its checkpoints or from the start",
  z.strictObject({ fromStart: z.boolean().optional() }).optional(),
  ({ stillwake, body }, id, by) => stillwake.retry(id, { by, ...said(body) }),
);

export const pause = control("Sets a job aside until it is resumed", Reason, ({ stillwake, body }, id, by) =>
  stillwake.pause(id, { by, ...said(body) }),
);

export const resume = control("Puts a paused job back in its place in line", undefined, ({ stillwake }, id, by) =>
  stillwake.resume(id, { by }),
);

export const signal = operation({
  summary: "Says something to a job that waits for it, now or later",
  body: z.strictObject({ event: label, data: shapes.Json.optional() }),
  answer: shapes.Controlled,
  async handle(call) {
    const { id, state } = await jobOf(call);
    await call.before({ state, event: call.body.event });
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
  await call.before({ jobs: before });
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
