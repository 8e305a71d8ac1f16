// npm run screenshots: goes through every page of every scene, in the dark and in the light, on a desk and on a phone. Keeps a picture of each, asks axe
// what it has against it, and fails when a page was not quiet. It is no test of the ordinary run: its pictures want to be looked at.
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
  settled,
  type Theme,
} from "../support/server/browser.ts";
import { type Stop, tourOf } from "../support/server/dashboard-pages.ts";
import { openStage, type Stage } from "../support/server/dashboard-server.ts";
import { type SceneName, scenes } from "../support/server/scenes.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** What to look at; all of it where nothing is said. */
    screenshots: Partial<Record<"scene" | "only" | "theme" | "size", string>>;
  }
}

const HOME = path.join(ROOT, "results/screenshots");
const wanted = inject("screenshots");
const themes = (["dark", "light"] as Theme[]).filter((one) => !wanted.theme || wanted.theme === one);
const sizes = (Object.keys(SIZES) as Size[]).filter((one) => !wanted.size || wanted.size === one);
let browser: Browser;

beforeAll(async () => {
  browser = await launchBrowser();
}, 60_000);
afterAll(() => browser?.close());

const chosen = (Object.keys(scenes) as SceneName[]).filter((name) => !wanted.scene || wanted.scene === name);

it.each(chosen)(
  "the pages of the scene %s are quiet and open to everybody",
  async (scene) => {
    const database = await testDatabase({ server: inject("server"), template: inject("template"), prefix: scene });
    const stage = await openStage(database);
    try {
      const stops = tourOf(scene, stage, await scenes[scene](stage)).filter(
        ({ name }) => !wanted.only || name === wanted.only,
      );
      fs.mkdirSync(path.join(HOME, scene), { recursive: true });
      const wrong: string[] = [];
      for (const size of sizes) {
        for (const theme of themes) wrong.push(...(await take(stage, scene, stops, size, theme)));
      }
      for (const one of wrong) console.error(one);
      expect(wrong).toEqual([]);
    } finally {
      await stage.clear();
      await database.drop();
    }
  },
  900_000,
);

/** Answers what is wrong. */
async function take(stage: Stage, scene: SceneName, stops: Stop[], size: Size, theme: Theme): Promise<string[]> {
  const wrong: string[] = [];
  for (const { name, path: place, stranger } of stops) {
    const title = `${name}-${theme}-${size}`;
    const token = stranger ? {} : { token: stage.admin };
    const visit = await openVisit(browser, { origin: stage.origin, size, theme, ...token });
    if (stranger) visit.allow(/401/);
    if (name === "nowhere") visit.allow(/404/);
    try {
      await visit.goto(place);
      await settled(visit);
      await unroll(visit.page, SIZES[size].width);
      await visit.page.screenshot({ path: path.join(HOME, scene, `${title}.png`), animations: "disabled" });
      const issues = await axeIssues(visit.page);
      wrong.push(...[...visit.loud(), ...issues].map((one) => `${scene}/${title}: ${one}`));
    } catch (error) {
      wrong.push(`${scene}/${title}: ${(error as Error).message.split("\n")[0]}`);
    } finally {
      await visit.close();
    }
  }
  return wrong;
}

/** As tall as what it shows, so that lists that draw what is in sight draw all of it. Of what goes on without end the beginning is enough. */
async function unroll(page: Page, width: number): Promise<void> {
  const tall = await page.evaluate<number>("document.documentElement.scrollHeight");
  await page.setViewportSize({ width, height: Math.min(Math.max(tall, SIZES.desktop.height), 2400) });
  await page.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))");
}
