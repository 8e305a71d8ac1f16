// Endpoints, and what was told them.
import { z } from "zod";
import type { EndpointOptions } from "../../client/webhooks.ts";
import { refusal } from "../http/problem.ts";
import { named, operation, withBody } from "../operation.ts";
import * as shapes from "../shapes.ts";

const label = z.string().min(1).max(500);
/** Neither the secret nor what is in headers, which often is one. */
const withoutSecret = (answer: unknown, body: unknown) => {
  const { headers, ...said } = { ...(body as { headers?: object } | undefined), ...(answer as object) };
  return { ...said, ...(headers && { headers: Object.keys(headers) }), secret: undefined };
};

export const endpoints = operation({
  summary: "The endpoints",
  answer: z.object({ endpoints: z.array(shapes.Endpoint) }),
  handle: async ({ stillwake }) => ({ endpoints: await stillwake.webhooks.endpoints() }),
});

export const setEndpoint = operation({
  summary: "Makes an endpoint or changes it; the secret of a new one is answered this once",
  body: z.strictObject({
    url: z.string().max(2000).nullable().optional(),
    secret: z.string().max(200).optional(),
    headers: z.record(z.string().max(200), z.string().max(4000)).optional(),
    body: z.union([z.enum(["thin", "full"]), z.record(z.string(), shapes.Json), z.array(shapes.Json)]).optional(),
    on: z.array(z.enum(["completed", "failed", "cancelled"])).optional(),
    pipelines: z.array(label).max(1000).optional(),
  }),
  answer: z.object({ name: z.string(), secret: z.string().nullable() }),
  record: withoutSecret,
  async handle({ stillwake, params, body, before }) {
    await before(named(await stillwake.webhooks.endpoints(), params.name));
    const options = Object.fromEntries(Object.entries(body).filter(([, value]) => value !== undefined));
    return { name: params.name, ...(await stillwake.webhooks.set(params.name!, options as EndpointOptions)) };
  },
});

export const rotate = operation({
  summary: "A new secret; the one before signs beside it for a time",
  body: z.strictObject({ keep: z.string().max(50).optional() }).optional(),
  answer: z.object({ name: z.string(), secret: z.string() }),
  record: withoutSecret,
  async handle({ stillwake, params, body, before }) {
    await before(named(await stillwake.webhooks.endpoints(), params.name));
    const keep = body?.keep === undefined ? {} : { keep: body.keep };
    return { name: params.name, ...(await stillwake.webhooks.rotate(params.name!, keep as { keep?: "24h" })) };
  },
});

export const disable = operation({
  summary: "Holds the webhooks of an endpoint back",
  body: z.strictObject({ reason: z.string().max(2000).optional() }).optional(),
  answer: z.object({ name: z.string() }),
  record: withBody,
  async handle({ stillwake, params, body, before }) {
    await before(named(await stillwake.webhooks.endpoints(), params.name));
    await stillwake.webhooks.disable(params.name!, body?.reason === undefined ? {} : { reason: body.reason });
    return { name: params.name };
  },
});

export const enable = operation({
  summary: "Sends what was held back",
  answer: z.object({ name: z.string() }),
  async handle({ stillwake, params, before }) {
    await before(named(await stillwake.webhooks.endpoints(), params.name));
    await stillwake.webhooks.enable(params.name!);
    return { name: params.name };
  },
});

export const list = operation({
  summary: "Webhooks, newest first, each with every try",
  about: "Read on with the cursor until it is null.",
  query: z.strictObject({
    endpoint: label.optional(),
    job: z.uuid().optional(),
    state: z.enum(["pending", "delivered", "failed"]).optional(),
    limit: z.coerce.number().int().min(1).max(200).optional(),
    cursor: z.string().min(1).max(200).optional(),
  }),
  answer: z.object({ webhooks: z.array(shapes.Webhook), cursor: z.string().nullable() }),
  async handle({ stillwake, query }) {
    const { cursor, limit = 50, ...filter } = query;
    const given = Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== undefined));
    const webhooks = await stillwake.webhooks.list({ ...given, limit, before: cursor });
    return { webhooks, cursor: webhooks.length === limit ? webhooks.at(-1)!.id : null };
  },
});

export const resend = operation({
  summary: "Sends one again, under the same id",
  status: 202,
  answer: z.object({ id: z.string() }),
  async handle({ stillwake, params, before }) {
    const found = await stillwake.webhooks.get(params.id!);
    await before(found && { state: found.state, attempts: found.attempts });
    await stillwake.webhooks.resend(params.id!);
    return { id: params.id };
  },
});

export const get = operation({
  summary: "One webhook, with every try",
  answer: shapes.Webhook,
  async handle({ stillwake, params }) {
    const found = await stillwake.webhooks.get(params.id!);
    if (found) return found;
    throw refusal("NOT_FOUND", "There is no such webhook", { field: "id", remedy: "See /v1/webhooks" });
  },
});
