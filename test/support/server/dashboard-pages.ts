// All pages of the dashboard with the scenarios that have data for them.
import type { Dashboard } from "./dashboard-server.ts";
import type { ScenarioIds, ScenarioName } from "./scenarios.ts";

export interface PageVisit {
  name: string;
  path: string;
  /** Opened without a token. */
  signedOut?: true;
}

/** A path, or a function of the scenario's ids; undefined if the scenario has no data for it. */
type PagePath = string | ((ids: ScenarioIds, dashboard: Dashboard) => string | undefined);

const common: ScenarioName[] = ["empty", "busy", "failing"];
const job =
  (name: string): PagePath =>
  (ids) =>
    ids[name] && `/jobs/${ids[name]}`;

const pages: [string, ScenarioName[], PagePath][] = [
  ["overview", common, "/"],
  ["jobs", [...common, "many"], "/jobs"],
  ["jobs-failed", ["busy", "failing"], "/jobs?state=failed"],
  ["jobs-none", ["busy"], "/jobs?pipeline=transcribe&state=failed"],
  ["enqueue", common, "/enqueue"],
  ["enqueue-extraction", ["busy"], "/enqueue/extraction"],
  ["pools", common, "/pools"],
  ["limits", common, "/limits"],
  ["schedules", common, "/schedules"],
  ["webhooks", common, "/webhooks"],
  ["webhook", ["busy", "failing"], (ids) => ids.webhook && `/webhooks/${ids.webhook}`],
  ["access", common, "/access"],
  ["nowhere", ["empty"], "/jobs/00000000-0000-7000-8000-000000000000"],
  ["docs", ["empty"], "/docs"],
  ["watch", ["busy"], watch("running")],
  ["watch-failed", ["failing"], watch("failed")],
  ...["running", "done", "parent", "waiting", "later", "machine", "paused", "cancelled", "blocked"].map(
    (name): [string, ScenarioName[], PagePath] => [`job-${name}`, ["busy"], job(name)],
  ),
  ...["failed", "refused", "poisoned", "lost", "stale", "kept"].map((name): [string, ScenarioName[], PagePath] => [
    `job-${name}`,
    ["failing"],
    job(name),
  ]),
  ["job-long", ["long"], job("long")],
];

export function pageNames(scenario: ScenarioName): string[] {
  const names = pages.filter(([, scenarios]) => scenarios.includes(scenario)).map(([name]) => name);
  return scenario === "empty" ? ["sign-in", ...names] : names;
}

export function pagesOf(scenario: ScenarioName, dashboard: Dashboard, ids: ScenarioIds): PageVisit[] {
  const visits = pages
    .filter(([, scenarios]) => scenarios.includes(scenario))
    .flatMap(([name, , pagePath]): PageVisit[] => {
      const path = typeof pagePath === "string" ? pagePath : pagePath(ids, dashboard);
      return path === undefined ? [] : [{ name, path }];
    });
  return scenario === "empty" ? [{ name: "sign-in", path: "/sign-in", signedOut: true }, ...visits] : visits;
}

/** The watch page with a read token. */
function watch(name: string): PagePath {
  return (ids, { sw }) =>
    ids[name] && `/watch#job=${ids[name]}&token=${sw.readToken({ job: ids[name], expiresIn: "1h" })}`;
}
