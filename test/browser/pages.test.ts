// Every page of every ordinary scene: it comes up, complains about nothing, asks for nothing elsewhere, and axe has nothing serious against it. Each scene is looked at
// in another light and on another screen; `npm run screenshots` looks at all of them in all of it.
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { type TestDatabase, testDatabase } from "../../src/testing/index.ts";
import { FULL } from "../support/processes/aftermath.ts";
import { axeIssues, browserRig, inBrowser, type Size, settled, type Theme } from "../support/server/browser.ts";
import { namesOf, tourOf } from "../support/server/dashboard-pages.ts";
import { openStage, type Stage } from "../support/server/dashboard-server.ts";
import { type Jobs, type SceneName, scenes } from "../support/server/scenes.ts";

const browser = browserRig();

/** Which pages are looked at on every change; all of them for a release. */
const looks: [SceneName, Theme, Size, string][] = [
  ["empty", "light", "desktop", "sign-in overview jobs enqueue nowhere docs"],
  [
    "busy",
    "dark",
    "desktop",
    "overview jobs enqueue-extraction pools flow schedules webhooks webhook access watch job-running job-done job-waiting",
  ],
  ["failing", "light", "phone", "overview jobs-failed schedules webhooks job-failed job-poisoned"],
];

inBrowser.each(looks)("the scene %s, %s, on a %s", (scene, theme, size, short) => {
  let database: TestDatabase;
  let stage: Stage;
  let jobs: Jobs;

  beforeAll(async () => {
    database = await testDatabase({ server: inject("server"), template: inject("template"), prefix: `pages_${scene}` });
    stage = await openStage(database);
    jobs = await scenes[scene](stage);
  }, 60_000);
  afterAll(async () => {
    await stage?.clear();
    await database?.drop();
  });

  it.each(FULL ? namesOf(scene) : short.split(" "))(
    "has a page %s that is quiet, whole and open to everybody",
    async (name) => {
      const { path, stranger } = tourOf(scene, stage, jobs).find((stop) => stop.name === name)!;
      const visit = await browser.visit({
        origin: stage.origin,
        theme,
        size,
        ...(!stranger && { token: stage.admin }),
      });
      if (stranger) visit.allow(/401/);
      if (name === "nowhere") visit.allow(/404/);
      await visit.goto(path);
      await settled(visit);
      expect(await axeIssues(visit.page)).toEqual([]);
      const wide = await visit.page.evaluate<number>("document.documentElement.scrollWidth - innerWidth");
      expect(wide, "sticks out").toBeLessThanOrEqual(0);
      visit.expectQuiet();
    },
  );
});
