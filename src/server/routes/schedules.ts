// Schedules, seen and steered.
import { z } from "zod";
import { type ScheduleOptions, schedule } from "../../contract/schedule.ts";
import { refusePlain } from "../../contract/sealed-paths.ts";
import { refusal } from "../http/problem.ts";
import { conform } from "../http/validate-input.ts";
import { named, operation, withBody } from "../operation.ts";
import * as shapes from "../shapes.ts";

const Done = z.object({ name: z.string() });
const label = z.string().min(1).max(500);

export const list = operation({
  summary: "The schedules, with their next slots",
  answer: z.object({ schedules: z.array(shapes.Schedule) }),
  handle: async ({ stillwake }) => ({ schedules: await stillwake.schedules.list() }),
});

export const upcoming = operation({
  summary: "The next slots of a schedule",
  query: z.strictObject({ count: z.coerce.number().int().min(1).max(1000).optional() }),
  answer: z.object({ slots: z.array(shapes.Slot) }),
  handle: async ({ stillwake, params, query }) => ({
    slots: await stillwake.schedules.upcoming(params.name!, query.count ?? 10),
  }),
});

export const set = operation({
  summary: "Makes a schedule or changes it",
  body: z.strictObject({
    cron: z.string().max(200),
    zone: z.string().max(100).optional(),
    pipeline: label,
    input: shapes.Json.optional(),
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
  answer: z.object({ name: z.string(), changed: z.boolean() }),
  record: (answer, body) => withBody(answer, shown(body as object)),
  async handle({ stillwake, house, params, body, before }) {
    await before(shown(named(await stillwake.schedules.list(), params.name)));
    const info = await stillwake.pipeline(body.pipeline);
    refusePlain(info.sealed, body.input ?? {});
    const input = conform(house.schemas, info, body.input ?? {}, "input");
    const given = Object.entries({ ...body, input }).filter(([, value]) => value !== undefined);
    const options = Object.fromEntries(given);
    const made = schedule(params.name!, options as unknown as ScheduleOptions<unknown, unknown>);
    return { name: params.name, changed: await stillwake.schedules.set(made) };
  },
});

/** Inputs do not belong into the record of acts. */
function shown(schedule: object | null): object | null {
  return schedule && { ...schedule, input: undefined };
}

export const remove = operation({
  summary: "Removes a schedule; its jobs stay",
  answer: Done,
  async handle({ stillwake, params, before }) {
    await before(shown(named(await stillwake.schedules.list(), params.name)));
    if (await stillwake.schedules.remove(params.name!)) return { name: params.name };
    throw refusal("NOT_FOUND", "There is no such schedule", { field: "name", remedy: "See /v1/schedules" });
  },
});

export const pause = operation({
  summary: "No slot of it becomes a job until it is resumed",
  answer: Done,
  async handle({ stillwake, params, who, before }) {
    await before(shown(named(await stillwake.schedules.list(), params.name)));
    await stillwake.schedules.pause(params.name!, { by: who.name });
    return { name: params.name };
  },
});

export const resume = operation({
  summary: "Goes on with the first slot from now",
  answer: Done,
  async handle({ stillwake, params, before }) {
    await before(shown(named(await stillwake.schedules.list(), params.name)));
    await stillwake.schedules.resume(params.name!);
    return { name: params.name };
  },
});
