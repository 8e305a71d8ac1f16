// Lists, sets, pauses, resumes and removes schedules.
import { z } from "zod";
import { type ScheduleOptions, schedule } from "../../contract/schedule.ts";
import { rejectPlainValues } from "../../contract/sealed-paths.ts";
import { withoutUndefined } from "../../validate.ts";
import { checkEnqueueLimits, checkPipelineLimit } from "../http/access.ts";
import { httpError } from "../http/problem.ts";
import { findByName, mergeBody, operation } from "../operation.ts";
import * as schemas from "../schemas.ts";

const Name = z.object({ name: z.string() });
const label = z.string().min(1).max(500);

export const list = operation({
  summary: "All schedules with their next run times",
  response: z.object({ schedules: z.array(schemas.Schedule) }),
  handle: async ({ stillwake }) => ({ schedules: await stillwake.schedules.list() }),
});

export const upcoming = operation({
  summary: "The next occurrences of a schedule",
  query: z.strictObject({ count: z.coerce.number().int().min(1).max(1000).optional() }),
  response: z.object({ occurrences: z.array(schemas.Occurrence) }),
  handle: async ({ stillwake, params, query }) => ({
    occurrences: await stillwake.schedules.upcoming(params.name!, query.count ?? 10),
  }),
});

export const set = operation({
  summary: "Creates or changes a schedule",
  body: z.strictObject({
    cron: z.string().max(200),
    zone: z.string().max(100).optional(),
    pipeline: label,
    input: schemas.Json.optional(),
    overlap: z.string().max(20).optional(),
    catchUp: z.string().max(20).optional(),
    options: z
      .strictObject({
        priority: z.int().optional(),
        pool: label.optional(),
        attempts: z.int().optional(),
        expiresIn: z.string().max(50).optional(),
        key: label.optional(),
        tenant: label.optional(),
        webhook: z.string().max(2000).optional(),
      })
      .optional(),
  }),
  response: z.object({ name: z.string(), changed: z.boolean() }),
  audit: (response, body) => mergeBody(response, withoutInput(body as object)),
  async handle({ stillwake, context, params, body, caller, recordBefore }) {
    checkPipelineLimit(caller, body.pipeline);
    await recordBefore(withoutInput(findByName(await stillwake.schedules.list(), params.name)));
    const info = await stillwake.pipeline(body.pipeline);
    checkEnqueueLimits(caller, info, body.options ?? {});
    rejectPlainValues(info.sealed, body.input ?? {});
    const input = context.validateInput(info, body.input ?? {}, "input");
    const options = withoutUndefined({ ...body, input }) as unknown as ScheduleOptions<unknown, unknown>;
    return { name: params.name, changed: await stillwake.schedules.set(schedule(params.name!, options)) };
  },
});

/** Audit entries contain no inputs. */
function withoutInput(schedule: object | null): object | null {
  return schedule && { ...schedule, input: undefined };
}

export const remove = operation({
  summary: "Removes a schedule; its jobs remain",
  response: Name,
  async handle({ stillwake, params, recordBefore }) {
    await recordBefore(withoutInput(findByName(await stillwake.schedules.list(), params.name)));
    if (await stillwake.schedules.remove(params.name!)) return { name: params.name };
    throw httpError("NOT_FOUND", "There is no such schedule", {
      field: "name",
      remedy: "List them with stillwake schedules, or GET /v1/schedules",
    });
  },
});

export const pause = operation({
  summary: "Pauses a schedule: no jobs are enqueued until it is resumed",
  response: Name,
  async handle({ stillwake, params, caller, recordBefore }) {
    await recordBefore(withoutInput(findByName(await stillwake.schedules.list(), params.name)));
    await stillwake.schedules.pause(params.name!, { by: caller.name });
    return { name: params.name };
  },
});

export const resume = operation({
  summary: "Resumes a schedule with the first occurrence from now",
  response: Name,
  async handle({ stillwake, params, recordBefore }) {
    await recordBefore(withoutInput(findByName(await stillwake.schedules.list(), params.name)));
    await stillwake.schedules.resume(params.name!);
    return { name: params.name };
  },
});
