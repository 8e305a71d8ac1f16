// Every page of the dashboard and where it is, in one table, for those who look at all of them.

import type { Stage } from "./dashboard-server.ts";
import type { Jobs, SceneName } from "./scenes.ts";

export interface Stop {
  name: string;
  path: string;
  /** Without a token. */
  stranger?: true;
}

/** A path, or how it is made of what the scene has. Undefined where the scene has nothing for it. */
type Way = string | ((has: Jobs, stage: Stage) => string | undefined);

const ordinary: SceneName[] = ["empty", "busy", "failing"];
const job =
  (name: string): Way =>
  (has) =>
    has[name] && `/jobs/${has[name]}`;

const pages: [string, SceneName[], Way][] = [
  ["overview", ordinary, "/"],
  ["jobs", [...ordinary, "many"], "/jobs"],
  ["jobs-failed", ["busy", "failing"], "/jobs?state=failed"],
  ["jobs-none", ["busy"], "/jobs?pipeline=transcribe&state=failed"],
  ["enqueue", ordinary, "/enqueue"],
  ["enqueue-extraction", ["busy"], "/enqueue/extraction"],
  ["pools", ordinary, "/pools"],
  ["flow", ordinary, "/flow"],
  ["schedules", ordinary, "/schedules"],
  ["webhooks", ordinary, "/webhooks"],
  ["webhook", ["busy", "failing"], (has) => has.webhook && `/webhooks/${has.webhook}`],
  ["access", ordinary, "/access"],
  ["nowhere", ["empty"], "/jobs/00000000-0000-7000-8000-000000000000"],
  ["docs", ["empty"], "/docs"],
  ["watch", ["busy"], watch("running")],
  ["watch-failed", ["failing"], watch("failed")],
  ...["running", "done", "parent", "waiting", "later", "machine", "paused", "cancelled", "blocked"].map(
    (name): [string, SceneName[], Way] => [`job-${name}`, ["busy"], job(name)],
  ),
  ...["failed", "refused", "poisoned", "lost", "stale", "kept"].map((name): [string, SceneName[], Way] => [
    `job-${name}`,
    ["failing"],
    job(name),
  ]),
  ["job-long", ["long"], job("long")],
];

/** What a scene has pages for. */
export function namesOf(scene: SceneName): string[] {
  const names = pages.filter(([, scenes]) => scenes.includes(scene)).map(([name]) => name);
  return scene === "empty" ? ["sign-in", ...names] : names;
}

export function tourOf(scene: SceneName, stage: Stage, has: Jobs): Stop[] {
  const stops = pages
    .filter(([, scenes]) => scenes.includes(scene))
    .flatMap(([name, , way]): Stop[] => {
      const path = typeof way === "string" ? way : way(has, stage);
      return path === undefined ? [] : [{ name, path }];
    });
  return scene === "empty" ? [{ name: "sign-in", path: "/sign-in", stranger: true }, ...stops] : stops;
}

/** What the person who waits sees, with nothing but a read token. */
function watch(name: string): Way {
  return (has, { sw }) =>
    has[name] && `/watch#job=${has[name]}&token=${sw.readToken({ job: has[name], expiresIn: "1h" })}`;
}
