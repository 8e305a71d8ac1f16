// The page in a browser: a repository is added, its extraction is followed, results are read and downloaded, on a
// desktop and on a phone. The tests run the jobs by hand, so that they can stop at any moment.
import fs from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import {
  describeInBrowser,
  type Size,
  type Theme,
  useBrowser,
  type Visit,
} from "../../../../test/support/server/browser.ts";
import { pageChecks } from "../../../kit/test/support/page-checks.ts";
import { claimJob } from "../support/api-calls.ts";
import {
  addCompletedExtraction,
  addExtractedProject,
  addFailedProject,
  type ServedApp,
  serveApp,
} from "../support/app-server.ts";

const database = await freshDatabase();
const browser = useBrowser();
const { expectGoodPage, takeScreenshot } = pageChecks("extraction");
const TOKEN = "a-token-of-more-than-twenty-characters";
let served: ServedApp;
let whole: { project: string; job: string };
let broken: { project: string; job: string };

async function visit(place: string, size: Size = "desktop", theme: Theme = "dark"): Promise<Visit> {
  const opened = await browser.visit({ origin: served.origin, size, theme });
  await opened.goto(`/extraction/${place}`);
  return opened;
}

const line = ({ page }: Visit, text: string) => page.locator(".line .message").getByText(text, { exact: true });

describeInBrowser("the page", () => {
  beforeAll(async () => {
    served = await serveApp(database.url, {
      base: "/extraction/",
      sample: { name: "Sample shop", repository: "sample/shop" },
    });
    broken = await addFailedProject(served, "acme/broken");
    whole = await addExtractedProject(served, "acme/site");
  }, 60_000);
  afterAll(() => served?.close());

  it("lists repositories with the result of their last extraction", async () => {
    const opened = await visit("");
    const table = opened.page.getByRole("table", { name: "Repositories" });
    await table.getByRole("row", { name: /acme\/site.*ready.*2\s*critical/ }).waitFor();
    await table.getByRole("row", { name: /acme\/broken.*failed.*Branch 'nowhere' not found in repository/ }).waitFor();
    await opened.page
      .getByText(/This month \$0\.06\d* for 1 extraction\. 3 stopped machines of pool scan: \$0\.90 per month\./)
      .waitFor();
    await expectGoodPage(opened, "list");
    await table.getByRole("link", { name: "acme/site" }).click();
    await opened.page.getByRole("heading", { level: 1, name: "acme/site" }).waitFor();
    expect(new URL(opened.page.url()).pathname).toBe(`/extraction/projects/${whole.project}`);
    await opened.page.goBack();
    await opened.page.getByRole("heading", { level: 1, name: "Repositories" }).waitFor();
  });

  it("shows what is invalid at the fields, and adds a repository", async () => {
    const opened = await visit("");
    opened.allow(/400/);
    await opened.page.getByLabel("Full name").fill("nonsense");
    await opened.page.getByLabel("Package path").fill("../up");
    await opened.page.getByRole("button", { name: "Add and extract" }).click();
    await opened.page
      .getByRole("alert")
      .getByText("This must be the full name of a repository, such as acme/site")
      .waitFor();
    expect(await opened.page.getByLabel("Full name").getAttribute("aria-invalid")).toBe("true");
    await takeScreenshot(opened, "add-wrong");
    await opened.page.getByLabel("Full name").fill("acme/added");
    await opened.page.getByLabel("Package path").fill("packages/api");
    await opened.page.keyboard.press("Enter");
    await opened.page.getByRole("heading", { level: 1, name: "acme/added" }).waitFor();
    await opened.page
      .getByText(/^Waiting for a worker/)
      .first()
      .waitFor();
    await opened.page.getByRole("button", { name: "Cancel" }).click();
    await opened.page.getByRole("button", { name: "Start extraction" }).waitFor();
    await opened.page.getByText("cancelled", { exact: true }).first().waitFor();
  });

  it("follows the log of a sample extraction live, and shows earlier extractions", async () => {
    const opened = await visit("");
    await opened.page.getByRole("button", { name: "Extract the sample repository" }).click();
    await opened.page.getByRole("heading", { level: 1, name: "Sample shop" }).waitFor();
    await opened.page.getByRole("button", { name: "Cancel" }).waitFor();
    const project = new URL(opened.page.url()).pathname.split("/").at(-1)!;
    const { extraction: first } = (await served.api.get(`/projects/${project}`)).body;
    const claimed = await claimJob(served.pool, first.id, undefined, { machine: "sw-f00d-scan-m3" });
    await served.log(claimed, { step: "cloning", message: "Cloning repository from GitHub..." });
    await line(opened, "Cloning repository from GitHub...").waitFor();
    await opened.page.getByText("sw-f00d-scan-m3").waitFor();
    await served.log(claimed, {
      step: "cloning",
      message: "Repository not found - it may have been deleted or made private",
      level: "error",
      data: { code: "NO_REPOSITORY", stack: "Told: at clone" },
    });
    const red = opened.page.locator(".line.error", { hasText: "Repository not found" });
    await red.waitFor();
    await red.click();
    await red.getByText("Told: at clone").waitFor();
    await takeScreenshot(opened, "running");
    const sentence = "Extraction failed: Repository not found - it may have been deleted or made private";
    await served.settle(claimed, { outcome: "failed", fatal: true, failure: { message: "x", sentence } });
    await opened.page
      .getByRole("alert")
      .getByText("Repository not found - it may have been deleted or made private")
      .waitFor();
    await expectGoodPage(opened, "failed-live");

    await opened.page.getByRole("button", { name: "Start extraction" }).click();
    await opened.page.getByRole("button", { name: "Cancel" }).waitFor();
    const { extraction: second } = (await served.api.get(`/projects/${project}`)).body;
    expect(second.id).not.toBe(first.id);
    const again = await claimJob(served.pool, second.id, undefined, { machine: "sw-f00d-scan-m4" });
    await served.log(again, {
      step: "cloning",
      message: "Repository cloned successfully",
      level: "success",
      data: { took_ms: 2310 },
    });
    await line(opened, "Repository cloned successfully").waitFor();
    await opened.page.locator(".badge", { hasText: "2.3 s" }).waitFor();
    const runs = opened.page.getByRole("combobox", { name: "Job", exact: true });
    await runs.selectOption(first.id);
    await line(opened, "Repository not found - it may have been deleted or made private").waitFor();
    await opened.page.getByRole("heading", { level: 2, name: "Earlier extraction" }).waitFor();
    await opened.page.getByText("sw-f00d-scan-m3").waitFor();
    await opened.page.reload();
    await opened.page.getByRole("heading", { level: 2, name: "Earlier extraction" }).waitFor();
    await opened.page.getByRole("button", { name: "Show the latest" }).click();
    await line(opened, "Repository cloned successfully").waitFor();
    await served.settle(again, { outcome: "completed", output: null, missing: [] });
    await opened.page.getByRole("button", { name: "Start extraction" }).waitFor();
    opened.expectNoComplaints();
  });

  it("shows results, works by keyboard, and escapes untrusted text", async () => {
    const opened = await visit(`projects/${whole.project}`);
    const { page } = opened;
    const rows = page.getByRole("table", { name: "Vulnerabilities" }).locator("tbody tr");
    await rows.first().waitFor();
    expect(await rows.first().innerText()).toMatch(
      /critical[\s\S]*STILLWAKE-2026-0002[\s\S]*pyyaml@5\.3[\s\S]*97\.3 %[\s\S]*99th percentile[\s\S]*KEV[\s\S]*since 2026-02-03/,
    );
    const hostile = await rows.nth(2).innerText();
    expect(hostile).toContain("<img src=x onerror=alert(1)>");
    expect(hostile).not.toContain("\u001b");
    expect(hostile).not.toContain("\u202e");
    expect(await rows.nth(2).getByRole("link").count()).toBe(0);
    expect(await rows.nth(1).getByRole("link").getAttribute("rel")).toBe("noopener noreferrer");
    await page
      .getByText(/sw-7c1d20ab-scan-m1, performance-8x in iad: 5 min.* × \$0\.000213 per second = \$0\.06/)
      .waitFor();
    await expectGoodPage(opened, "vulnerabilities");

    await page.getByLabel("Exploited").selectOption("true");
    await expect.poll(() => rows.count()).toBe(1);
    await page.getByRole("tab", { name: "Vulnerabilities" }).focus();
    await page.keyboard.press("ArrowRight");
    await page.getByRole("table", { name: "Code and secrets" }).getByText("aws-access-key").waitFor();
    await takeScreenshot(opened, "findings");
    await page.keyboard.press("ArrowRight");
    const dependencies = page.getByRole("table", { name: "Dependencies" }).locator("tbody tr");
    await expect.poll(() => dependencies.count()).toBe(3);
    await page.getByLabel("Search by name or version").fill("mini");
    await expect
      .poll(() => dependencies.allInnerTexts())
      .toEqual([expect.stringMatching(/minimist[\s\S]*1\.2\.0[\s\S]*transitive/)]);
    await page.getByLabel("Shown", { exact: true }).selectOption("true");
    await page.getByText("No results match the filters").waitFor();
    await page.getByRole("tab", { name: "Reports" }).click();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("link", { name: "Download sbom.cdx.json" }).click(),
    ]);
    expect(JSON.parse(fs.readFileSync((await download.path())!, "utf8"))).toEqual({ bomFormat: "CycloneDX" });
    await expectGoodPage(opened, "reports");
    await page.reload();
    await page.getByRole("table", { name: "Reports" }).waitFor();
  });

  it("changes the settings of a repository, and deletes it after a confirmation", async () => {
    const { body } = await served.api.post("/projects", { repository: "acme/short-lived", extract: false });
    const opened = await visit(`projects/${body.id}?tab=settings`);
    opened.allow(/400/);
    await opened.page.getByText("Not extracted yet", { exact: true }).waitFor();
    await opened.page.getByLabel("Package path").fill("/etc");
    await opened.page.getByRole("button", { name: "Save" }).click();
    await opened.page.getByText(/This must be a path inside the repository/).waitFor();
    await opened.page.getByLabel("Package path").fill("api");
    await opened.page.getByRole("button", { name: "Save" }).click();
    await opened.page.getByText("Saved. It is used from the next extraction on.").waitFor();
    expect((await served.api.get(`/projects/${body.id}`)).body.packagePath).toBe("api");
    await expectGoodPage(opened, "settings");
    await opened.page.getByRole("button", { name: "Delete this repository" }).click();
    await opened.page.getByRole("button", { name: "Delete", exact: true }).click();
    await opened.page.getByRole("heading", { level: 1, name: "Repositories" }).waitFor();
    expect((await served.api.get(`/projects/${body.id}`)).status).toBe(404);
  });

  it("shows the age of each list, and which scans are missing", async () => {
    const { body } = await served.api.post("/projects", { repository: "acme/aging", extract: false });
    await addCompletedExtraction(served, body.id, { vulnerabilities: [], code: undefined, secrets: [] });
    const opened = await visit(`projects/${body.id}`);
    const { page } = opened;
    await page.getByText("No known vulnerabilities", { exact: true }).waitFor();
    await page.getByText(/^Vulnerabilities as of \d+ \w+ \d\d:\d\d:\d\d\.$/).waitFor();
    await page.getByRole("tab", { name: "Code and secrets" }).click();
    await page.getByText("No secrets found", { exact: true }).waitFor();
    await page.getByText("Code: not scanned yet.").waitFor();
    await addCompletedExtraction(served, body.id, { vulnerabilities: undefined, secrets: undefined });
    await page.reload();
    await page.getByText("python-yaml-load").waitFor();
    await page.getByText(/^Code as of \d.*\d\.$/).waitFor();
    await page.getByText(/^Secrets as of .*, from an earlier extraction: the last one skipped this scan\.$/).waitFor();
    await page.getByRole("tab", { name: "Vulnerabilities" }).click();
    await page.getByText("No known vulnerabilities", { exact: true }).waitFor();
    await page
      .getByText(/^Vulnerabilities as of .*, from an earlier extraction: the last one skipped this scan\.$/)
      .waitFor();
    await expectGoodPage(opened, "aging");
    await served.api.delete(`/projects/${body.id}`);
  });

  it("says in amber that vulnerabilities were not checked, or only in part, and why", async () => {
    const { body } = await served.api.post("/projects", { repository: "acme/unchecked", extract: false });
    const why = "OSV.dev did not answer about 3 dependencies (<b>HTTP 503</b>)";
    const none = { checked: 0, total: 3, notes: [why] };
    await addCompletedExtraction(served, body.id, { vulnerabilities: undefined, coverage: none });
    const list = await visit("");
    await list.page.getByText(/The names and versions of its packages are looked up at OSV\.dev/).waitFor();
    await list.page
      .getByRole("row", { name: /acme\/unchecked.*not checked/ })
      .locator('.tag[data-tone="amber"]')
      .waitFor();
    const opened = await visit(`projects/${body.id}`);
    const { page } = opened;
    const callout = page.locator('.callout[data-tone="amber"]');
    await callout.getByText("The last extraction did not check for vulnerabilities").waitFor();
    await callout.getByText(why).waitFor();
    await page.getByText("Not checked", { exact: true }).waitFor();
    expect(await page.getByText("No known vulnerabilities").count()).toBe(0);
    await expectGoodPage(opened, "unchecked");

    const part = { checked: 2, total: 3, notes: ["1 has no version"] };
    await addCompletedExtraction(served, body.id, { vulnerabilities: [], coverage: part });
    await page.reload();
    await callout.getByText("Only 2 of 3 dependencies were checked for vulnerabilities").waitFor();
    await callout.getByText("1 has no version").waitFor();
    await page.getByText("No known vulnerabilities in the 2 dependencies that were checked").waitFor();
    await expectGoodPage(opened, "partly-checked");
    await list.page.reload();
    await list.page.getByRole("row", { name: /acme\/unchecked.*none found in 2 of 3/ }).waitFor();

    await page.getByRole("tab", { name: "Settings" }).click();
    await page.getByText(/They send the names and versions of packages, and nothing else/).waitFor();
    await served.api.delete(`/projects/${body.id}`);
  });

  it("fits a phone in the light theme, and reports missing repositories", async () => {
    const opened = await visit("projects/01a1e107-2508-4182-ae66-db7bbe9aa49e", "phone", "light");
    opened.allow(/404/);
    await opened.page.getByRole("heading", { name: "Repository not found" }).waitFor();
    await opened.page.getByRole("link", { name: "See all repositories" }).click();
    await opened.page.getByRole("table", { name: "Repositories" }).waitFor();
    await expectGoodPage(opened, "phone-list");
    await opened.goto(`/extraction/projects/${whole.project}`);
    await opened.page.getByRole("table", { name: "Vulnerabilities" }).waitFor();
    await expectGoodPage(opened, "phone-vulnerabilities");
    await opened.goto(`/extraction/projects/${broken.project}?tab=findings`);
    await opened.page.getByText("Not scanned").waitFor();
    await expectGoodPage(opened, "phone-failed");
  });

  it("requires the token of the server", async () => {
    const locked = await serveApp(database.url, { token: TOKEN });
    try {
      const opened = await browser.visit({ origin: locked.origin });
      opened.allow(/401/);
      await opened.goto(`/projects/${whole.project}`);
      await opened.page.getByLabel("Token").fill("wrong");
      await opened.page.keyboard.press("Enter");
      await opened.page.getByText("Invalid token").waitFor();
      await expectGoodPage(opened, "sign-in");
      await opened.page.getByLabel("Token").fill(TOKEN);
      await opened.page.getByRole("button", { name: "Sign in" }).click();
      await opened.page.getByRole("heading", { level: 1, name: "acme/site" }).waitFor();
      await line(opened, "Repository cloned successfully").waitFor();
      opened.expectNoComplaints();
      await opened.close();
    } finally {
      await locked.close();
    }
  });
});
