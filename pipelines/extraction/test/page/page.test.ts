// The page in a real browser: a repository is added, its extraction is watched line by line, what was found is read and saved, on a desk and on a phone. Hands do the
// jobs, so that every moment can be held still.
import fs from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { browserRig, inBrowser, type Size, type Theme, type Visit } from "../../../../test/support/server/browser.ts";
import { hand } from "../support/api-calls.ts";
import { completed, extracted, failed, type Served, serveApp } from "../support/app-server.ts";
import { expectWell, picture } from "../support/page-checks.ts";

const database = await freshDatabase();
const browser = browserRig();
const TOKEN = "a-token-of-more-than-twenty-characters";
let served: Served;
let whole: { project: string; job: string };
let broken: { project: string; job: string };

async function visit(place: string, size: Size = "desktop", theme: Theme = "dark"): Promise<Visit> {
  const one = await browser.visit({ origin: served.origin, size, theme });
  await one.goto(`/extraction/${place}`);
  return one;
}

const line = ({ page }: Visit, text: string) => page.locator(".line .message").getByText(text, { exact: true });

inBrowser("the page", () => {
  beforeAll(async () => {
    served = await serveApp(database.url, {
      base: "/extraction/",
      sample: { name: "Sample shop", repository: "sample/shop" },
    });
    broken = await failed(served, "acme/broken");
    whole = await extracted(served, "acme/site");
  }, 60_000);
  afterAll(() => served?.close());

  it("lists repositories with how their last extraction went", async () => {
    const one = await visit("");
    const table = one.page.getByRole("table", { name: "Repositories" });
    await table.getByRole("row", { name: /acme\/site.*ready.*2\s*critical/ }).waitFor();
    await table.getByRole("row", { name: /acme\/broken.*failed.*Branch 'nowhere' not found in repository/ }).waitFor();
    await one.page
      .getByText(/This month \$0\.06\d* for 1 extraction\. 3 stopped machines of pool scan: \$0\.90 a month\./)
      .waitFor();
    await expectWell(one, "list");
    await table.getByRole("link", { name: "acme/site" }).click();
    await one.page.getByRole("heading", { level: 1, name: "acme/site" }).waitFor();
    expect(new URL(one.page.url()).pathname).toBe(`/extraction/projects/${whole.project}`);
    await one.page.goBack();
    await one.page.getByRole("heading", { level: 1, name: "Repositories" }).waitFor();
  });

  it("adds a repository, after it has said what is wrong with what was typed", async () => {
    const one = await visit("");
    one.allow(/400/);
    await one.page.getByLabel("Full name").fill("nonsense");
    await one.page.getByLabel("Package path").fill("../up");
    await one.page.getByRole("button", { name: "Add and extract" }).click();
    await one.page
      .getByRole("alert")
      .getByText("This is not the full name of a repository, such as acme/site")
      .waitFor();
    expect(await one.page.getByLabel("Full name").getAttribute("aria-invalid")).toBe("true");
    await picture(one, "add-wrong");
    await one.page.getByLabel("Full name").fill("acme/added");
    await one.page.getByLabel("Package path").fill("packages/api");
    await one.page.keyboard.press("Enter");
    await one.page.getByRole("heading", { level: 1, name: "acme/added" }).waitFor();
    await one.page
      .getByText(/^Waiting for a worker/)
      .first()
      .waitFor();
    await one.page.getByRole("button", { name: "Cancel" }).click();
    await one.page.getByRole("button", { name: "Start extraction" }).waitFor();
    await one.page.getByText("cancelled", { exact: true }).first().waitFor();
  });

  it("shows an extraction of the sample as it is written, at one click, and the next one beside it", async () => {
    const one = await visit("");
    await one.page.getByRole("button", { name: "Extract the sample repository" }).click();
    await one.page.getByRole("heading", { level: 1, name: "Sample shop" }).waitFor();
    await one.page.getByRole("button", { name: "Cancel" }).waitFor();
    const project = new URL(one.page.url()).pathname.split("/").at(-1)!;
    const { extraction: first } = (await served.api.get(`/projects/${project}`)).body;
    const claimed = await hand(served.pool, first.id, undefined, { machine: "sw-f00d-scan-m3" });
    await served.say(claimed, { step: "cloning", message: "Cloning repository from GitHub..." });
    await line(one, "Cloning repository from GitHub...").waitFor();
    await one.page.getByText("sw-f00d-scan-m3").waitFor();
    await served.say(claimed, {
      step: "cloning",
      message: "Repository not found - it may have been deleted or made private",
      level: "error",
      data: { code: "NO_REPOSITORY", stack: "Told: at clone" },
    });
    const red = one.page.locator(".line.error", { hasText: "Repository not found" });
    await red.waitFor();
    await red.click();
    await red.getByText("Told: at clone").waitFor();
    await picture(one, "running");
    const sentence = "Extraction failed: Repository not found - it may have been deleted or made private";
    await served.settle(claimed, { outcome: "failed", fatal: true, failure: { message: "x", sentence } });
    await one.page
      .getByRole("alert")
      .getByText("Repository not found - it may have been deleted or made private")
      .waitFor();
    await expectWell(one, "failed-live");

    await one.page.getByRole("button", { name: "Start extraction" }).click();
    await one.page.getByRole("button", { name: "Cancel" }).waitFor();
    const { extraction: second } = (await served.api.get(`/projects/${project}`)).body;
    expect(second.id).not.toBe(first.id);
    const again = await hand(served.pool, second.id, undefined, { machine: "sw-f00d-scan-m4" });
    await served.say(again, {
      step: "cloning",
      message: "Repository cloned successfully",
      level: "success",
      data: { took_ms: 2310 },
    });
    await line(one, "Repository cloned successfully").waitFor();
    await one.page.locator(".badge", { hasText: "2.3 s" }).waitFor();
    const runs = one.page.getByRole("combobox", { name: "Which job to show" });
    await runs.selectOption(first.id);
    await line(one, "Repository not found - it may have been deleted or made private").waitFor();
    await one.page.getByRole("heading", { level: 2, name: "Earlier extraction" }).waitFor();
    await one.page.getByText("sw-f00d-scan-m3").waitFor();
    await one.page.reload();
    await one.page.getByRole("heading", { level: 2, name: "Earlier extraction" }).waitFor();
    await one.page.getByRole("button", { name: "See the latest" }).click();
    await line(one, "Repository cloned successfully").waitFor();
    await served.settle(again, { outcome: "completed", output: null, missing: [] });
    await one.page.getByRole("button", { name: "Start extraction" }).waitFor();
    one.expectQuiet();
  });

  it("shows what was found, by keyboard as well, and text of strangers as text", async () => {
    const one = await visit(`projects/${whole.project}`);
    const { page } = one;
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
      .getByText(/sw-7c1d20ab-scan-m1, performance-8x in iad: 5 min.* × \$0\.000213 a second = \$0\.06/)
      .waitFor();
    await expectWell(one, "vulnerabilities");

    await page.getByLabel("Exploited").selectOption("true");
    await expect.poll(() => rows.count()).toBe(1);
    await page.getByRole("tab", { name: "Vulnerabilities" }).focus();
    await page.keyboard.press("ArrowRight");
    await page.getByRole("table", { name: "Code and secrets" }).getByText("aws-access-key").waitFor();
    await picture(one, "findings");
    await page.keyboard.press("ArrowRight");
    const dependencies = page.getByRole("table", { name: "Dependencies" }).locator("tbody tr");
    await expect.poll(() => dependencies.count()).toBe(3);
    await page.getByLabel("Search by name or version").fill("mini");
    await expect
      .poll(() => dependencies.allInnerTexts())
      .toEqual([expect.stringMatching(/minimist[\s\S]*1\.2\.0[\s\S]*transitive/)]);
    await page.getByLabel("Shown", { exact: true }).selectOption("true");
    await page.getByText("Nothing fits these filters").waitFor();
    await page.getByRole("tab", { name: "Reports" }).click();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("link", { name: "Download sbom.cdx.json" }).click(),
    ]);
    expect(JSON.parse(fs.readFileSync((await download.path())!, "utf8"))).toEqual({ bomFormat: "CycloneDX" });
    await expectWell(one, "reports");
    await page.reload();
    await page.getByRole("table", { name: "Reports" }).waitFor();
  });

  it("changes what is extracted, and deletes when somebody is sure", async () => {
    const { body } = await served.api.post("/projects", { repository: "acme/short-lived", extract: false });
    const one = await visit(`projects/${body.id}?tab=settings`);
    one.allow(/400/);
    await one.page.getByText("Nothing has been extracted yet").waitFor();
    await one.page.getByLabel("Package path").fill("/etc");
    await one.page.getByRole("button", { name: "Save" }).click();
    await one.page.getByText(/This is not a path inside the repository/).waitFor();
    await one.page.getByLabel("Package path").fill("api");
    await one.page.getByRole("button", { name: "Save" }).click();
    await one.page.getByText("Saved. It counts from the next extraction on.").waitFor();
    expect((await served.api.get(`/projects/${body.id}`)).body.packagePath).toBe("api");
    await expectWell(one, "settings");
    await one.page.getByRole("button", { name: "Delete this repository" }).click();
    await one.page.getByRole("button", { name: "Delete for good" }).click();
    await one.page.getByRole("heading", { level: 1, name: "Repositories" }).waitFor();
    expect((await served.api.get(`/projects/${body.id}`)).status).toBe(404);
  });

  it("says how old each list is, and what nobody has looked for", async () => {
    const { body } = await served.api.post("/projects", { repository: "acme/aging", extract: false });
    await completed(served, body.id, { vulnerabilities: [], code: undefined, secrets: [] });
    const one = await visit(`projects/${body.id}`);
    const { page } = one;
    await page.getByText("No vulnerability is known", { exact: true }).waitFor();
    await page.getByText(/^Vulnerabilities as of \d+ \w+.* \d\d:\d\d:\d\d\.$/).waitFor();
    await page.getByRole("tab", { name: "Code and secrets" }).click();
    await page.getByText("No secrets were found", { exact: true }).waitFor();
    await page.getByText("Code: nobody has looked yet.").waitFor();
    await completed(served, body.id, { vulnerabilities: undefined, secrets: undefined });
    await page.reload();
    await page.getByText("python-yaml-load").waitFor();
    await page.getByText(/^Code as of \d.*\d\.$/).waitFor();
    await page.getByText(/^Secrets as of .*, by an earlier extraction: the last one could not look\.$/).waitFor();
    await page.getByRole("tab", { name: "Vulnerabilities" }).click();
    await page.getByText("No vulnerability is known", { exact: true }).waitFor();
    await page
      .getByText(/^Vulnerabilities as of .*, by an earlier extraction: the last one could not look\.$/)
      .waitFor();
    await expectWell(one, "aging");
    await served.api.delete(`/projects/${body.id}`);
  });

  it("fits a phone in the light, and says so where there is nothing", async () => {
    const one = await visit("projects/01a1e107-2508-4182-ae66-db7bbe9aa49e", "phone", "light");
    one.allow(/404/);
    await one.page.getByRole("heading", { name: "There is no such repository" }).waitFor();
    await one.page.getByRole("link", { name: "See all repositories" }).click();
    await one.page.getByRole("table", { name: "Repositories" }).waitFor();
    await expectWell(one, "phone-list");
    await one.goto(`/extraction/projects/${whole.project}`);
    await one.page.getByRole("table", { name: "Vulnerabilities" }).waitFor();
    await expectWell(one, "phone-vulnerabilities");
    await one.goto(`/extraction/projects/${broken.project}?tab=findings`);
    await one.page.getByText("Nobody has looked").waitFor();
    await expectWell(one, "phone-failed");
  });

  it("asks who is there where the server has a token, and lets in whoever has it", async () => {
    const locked = await serveApp(database.url, { token: TOKEN });
    try {
      const one = await browser.visit({ origin: locked.origin });
      one.allow(/401/);
      await one.goto(`/projects/${whole.project}`);
      await one.page.getByLabel("Token").fill("wrong");
      await one.page.keyboard.press("Enter");
      await one.page.getByText("This is not the token of this server").waitFor();
      await expectWell(one, "sign-in");
      await one.page.getByLabel("Token").fill(TOKEN);
      await one.page.getByRole("button", { name: "Sign in" }).click();
      await one.page.getByRole("heading", { level: 1, name: "acme/site" }).waitFor();
      await line(one, "Repository cloned successfully").waitFor();
      one.expectQuiet();
      await one.close();
    } finally {
      await locked.close();
    }
  });
});
