// The page in a browser, with workers on the sample repository and a fake GitHub that allows twelve searches in four
// seconds: a URL is ranked, contributors are looked up within the rate limit, and a complete page sends no requests.
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import {
  describeInBrowser,
  type Size,
  type Theme,
  useBrowser,
  type Visit,
  waitUntilLoaded,
} from "../../../../test/support/server/browser.ts";
import { pageChecks } from "../../../kit/test/support/page-checks.ts";
import { makeSampleRepository, SAMPLE, SAMPLE_USERS } from "../../src/demo/sample.ts";
import { AUTHORS } from "../../src/demo/sample-people.ts";
import { serveApi } from "../support/app-server.ts";
import { setUpLeaderboards } from "../support/leaderboards.ts";

const setup = await setUpLeaderboards();
const { pool, stillwake } = setup;
const github = await setup.serveGitHub({
  users: SAMPLE_USERS,
  search: { limit: 12, windowMs: 4000 },
  // Slow enough to observe the remaining calls.
  onCall: () => ({ delayMs: 150 }),
});
const served = await serveApi(setup, { base: "/leaderboard/", sample: SAMPLE });
const browser = useBrowser();
const { takeScreenshot, expectGoodPage } = pageChecks("leaderboard");
const LONG = 90_000;
/** Authors with a noreply address of GitHub: they need no call. */
const NOREPLY = AUTHORS.filter(({ emails: [email] }) => email.endsWith("@users.noreply.github.com")).length;

async function visit(at: string, size: Size = "desktop", theme: Theme = "dark"): Promise<Visit> {
  const opened = await browser.visit({ origin: served.origin, size, theme });
  await opened.goto(`/leaderboard/${at}`);
  return opened;
}

const line = ({ page }: Visit, text: string | RegExp) => page.locator(".line .message").getByText(text).first();
const rowsOf = ({ page }: Visit) => page.getByRole("table", { name: "Contributors" }).locator("tbody tr");
const idOf = ({ page }: Visit) => new URL(page.url()).pathname.split("/").at(-1)!;

describeInBrowser("the page", () => {
  beforeAll(() => makeSampleRepository({ root: setup.root }), LONG);
  const workers = { commits: setup.worker("commits"), users: setup.worker("users") };
  afterAll(() => workers.commits.stop());
  let sample = "";

  it("counts the commits of a pasted URL and looks up contributors within the rate limit", {
    timeout: 2 * LONG,
  }, async () => {
    const opened = await visit("");
    const { page } = opened;
    await page.getByText("No leaderboards yet").waitFor();
    await expectGoodPage(opened, "empty");
    await page.getByLabel("Repository").fill(" https://github.com/Stillwake-Sample/Lighthouse.git ");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: SAMPLE.repository }).waitFor();
    sample = idOf(opened);
    // No worker has started.
    await page.getByText("Starts when a worker is available").waitFor();
    await page.getByText("Starts when the commits are counted").waitFor();
    await page.getByText("No ranking yet").waitFor();
    expect(await page.getByRole("button", { name: "Read again" }).count()).toBe(0);
    await expectGoodPage(opened, "waiting");

    await workers.commits.start();
    await line(opened, "1,502 commits counted").waitFor({ timeout: LONG });
    await line(opened, "1,502 commits by 60 authors stored").waitFor();
    await page.getByText("1,502 commits", { exact: true }).waitFor();
    await page.getByText(`${NOREPLY} of 60 e-mails looked up`).waitFor();
    await expect.poll(() => rowsOf(opened).count()).toBe(60);
    expect(await page.getByText("not looked up yet").count()).toBe(60 - NOREPLY);
    await page.getByText("The number of remaining calls is known after the first call.").waitFor();
    await expectGoodPage(opened, "counted");

    onTestFinished(() => workers.users.stop());
    await workers.users.start();
    await page.getByText(/^\d+ of 12 calls left, resets? at \d\d:\d\d:\d\d$/).waitFor({ timeout: LONG });
    await page.getByText(/GitHub's quota is used up: resumes at \d\d:\d\d:\d\d \((in \d s|any moment)\)/).waitFor();
    await page.getByText("waits for GitHub", { exact: true }).waitFor();
    const waiting = page.getByText("not looked up yet");
    const left = await waiting.count();
    expect([left > 0, left < 60 - NOREPLY]).toEqual([true, true]);
    await takeScreenshot(opened, "quota-used-up");
    await page.getByText("60 of 60 e-mails looked up").waitFor({ timeout: LONG });
    await page.getByText("complete", { exact: true }).waitFor();
    expect(await waiting.count()).toBe(0);

    // 60 addresses are 60 people, because .mailmap merges duplicates. Names are those of the newest commit.
    const [first, second] = (await rowsOf(opened).allInnerTexts()) as [string, string];
    expect(first).toMatch(/^1\s+HS\s+Henrike Aslund \(på sjön\)\s+henrike-lh\s+\d+\s+\d+(\.\d)?\s?%$/);
    expect(second).toMatch(/^2\s+TW\s+Tomasz Wróblewicz\s+twroblewicz-lh\s+\d+\s+\d+(\.\d)?\s?%$/);
    const link = rowsOf(opened).first().getByRole("link");
    expect(await link.getAttribute("href")).toBe("https://github.com/henrike-lh");
    expect(await link.getAttribute("rel")).toBe("noopener noreferrer");
    expect(await page.getByText("no account found").count()).toBeGreaterThan(5);
    expect(await page.title()).toContain("complete");
    expect(await page.locator("body").innerText()).not.toContain("@");
    await expectGoodPage(opened, "complete");
    expect(github.calls.filter(({ refused }) => refused).length).toBeLessThanOrEqual(2);
  });

  it("reads a repository again without new commits and without calls", { timeout: LONG }, async () => {
    const opened = await visit(`boards/${sample}`);
    const calls = github.calls.length;
    const before = (await served.get(`/leaderboard/${sample}`)).body.jobs.commits;
    await opened.page.getByRole("button", { name: "Read again" }).click();
    await line(opened, "0 new commits counted").waitFor({ timeout: LONG });
    await line(opened, "Leaderboard complete - all contributors are known").waitFor();
    await opened.page.getByText("complete", { exact: true }).waitFor();
    expect((await served.get(`/leaderboard/${sample}`)).body.jobs.commits).not.toBe(before);
    expect(await rowsOf(opened).count()).toBe(60);
    expect(github.calls.length).toBe(calls);
    await waitUntilLoaded(opened);
    opened.expectNoComplaints();
  });

  it("shows the reason of a failure, and a missing leaderboard", async () => {
    // The following tests need a stopped worker.
    onTestFinished(() => workers.commits.stop());
    const opened = await visit("");
    await opened.page.getByLabel("Repository").fill("acme/nowhere");
    await opened.page.keyboard.press("Enter");
    await opened.page.getByText("This repository could not be ranked").waitFor({ timeout: LONG });
    await opened.page.getByRole("alert").getByText("Repository not found").waitFor();
    await expectGoodPage(opened, "failed");
    opened.allow(/404/);
    await opened.goto("/leaderboard/boards/01a1e107-2508-4182-ae66-db7bbe9aa49e");
    await opened.page.getByRole("heading", { name: "Leaderboard not found" }).waitFor();
    await opened.page.getByRole("link", { name: "See all leaderboards" }).click();
    const table = opened.page.getByRole("table", { name: "Leaderboards" });
    await table.getByRole("row", { name: /acme\/nowhere.*failed.*Repository not found/ }).waitFor();
    await table.getByRole("row", { name: /lighthouse.*complete.*1,502.*60/ }).waitFor();
    opened.expectNoComplaints();
  });

  it("sends no requests when it is complete, and follows the log only when it is opened", async () => {
    const opened = await browser.visit({ origin: served.origin });
    await opened.page.clock.install();
    const asked: string[] = [];
    opened.page.on("request", (request) => asked.push(request.url()));
    await opened.goto(`/leaderboard/boards/${sample}`);
    await opened.page.getByText("60 of 60 e-mails looked up").waitFor();
    await waitUntilLoaded(opened);
    expect(asked.filter((url) => url.includes("/api/leaderboard/"))).toHaveLength(1);
    asked.length = 0;
    await opened.page.clock.runFor("10:00");
    await waitUntilLoaded(opened);
    expect(asked).toEqual([]);

    await opened.page.getByText("Commit log").click();
    await line(opened, "0 new commits counted").waitFor();
    // A leaderboard in progress is polled.
    const { id } = await setup.addCounted("acme/in-work", { "ada@example.com": 1 });
    await opened.goto(`/leaderboard/boards/${id}`);
    await opened.page.getByText("0 of 1 e-mail looked up").waitFor();
    asked.length = 0;
    for (let second = 0; second < 6; second++) {
      await opened.page.clock.runFor("00:01");
      await waitUntilLoaded(opened);
    }
    expect(asked.length).toBeGreaterThanOrEqual(3);
    opened.expectNoComplaints();
  });

  it("shows at the field what is wrong with a URL, and accepts the next one", async () => {
    const opened = await visit("");
    opened.allow(/400/);
    const field = opened.page.getByLabel("Repository");
    for (const [text, message] of [
      ["", "This is empty"],
      [
        "https://gitlab.com/acme/site",
        "This is a URL of gitlab.com, but only repositories of github.com are supported",
      ],
      ["acme", "This must contain an owner and a repository name"],
    ] as const) {
      await field.fill(text);
      await opened.page.getByRole("button", { name: "Rank", exact: true }).click();
      await opened.page.getByRole("alert").getByText(message).waitFor();
      expect(await field.getAttribute("aria-invalid")).toBe("true");
    }
    await opened.page
      .getByRole("alert")
      .getByText("Write it as https://github.com/owner/name, or as owner/name")
      .waitFor();
    await expectGoodPage(opened, "refused");
    await opened.page.getByRole("button", { name: "Rank the sample repository" }).click();
    await opened.page.getByRole("heading", { level: 1, name: SAMPLE.repository }).waitFor();
    expect(idOf(opened)).toBe(sample);
  });

  it("shows an alert for leaderboards in progress for more than an hour, and looks up again", {
    timeout: LONG,
  }, async () => {
    const { id, jobs } = await setup.addCounted("acme/stuck", {
      "lost@example.com": 2,
      "found@users.noreply.github.com": 1,
    });
    await pool.query("update leaderboard.repositories set status_since = now() - interval '2 hours' where id = $1", [
      id,
    ]);
    await pool.query(
      "update leaderboard.commit_data set lookup_error = 'HTTP 500' where repository_id = $1 and author_email = 'lost@example.com'",
      [id],
    );
    const opened = await visit("", "phone", "light");
    const { page } = opened;
    const alert = page.getByRole("alert");
    await alert.getByText("acme/stuck has been in progress for more than an hour.").waitFor();
    await expectGoodPage(opened, "stuck-list-phone");
    await alert.getByRole("link", { name: "acme/stuck" }).click();
    await alert.getByText("In progress for more than an hour").waitFor();
    await page.getByText("1 e-mail could not be looked up.").waitFor();
    await expectGoodPage(opened, "stuck-phone");
    await page.goBack();
    const again = async () => {
      const dealt = page.waitForResponse((answer) => answer.url().endsWith(`/leaderboard/${id}/users`));
      await alert.getByRole("button", { name: "Look up again acme/stuck" }).click();
      return (await dealt).json();
    };
    expect(await again()).toEqual({ id, lookups: 0, jobs: 0 });
    await alert.getByText("The remaining e-mails are already being looked up").waitFor();
    await expectGoodPage(opened, "stuck-underway-phone");
    await stillwake.cancel(jobs[0]!);
    expect(await again()).toEqual({ id, lookups: 1, jobs: 1 });
    const worker = setup.worker("users");
    onTestFinished(() => worker.stop());
    await worker.start();
    await page
      .getByRole("table", { name: "Leaderboards" })
      .getByRole("row", { name: /acme\/stuck.*complete/ })
      .waitFor();
    await alert.waitFor({ state: "detached" });
    opened.expectNoComplaints();
  });

  it("shows a hundred rows at a time, also on a phone", async () => {
    const counts = Array.from({ length: 130 }, (_, n) => [`p${n}@example.com`, 1000 - n]);
    const { id } = await setup.addCounted("acme/many", Object.fromEntries(counts));
    const opened = await visit(`boards/${id}`, "phone");
    await opened.page.getByText("100 of 130", { exact: true }).waitFor();
    await opened.page.getByRole("button", { name: "Show more" }).click();
    await opened.page.getByText("130 in total").waitFor();
    expect(await rowsOf(opened).count()).toBe(130);
    expect(await opened.page.getByRole("button", { name: "Show more" }).count()).toBe(0);
    await expectGoodPage(opened, "many-phone");
    await opened.goto(`/leaderboard/boards/${sample}`);
    await opened.page.getByText("60 of 60 e-mails looked up").waitFor();
    await expectGoodPage(opened, "complete-phone");
  });
});
