// Sign-in to the dashboard, the actions of each role, keyboard use, and what the browser may load and execute.
import fs from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, it } from "vitest";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { ROOT } from "../support/processes/build.ts";
import { describeInBrowser, useBrowser, waitUntilLoaded } from "../support/server/browser.ts";
import { type Dashboard, startDashboard } from "../support/server/dashboard-server.ts";
import { type ScenarioIds, scenarios } from "../support/server/scenarios.ts";

const database = await freshDatabase();
const browser = useBrowser();
let dashboard: Dashboard;
let ids: ScenarioIds;

describeInBrowser("the dashboard", () => {
  beforeAll(async () => {
    dashboard = await startDashboard(database);
    ids = await scenarios.busy(dashboard);
  }, 60_000);
  afterAll(() => dashboard?.close());

  it("requires a token, rejects an invalid one, and signs in with a valid one", async () => {
    const visit = await browser.visit({ origin: dashboard.origin });
    visit.allow(/401/);
    const { page } = visit;
    await visit.goto("/pools");
    await page.getByLabel("Token").fill("swt_not-a-valid-token");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").getByText("Invalid or expired token").waitFor();
    await page.getByLabel("Token").fill(dashboard.admin);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Pools", level: 1 }).waitFor();
    expect(new URL(page.url()).pathname).toBe("/pools");
    const cookies = await visit.context.cookies();
    expect(cookies.map(({ httpOnly, sameSite }) => ({ httpOnly, sameSite }))).toEqual([
      { httpOnly: true, sameSite: "Lax" },
    ]);
    // The token is not readable by scripts.
    expect(
      await page.evaluate("JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }])"),
    ).not.toContain(dashboard.admin);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    expect(await visit.context.cookies()).toEqual([]);
    visit.expectNoComplaints();
  });

  const actionNames =
    /^(cancel|retry|pause|resume|enqueue|signal|open|close|reset|rotate|disable|enable|resend|revoke|create|make|new|add|edit|remove)\b/i;

  it("shows a reader no actions, and an operator the permitted ones", async () => {
    const counts: Record<string, number> = {};
    for (const role of ["reader", "operator"] as const) {
      const { token } = await dashboard.sw.tokens.create({ name: role, role });
      const visit = await browser.visit({ origin: dashboard.origin, token });
      const paths = ["/jobs", `/jobs/${ids.running}`, "/pools", "/limits", "/schedules", "/webhooks"];
      counts[role] = 0;
      for (const path of paths) {
        await visit.goto(path);
        await waitUntilLoaded(visit);
        counts[role] += await visit.page.getByRole("main").getByRole("button", { name: actionNames }).count();
      }
      const menu = visit.page.getByRole("navigation", { name: "Pages" });
      expect(await menu.getByRole("link", { name: "Access" }).count(), role).toBe(0);
      expect(await menu.getByRole("link", { name: "Enqueue" }).count(), role).toBe(role === "operator" ? 1 : 0);
      visit.expectNoComplaints();
    }
    expect(counts.reader).toBe(0);
    expect(counts.operator).toBeGreaterThan(3);
  });

  it("has each page at the address of its menu entry", async () => {
    const visit = await browser.visit({ origin: dashboard.origin, token: dashboard.admin });
    await visit.goto("/");
    await waitUntilLoaded(visit);
    const menu = visit.page.getByRole("navigation", { name: "Pages" }).getByRole("link");
    const names = (await menu.allInnerTexts()).map((name) => name.trim());
    expect(names).toEqual(expect.arrayContaining(["Overview", "Jobs", "Limits", "Access"]));
    for (const name of names) {
      await menu.filter({ hasText: new RegExp(`^${name}$`) }).click();
      await expect
        .poll(() => new URL(visit.page.url()).pathname)
        .toBe(name === "Overview" ? "/" : `/${name.toLowerCase()}`);
      await visit.page.reload();
      await waitUntilLoaded(visit);
      expect(await visit.page.getByRole("heading", { level: 1 }).count(), name).toBe(1);
    }
    visit.expectNoComplaints();
  });

  it("works by keyboard: from the list to a job and to the filters of its log", async () => {
    const visit = await browser.visit({ origin: dashboard.origin, token: dashboard.admin });
    const { page } = visit;
    await visit.goto("/jobs");
    await waitUntilLoaded(visit);
    const focused = () =>
      page.evaluate<{ href: string; text: string; ring: boolean }>(`(() => {
        let one = document.activeElement;
        while (one.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
        const { outlineStyle, boxShadow } = getComputedStyle(one);
        return { href: one.getAttribute("href") ?? "", text: one.textContent, ring: outlineStyle !== "none" || boxShadow !== "none" };
      })()`);
    const tabTo = async (what: string, isTarget: (element: { href: string; text: string }) => boolean) => {
      for (let press = 0; press < 80; press++) {
        await page.keyboard.press("Tab");
        const element = await focused();
        if (!isTarget(element)) continue;
        expect(element.ring, `${what} has a focus ring`).toBe(true);
        return;
      }
      throw new Error(`No ${what} was reached in 80 presses`);
    };
    await tabTo("a job", ({ href }) => /\/jobs\/[0-9a-f-]{36}/.test(href));
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/jobs\/[0-9a-f-]{36}$/);
    await waitUntilLoaded(visit);
    await tabTo("the filter of levels", ({ text }) => /^Info/.test(text));
    await page.keyboard.press("Space");
    await page.getByRole("button", { name: /^Info/, pressed: false }).waitFor();
    visit.expectNoComplaints();
  });

  it("downloads artifacts with scripts instead of opening them", async () => {
    const visit = await browser.visit({ origin: dashboard.origin, token: dashboard.admin });
    const { page } = visit;
    await visit.goto("/");
    for (const name of ["report.html", "logo.svg"]) {
      const url = `${dashboard.origin}/v1/jobs/${ids.done}/artifacts/${name}`;
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.evaluate(`location.assign(${JSON.stringify(url)})`),
      ]);
      expect(download.suggestedFilename()).toBe(name);
      expect(fs.readFileSync(await download.path(), "utf8")).toContain("<script>");
    }
    expect(new URL(page.url()).pathname).toBe("/");
    expect(await page.title()).not.toBe("ran");
    // The response headers also prevent execution.
    const response = await visit.context.request.get(`/v1/jobs/${ids.done}/artifacts/logo.svg`);
    expect(response.headers()).toMatchObject({
      "content-disposition": expect.stringContaining("attachment"),
      "content-security-policy": expect.stringContaining("sandbox"),
      "x-content-type-options": "nosniff",
    });
    visit.expectNoComplaints();
  });

  it("is served with a content security policy against inline scripts", async () => {
    const response = await fetch(`${dashboard.origin}/jobs/anything`);
    const policy = response.headers.get("content-security-policy")!;
    expect(policy).toMatch(/script-src 'self'/);
    expect(policy).not.toMatch(/unsafe|http|\*/);
    expect(await response.text()).not.toMatch(/<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=/);
  });
});

it("has at most 250 KB in all pages together, gzipped", () => {
  const dist = path.join(ROOT, "dist/web");
  const zipped = (file: string) => gzipSync(fs.readFileSync(path.join(dist, file))).length;
  const entry = fs.readFileSync(path.join(dist, "index.html"), "utf8");
  const first = [...entry.matchAll(/(?:src|href)="\.?\/?(assets\/[^"]+)"/g)].map(([, file]) => file!);
  const all = fs.readdirSync(path.join(dist, "assets")).map((file) => `assets/${file}`);
  const total = (files: string[]) => files.reduce((sum, file) => sum + zipped(file), 0);
  recordFigure("dashboard, first page, gzipped", Math.round(total(first) / 1000), "KB");
  recordFigure("dashboard, every page, gzipped", Math.round(total(all) / 1000), "KB");
  recordFigure("embed.js, gzipped", Math.round(zipped("embed.js") / 1000), "KB");
  expect(first.length).toBeGreaterThan(0);
  expect(total(all)).toBeLessThan(250_000);
});
