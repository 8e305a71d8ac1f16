// Pipelines, pools, limits and breakers: what lets jobs flow, and what holds them.
import { z } from "zod";
import { named, operation, withBody } from "../operation.ts";
import * as shapes from "../shapes.ts";

const reason = z.string().max(2000).optional();
const Done = z.object({ name: z.string() });

export const pipelines = operation({
  summary: "The pipelines, with the schemas of their inputs",
  answer: z.object({ pipelines: z.array(shapes.Pipeline) }),
  handle: async ({ stillwake }) => ({ pipelines: await stillwake.pipelines() }),
});

export const pipeline = operation({
  summary: "One pipeline",
  answer: shapes.Pipeline,
  handle: async ({ stillwake, params }) => stillwake.pipeline(params.name!),
});

export const pools = operation({
  summary: "The pools and the work in them",
  answer: z.object({ pools: z.array(shapes.Pool) }),
  handle: async ({ stillwake }) => ({ pools: await stillwake.pools() }),
});

export const pausePool = operation({
  summary: "Stops the claims of a pool; what runs goes on",
  body: z.strictObject({ reason }).optional(),
  answer: Done,
  record: withBody,
  async handle({ stillwake, params, body, who, before }) {
    await before(named(await stillwake.pools(), params.name));
    await stillwake.pause({ pool: params.name! }, { by: who.name, ...(body?.reason && { reason: body.reason }) });
    return { name: params.name };
  },
});

export const resumePool = operation({
  summary: "Lets a pool go on",
  answer: Done,
  async handle({ stillwake, params, who, before }) {
    await before(named(await stillwake.pools(), params.name));
    await stillwake.resume({ pool: params.name! }, { by: who.name });
    return { name: params.name };
  },
});

export const capPool = operation({
  summary: "How many jobs of a pool may run at once on all workers; null for as many as there are slots",
  body: z.strictObject({ concurrency: z.int().min(1).max(1_000_000).nullable() }),
  answer: Done,
  record: withBody,
  async handle({ stillwake, params, body, before }) {
    await before(named(await stillwake.pools(), params.name));
    await stillwake.flow.cap(params.name!, body.concurrency);
    return { name: params.name };
  },
});

export const limits = operation({
  summary: "The limits and what is left of them",
  answer: z.object({ limits: z.array(shapes.Limit) }),
  handle: async ({ stillwake }) => ({ limits: await stillwake.flow.limits() }),
});

export const resetLimit = operation({
  summary: "Forgets what a limit has learned, and a refusal",
  answer: Done,
  async handle({ stillwake, params, before }) {
    await before(named(await stillwake.flow.limits(), params.name));
    await stillwake.flow.reset(params.name!);
    return { name: params.name };
  },
});

export const breakers = operation({
  summary: "The breakers, open and closed",
  answer: z.object({ breakers: z.array(shapes.Breaker) }),
  handle: async ({ stillwake }) => ({ breakers: await stillwake.flow.breakers() }),
});

export const openBreaker = operation({
  summary: "Sets aside what a breaker stands before, for a time or until somebody closes it",
  body: z.strictObject({ for: z.string().max(50).optional(), reason }).optional(),
  answer: Done,
  record: withBody,
  async handle({ stillwake, params, body, who, before }) {
    await before(named(await stillwake.flow.breakers(), params.name));
    const given = Object.entries(body ?? {}).filter(([, value]) => value !== undefined);
    await stillwake.flow.open(params.name!, { by: who.name, ...Object.fromEntries(given) });
    return { name: params.name };
  },
});

export const closeBreaker = operation({
  summary: "Closes a breaker and brings back what it had set aside",
  answer: Done,
  async handle({ stillwake, params, before }) {
    await before(named(await stillwake.flow.breakers(), params.name));
    await stillwake.flow.close(params.name!);
    return { name: params.name };
  },
});
