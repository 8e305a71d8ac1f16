// What messages tell people to do, done on the page in a real browser: a credential is stored and replaced, a private repository is added, one that has moved gets its
// new name. A credential that was typed is nowhere on the page afterwards.
import { afterAll, beforeAll, expect, it } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { browserRig, inBrowser, type Size, type Theme, type Visit } from "../../../../test/support/server/browser.ts";
import { hand, SEAL_KEYS } from "../support/api-calls.ts";
import { type Served, serveApp } from "../support/app-server.ts";
import { expectWell, picture } from "../support/page-checks.ts";

const database = await freshDatabase();
const browser = browserRig();
const CANARY = "glpat-canary-Zq81mT0vPw";
let served: Served;

async function visit(place: string, size: Size = "desktop", theme: Theme = "dark"): Promise<Visit> {
  const one = await browser.visit({ origin: served.origin, size, theme });
  await one.goto(`/${place}`);
  return one;
}

const credentials = ({ page }: Visit) => page.locator("details", { hasText: "Credentials of" });

/** Neither in what is shown nor in what is typed. */
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

inBrowser("the page", () => {
  beforeAll(async () => {
    served = await serveApp(database.url, { sealKeys: SEAL_KEYS });
  }, 60_000);
  afterAll(() => served?.close());

  it("stores a credential, and adds a private repository that is read with it", async () => {
    const one = await visit("");
    const { page } = one;
    one.allow(/400/);
    await credentials(one).getByText("Credentials of GitLab and Bitbucket (none stored)").click();
    await credentials(one).getByLabel("Name of the integration").fill("Acme at GitLab");
    await credentials(one).getByLabel("New credential").fill("short");
    await page.getByRole("button", { name: "Store" }).click();
    await credentials(one).getByText("This is shorter than 8 characters").waitFor();
    await credentials(one).getByLabel("New credential").fill(CANARY);
    expect(await credentials(one).getByLabel("New credential").getAttribute("type")).toBe("password");
    await page.keyboard.press("Enter");
    await page.getByRole("status").getByText("Stored. It can be chosen as the integration of a repository.").waitFor();
    await page.getByText("Credentials of GitLab and Bitbucket (1)").waitFor();
    await expectForgotten(one);

    const add = page.getByRole("region", { name: "Add a repository" });
    await add.getByText("Private repository").click();
    await add.getByLabel("Installation").fill("x");
    await add.getByLabel("Full name").fill("group/sub/site.git");
    await add.getByRole("button", { name: "Add and extract" }).click();
    await add.getByText("This is not the number of an installation").waitFor();
    await add.getByLabel("Provider").selectOption("bitbucket");
    await add.getByText("There is none of Bitbucket yet. Store a credential in Organization Settings below.").waitFor();
    await add.getByLabel("Provider").selectOption("gitlab");
    await add.getByLabel("Integration").selectOption({ label: "Acme at GitLab" });
    await expectWell(one, "add-private");
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
    one.expectQuiet();
  });

  it("replaces a credential that was refused, and starts another extraction with the new one", async () => {
    const integration = await integrated("The group's");
    const { body } = await served.api.post("/projects", {
      provider: "gitlab",
      repository: "group/locked",
      integrationId: integration,
    });
    const sentence = "Authentication failed - reconnect your GitLab integration in Organization Settings";
    await hand(served.pool, body.extraction.id, {
      outcome: "failed",
      fatal: true,
      failure: { message: "x", sentence: `Extraction failed: ${sentence}` },
    });
    const before = await sealedOf(integration);
    const one = await visit(`projects/${body.id}`);
    const { page } = one;
    await page.getByRole("alert").getByText(sentence).waitFor();
    await page.getByRole("tab", { name: "Settings" }).click();
    await page.getByRole("heading", { level: 2, name: "Organization Settings" }).waitFor();
    await credentials(one)
      .getByText(/^Credentials of GitLab \(\d+\)$/)
      .click();
    const which = credentials(one).getByLabel("Which integration");
    expect(await which.locator("option:checked").innerText()).toBe("The group's (GitLab)");
    await credentials(one).getByLabel("New credential").fill(CANARY);
    await credentials(one).getByRole("button", { name: "Replace" }).click();
    await page.getByText("Replaced. It counts from the next extraction on.").waitFor();
    await expectForgotten(one);
    await expectWell(one, "replaced");
    const now = await sealedOf(integration);
    expect(now).not.toBe(before);
    await page.getByRole("button", { name: "Start extraction" }).click();
    await page.getByRole("button", { name: "Cancel" }).waitFor();
    const { extraction } = (await served.api.get(`/projects/${body.id}`)).body;
    const { rows } = await served.pool.query("select input from stillwake.jobs where id = $1", [extraction.id]);
    expect(rows[0].input.credential.$sealed).toBe(now);
    await expectForgotten(one);
    one.expectQuiet();
  });

  it("gives a repository that has moved its new name, and another installation or none", async () => {
    const { body } = await served.api.post("/projects", {
      repository: "acme/old",
      installationId: "17",
      extract: false,
    });
    const one = await visit(`projects/${body.id}?tab=settings`);
    const { page } = one;
    one.allow(/400/);
    expect(await page.getByLabel("Installation").inputValue()).toBe("17");
    await page.getByLabel("Full name").fill("https://github.com/acme/new");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("This is not the full name of a repository, such as acme/site").waitFor();
    await page.getByLabel("Full name").fill("acme/new.git");
    await page.getByLabel("Installation").fill("seventeen");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("This is not the number of an installation").waitFor();
    await page.getByLabel("Installation").fill("4711");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("heading", { level: 1, name: "acme/new" }).waitFor();
    await page.getByText("Saved. It counts from the next extraction on.").waitFor();
    expect(await page.getByLabel("Full name").inputValue()).toBe("acme/new");
    await expectWell(one, "moved");
    const read = async () => (await served.api.get(`/projects/${body.id}`)).body;
    expect(await read()).toMatchObject({ repository: "acme/new", installationId: "4711" });
    await page.getByLabel("Installation").fill("");
    await page.getByRole("button", { name: "Save" }).click();
    await expect.poll(async () => (await read()).installationId).toBeNull();
    expect(await credentials(one).count()).toBe(0);
    one.expectQuiet();
  });

  it("chooses another integration for a repository, and removes one that none uses, on a phone as well", async () => {
    const [old, fresh] = [await integrated("Old account", "bitbucket"), await integrated("New account", "bitbucket")];
    const { body } = await served.api.post("/projects", {
      provider: "bitbucket",
      repository: "team/site",
      integrationId: old,
      extract: false,
    });
    const one = await visit(`projects/${body.id}?tab=settings`, "phone", "light");
    const { page } = one;
    one.allow(/409/);
    await credentials(one).getByText("Credentials of Bitbucket (2)").click();
    await page.getByRole("button", { name: "Remove this integration" }).click();
    await page.getByRole("button", { name: "Remove for good" }).click();
    await page.getByRole("alert").getByText("A project uses this integration: team/site").waitFor();
    await page.getByText(/^Choose another integration, or none, in their settings first/).waitFor();
    await expectWell(one, "phone-in-use");
    const chosen = page.getByLabel("Integration", { exact: true });
    expect(await chosen.locator("option").allInnerTexts()).toEqual(["None", "New account", "Old account"]);
    await chosen.selectOption(fresh);
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved. It counts from the next extraction on.").waitFor();
    expect((await served.api.get(`/projects/${body.id}`)).body.integrationId).toBe(fresh);
    await page.getByRole("button", { name: "Remove for good" }).click();
    await page.getByText("Old account was removed.").waitFor();
    await page.getByText("Credentials of Bitbucket (1)").waitFor();
    await expectWell(one, "phone-settings");
    await one.goto("/");
    await page.getByText("Private repository").click();
    await page.getByText(/^Credentials of GitLab and Bitbucket/).click();
    await expectWell(one, "phone-credentials");
  });

  it("says in the server's own words why it can store none", async () => {
    const keyless = await serveApp(database.url);
    try {
      const one = await browser.visit({ origin: keyless.origin });
      one.allow(/409/);
      await one.goto("/");
      await one.page.getByText(/^Credentials of GitLab and Bitbucket/).click();
      await one.page.getByLabel("Name of the integration").fill("Ours");
      await one.page.getByLabel("New credential").fill(CANARY);
      await one.page.getByRole("button", { name: "Store" }).click();
      await one.page.getByRole("alert").getByText("This server has no key to seal credentials with").waitFor();
      await one.page.getByText(/^Set STILLWAKE_SEAL_KEYS for the server and its workers/).waitFor();
      await picture(one, "no-seal-keys");
      one.expectQuiet();
      await one.close();
    } finally {
      await keyless.close();
    }
  });
});
