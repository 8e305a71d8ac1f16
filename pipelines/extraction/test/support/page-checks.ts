// What every test of the page wants of a view: a picture for whoever looks afterwards, and that it is well.
import fs from "node:fs";
import path from "node:path";
import { expect } from "vitest";
import { ROOT } from "../../../../test/support/processes/build.ts";
import { axeIssues, settled, type Visit } from "../../../../test/support/server/browser.ts";

/** What somebody may look at afterwards: STILLWAKE_SCREENSHOTS names a folder. */
export async function picture({ page }: Visit, name: string): Promise<void> {
  const { STILLWAKE_SCREENSHOTS: folder } = process.env;
  if (!folder) return;
  fs.mkdirSync(path.resolve(ROOT, folder), { recursive: true });
  await page.screenshot({ path: path.resolve(ROOT, folder, `extraction-${name}.png`), fullPage: true });
}

/** Whole, quiet, within its width, and open to everybody. */
export async function expectWell(one: Visit, name: string): Promise<void> {
  await settled(one);
  await picture(one, name);
  expect(await axeIssues(one.page)).toEqual([]);
  expect(await one.page.evaluate<number>("document.documentElement.scrollWidth - innerWidth")).toBeLessThanOrEqual(0);
  one.expectQuiet();
}
