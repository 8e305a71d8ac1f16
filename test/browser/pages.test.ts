// The pages of the dashboard load without complaints of the browser or axe and within their width. Each scenario is
// opened in one theme and size; `npm run screenshots` covers all combinations.
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { type TestDatabase, testDatabase } from "../../src/testing/index.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import {
  axeIssues,
  describeInBrowser,
  type Size,
  type Theme,
  useBrowser,
  waitUntilLoaded,
} from "../support/server/browser.ts";
import { pageNames, pagesOf } from "../support/server/dashboard-pages.ts";
import { type Dashboard, startDashboard } from "../support/server/dashboard-server.ts";
import { type ScenarioIds, type ScenarioName, scenarios } from "../support/server/scenarios.ts";

const browser = useBrowser();

/** The pages that are opened on every change; a full run opens all of them. */
const cases: [ScenarioName, Theme, Size, string][] = [
  ["empty", "light", "desktop", "sign-in overview jobs enqueue nowhere docs"],
  [
    "busy",
    "dark",
    "desktop",
    "overview jobs enqueue-extraction pools limits schedules webhooks webhook access watch job-running job-done job-waiting",
  ],
  ["failing", "light", "phone", "overview jobs-failed schedules webhooks job-failed job-poisoned"],
];

describeInBrowser.each(cases)("the scenario %s, %s, on a %s", (scenario, theme, size, short) => {
  let database: TestDatabase;
  let dashboard: Dashboard;
  let ids: ScenarioIds;

  beforeAll(async () => {
    database = await testDatabase({
      server: inject("server"),
      template: inject("template"),
      prefix: `pages_${scenario}`,
    });
    dashboard = await startDashboard(database);
    ids = await scenarios[scenario](dashboard);
  }, 60_000);
  afterAll(async () => {
    await dashboard?.close();
    await database?.drop();
  });

  it.each(FULL ? pageNames(scenario) : short.split(" "))(
    "has a page %s without complaints, within its width and accessible",
    async (name) => {
      const { path, signedOut } = pagesOf(scenario, dashboard, ids).find((page) => page.name === name)!;
      const visit = await browser.visit({
        origin: dashboard.origin,
        theme,
        size,
        ...(!signedOut && { token: dashboard.admin }),
      });
      if (signedOut) visit.allow(/401/);
      if (name === "nowhere") visit.allow(/404/);
      await visit.goto(path);
      await waitUntilLoaded(visit);
      expect(await axeIssues(visit.page)).toEqual([]);
      const excess = await visit.page.evaluate<number>("document.documentElement.scrollWidth - innerWidth");
      expect(excess, "wider than the screen").toBeLessThanOrEqual(0);
      visit.expectNoComplaints();
    },
  );
});
