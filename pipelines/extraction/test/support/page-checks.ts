// Checks of a page in a browser: a screenshot, and that the page is accessible and without errors.
import fs from "node:fs";
import path from "node:path";
import { expect } from "vitest";
import { ROOT } from "../../../../test/support/processes/build.ts";
import { axeIssues, type Visit, waitUntilLoaded } from "../../../../test/support/server/browser.ts";

/** Saves a screenshot if STILLWAKE_SCREENSHOTS names a folder. */
export async function takeScreenshot({ page }: Visit, name: string): Promise<void> {
  const { STILLWAKE_SCREENSHOTS: folder } = process.env;
  if (!folder) return;
  fs.mkdirSync(path.resolve(ROOT, folder), { recursive: true });
  await page.screenshot({ path: path.resolve(ROOT, folder, `extraction-${name}.png`), fullPage: true });
}

/** Loaded, without complaints of the browser or axe, and within its width. */
export async function expectGoodPage(visit: Visit, name: string): Promise<void> {
  await waitUntilLoaded(visit);
  await takeScreenshot(visit, name);
  expect(await axeIssues(visit.page)).toEqual([]);
  expect(await visit.page.evaluate<number>("document.documentElement.scrollWidth - innerWidth")).toBeLessThanOrEqual(0);
  visit.expectNoComplaints();
}
