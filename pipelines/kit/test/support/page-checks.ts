// Checks of a system's page in a browser: a screenshot, and that the page is accessible and without errors.
import fs from "node:fs";
import path from "node:path";
import { expect } from "vitest";
import { ROOT } from "../../../../test/support/processes/build.ts";
import { axeIssues, type Visit, waitUntilLoaded } from "../../../../test/support/server/browser.ts";

export interface PageChecks {
  /** Saves a screenshot if STILLWAKE_SCREENSHOTS names a folder. */
  takeScreenshot(visit: Visit, name: string): Promise<void>;
  /** Loaded, without complaints of the browser or axe, and within its width. */
  expectGoodPage(visit: Visit, name: string): Promise<void>;
}

/** `system`: the first part of the names of its screenshots. */
export function pageChecks(system: string): PageChecks {
  async function takeScreenshot({ page }: Visit, name: string): Promise<void> {
    const { STILLWAKE_SCREENSHOTS: folder } = process.env;
    if (!folder) return;
    fs.mkdirSync(path.resolve(ROOT, folder), { recursive: true });
    await page.screenshot({ path: path.resolve(ROOT, folder, `${system}-${name}.png`), fullPage: true });
  }
  return {
    takeScreenshot,
    async expectGoodPage(visit, name) {
      await waitUntilLoaded(visit);
      await takeScreenshot(visit, name);
      expect(await axeIssues(visit.page)).toEqual([]);
      const overflow = await visit.page.evaluate<number>("document.documentElement.scrollWidth - innerWidth");
      expect(overflow).toBeLessThanOrEqual(0);
      visit.expectNoComplaints();
    },
  };
}
