// How people come in to the dashboard, what they may do there by their role, and that nothing of it loads or runs what it should not.
import fs from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, it } from "vitest";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { ROOT } from "../support/processes/build.ts";
import { browserRig, inBrowser, settled } from "../support/server/browser.ts";
import { openStage, type Stage } from "../support/server/dashboard-server.ts";
import { type Jobs, scenes } from "../support/server/scenes.ts";

const database = await freshDatabase();
const browser = browserRig();
let stage: Stage;
let jobs: Jobs;

inBrowser("the dashboard", () => {
  beforeAll(async () => {
    stage = await openStage(database);
    jobs = await scenes.busy(stage);
  }, 60_000);
  afterAll(() => stage?.clear());

  it("asks whoever comes for a token, says what is wrong with one that opens nothing, and lets in who has one", async () => {
    const visit = await browser.visit({ origin: stage.origin });
    visit.allow(/401/);
    const { page } = visit;
    await visit.goto("/pools");
    await page.getByLabel("Token").fill("swt_not-a-token-of-this-house");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").getByText("opens nothing").waitFor();
    await page.getByLabel("Token").fill(stage.admin);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Pools", level: 1 }).waitFor();
    expect(new URL(page.url()).pathname).toBe("/pools");
    const cookies = await visit.context.cookies();
    expect(cookies.map(({ httpOnly, sameSite }) => ({ httpOnly, sameSite }))).toEqual([
      { httpOnly: true, sameSite: "Lax" },
    ]);
    // Nowhere that a script could read.
    expect(
      await page.evaluate("JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }])"),
    ).not.toContain(stage.admin);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    expect(await visit.context.cookies()).toEqual([]);
    visit.expectQuiet();
  });

  const acts =
    /^(cancel|retry|pause|resume|enqueue|signal|open|close|reset|rotate|disable|enable|resend|revoke|create|make|new|add|edit|remove)\b/i;

  it("shows a reader no button that would be refused, and an operator those that work", async () => {
    const counts: Record<string, number> = {};
    for (const role of ["reader", "operator"] as const) {
      const { token } = await stage.sw.tokens.create({ name: role, role });
      const visit = await browser.visit({ origin: stage.origin, token });
      const places = ["/jobs", `/jobs/${jobs.running}`, "/pools", "/flow", "/schedules", "/webhooks"];
      counts[role] = 0;
      for (const place of places) {
        await visit.goto(place);
        await settled(visit);
        counts[role] += await visit.page.getByRole("main").getByRole("button", { name: acts }).count();
      }
      const menu = visit.page.getByRole("navigation", { name: "Pages" });
      expect(await menu.getByRole("link", { name: "Access" }).count(), role).toBe(0);
      expect(await menu.getByRole("link", { name: "Enqueue" }).count(), role).toBe(role === "operator" ? 1 : 0);
      visit.expectQuiet();
    }
    expect(counts.reader).toBe(0);
    expect(counts.operator).toBeGreaterThan(3);
  });

  it("is gone through by keyboard alone: from the list to a job, and to the lines that matter", async () => {
    const visit = await browser.visit({ origin: stage.origin, token: stage.admin });
    const { page } = visit;
    await visit.goto("/jobs");
    await settled(visit);
    const focused = () =>
      page.evaluate<{ href: string; text: string; ring: boolean }>(`(() => {
        let one = document.activeElement;
        while (one.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
        const { outlineStyle, boxShadow } = getComputedStyle(one);
        return { href: one.getAttribute("href") ?? "", text: one.textContent, ring: outlineStyle !== "none" || boxShadow !== "none" };
      })()`);
    const tabTo = async (what: string, isIt: (one: { href: string; text: string }) => boolean) => {
      for (let press = 0; press < 80; press++) {
        await page.keyboard.press("Tab");
        const one = await focused();
        if (!isIt(one)) continue;
        expect(one.ring, `${what} shows that it has the focus`).toBe(true);
        return;
      }
      throw new Error(`No ${what} was reached in 80 presses`);
    };
    await tabTo("a job", ({ href }) => /\/jobs\/[0-9a-f-]{36}/.test(href));
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/jobs\/[0-9a-f-]{36}$/);
    await settled(visit);
    await tabTo("the filter of levels", ({ text }) => /^Info/.test(text));
    await page.keyboard.press("Space");
    await page.getByRole("button", { name: /^Info/, pressed: false }).waitFor();
    visit.expectQuiet();
  });

  it("S33: artifacts that are pages or pictures with scripts are saved, not opened, and run nothing", async () => {
    const visit = await browser.visit({ origin: stage.origin, token: stage.admin });
    const { page } = visit;
    await visit.goto("/");
    for (const name of ["report.html", "logo.svg"]) {
      const address = `${stage.origin}/v1/jobs/${jobs.done}/artifacts/${name}`;
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.evaluate(`location.assign(${JSON.stringify(address)})`),
      ]);
      expect(download.suggestedFilename()).toBe(name);
      expect(fs.readFileSync(await download.path(), "utf8")).toContain("<script>");
    }
    expect(new URL(page.url()).pathname).toBe("/");
    expect(await page.title()).not.toBe("ran");
    // What tries to look at it all the same is stopped by what comes with it.
    const answer = await visit.context.request.get(`/v1/jobs/${jobs.done}/artifacts/logo.svg`);
    expect(answer.headers()).toMatchObject({
      "content-disposition": expect.stringContaining("attachment"),
      "content-security-policy": expect.stringContaining("sandbox"),
      "x-content-type-options": "nosniff",
    });
    visit.expectQuiet();
  });

  it("S9: is served with a policy that lets no text become a script", async () => {
    const answer = await fetch(`${stage.origin}/jobs/anything`);
    const policy = answer.headers.get("content-security-policy")!;
    expect(policy).toMatch(/script-src 'self'/);
    expect(policy).not.toMatch(/unsafe|http|\*/);
    expect(await answer.text()).not.toMatch(/<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=/);
  });
});

it("weighs no more than 250 KB, all its pages together", () => {
  const home = path.join(ROOT, "dist/web");
  const zipped = (file: string) => gzipSync(fs.readFileSync(path.join(home, file))).length;
  const entry = fs.readFileSync(path.join(home, "index.html"), "utf8");
  const first = [...entry.matchAll(/(?:src|href)="\.?\/?(assets\/[^"]+)"/g)].map(([, file]) => file!);
  const all = fs.readdirSync(path.join(home, "assets")).map((file) => `assets/${file}`);
  const total = (files: string[]) => files.reduce((sum, file) => sum + zipped(file), 0);
  recordFigure("dashboard, first page, gzipped", Math.round(total(first) / 1000), "KB");
  recordFigure("dashboard, every page, gzipped", Math.round(total(all) / 1000), "KB");
  recordFigure("embed.js, gzipped", Math.round(zipped("embed.js") / 1000), "KB");
  expect(first.length).toBeGreaterThan(0);
  expect(total(all)).toBeLessThan(250_000);
});
