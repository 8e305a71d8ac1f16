// The remedies of error messages, in a browser: a credential is stored and replaced, a private repository is added, a
// moved repository gets its new name. A stored credential does not stay on the page.
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
import { claimJob, SEAL_KEYS } from "../support/api-calls.ts";
import { type ServedApp, serveApp } from "../support/app-server.ts";

const database = await freshDatabase();
const browser = useBrowser();
const { expectGoodPage, takeScreenshot } = pageChecks("extraction");
const CANARY = "glpat-canary-Zq81mT0vPw";
let served: ServedApp;

async function visit(place: string, size: Size = "desktop", theme: Theme = "dark"): Promise<Visit> {
  const opened = await browser.visit({ origin: served.origin, size, theme });
  await opened.goto(`/${place}`);
  return opened;
}

const credentials = ({ page }: Visit) => page.locator("details", { hasText: "Credentials of" });

/** Neither in the document nor in an input. */
async function expectForgotten({ page }: Visit): Promise<void> {
  expect(await page.content()).not.toContain(CANARY);
  const typed = await page.evaluate<string[]>("[...document.querySelectorAll('input')].map(({ value }) => value)");
  expect(typed.join("\n")).not.toContain(CANARY);
}

async function integrated(name: string, provider = "gitlab"): Promise<string> {
  return (await served.api.post("/integrations", { provider, name, credential: "glpat-the-first" })).body.id;
}

async function sealedOf(integration: string): Promise<string> {
  const { rows } = await served.pool.query("select credential from extraction.integrations where id = $1", [
    integration,
  ]);
  return rows[0].credential.$sealed;
}

describeInBrowser("the page", () => {
  beforeAll(async () => {
    served = await serveApp(database.url, { sealKeys: SEAL_KEYS });
  }, 60_000);
  afterAll(() => served?.close());

  it("stores a credential and adds a private repository that uses it", async () => {
    const opened = await visit("");
    const { page } = opened;
    opened.allow(/400/);
    await credentials(opened).getByText("Credentials of GitLab and Bitbucket (none stored)").click();
    await credentials(opened).getByLabel("Name of the integration").fill("Acme at GitLab");
    await credentials(opened).getByLabel("New credential").fill("short");
    await page.getByRole("button", { name: "Store" }).click();
    await credentials(opened).getByText("This is shorter than 8 characters").waitFor();
    await credentials(opened).getByLabel("New credential").fill(CANARY);
    expect(await credentials(opened).getByLabel("New credential").getAttribute("type")).toBe("password");
    await page.keyboard.press("Enter");
    await page
      .getByRole("status")
      .getByText("Stored. It can be selected as the integration of a repository.")
      .waitFor();
    await page.getByText("Credentials of GitLab and Bitbucket (1)").waitFor();
    await expectForgotten(opened);

    const add = page.getByRole("region", { name: "Add a repository" });
    await add.getByText("Private repository", { exact: true }).click();
    await add.getByLabel("Installation").fill("x");
    await add.getByLabel("Full name").fill("group/sub/site.git");
    await add.getByRole("button", { name: "Add and extract" }).click();
    await add.getByText("This must be the number of an installation").waitFor();
    await add.getByLabel("Provider").selectOption("bitbucket");
    await add
      .getByText("No integration of Bitbucket yet. Store a credential in Organization Settings below.")
      .waitFor();
    await add.getByLabel("Provider").selectOption("gitlab");
    await add.getByLabel("Integration").selectOption({ label: "Acme at GitLab" });
    await expectGoodPage(opened, "add-private");
    await add.getByRole("button", { name: "Add and extract" }).click();
    await page.getByRole("heading", { level: 1, name: "group/sub/site" }).waitFor();
    const id = new URL(page.url()).pathname.split("/").at(-1);
    const { integrations } = (await served.api.get("/integrations")).body;
    expect((await served.api.get(`/projects/${id}`)).body).toMatchObject({
      provider: "gitlab",
      repository: "group/sub/site",
      integrationId: integrations[0].id,
      installationId: null,
    });
    opened.expectNoComplaints();
  });

  it("replaces a rejected credential and starts another extraction with the new one", async () => {
    const integration = await integrated("The group's");
    const { body } = await served.api.post("/projects", {
      provider: "gitlab",
      repository: "group/locked",
      integrationId: integration,
    });
    const sentence = "Authentication failed - reconnect your GitLab integration in Organization Settings";
    await claimJob(served.pool, body.extraction.id, {
      outcome: "failed",
      fatal: true,
      failure: { message: "x", sentence: `Extraction failed: ${sentence}` },
    });
    const before = await sealedOf(integration);
    const opened = await visit(`projects/${body.id}`);
    const { page } = opened;
    await page.getByRole("alert").getByText(sentence).waitFor();
    await page.getByRole("tab", { name: "Settings" }).click();
    await page.getByRole("heading", { level: 2, name: "Organization Settings" }).waitFor();
    await credentials(opened)
      .getByText(/^Credentials of GitLab \(\d+\)$/)
      .click();
    const which = credentials(opened).getByLabel("Which integration");
    expect(await which.locator("option:checked").innerText()).toBe("The group's (GitLab)");
    await credentials(opened).getByLabel("New credential").fill(CANARY);
    await credentials(opened).getByRole("button", { name: "Replace" }).click();
    await page.getByText("Replaced. It is used from the next extraction on.").waitFor();
    await expectForgotten(opened);
    await expectGoodPage(opened, "replaced");
    const now = await sealedOf(integration);
    expect(now).not.toBe(before);
    await page.getByRole("button", { name: "Start extraction" }).click();
    await page.getByRole("button", { name: "Cancel" }).waitFor();
    const { extraction } = (await served.api.get(`/projects/${body.id}`)).body;
    const { rows } = await served.pool.query("select input from stillwake.jobs where id = $1", [extraction.id]);
    expect(rows[0].input.credential.$sealed).toBe(now);
    await expectForgotten(opened);
    opened.expectNoComplaints();
  });

  it("changes the name and the installation of a repository", async () => {
    const { body } = await served.api.post("/projects", {
      repository: "acme/old",
      installationId: "17",
      extract: false,
    });
    const opened = await visit(`projects/${body.id}?tab=settings`);
    const { page } = opened;
    opened.allow(/400/);
    expect(await page.getByLabel("Installation").inputValue()).toBe("17");
    await page.getByLabel("Full name").fill("https://github.com/acme/new");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("This must be the full name of a repository, such as acme/site").waitFor();
    await page.getByLabel("Full name").fill("acme/new.git");
    await page.getByLabel("Installation").fill("seventeen");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("This must be the number of an installation").waitFor();
    await page.getByLabel("Installation").fill("4711");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("heading", { level: 1, name: "acme/new" }).waitFor();
    await page.getByText("Saved. It is used from the next extraction on.").waitFor();
    expect(await page.getByLabel("Full name").inputValue()).toBe("acme/new");
    await expectGoodPage(opened, "moved");
    const read = async () => (await served.api.get(`/projects/${body.id}`)).body;
    expect(await read()).toMatchObject({ repository: "acme/new", installationId: "4711" });
    await page.getByLabel("Installation").fill("");
    await page.getByRole("button", { name: "Save" }).click();
    await expect.poll(async () => (await read()).installationId).toBeNull();
    expect(await credentials(opened).count()).toBe(0);
    opened.expectNoComplaints();
  });

  it("changes the integration of a repository and removes an unused one, on a phone", async () => {
    const [old, fresh] = [await integrated("Old account", "bitbucket"), await integrated("New account", "bitbucket")];
    const { body } = await served.api.post("/projects", {
      provider: "bitbucket",
      repository: "team/site",
      integrationId: old,
      extract: false,
    });
    const opened = await visit(`projects/${body.id}?tab=settings`, "phone", "light");
    const { page } = opened;
    opened.allow(/409/);
    await credentials(opened).getByText("Credentials of Bitbucket (2)").click();
    const remove = async () => {
      await page.getByRole("button", { name: "Remove this integration" }).click();
      await page.getByRole("button", { name: "Remove", exact: true }).click();
    };
    await remove();
    await page.getByRole("alert").getByText("A project uses this integration: team/site").waitFor();
    await page.getByText(/^Choose another integration, or none, in their settings first/).waitFor();
    await expectGoodPage(opened, "phone-in-use");
    const chosen = page.getByLabel("Integration", { exact: true });
    expect(await chosen.locator("option").allInnerTexts()).toEqual(["None", "New account", "Old account"]);
    await chosen.selectOption(fresh);
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved. It is used from the next extraction on.").waitFor();
    expect((await served.api.get(`/projects/${body.id}`)).body.integrationId).toBe(fresh);
    await remove();
    await page.getByText("Old account was removed.").waitFor();
    await page.getByText("Credentials of Bitbucket (1)").waitFor();
    await expectGoodPage(opened, "phone-settings");
    await opened.goto("/");
    await page.getByText("Private repository", { exact: true }).click();
    await page.getByText(/^Credentials of GitLab and Bitbucket/).click();
    await expectGoodPage(opened, "phone-credentials");
  });

  it("shows the server's reason why it cannot store credentials", async () => {
    const keyless = await serveApp(database.url);
    try {
      const opened = await browser.visit({ origin: keyless.origin });
      opened.allow(/409/);
      await opened.goto("/");
      await opened.page.getByText(/^Credentials of GitLab and Bitbucket/).click();
      await opened.page.getByLabel("Name of the integration").fill("Ours");
      await opened.page.getByLabel("New credential").fill(CANARY);
      await opened.page.getByRole("button", { name: "Store" }).click();
      await opened.page.getByRole("alert").getByText("The server has no keys to seal credentials").waitFor();
      await opened.page.getByText(/^Set STILLWAKE_SEAL_KEYS for the server and the workers/).waitFor();
      await takeScreenshot(opened, "no-seal-keys");
      opened.expectNoComplaints();
      await opened.close();
    } finally {
      await keyless.close();
    }
  });
});
