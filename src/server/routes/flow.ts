// Pipelines, pools, limits and breakers.
import { z } from "zod";
import type { Duration } from "../../time.ts";
import { withoutUndefined } from "../../validate.ts";
import { findByName, mergeBody, operation } from "../operation.ts";
import * as schemas from "../schemas.ts";

const reason = z.string().max(2000).optional();
const Name = z.object({ name: z.string() });

export const pipelines = operation({
  summary: "All pipelines with their input schemas",
  response: z.object({ pipelines: z.array(schemas.Pipeline) }),
  handle: async ({ stillwake }) => ({ pipelines: await stillwake.pipelines() }),
});

export const pipeline = operation({
  summary: "One pipeline",
  response: schemas.Pipeline,
  handle: async ({ stillwake, params }) => stillwake.pipeline(params.name!),
});

export const pools = operation({
  summary: "All pools with their demand",
  response: z.object({ pools: z.array(schemas.Pool) }),
  handle: async ({ stillwake }) => ({ pools: await stillwake.pools() }),
});

export const pausePool = operation({
  summary: "Pauses a pool: no new claims; running jobs continue",
  body: z.strictObject({ reason }).optional(),
  response: Name,
  audit: mergeBody,
  async handle({ stillwake, params, body, caller, recordBefore }) {
    await recordBefore(findByName(await stillwake.pools(), params.name));
    await stillwake.pause({ pool: params.name! }, { by: caller.name, ...(body?.reason && { reason: body.reason }) });
    return { name: params.name };
  },
});

export const resumePool = operation({
  summary: "Resumes a pool",
  response: Name,
  async handle({ stillwake, params, caller, recordBefore }) {
    await recordBefore(findByName(await stillwake.pools(), params.name));
    await stillwake.resume({ pool: params.name! }, { by: caller.name });
    return { name: params.name };
  },
});

export const capPool = operation({
  summary: "Limits the concurrent jobs of a pool, over all workers; null removes the cap",
  body: z.strictObject({ concurrency: z.int().min(1).max(1_000_000).nullable() }),
  response: Name,
  audit: mergeBody,
  async handle({ stillwake, params, body, recordBefore }) {
    await recordBefore(findByName(await stillwake.pools(), params.name));
    await stillwake.flow.cap(params.name!, body.concurrency);
    return { name: params.name };
  },
});

export const limits = operation({
  summary: "All limits with their available uses",
  response: z.object({ limits: z.array(schemas.Limit) }),
  handle: async ({ stillwake }) => ({ limits: await stillwake.flow.limits() }),
});

export const resetLimit = operation({
  summary: "Deletes the reported quota of a limit, and its block after a rejected call",
  response: Name,
  async handle({ stillwake, params, recordBefore }) {
    await recordBefore(findByName(await stillwake.flow.limits(), params.name));
    await stillwake.flow.reset(params.name!);
    return { name: params.name };
  },
});

export const breakers = operation({
  summary: "All breakers, open and closed",
  response: z.object({ breakers: z.array(schemas.Breaker) }),
  handle: async ({ stillwake }) => ({ breakers: await stillwake.flow.breakers() }),
});

export const openBreaker = operation({
  summary: "Opens a breaker for a time, or until it is closed: jobs that need it are paused",
  body: z.strictObject({ for: z.string().max(50).optional(), reason }).optional(),
  response: Name,
  audit: mergeBody,
  async handle({ stillwake, params, body, caller, recordBefore }) {
    await recordBefore(findByName(await stillwake.flow.breakers(), params.name));
    const options = withoutUndefined(body) as { for?: Duration; reason?: string };
    await stillwake.flow.open(params.name!, { by: caller.name, ...options });
    return { name: params.name };
  },
});

export const closeBreaker = operation({
  summary: "Closes a breaker and resumes the jobs it paused",
  response: Name,
  async handle({ stillwake, params, recordBefore }) {
    await recordBefore(findByName(await stillwake.flow.breakers(), params.name));
    await stillwake.flow.close(params.name!);
    return { name: params.name };
  },
});
