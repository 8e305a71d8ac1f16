// The embedded live view on a page of another origin with a strict content security policy and a read token: live
// updates, rejected streams, hidden tabs, moved elements, and properties set before the script has loaded.
import fs from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { deferred } from "../support/deferred.ts";
import { ROOT } from "../support/processes/build.ts";
import { describeInBrowser, useBrowser, type Visit } from "../support/server/browser.ts";
import { type Dashboard, ManualWorker, startDashboard } from "../support/server/dashboard-server.ts";

const database = await freshDatabase();
const browser = useBrowser();
let dashboard: Dashboard;
/** The content of the embedding page. */
let body = "";
const host = http.createServer((_request, response) => {
  const policy = `default-src 'none'; script-src ${dashboard.origin}; connect-src ${dashboard.origin}; img-src data:; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'`;
  response.writeHead(200, { "content-type": "text/html; charset=utf-8", "content-security-policy": policy });
  const icon = '<link rel="icon" href="data:,">';
  response.end(
    `<!doctype html><html lang="en"><title>Elsewhere</title>${icon}<body><main>${body}</main></body></html>`,
  );
});

const script = () => `<script type="module" src="${dashboard.origin}/embed.js"></script>`;
const tag = (job: string, token = dashboard.sw.readToken({ job, expiresIn: "1h" })) =>
  `<stillwake-job server="${dashboard.origin}" job="${job}" token="${token}"></stillwake-job>`;
const line = ({ page }: Visit, text: string) => page.locator(".line .message").getByText(text, { exact: true });
const elsewhere = () => `http://127.0.0.1:${(host.address() as AddressInfo).port}`;

/** Opens the embedding page. Only requests to our server are allowed. */
async function open(content: string): Promise<Visit> {
  body = content;
  const visit = await browser.visit({ origin: elsewhere() });
  visit.allow(new RegExp(`request to another origin: ${dashboard.origin}/(embed\\.js|v1/)`));
  await visit.goto("/");
  return visit;
}

describeInBrowser("an embedded job", () => {
  beforeAll(async () => {
    await new Promise<void>((resolve) => void host.listen(0, "127.0.0.1", resolve));
    dashboard = await startDashboard(database, { origins: [elsewhere()] });
    await dashboard.sql.query("select stillwake.register_pipeline('ferry', '{}')");
  });
  afterAll(async () => {
    host.closeAllConnections();
    host.close();
    await dashboard?.close();
  });

  const claimJob = async () => {
    await dashboard.sw.enqueue("ferry", null);
    return ManualWorker.claim(dashboard, "ferry", "quay-1");
  };
  const saveArtifact = async ({ claimed: { job, epoch, lease } }: ManualWorker, name: string) => {
    const sha = "0".repeat(64);
    const values = [job, epoch, lease, name, sha, `2026-01-05/${job}/${epoch}/${sha}`];
    await dashboard.sql.query("select stillwake.save_artifact($1, $2, $3, $4, 3, $5, 'text/plain', $6)", values);
  };

  it("shows its log, progress and artifacts live", async () => {
    const worker = await claimJob();
    await saveArtifact(worker, "report.txt");
    await worker.log("Boarding");
    await worker.reportProgress({ done: 1, total: 4, sentence: "Crossing" });
    const visit = await open(script() + tag(worker.job));
    await line(visit, "Boarding").waitFor();
    const bar = visit.page.getByRole("progressbar");
    await visit.page.getByText("Running: Crossing").waitFor();
    expect(await bar.getAttribute("aria-valuenow")).toBe("25");
    await visit.page.getByRole("button", { name: "report.txt" }).waitFor();
    await worker.log("Casting off");
    await line(visit, "Casting off").waitFor();
    await worker.reportProgress({ done: 4, total: 4, sentence: "Mooring" });
    await visit.page.getByText("Running: Mooring").waitFor();
    await worker.settle("completed");
    await visit.page
      .getByText(/^Completed in/)
      .first()
      .waitFor();
    visit.expectNoComplaints();
  });

  it("uses properties set before the script has loaded, and keeps its search when it is moved", async () => {
    const worker = await claimJob();
    await worker.log("Fog", "Sun");
    const visit = await open("");
    const { page } = visit;
    const { promise: held, resolve: load } = deferred();
    await page.route("**/embed.js", async (route) => {
      await held;
      await route.continue();
    });
    body = `<section id="one"></section><section id="two"></section>${script()}`;
    await page.goto("/", { waitUntil: "commit" });
    await page.locator("#two").waitFor({ state: "attached" });
    const token = dashboard.sw.readToken({ job: worker.job, expiresIn: "1h" });
    await page.evaluate(`(() => {
      const element = document.createElement("stillwake-job");
      Object.assign(element, ${JSON.stringify({ server: dashboard.origin, job: worker.job })}, { token: () => ${JSON.stringify(token)} });
      document.getElementById("one").append(element);
    })()`);
    load();
    await line(visit, "Sun").waitFor();
    await page.getByRole("searchbox").fill("fog");
    await line(visit, "Sun").waitFor({ state: "detached" });
    await page.evaluate('document.getElementById("two").append(document.querySelector("stillwake-job"))');
    await worker.log("More fog");
    await line(visit, "More fog").waitFor();
    expect(await page.getByRole("searchbox").inputValue()).toBe("fog");
    expect(await line(visit, "Sun").count()).toBe(0);
    visit.expectNoComplaints();
  });

  it("reports a rejected stream in its headline and above its log, and resumes after a retry", async () => {
    const worker = await claimJob();
    await worker.log("Boarding");
    const visit = await open(script() + tag(worker.job));
    const { page } = visit;
    await line(visit, "Boarding").waitFor();
    visit.allow(/ERR_|Failed to load resource|CORS/);
    await page.route("**/stream", (route) =>
      route.fulfill({
        status: 401,
        headers: { "content-type": "application/problem+json", "access-control-allow-origin": elsewhere() },
        body: JSON.stringify({ code: "UNAUTHORIZED", detail: "No." }),
      }),
    );
    await dashboard.restart();
    const message = page.getByText(/^This page may not show the job/);
    await message.nth(1).waitFor();
    expect(await message.count()).toBe(2);
    expect(await page.getByText("Running").count()).toBe(0);
    await line(visit, "Boarding").waitFor();
    await page.unroute("**/stream");
    await worker.log("Casting off");
    await page.getByRole("button", { name: "Try again" }).click();
    await line(visit, "Casting off").waitFor();
    await message.first().waitFor({ state: "hidden" });
    expect(await page.getByRole("button", { name: "Try again" }).count()).toBe(0);
    visit.expectNoComplaints();
  });

  it("retries a failed request for artifacts", async () => {
    const worker = await claimJob();
    await saveArtifact(worker, "manifest.csv");
    await worker.log("Boarding");
    const visit = await open("");
    visit.allow(/ERR_FAILED|Failed to load resource/);
    let requests = 0;
    await visit.page.route("**/artifacts", (route) => (++requests < 3 ? route.abort() : route.continue()));
    body = script() + tag(worker.job);
    await visit.goto("/");
    await visit.page.getByRole("button", { name: "manifest.csv" }).waitFor();
    expect(requests).toBe(3);
    visit.expectNoComplaints();
  });

  it("renders nothing in a hidden tab and catches up when it is visible", async () => {
    const worker = await claimJob();
    await worker.log("Boarding");
    const visit = await open(script() + tag(worker.job));
    const { page } = visit;
    await line(visit, "Boarding").waitFor();
    const setVisibility = (state: string) =>
      page.evaluate(`(() => {
        Object.defineProperty(document, "visibilityState", { value: ${JSON.stringify(state)}, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      })()`);
    await setVisibility("hidden");
    const rows = () => page.locator(".line").count();
    const before = await rows();
    await worker.log(...Array.from({ length: 50 }, (_, n) => `Wave ${n + 1}`));
    const known = "document.querySelector('stillwake-job').store.getSnapshot().version";
    await waitFor(async () => (await page.evaluate<number>(known)) > 50, { what: "the log lines to arrive" });
    expect(await rows()).toBe(before);
    await setVisibility("visible");
    await line(visit, "Wave 50").waitFor();
    visit.expectNoComplaints();
  });

  it("changes with the hash of the watch page, which takes no title from it", async () => {
    const [one, two] = [await claimJob(), await claimJob()];
    await one.log("Of the first");
    await two.log("Of the second");
    const token = (job: string) => dashboard.sw.readToken({ job, expiresIn: "1h" });
    const visit = await browser.visit({ origin: dashboard.origin });
    await visit.goto(`/watch#job=${one.job}&token=${token(one.job)}&title=Enter+your+password`);
    await line(visit, "Of the first").waitFor();
    expect([await visit.page.title(), await visit.page.locator("h1").textContent()]).toEqual(["Your job", "Your job"]);
    await visit.page.evaluate(`location.hash = "job=${two.job}&token=${token(two.job)}"`);
    await line(visit, "Of the second").waitFor();
    expect(await line(visit, "Of the first").count()).toBe(0);
    visit.expectNoComplaints();
  });
});

it('stillwake/react starts with "use client"', () => {
  const text = fs.readFileSync(path.join(ROOT, "dist/react/index.js"), "utf8");
  expect(text.split("\n")[0]).toBe('"use client";');
});
