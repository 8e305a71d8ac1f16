// npm run screenshots: opens every page of every scenario in both themes and sizes, saves a screenshot, runs axe, and
// fails if a page has complaints. Not part of the test suite.
import fs from "node:fs";
import path from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { testDatabase } from "../../src/testing/index.ts";
import { ROOT } from "../support/processes/build.ts";
import {
  axeIssues,
  launchBrowser,
  openVisit,
  SIZES,
  type Size,
  type Theme,
  waitUntilLoaded,
} from "../support/server/browser.ts";
import { type PageVisit, pagesOf } from "../support/server/dashboard-pages.ts";
import { type Dashboard, startDashboard } from "../support/server/dashboard-server.ts";
import { type ScenarioName, scenarios } from "../support/server/scenarios.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Restricts the run; all if empty. */
    screenshots: Partial<Record<"scenario" | "only" | "theme" | "size", string>>;
  }
}

const HOME = path.join(ROOT, "results/screenshots");
const filter = inject("screenshots");
const themes = (["dark", "light"] as Theme[]).filter((theme) => !filter.theme || filter.theme === theme);
const sizes = (Object.keys(SIZES) as Size[]).filter((size) => !filter.size || filter.size === size);
let browser: Browser;

beforeAll(async () => {
  browser = await launchBrowser();
}, 60_000);
afterAll(() => browser?.close());

const selected = (Object.keys(scenarios) as ScenarioName[]).filter(
  (name) => !filter.scenario || filter.scenario === name,
);

it.each(selected)(
  "the pages of the scenario %s have no complaints and are accessible",
  async (scenario) => {
    const database = await testDatabase({ server: inject("server"), template: inject("template"), prefix: scenario });
    const dashboard = await startDashboard(database);
    try {
      const pages = pagesOf(scenario, dashboard, await scenarios[scenario](dashboard)).filter(
        ({ name }) => !filter.only || name === filter.only,
      );
      fs.mkdirSync(path.join(HOME, scenario), { recursive: true });
      const problems: string[] = [];
      for (const size of sizes) {
        for (const theme of themes) problems.push(...(await takeScreenshots(dashboard, scenario, pages, size, theme)));
      }
      for (const problem of problems) console.error(problem);
      expect(problems).toEqual([]);
    } finally {
      await dashboard.close();
      await database.drop();
    }
  },
  900_000,
);

/** Returns the problems. */
async function takeScreenshots(
  dashboard: Dashboard,
  scenario: ScenarioName,
  pages: PageVisit[],
  size: Size,
  theme: Theme,
): Promise<string[]> {
  const problems: string[] = [];
  for (const { name, path: url, signedOut } of pages) {
    const title = `${name}-${theme}-${size}`;
    const token = signedOut ? {} : { token: dashboard.admin };
    const visit = await openVisit(browser, { origin: dashboard.origin, size, theme, ...token });
    if (signedOut) visit.allow(/401/);
    if (name === "nowhere") visit.allow(/404/);
    try {
      await visit.goto(url);
      await waitUntilLoaded(visit);
      await growViewport(visit.page, SIZES[size].width);
      await visit.page.screenshot({ path: path.join(HOME, scenario, `${title}.png`), animations: "disabled" });
      const issues = await axeIssues(visit.page);
      problems.push(
        ...[...visit.unexpectedComplaints(), ...issues].map((problem) => `${scenario}/${title}: ${problem}`),
      );
    } catch (error) {
      problems.push(`${scenario}/${title}: ${(error as Error).message.split("\n")[0]}`);
    } finally {
      await visit.close();
    }
  }
  return problems;
}

/** Makes the viewport as tall as the page, up to a maximum, so that virtual lists render all rows. */
async function growViewport(page: Page, width: number): Promise<void> {
  const height = await page.evaluate<number>("document.documentElement.scrollHeight");
  await page.setViewportSize({ width, height: Math.min(Math.max(height, SIZES.desktop.height), 2400) });
  await page.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))");
}
