// Webhook endpoints and webhooks.
import { z } from "zod";
import type { EndpointOptions } from "../../client/webhooks.ts";
import { withoutUndefined } from "../../validate.ts";
import { httpError } from "../http/problem.ts";
import { findByName, mergeBody, operation } from "../operation.ts";
import * as schemas from "../schemas.ts";

const label = z.string().min(1).max(500);
/** For audit entries: without the secret and without the values of headers, which are often secrets too. */
const withoutSecrets = (response: unknown, body: unknown) => {
  const { headers, ...rest } = { ...(body as { headers?: object } | undefined), ...(response as object) };
  return { ...rest, ...(headers && { headers: Object.keys(headers) }), secret: undefined };
};

export const endpoints = operation({
  summary: "All endpoints",
  response: z.object({ endpoints: z.array(schemas.Endpoint) }),
  handle: async ({ stillwake }) => ({ endpoints: await stillwake.webhooks.endpoints() }),
});

export const setEndpoint = operation({
  summary: "Creates or changes an endpoint; the secret of a new endpoint is returned only here",
  body: z.strictObject({
    url: z.string().max(2000).nullable().optional(),
    origins: z.array(z.string().max(300)).max(100).optional(),
    secret: z.string().max(200).optional(),
    headers: z.record(z.string().max(200), z.string().max(4000)).optional(),
    body: z.union([z.enum(["thin", "full"]), z.record(z.string(), schemas.Json), z.array(schemas.Json)]).optional(),
    on: z.array(z.enum(["completed", "failed", "cancelled"])).optional(),
    pipelines: z.array(label).max(1000).optional(),
    tenant: label.nullable().optional(),
  }),
  response: z.object({ name: z.string(), secret: z.string().nullable() }),
  audit: withoutSecrets,
  async handle({ stillwake, params, body, recordBefore }) {
    await recordBefore(findByName(await stillwake.webhooks.endpoints(), params.name));
    const options = withoutUndefined(body) as EndpointOptions;
    return { name: params.name, ...(await stillwake.webhooks.set(params.name!, options)) };
  },
});

export const rotate = operation({
  summary: "Sets a new secret; the previous one keeps signing for a time",
  body: z.strictObject({ keep: z.string().max(50).optional() }).optional(),
  response: z.object({ name: z.string(), secret: z.string() }),
  audit: withoutSecrets,
  async handle({ stillwake, params, body, recordBefore }) {
    await recordBefore(findByName(await stillwake.webhooks.endpoints(), params.name));
    const keep = body?.keep === undefined ? {} : { keep: body.keep };
    return { name: params.name, ...(await stillwake.webhooks.rotate(params.name!, keep as { keep?: "24h" })) };
  },
});

export const disable = operation({
  summary: "Disables an endpoint: its webhooks are held",
  body: z.strictObject({ reason: z.string().max(2000).optional() }).optional(),
  response: z.object({ name: z.string() }),
  audit: mergeBody,
  async handle({ stillwake, params, body, recordBefore }) {
    await recordBefore(findByName(await stillwake.webhooks.endpoints(), params.name));
    await stillwake.webhooks.disable(params.name!, body?.reason === undefined ? {} : { reason: body.reason });
    return { name: params.name };
  },
});

export const enable = operation({
  summary: "Enables an endpoint and sends its held webhooks",
  response: z.object({ name: z.string() }),
  async handle({ stillwake, params, recordBefore }) {
    await recordBefore(findByName(await stillwake.webhooks.endpoints(), params.name));
    await stillwake.webhooks.enable(params.name!);
    return { name: params.name };
  },
});

export const list = operation({
  summary: "Lists webhooks with their deliveries, newest first",
  description: "Continue with the cursor until it is null.",
  query: z.strictObject({
    endpoint: label.optional(),
    job: z.uuid().optional(),
    state: z.enum(["pending", "delivered", "failed"]).optional(),
    limit: z.coerce.number().int().min(1).max(200).optional(),
    cursor: z.string().min(1).max(200).optional(),
  }),
  response: z.object({ webhooks: z.array(schemas.Webhook), cursor: z.string().nullable() }),
  async handle({ stillwake, query }) {
    const { cursor, limit = 50, ...filter } = query;
    const webhooks = await stillwake.webhooks.list({ ...withoutUndefined(filter), limit, before: cursor });
    return { webhooks, cursor: webhooks.length === limit ? webhooks.at(-1)!.id : null };
  },
});

export const resend = operation({
  summary: "Sends a webhook again, under the same id",
  status: 202,
  response: z.object({ id: z.string() }),
  async handle({ stillwake, params, recordBefore }) {
    const webhook = await stillwake.webhooks.get(params.id!);
    await recordBefore(webhook && { state: webhook.state, attempts: webhook.attempts });
    await stillwake.webhooks.resend(params.id!);
    return { id: params.id };
  },
});

export const get = operation({
  summary: "One webhook with its deliveries",
  response: schemas.Webhook,
  async handle({ stillwake, params }) {
    const webhook = await stillwake.webhooks.get(params.id!);
    if (webhook) return webhook;
    throw httpError("NOT_FOUND", "There is no such webhook", {
      field: "id",
      remedy: "List them with stillwake webhooks, or GET /v1/webhooks",
    });
  },
});
