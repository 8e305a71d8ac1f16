// The page in a real browser, with real workers on the sample repository and a GitHub that allows twelve searches in four seconds: an address is pasted, commits are
// counted, contributors are looked up as the budget allows, and the board is whole. Then nothing is asked any more.
import fs from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { ROOT } from "../../../../test/support/processes/build.ts";
import {
  axeIssues,
  browserRig,
  inBrowser,
  type Size,
  settled,
  type Theme,
  type Visit,
} from "../../../../test/support/server/browser.ts";
import { makeSampleRepository, SAMPLE, SAMPLE_USERS } from "../../src/demo/sample.ts";
import { AUTHORS } from "../../src/demo/sample-people.ts";
import { serve } from "../support/app-server.ts";
import { stage } from "../support/leaderboards.ts";

const place = await stage();
const { pool, stillwake } = place;
const github = await place.github({
  users: SAMPLE_USERS,
  search: { limit: 12, windowMs: 4000 },
  // Slow enough for somebody to see what is left.
  onCall: () => ({ delayMs: 150 }),
});
const served = await serve(place, { base: "/leaderboard/", sample: SAMPLE });
const browser = browserRig();
const LONG = 90_000;
/** By an address of GitHub's own: they need no call. */
const NAMED = AUTHORS.filter(({ emails: [email] }) => email.endsWith("@users.noreply.github.com")).length;

/** What somebody may look at afterwards: STILLWAKE_SCREENSHOTS names a folder. */
async function picture({ page }: Visit, name: string): Promise<void> {
  const { STILLWAKE_SCREENSHOTS: folder } = process.env;
  if (!folder) return;
  fs.mkdirSync(path.resolve(ROOT, folder), { recursive: true });
  await page.screenshot({ path: path.resolve(ROOT, folder, `leaderboard-${name}.png`), fullPage: true });
}

async function visit(at: string, size: Size = "desktop", theme: Theme = "dark"): Promise<Visit> {
  const one = await browser.visit({ origin: served.origin, size, theme });
  await one.goto(`/leaderboard/${at}`);
  return one;
}

/** Quiet, within its width, and open to everybody. */
async function expectWell(one: Visit, name: string): Promise<void> {
  await picture(one, name);
  expect(await axeIssues(one.page)).toEqual([]);
  expect(await one.page.evaluate<number>("document.documentElement.scrollWidth - innerWidth")).toBeLessThanOrEqual(0);
  one.expectQuiet();
}

const line = ({ page }: Visit, text: string | RegExp) => page.locator(".line .message").getByText(text).first();
const rowsOf = ({ page }: Visit) => page.getByRole("table", { name: "Contributors" }).locator("tbody tr");
const idOf = ({ page }: Visit) => new URL(page.url()).pathname.split("/").at(-1)!;

inBrowser("the page", () => {
  beforeAll(() => makeSampleRepository({ root: place.root }), LONG);
  const workers = { commits: place.worker("commits"), users: place.worker("users") };
  afterAll(() => workers.commits.stop());
  let sample = "";

  it("ranks what is pasted: commits are counted, contributors looked up within the budget, and then it is whole", {
    timeout: 2 * LONG,
  }, async () => {
    const one = await visit("");
    const { page } = one;
    await page.getByText("There is no leaderboard yet").waitFor();
    await settled(one);
    await expectWell(one, "empty");
    await page.getByLabel("Repository").fill(" https://github.com/Stillwake-Sample/Lighthouse.git ");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: SAMPLE.repository }).waitFor();
    sample = idOf(one);
    // Nobody is at it yet.
    await page.getByText("Begins as soon as a worker is there").waitFor();
    await page.getByText("Begins when the commits are counted").waitFor();
    await page.getByText("Nobody is ranked yet").waitFor();
    expect(await page.getByRole("button", { name: "Read again" }).count()).toBe(0);
    await expectWell(one, "waiting");

    await workers.commits.start();
    await line(one, "1,502 commits counted").waitFor({ timeout: LONG });
    await line(one, "1,502 commits by 60 authors stored").waitFor();
    await page.getByText("1,502 commits", { exact: true }).waitFor();
    await page.getByText(`${NAMED} of 60 e-mails looked up`).waitFor();
    await expect.poll(() => rowsOf(one).count()).toBe(60);
    expect(await page.getByText("not looked up yet").count()).toBe(60 - NAMED);
    await page.getByText("How many calls are left is known after the first one.").waitFor();
    await expectWell(one, "counted");

    onTestFinished(() => workers.users.stop());
    await workers.users.start();
    await page.getByText(/^\d+ of 12 calls left, renewed (at|since) \d\d:\d\d:\d\d$/).waitFor({ timeout: LONG });
    await page.getByText(/GitHub's budget is used up - goes on at \d\d:\d\d:\d\d \((in \d s|any moment)\)/).waitFor();
    await page.getByText("waits for GitHub", { exact: true }).waitFor();
    const waiting = page.getByText("not looked up yet");
    const left = await waiting.count();
    expect([left > 0, left < 60 - NAMED]).toEqual([true, true]);
    await picture(one, "budget-used-up");
    await page.getByText("60 of 60 e-mails looked up").waitFor({ timeout: LONG });
    await page.getByText("complete", { exact: true }).waitFor();
    expect(await waiting.count()).toBe(0);

    // Sixty addresses are sixty people, since .mailmap has joined those who had two. They are called as in their newest commit.
    const [first, second] = (await rowsOf(one).allInnerTexts()) as [string, string];
    expect(first).toMatch(/^1\s+HS\s+Henrike Aslund \(på sjön\)\s+henrike-lh\s+\d+\s+\d+(\.\d)?\s?%$/);
    expect(second).toMatch(/^2\s+TW\s+Tomasz Wróblewicz\s+twroblewicz-lh\s+\d+\s+\d+(\.\d)?\s?%$/);
    const link = rowsOf(one).first().getByRole("link");
    expect(await link.getAttribute("href")).toBe("https://github.com/henrike-lh");
    expect(await link.getAttribute("rel")).toBe("noopener noreferrer");
    expect(await page.getByText("no account found").count()).toBeGreaterThan(5);
    expect(await page.title()).toContain("complete");
    expect(await page.locator("body").innerText()).not.toContain("@");
    await settled(one);
    await expectWell(one, "complete");
    expect(github.calls.filter(({ refused }) => refused).length).toBeLessThanOrEqual(2);
  });

  it("reads again at a click: nothing is new, everybody is known, and no call is made", { timeout: LONG }, async () => {
    const one = await visit(`boards/${sample}`);
    const calls = github.calls.length;
    const before = (await served.get(`/leaderboard/${sample}`)).body.jobs.commits;
    await one.page.getByRole("button", { name: "Read again" }).click();
    await line(one, "0 new commits counted").waitFor({ timeout: LONG });
    await line(one, "Leaderboard complete - everybody is known").waitFor();
    await one.page.getByText("complete", { exact: true }).waitFor();
    expect((await served.get(`/leaderboard/${sample}`)).body.jobs.commits).not.toBe(before);
    expect(await rowsOf(one).count()).toBe(60);
    expect(github.calls.length).toBe(calls);
    await settled(one);
    one.expectQuiet();
  });

  it("shows what has failed with its words, and one that is not there", async () => {
    // What comes after this is held still.
    onTestFinished(() => workers.commits.stop());
    const one = await visit("");
    await one.page.getByLabel("Repository").fill("acme/nowhere");
    await one.page.keyboard.press("Enter");
    await one.page.getByText("This repository could not be ranked").waitFor({ timeout: LONG });
    await one.page.getByRole("alert").getByText("Repository not found").waitFor();
    await settled(one);
    await expectWell(one, "failed");
    one.allow(/404/);
    await one.goto("/leaderboard/boards/01a1e107-2508-4182-ae66-db7bbe9aa49e");
    await one.page.getByRole("heading", { name: "There is no such leaderboard" }).waitFor();
    await one.page.getByRole("link", { name: "See all leaderboards" }).click();
    const table = one.page.getByRole("table", { name: "Leaderboards" });
    await table.getByRole("row", { name: /acme\/nowhere.*failed.*Repository not found/ }).waitFor();
    await table.getByRole("row", { name: /lighthouse.*complete.*1,502.*60/ }).waitFor();
    one.expectQuiet();
  });

  it("asks for nothing when it is complete, however long it is looked at, and opens the log when somebody wants it", async () => {
    const one = await browser.visit({ origin: served.origin });
    await one.page.clock.install();
    const asked: string[] = [];
    one.page.on("request", (request) => asked.push(request.url()));
    await one.goto(`/leaderboard/boards/${sample}`);
    await one.page.getByText("60 of 60 e-mails looked up").waitFor();
    await settled(one);
    expect(asked.filter((url) => url.includes("/api/leaderboard/"))).toHaveLength(1);
    asked.length = 0;
    await one.page.clock.runFor("10:00");
    await settled(one);
    expect(asked).toEqual([]);

    await one.page.getByText("Log of the commits").click();
    await line(one, "0 new commits counted").waitFor();
    // One that is in work is asked for again and again.
    const { id } = await place.counted("acme/in-work", { "ada@example.com": 1 });
    await one.goto(`/leaderboard/boards/${id}`);
    await one.page.getByText("0 of 1 e-mail looked up").waitFor();
    asked.length = 0;
    for (let second = 0; second < 5; second++) {
      await one.page.clock.runFor("00:01");
      await settled(one);
    }
    expect(asked.length).toBeGreaterThanOrEqual(3);
    one.expectQuiet();
  });

  it("says at the field what is wrong with an address, and takes the next one", async () => {
    const one = await visit("");
    one.allow(/400/);
    const field = one.page.getByLabel("Repository");
    for (const [text, words] of [
      ["", "This is empty"],
      ["https://gitlab.com/acme/site", "This names gitlab.com, and contributors can be looked up at github.com alone"],
      ["acme", "This does not name a repository: an owner and a name are needed"],
    ] as const) {
      await field.fill(text);
      await one.page.getByRole("button", { name: "Rank", exact: true }).click();
      await one.page.getByRole("alert").getByText(words).waitFor();
      expect(await field.getAttribute("aria-invalid")).toBe("true");
    }
    await one.page
      .getByRole("alert")
      .getByText("Write it as https://github.com/owner/name, or as owner/name")
      .waitFor();
    await expectWell(one, "refused");
    await one.page.getByRole("button", { name: "Rank the sample repository" }).click();
    await one.page.getByRole("heading", { level: 1, name: SAMPLE.repository }).waitFor();
    expect(idOf(one)).toBe(sample);
  });

  it("raises an alert for what has been in work for more than an hour, and looks it up again at a click", {
    timeout: LONG,
  }, async () => {
    const { id, jobs } = await place.counted("acme/stuck", {
      "lost@example.com": 2,
      "found@users.noreply.github.com": 1,
    });
    await pool.query("update leaderboard.repositories set status_since = now() - interval '2 hours' where id = $1", [
      id,
    ]);
    await pool.query(
      "update leaderboard.commit_data set trouble = 'HTTP 500' where repository_id = $1 and author_email = 'lost@example.com'",
      [id],
    );
    const one = await visit("", "phone", "light");
    const { page } = one;
    const alert = page.getByRole("alert");
    await alert.getByText("acme/stuck has been in work for more than an hour.").waitFor();
    await expectWell(one, "stuck-list-phone");
    await alert.getByRole("link", { name: "acme/stuck" }).click();
    await alert.getByText("In work for more than an hour").waitFor();
    await page.getByText("1 e-mail could not be looked up.").waitFor();
    await expectWell(one, "stuck-phone");
    await page.goBack();
    const again = async () => {
      const dealt = page.waitForResponse((answer) => answer.url().endsWith(`/leaderboard/${id}/users`));
      await alert.getByRole("button", { name: "Look up again acme/stuck" }).click();
      return (await dealt).json();
    };
    expect(await again()).toEqual({ id, lookups: 0, jobs: 0 });
    await alert.getByText("Whoever is left is being looked up already").waitFor();
    await expectWell(one, "stuck-underway-phone");
    await stillwake.cancel(jobs[0]!);
    expect(await again()).toEqual({ id, lookups: 1, jobs: 1 });
    const worker = place.worker("users");
    onTestFinished(() => worker.stop());
    await worker.start();
    await page
      .getByRole("table", { name: "Leaderboards" })
      .getByRole("row", { name: /acme\/stuck.*complete/ })
      .waitFor();
    await alert.waitFor({ state: "detached" });
    one.expectQuiet();
  });

  it("shows a hundred at a time, and the rest when somebody wants it, on a phone too", async () => {
    const counts = Array.from({ length: 130 }, (_, n) => [`p${n}@example.com`, 1000 - n]);
    const { id } = await place.counted("acme/many", Object.fromEntries(counts));
    const one = await visit(`boards/${id}`, "phone");
    await one.page.getByText("100 of 130", { exact: true }).waitFor();
    await one.page.getByRole("button", { name: "Show more" }).click();
    await one.page.getByText("130 in all").waitFor();
    expect(await rowsOf(one).count()).toBe(130);
    expect(await one.page.getByRole("button", { name: "Show more" }).count()).toBe(0);
    await expectWell(one, "many-phone");
    await one.goto(`/leaderboard/boards/${sample}`);
    await one.page.getByText("60 of 60 e-mails looked up").waitFor();
    await settled(one);
    await expectWell(one, "complete-phone");
  });
});
