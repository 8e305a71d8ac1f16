// Scrolls the list of 100,000 jobs and a log of 100,000 lines and records the frame times. They depend on the machine,
// so only a standstill fails.
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { describeInBrowser, useBrowser, waitUntilLoaded } from "../support/server/browser.ts";
import { type Dashboard, startDashboard } from "../support/server/dashboard-server.ts";
import { type ScenarioIds, scenarios } from "../support/server/scenarios.ts";

const database = await freshDatabase();
const browser = useBrowser();
const FRAMES = 120;
const COUNT = 100_000;
let dashboard: Dashboard;
let ids: ScenarioIds;

describeInBrowser(`with ${COUNT} rows`, () => {
  beforeAll(async () => {
    dashboard = await startDashboard(database);
    ids = { ...(await scenarios.many(dashboard, COUNT)), ...(await scenarios.long(dashboard, COUNT)) };
  }, 120_000);
  afterAll(() => dashboard?.close());

  it("a log loads, can be scrolled and searched", async () => {
    const visit = await browser.visit({ origin: dashboard.origin, token: dashboard.admin });
    const { page } = visit;
    const began = performance.now();
    await visit.goto(`/jobs/${ids.long}`);
    await page.locator(".line .message").getByText(`Frame ${COUNT}:`).waitFor({ timeout: 60_000 });
    recordFigure(
      "a log of 100,000 lines, from the address to the last line",
      Math.round(performance.now() - began),
      "ms",
    );
    await measureScrolling(page, "the log of 100,000 lines");
    expect(await page.locator(".line").count()).toBeLessThan(300);
    const search = page.getByRole("searchbox", { name: "Search log lines" });
    const searchedAt = performance.now();
    await search.fill("Frame 77777 ");
    await waitFor(async () => (await page.locator(".line.log").count()) === 1, { what: "the one line" });
    recordFigure("a word in 100,000 lines is found", Math.round(performance.now() - searchedAt), "ms");
    expect(await page.locator(".line.log .message").textContent()).toBe(`Frame 77777 of ${COUNT}`);
    visit.expectNoComplaints();
  }, 120_000);

  it("the job list loads older jobs while it is scrolled and renders only visible rows", async () => {
    const visit = await browser.visit({ origin: dashboard.origin, token: dashboard.admin });
    const { page } = visit;
    await visit.goto("/jobs");
    await waitUntilLoaded(visit);
    const links = page.getByRole("main").getByRole("link").and(page.locator("[href*='/jobs/']"));
    await links.first().waitFor();
    const seen = new Set<string>();
    // Older jobs are fetched near the end.
    const isFarDown = async () => {
      const drawn = await page.evaluate<string[]>(
        `[...document.querySelectorAll("main a[href*='/jobs/']")].map((one) => one.pathname)`,
      );
      for (const one of drawn) seen.add(one);
      await page.mouse.wheel(0, 3000);
      return seen.size > 500;
    };
    await page.mouse.move(640, 500);
    await waitFor(isFarDown, { timeout: 60_000, interval: 20, what: "500 jobs to have been seen" });
    await measureScrolling(page, "the list of 100,000 jobs");
    expect(await links.count()).toBeLessThan(500);
    visit.expectNoComplaints();
  }, 120_000);
});

/** Scrolls the tallest element up and down and records the frame times. */
async function measureScrolling(page: Page, what: string): Promise<void> {
  const [idle, took] = await page.evaluate<[number[], number[]]>(`(async () => {
    const all = (root) => [...root.querySelectorAll("*")].flatMap((one) => [one, ...(one.shadowRoot ? all(one.shadowRoot) : [])]);
    const room = (one) => one.scrollHeight - one.clientHeight;
    const scrolls = (one) => one === document.scrollingElement || /auto|scroll/.test(getComputedStyle(one).overflowY);
    const [tallest] = all(document).filter(scrolls).sort((one, two) => room(two) - room(one));
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    const measure = async (count, act) => {
      const took = [];
      let last = await frame();
      for (let n = 0; n < count; n++) {
        act(n);
        const now = await frame();
        took.push(now - last);
        last = now;
      }
      return took;
    };
    const idle = await measure(30, () => {});
    // Mostly like a wheel, sometimes like a dragged scroll bar.
    const took = await measure(${FRAMES}, (n) => {
      tallest.scrollTop = n % 30 === 29 ? (room(tallest) * n) / ${FRAMES} : tallest.scrollTop + (n % 60 < 30 ? -240 : 240);
    });
    return [idle, took];
  })()`);
  const at = (all: number[], part: number) => {
    const sorted = all.toSorted((a, b) => a - b);
    return Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]! * 10) / 10;
  };
  // Frame times without scrolling show how busy the machine is.
  const note = `n = ${took.length}; ${at(idle, 0.95)} ms when nothing is scrolled`;
  recordFigure(`a frame while ${what} is scrolled, p95`, at(took, 0.95), "ms", note);
  recordFigure(`a frame while ${what} is scrolled, worst`, at(took, 1), "ms", note);
  expect(at(took, 0.5)).toBeLessThan(500);
}
