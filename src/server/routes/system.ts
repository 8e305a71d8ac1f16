// Health, metrics, statistics, the API description, and the watchdog for schedulers that send HTTP requests.
import { z } from "zod";
import type { Duration } from "../../time.ts";
import { version } from "../../version.ts";
import { docsPage, docsPolicy } from "../docs-page.ts";
import { metricsText } from "../metrics.ts";
import { describeApi } from "../openapi.ts";
import { operation, type Route } from "../operation.ts";
import * as schemas from "../schemas.ts";
import { pokeOrchestrator } from "./fleet.ts";

export const health = operation({
  summary: "Whether the server is running",
  description: "Does not query the database, so that a serverless database can suspend.",
  unlimited: true,
  response: z.object({ status: z.literal("ok"), version: z.string() }),
  handle: async () => ({ status: "ok", version }),
});

export const deepHealth = operation({
  summary:
    "Whether the server can reach its database, whether commits are acknowledged, and whether schedules are fired",
  response: z.object({ status: z.literal("ok"), version: z.string(), lateSchedules: z.array(z.string()) }),
  async handle({ stillwake }) {
    await stillwake.checkDatabase();
    // A late schedule means that no process fires schedules, even if everything else works.
    const schedules = await stillwake.schedules.list();
    const late = schedules.filter(({ lateMs, paused }) => paused === null && lateMs > 5 * 60_000);
    return { status: "ok", version, lateSchedules: late.map(({ name }) => name) };
  },
});

export const metrics = operation({
  summary: "Prometheus metrics",
  response: "text/plain; version=0.0.4; charset=utf-8",
  async handle({ stillwake }) {
    return new Response(await metricsText(stillwake), {
      headers: { "content-type": "text/plain; version=0.0.4; charset=utf-8" },
    });
  },
});

export const openapi = operation({
  summary: "This API description (OpenAPI)",
  response: z.record(z.string(), z.unknown()),
  handle: async ({ routes }) => new Response(pagesOf(routes).json, { headers: { "content-type": "application/json" } }),
});

export const docs = operation({
  summary: "This API description (HTML)",
  response: "text/html; charset=utf-8",
  async handle({ routes }) {
    return new Response(pagesOf(routes).html, {
      headers: { "content-type": "text/html; charset=utf-8", "content-security-policy": docsPolicy() },
    });
  },
});

export const stats = operation({
  summary: "Counts of waiting jobs by reason, running jobs, and recently ended jobs by outcome",
  query: z.strictObject({
    span: z.string().max(20).optional(),
    parts: z.coerce.number().int().min(1).max(200).optional(),
  }),
  response: schemas.Stats,
  async handle({ stillwake, query: { span, parts } }) {
    return stillwake.stats({
      ...(span !== undefined && { span: span as Duration }),
      ...(parts !== undefined && { parts }),
    });
  },
});

export const watchdog = operation({
  summary:
    "Recovers and expires jobs of all pools, runs due schedules, and does the housekeeping; for schedulers, where no worker runs",
  response: z.object({ actions: z.array(z.object({ act: z.string(), count: z.int(), note: z.string() })) }),
  // Not audited: a scheduler calls it every minute.
  audit: null,
  async handle({ stillwake, context, request }) {
    const actions = await stillwake.watchdog();
    pokeOrchestrator(context, request);
    return { actions };
  },
});

/** Cached: the routes are public, and generating the documents takes a hundred times as long as sending them. */
const pages = new WeakMap<readonly Route[], { json: string; html: string }>();

function pagesOf(routes: readonly Route[]): { json: string; html: string } {
  const known = pages.get(routes);
  if (known) return known;
  const description = describeApi(routes);
  const rendered = { json: JSON.stringify(description), html: docsPage(description) };
  pages.set(routes, rendered);
  return rendered;
}
