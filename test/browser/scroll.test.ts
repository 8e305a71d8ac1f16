// A hundred thousand of everything: the list of jobs and the log of one job are scrolled from end to end, and what a frame takes is written down. How fast the
// machine is decides that, so nothing but a standstill fails.
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { browserRig, inBrowser, settled } from "../support/server/browser.ts";
import { openStage, type Stage } from "../support/server/dashboard-server.ts";
import { type Jobs, scenes } from "../support/server/scenes.ts";

const database = await freshDatabase();
const browser = browserRig();
const FRAMES = 120;
const COUNT = 100_000;
let stage: Stage;
let jobs: Jobs;

inBrowser(`${COUNT} of everything`, () => {
  beforeAll(async () => {
    stage = await openStage(database);
    jobs = { ...(await scenes.many(stage, COUNT)), ...(await scenes.long(stage, COUNT)) };
  }, 120_000);
  afterAll(() => stage?.clear());

  it("lines of a log are all there, are found by a word, and can be scrolled through", async () => {
    const visit = await browser.visit({ origin: stage.origin, token: stage.admin });
    const { page } = visit;
    const began = performance.now();
    await visit.goto(`/jobs/${jobs.long}`);
    await page.locator(".line .message").getByText(`Frame ${COUNT}:`).waitFor({ timeout: 60_000 });
    recordFigure(
      "a log of 100,000 lines, from the address to the last line",
      Math.round(performance.now() - began),
      "ms",
    );
    await scrolled(page, "the log of 100,000 lines");
    expect(await page.locator(".line").count()).toBeLessThan(300);
    const search = page.getByRole("searchbox", { name: "Search the lines" });
    const asked = performance.now();
    await search.fill("Frame 77777 ");
    await waitFor(async () => (await page.locator(".line.log").count()) === 1, { what: "the one line" });
    recordFigure("a word in 100,000 lines is found", Math.round(performance.now() - asked), "ms");
    expect(await page.locator(".line.log .message").textContent()).toBe(`Frame 77777 of ${COUNT}`);
    visit.expectQuiet();
  }, 120_000);

  it("jobs in the list are reached by scrolling, and the page holds no more of them than it shows", async () => {
    const visit = await browser.visit({ origin: stage.origin, token: stage.admin });
    const { page } = visit;
    await visit.goto("/jobs");
    await settled(visit);
    const links = page.getByRole("main").getByRole("link").and(page.locator("[href*='/jobs/']"));
    await links.first().waitFor();
    const seen = new Set<string>();
    // Further jobs are asked for as the end comes near.
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
    await scrolled(page, "the list of 100,000 jobs");
    expect(await links.count()).toBeLessThan(500);
    visit.expectQuiet();
  }, 120_000);
});

/** Scrolls what is tallest on the page up and down, a piece in each frame. */
async function scrolled(page: Page, what: string): Promise<void> {
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
    // Mostly as a wheel does it, now and then as one who drags the bar.
    const took = await measure(${FRAMES}, (n) => {
      tallest.scrollTop = n % 30 === 29 ? (room(tallest) * n) / ${FRAMES} : tallest.scrollTop + (n % 60 < 30 ? -240 : 240);
    });
    return [idle, took];
  })()`);
  const at = (all: number[], part: number) => {
    const sorted = all.toSorted((a, b) => a - b);
    return Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]! * 10) / 10;
  };
  // The machine of the tests is busy with other things too: what a frame takes when nothing happens is the measure.
  const note = `n = ${took.length}; ${at(idle, 0.95)} ms when nothing is scrolled`;
  recordFigure(`a frame while ${what} is scrolled, p95`, at(took, 0.95), "ms", note);
  recordFigure(`a frame while ${what} is scrolled, worst`, at(took, 1), "ms", note);
  expect(at(took, 0.5)).toBeLessThan(500);
}
