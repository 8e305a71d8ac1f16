// A server with data of every kind: jobs in every state, retried, with steps, lines, children and artifacts, delivered
// and failed webhooks, fired schedules, limits, breakers, tokens. So that every route returns data.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll } from "vitest";
import { z } from "zod";
import { breaker, Fatal, limit, pipeline, schedule } from "../../../src/index.ts";
import { createServer, type ServerOptions, type StillwakeServer } from "../../../src/server/index.ts";
import { type TestDatabase, travel, waitFor } from "../../../src/testing/index.ts";
import { createWorker, implement, openStore } from "../../../src/worker/index.ts";
import { ALLOW_LOCALHOST, respondWith, startReceiver } from "../fakes/webhook-receiver.ts";
import { waitForEnd } from "../processes/fault-checks.ts";

export const SECRET = "a secret of more than thirty-two characters";

/** Without a worker: its jobs stay queued. */
export const held = pipeline("held", { pool: "held" });
const aside = pipeline("aside", { pool: "side", needs: [limit("api", { max: 5, per: "1m" }), breaker("shop")] });
const part = pipeline<{ n: number }>("part");
const work = pipeline("work", {
  input: z.object({ mode: z.enum(["good", "bad", "long"]).default("good"), note: z.string().max(100).optional() }),
  retry: { attempts: 2, initial: "1ms", max: "1ms" },
});

export interface Furnished {
  server: StillwakeServer;
  admin: string;
  /** Jobs of the tenant acme, by state. */
  jobs: Record<"good" | "bad" | "running" | "paused" | "cancelled" | "waiting", string>;
  /** The id of a delivered webhook. */
  webhook: string;
  errors: unknown[];
}

/** Call once, at the top of a test file. */
export async function furnish(database: TestDatabase, options: Partial<ServerOptions> = {}): Promise<Furnished> {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-furnished-"));
  const errors: unknown[] = [];
  const server = createServer({
    url: database.url,
    secret: SECRET,
    store: openStore(`file:${dir}`),
    rate: { perSecond: 1e6, burst: 1e6 },
    onError: (error) => errors.push(error),
    ...options,
  });
  const receiver = await startReceiver(respondWith(204), true);
  const deaf = await startReceiver(respondWith(500, {}, "no"), true);
  const letGo = new AbortController();
  const worker = createWorker({
    url: database.url,
    directUrl: false,
    poll: "200ms",
    grace: "200ms",
    slots: 4,
    store: `file:${dir}`,
    webhooks: ALLOW_LOCALHOST,
    pipelines: [
      implement(part, (_, { n }) => n),
      implement(work, async (job, { mode, note }) => {
        await job.step("look", () => ({ seen: note ?? null }));
        job.log.info("Looked at it", { note: note ?? null });
        job.progress({ done: 1, total: 2 }, "Half of it");
        if (mode === "bad") throw job.attempt === 1 ? new TypeError("Not yet") : new Fatal("Never");
        if (mode === "long") {
          await new Promise((resolve) => letGo.signal.addEventListener("abort", resolve, { once: true }));
          return null;
        }
        await job.optional("extra", () => {
          throw new Error("Not to be had");
        });
        await job.artifact("deep/report.txt", () => "what came of it");
        const parts = await job.spawn(part, [{ n: 1 }, { n: 2 }]);
        return { parts: await parts.done() };
      }),
    ],
  });
  afterAll(async () => {
    letGo.abort();
    await worker.stop();
    await server.close();
    await Promise.all([receiver.close(), deaf.close()]);
    fs.rmSync(dir, { recursive: true, force: true });
  });

  const sw = server.stillwake;
  const { token: admin } = await sw.tokens.create({ name: "root", role: "admin" });
  await sw.register(held, aside, work, part);
  await sw.webhooks.set("hook", { url: receiver.url });
  await sw.webhooks.set("deaf", { url: deaf.url, headers: { "x-for": "them" }, pipelines: ["work"] });
  await sw.schedules.set(schedule("minutely", { cron: "* * * * *", pipeline: held, input: { by: "cron" } }));
  await sw.schedules.set(schedule("nightly", { cron: "0 3 * * *", zone: "Europe/Berlin", pipeline: "held" }));
  await sw.schedules.pause("nightly", { by: "root" });
  await travel(database.url, "2m");
  await sw.watchdog();

  const acme = { tenant: "acme", key: "k", onConflict: "wait" } as const;
  const jobs: Record<string, string> = {};
  const webhook = { endpoint: "hook" };
  jobs.good = (await sw.enqueue(work, { note: "a" }, { ...acme, idempotencyKey: "good", webhook })).id;
  jobs.bad = (
    await sw.enqueue(work, { mode: "bad" }, { tenant: "acme", key: "bad", webhook: "https://no.example/" })
  ).id;
  jobs.running = (await sw.enqueue(work, { mode: "long" }, { tenant: "acme", expiresIn: "1h" })).id;
  jobs.paused = (await sw.enqueue(held, {}, { ...acme, key: "p" })).id;
  jobs.cancelled = (await sw.enqueue(held, {}, { tenant: "acme" })).id;
  jobs.waiting = (await sw.enqueue(held, {}, { ...acme, key: "p" })).id;
  await sw.pause(jobs.paused, { by: "root", reason: "to be seen" });
  await sw.cancel(jobs.cancelled, { by: "root", reason: "not wanted" });
  await sw.pause({ pool: "held" }, { by: "root", reason: "for the test" });
  await sw.flow.open("shop", { by: "root", reason: "closed today" });
  await worker.start();
  await waitForEnd(sw, jobs.good);
  await waitForEnd(sw, jobs.bad);
  const isRunning = async () => {
    const { state, failure } = await sw.get(jobs.running!);
    if (state !== "running") throw new Error(`${state}: ${JSON.stringify(failure)}`);
    return true;
  };
  await waitFor(isRunning, { timeout: 20_000, what: "the long job to run" });
  const isDelivered = async () => {
    const all = await sw.webhooks.list({ limit: 50 });
    return (
      all.some(({ deliveries }) => deliveries.some(({ status: code }) => code === 500)) &&
      all.find(({ state }) => state === "delivered")
    );
  };
  const delivered = await waitFor(isDelivered, { timeout: 20_000, what: "webhooks to be sent" });
  return { server, admin, jobs: jobs as Furnished["jobs"], webhook: delivered.id, errors };
}
