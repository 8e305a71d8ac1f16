// The installation itself: is it well, what does it do, and the watchdog for those whose cron speaks HTTP.
import { z } from "zod";
import type { Duration } from "../../time.ts";
import { version } from "../../version.ts";
import { docsPage, docsPolicy } from "../docs-page.ts";
import { metricsText } from "../metrics.ts";
import { describe } from "../openapi.ts";
import { operation, type Route } from "../operation.ts";
import * as shapes from "../shapes.ts";
import { pokeHouse } from "./fleet.ts";

export const health = operation({
  summary: "Whether the server is there",
  about: "Asks the database nothing, so that it may sleep.",
  answer: z.object({ status: z.literal("ok"), version: z.string() }),
  handle: async () => ({ status: "ok", version }),
});

export const deepHealth = operation({
  summary: "Whether the server can use its database, and whether schedules are fired",
  answer: z.object({ status: z.literal("ok"), version: z.string(), lateSchedules: z.array(z.string()) }),
  async handle({ stillwake }) {
    // A schedule that is late means that nobody who fires schedules is awake, though all else may look well.
    const schedules = await stillwake.schedules.list();
    const late = schedules.filter(({ lateMs, paused }) => paused === null && lateMs > 5 * 60_000);
    return { status: "ok", version, lateSchedules: late.map(({ name }) => name) };
  },
});

export const metrics = operation({
  summary: "Numbers for Prometheus",
  answer: "text/plain; version=0.0.4; charset=utf-8",
  async handle({ stillwake }) {
    return new Response(await metricsText(stillwake), {
      headers: { "content-type": "text/plain; version=0.0.4; charset=utf-8" },
    });
  },
});

export const openapi = operation({
  summary: "This description",
  answer: z.record(z.string(), z.unknown()),
  handle: async ({ routes }) => new Response(pagesOf(routes).json, { headers: { "content-type": "application/json" } }),
});

export const docs = operation({
  summary: "The same for people",
  answer: "text/html; charset=utf-8",
  async handle({ routes }) {
    return new Response(pagesOf(routes).html, {
      headers: { "content-type": "text/html; charset=utf-8", "content-security-policy": docsPolicy() },
    });
  },
});

export const stats = operation({
  summary: "What waits and why, what runs, what ended lately and how",
  query: z.strictObject({
    span: z.string().max(20).optional(),
    parts: z.coerce.number().int().min(1).max(200).optional(),
  }),
  answer: shapes.Stats,
  async handle({ stillwake, query: { span, parts } }) {
    return stillwake.stats({
      ...(span !== undefined && { span: span as Duration }),
      ...(parts !== undefined && { parts }),
    });
  },
});

export const watchdog = operation({
  summary: "Does what must happen even if every worker is dead: once a minute, from any scheduler",
  answer: z.object({ acts: z.array(z.object({ act: z.string(), count: z.int(), note: z.string() })) }),
  // Every minute, by a machine: no act of anybody's.
  record: null,
  async handle({ stillwake, house, request }) {
    const acts = await stillwake.watchdog();
    pokeHouse(house, request);
    return { acts };
  },
});

/** Made once: everybody may ask for them, and to make them takes a hundred times as long as to send them. */
const pages = new WeakMap<readonly Route[], { json: string; html: string }>();

function pagesOf(routes: readonly Route[]): { json: string; html: string } {
  const known = pages.get(routes);
  if (known) return known;
  const described = describe(routes);
  const made = { json: JSON.stringify(described), html: docsPage(described) };
  pages.set(routes, made);
  return made;
}
