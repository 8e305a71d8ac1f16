// The live view in pages of others: another origin, a policy that allows the server and nothing else, a read token. And what becomes of it when it is refused,
// when nobody looks, when it is moved about or set up before it was loaded.
import fs from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { ROOT } from "../support/processes/build.ts";
import { browserRig, inBrowser, type Visit } from "../support/server/browser.ts";
import { Hand, openStage, type Stage } from "../support/server/dashboard-server.ts";

const database = await freshDatabase();
const browser = browserRig();
let stage: Stage;
/** What the page of somebody else holds. */
let body = "";
const host = http.createServer((_request, response) => {
  const policy = `default-src 'none'; script-src ${stage.origin}; connect-src ${stage.origin}; img-src data:; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'`;
  response.writeHead(200, { "content-type": "text/html; charset=utf-8", "content-security-policy": policy });
  const icon = '<link rel="icon" href="data:,">';
  response.end(
    `<!doctype html><html lang="en"><title>Elsewhere</title>${icon}<body><main>${body}</main></body></html>`,
  );
});

const script = () => `<script type="module" src="${stage.origin}/embed.js"></script>`;
const tag = (job: string, token = stage.sw.readToken({ job, expiresIn: "1h" })) =>
  `<stillwake-job server="${stage.origin}" job="${job}" token="${token}"></stillwake-job>`;
const line = ({ page }: Visit, text: string) => page.locator(".line .message").getByText(text, { exact: true });
const elsewhere = () => `http://127.0.0.1:${(host.address() as AddressInfo).port}`;

/** A visit to the page of somebody else, which asks our server and nobody besides. */
async function open(content: string): Promise<Visit> {
  body = content;
  const visit = await browser.visit({ origin: elsewhere() });
  visit.allow(new RegExp(`asked elsewhere: ${stage.origin}/(embed\\.js|v1/)`));
  await visit.goto("/");
  return visit;
}

inBrowser("a job in a page of somebody else", () => {
  beforeAll(async () => {
    await new Promise<void>((resolve) => void host.listen(0, "127.0.0.1", resolve));
    stage = await openStage(database, { origins: [elsewhere()] });
    await stage.sql.query("select stillwake.register_pipeline('ferry', '{}')");
  });
  afterAll(async () => {
    host.closeAllConnections();
    host.close();
    await stage?.clear();
  });

  const put = async () => {
    await stage.sw.enqueue("ferry", null);
    return Hand.take(stage, "ferry", "quay-1");
  };
  const keep = async ({ claimed: { job, epoch, lease } }: Hand, name: string) => {
    const sha = "0".repeat(64);
    const values = [job, epoch, lease, name, sha, `2026-01-05/${job}/${epoch}/${sha}`];
    await stage.sql.query("select stillwake.save_artifact($1, $2, $3, $4, 3, $5, 'text/plain', $6)", values);
  };

  it("shows its lines, its progress and its files, and goes on as they come, without a word of complaint", async () => {
    const hand = await put();
    await keep(hand, "report.txt");
    await hand.say("Boarding");
    await hand.progress({ done: 1, total: 4, sentence: "Crossing" });
    const visit = await open(script() + tag(hand.job));
    await line(visit, "Boarding").waitFor();
    const bar = visit.page.getByRole("progressbar");
    await visit.page.getByText("Working: Crossing").waitFor();
    expect(await bar.getAttribute("aria-valuenow")).toBe("25");
    await visit.page.getByRole("button", { name: "report.txt" }).waitFor();
    await hand.say("Casting off");
    await line(visit, "Casting off").waitFor();
    await hand.progress({ done: 4, total: 4, sentence: "Mooring" });
    await visit.page.getByText("Working: Mooring").waitFor();
    await hand.settle("completed");
    await visit.page
      .getByText(/^Completed in/)
      .first()
      .waitFor();
    visit.expectQuiet();
  });

  it("takes what was set on the element before it was loaded, and keeps a search when it is moved", async () => {
    const hand = await put();
    await hand.say("Fog", "Sun");
    const visit = await open("");
    const { page } = visit;
    let load = () => {};
    const held = new Promise<void>((resolve) => {
      load = resolve;
    });
    await page.route("**/embed.js", async (route) => {
      await held;
      await route.continue();
    });
    body = `<section id="one"></section><section id="two"></section>${script()}`;
    await page.goto("/", { waitUntil: "commit" });
    await page.locator("#two").waitFor({ state: "attached" });
    const token = stage.sw.readToken({ job: hand.job, expiresIn: "1h" });
    await page.evaluate(`(() => {
      const element = document.createElement("stillwake-job");
      Object.assign(element, ${JSON.stringify({ server: stage.origin, job: hand.job })}, { token: () => ${JSON.stringify(token)} });
      document.getElementById("one").append(element);
    })()`);
    load();
    await line(visit, "Sun").waitFor();
    await page.getByRole("searchbox").fill("fog");
    await line(visit, "Sun").waitFor({ state: "detached" });
    await page.evaluate('document.getElementById("two").append(document.querySelector("stillwake-job"))');
    await hand.say("More fog");
    await line(visit, "More fog").waitFor();
    expect(await page.getByRole("searchbox").inputValue()).toBe("fog");
    expect(await line(visit, "Sun").count()).toBe(0);
    visit.expectQuiet();
  });

  it("says so when it is refused, in its headline and above its lines, and goes on when somebody tries again", async () => {
    const hand = await put();
    await hand.say("Boarding");
    const visit = await open(script() + tag(hand.job));
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
    await stage.restart();
    const why = page.getByText(/^This page is not allowed to show the job/);
    await why.nth(1).waitFor();
    expect(await why.count()).toBe(2);
    expect(await page.getByText("Working").count()).toBe(0);
    await line(visit, "Boarding").waitFor();
    await page.unroute("**/stream");
    await hand.say("Casting off");
    await page.getByRole("button", { name: "Try again" }).click();
    await line(visit, "Casting off").waitFor();
    await why.first().waitFor({ state: "hidden" });
    expect(await page.getByRole("button", { name: "Try again" }).count()).toBe(0);
    visit.expectQuiet();
  });

  it("asks again for its files when that has failed", async () => {
    const hand = await put();
    await keep(hand, "manifest.csv");
    await hand.say("Boarding");
    const visit = await open("");
    visit.allow(/ERR_FAILED|Failed to load resource/);
    let asked = 0;
    await visit.page.route("**/artifacts", (route) => (++asked < 3 ? route.abort() : route.continue()));
    body = script() + tag(hand.job);
    await visit.goto("/");
    await visit.page.getByRole("button", { name: "manifest.csv" }).waitFor();
    expect(asked).toBe(3);
    visit.expectQuiet();
  });

  it("draws nothing while nobody looks, and everything when somebody does", async () => {
    const hand = await put();
    await hand.say("Boarding");
    const visit = await open(script() + tag(hand.job));
    const { page } = visit;
    await line(visit, "Boarding").waitFor();
    const look = (state: string) =>
      page.evaluate(`(() => {
        Object.defineProperty(document, "visibilityState", { value: ${JSON.stringify(state)}, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      })()`);
    await look("hidden");
    const rows = () => page.locator(".line").count();
    const before = await rows();
    await hand.say(...Array.from({ length: 50 }, (_, n) => `Wave ${n + 1}`));
    const known = "document.querySelector('stillwake-job').store.getSnapshot().version";
    await waitFor(async () => (await page.evaluate<number>(known)) > 50, { what: "the lines to be known" });
    expect(await rows()).toBe(before);
    await look("visible");
    await line(visit, "Wave 50").waitFor();
    visit.expectQuiet();
  });

  it("is another job when the address of the page for those who wait is, and bears no title of strangers", async () => {
    const [one, two] = [await put(), await put()];
    await one.say("Of the first");
    await two.say("Of the second");
    const token = (job: string) => stage.sw.readToken({ job, expiresIn: "1h" });
    const visit = await browser.visit({ origin: stage.origin });
    await visit.goto(`/watch#job=${one.job}&token=${token(one.job)}&title=Enter+your+password`);
    await line(visit, "Of the first").waitFor();
    expect([await visit.page.title(), await visit.page.locator("h1").textContent()]).toEqual(["Your job", "Your job"]);
    await visit.page.evaluate(`location.hash = "job=${two.job}&token=${token(two.job)}"`);
    await line(visit, "Of the second").waitFor();
    expect(await line(visit, "Of the first").count()).toBe(0);
    visit.expectQuiet();
  });
});

it("is marked as a part of the client for those who render on a server", () => {
  const text = fs.readFileSync(path.join(ROOT, "dist/react/index.js"), "utf8");
  expect(text.split("\n")[0]).toBe('"use client";');
});
