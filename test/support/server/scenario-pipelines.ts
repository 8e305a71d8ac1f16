// The pipelines of the scenarios. Their jobs are run by a worker in this process or by a manual worker.
import { z } from "zod";
import { breaker, Fatal, limit, pipeline } from "../../../src/index.ts";
import { createWorker, implement } from "../../../src/worker/index.ts";
import { ALLOW_LOCALHOST } from "../fakes/webhook-receiver.ts";
import type { Dashboard } from "./dashboard-server.ts";

const llm = limit("llm", { max: 3, per: "1h" });
const github = limit("github", { max: 5000, per: "1h", concurrency: 20 });
const storefront = breaker("storefront", { failures: 2, pause: "10m" });
const archive = breaker("archive");

export const extraction = pipeline("extraction", {
  input: z.object({
    projectId: z.string().min(1).describe("The project that the repository belongs to"),
    repository: z.string().describe("Owner and name, such as acme/shop"),
    branch: z.string().default("main"),
    depth: z.enum(["quick", "full", "deep"]).default("full").describe("How thorough the scan is"),
    notify: z.boolean().default(true),
    apiToken: z.string().optional(),
  }),
  key: ({ projectId }) => projectId,
  onConflict: "wait",
  pool: "scan",
  needs: [github],
});
export const clip = pipeline("clip", {
  input: z.object({ video: z.url(), from: z.number().min(0).default(0), seconds: z.int().min(1).max(600).default(30) }),
  pool: "render",
});
export const transcribe = pipeline("transcribe", { pool: "gpu" });
export const digest = pipeline<{ readers: number }>("digest");
export const contacts = pipeline("contacts", {
  input: z.object({ mode: z.enum(["good", "bad", "never"]).default("good"), file: z.string().default("contacts.csv") }),
  retry: { attempts: 2, initial: "10m", max: "10m" },
});
const summary = pipeline<{ of: string }>("summary");
export const invoice = pipeline<{ number: string }>("invoice");
export const publish = pipeline<{ product: string }>("publish", { needs: [archive] });

export const allPipelines = [extraction, clip, transcribe, digest, contacts, summary, invoice, publish] as const;

/** A worker for the pool "default", stopped with the server at the latest. */
export async function startScenarioWorker(dashboard: Dashboard): Promise<{ stop(): Promise<void> }> {
  const worker = createWorker({
    url: dashboard.database.url,
    directUrl: false,
    name: "office-1",
    poll: "100ms",
    grace: "200ms",
    slots: 8,
    store: dashboard.store,
    webhooks: ALLOW_LOCALHOST,
    pipelines: [
      implement(summary, async (job, { of }) => {
        await llm.take(job);
        job.log.info(`Summarized ${of}`);
        return `${of}, in one sentence.`;
      }),
      implement(digest, async (job, { readers }) => {
        const sources = await job.step("gather", { start: "Gathering sources…", end: "5 sources gathered" }, () => [
          "feeds",
          "papers",
          "talks",
          "releases",
          "letters",
        ]);
        job.progress({ done: 0, total: readers }, "Waiting for summaries");
        const parts = await job.spawn(
          summary,
          sources.map((of) => ({ of })),
        );
        return parts.done();
      }),
      implement(invoice, async (job, { number }) => {
        await job.step("draw-up", { start: `Drawing up invoice ${number}…`, end: "Invoice drawn up" }, () => ({
          number,
        }));
        return job.waitFor("approval");
      }),
      implement(publish, (job, { product }) =>
        storefront.call(job, () => {
          throw new Error(`The storefront answered 502 for ${product}`);
        }),
      ),
      implement(contacts, async (job, { mode, file }) => {
        const rows = await job.step("read", { start: `Reading ${file}…`, end: "1,204 rows read" }, () => 1204);
        job.log.info("Columns recognized", {
          name: "Full name",
          email: "E-mail",
          password: "hunter2",
          skipped: ["Fax"],
        });
        job.progress({ done: rows / 2, total: rows }, "Half of them are in");
        if (mode === "bad") throw new TypeError("Cannot read properties of undefined (reading 'email')");
        if (mode === "never") throw new Fatal(`${file} is not a list of contacts`, { code: "NOT_CONTACTS" });
        await job.optional("avatars", { start: "Looking for pictures…" }, () => {
          throw new Error("The picture service is not reachable");
        });
        await job.artifact("report.html", () => "<h1>1,204 contacts</h1><script>document.title = 'ran'</script>");
        await job.artifact("logo.svg", () => `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`);
        await job.artifact("rejected/rows.csv", () => "row,why\n17,no address\n");
        job.log.success("All contacts are in", { rows });
        return { rows, rejected: 1 };
      }),
    ],
  });
  dashboard.onClose(() => worker.stop());
  await worker.start();
  return { stop: () => worker.stop() };
}
