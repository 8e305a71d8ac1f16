// One rate limit for eight machines, with changing limits, secondary limits and errors. All contributors are looked up, almost no
// call is refused, and while the limit is exhausted no process of the users pool runs, but commits are still counted.
import path from "node:path";
import { setInterval as every } from "node:timers/promises";
import { afterAll, expect, it } from "vitest";
import { recordFigure } from "../../../test/support/figures.ts";
import { FULL, round } from "../../../test/support/processes/fault-checks.ts";
import { localFleet } from "../../../test/support/processes/local-fleet.ts";
import type { Call, Fault } from "../src/demo/github-server.ts";
import { randomFrom } from "../src/demo/random.ts";
import { makeRepository } from "./support/big-repository.ts";
import { PIPELINES, setUpLeaderboards } from "./support/leaderboards.ts";

const setup = await setUpLeaderboards();
const { pool, root } = setup;
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const EMAILS = FULL ? 5000 : 160;
const WINDOW_MS = FULL ? 20_000 : 10_000;
/** Time for an idle process to exit. */
const EXIT_MS = 4000;
/** Limits of successive windows. */
const LIMITS = FULL ? [700, 450, 900, 700] : [80, 50, 90];
const MACHINES = 8;

const chance = randomFrom(SEED);
let changed = 0;
let secondary = 0;
let broken = 0;
const github = await setup.serveGitHub({
  users: Array.from({ length: EMAILS / 2 }, (_, n) => ({
    login: `user-${n}`,
    id: n + 1,
    name: `User ${n}`,
    email: `p${n * 2}@example.com`,
  })),
  search: { limit: LIMITS[0]!, windowMs: WINDOW_MS },
  onCall: ({ window }: Readonly<Call>): Fault | undefined => {
    if (window > changed) {
      changed = window;
      return { limit: LIMITS[window % LIMITS.length]! };
    }
    // A secondary limit now and then.
    if (window >= 2 && secondary < window - 1) {
      secondary = window - 1;
      return { secondary: { retryAfter: 1 } };
    }
    if (chance() < 0.01) {
      broken += 1;
      return { status: chance() < 0.5 ? 500 : 502 };
    }
    return undefined;
  },
});
const fleet = localFleet(setup.url, "users", { pipelines: PIPELINES.users, env: setup.env, args: ["--pool", "users"] });
afterAll(() => fleet.close());

it(`looks up ${EMAILS} people on ${MACHINES} machines within the rate limit, and runs no machine while it waits`, {
  timeout: 600_000,
}, async () => {
  // A repository to read during a wait.
  await makeRepository(path.join(root, "acme/meanwhile.git"), {
    commits: 500,
    authors: 10,
    seed: 1,
    mailmap: false,
    odd: false,
  });
  const commits = setup.worker("commits");
  await commits.start();
  const { id, jobs } = await setup.addCounted(
    "acme/many",
    Object.fromEntries(Array.from({ length: EMAILS }, (_, n) => [`p${n}@example.com`, (n % 7) + 1])),
  );
  const began = performance.now();
  const orchestrator = await fleet.startOrchestrator({ max: MACHINES, slots: 1, idleExit: "300ms" });
  orchestrator.poke();

  /** Minimum number of processes during each wait. */
  const waits: { min: number }[] = [];
  let reading: Promise<number> | undefined;
  const read = async () => {
    const from = performance.now();
    const requested = await setup.request("acme/meanwhile", true);
    await setup.waitForJob(requested.reading);
    return performance.now() - from;
  };
  let over = false;
  const watching = (async () => {
    let waiting: { min: number } | undefined;
    for await (const _ of every(50)) {
      if (over) break;
      const [limit] = (await setup.stillwake.flow.limits()).filter(({ name }) => name === "github-search");
      const forMs = limit?.free === 0 && limit.until ? +limit.until - Date.now() : 0;
      // A wait of a second or two is over before a process could exit.
      if (waiting ? forMs > 0 : forMs > EXIT_MS) {
        if (!waiting) {
          waiting = { min: Number.POSITIVE_INFINITY };
          waits.push(waiting);
          reading ??= read();
        }
        waiting.min = Math.min(waiting.min, fleet.machines().length);
      } else {
        waiting = undefined;
      }
    }
  })();
  await setup.waitForStatus(id, "completed");
  over = true;
  await watching;
  const seconds = (performance.now() - began) / 1000;
  await orchestrator.stop();
  await commits.stop();

  // No address is lost or counted twice.
  const { rows } = await pool.query(
    `select count(*)::integer as emails, count(*) filter (where processed)::integer as processed, sum(commit_count)::integer as commits,
       (select sum(commit_count)::integer from leaderboard.contributions where repository_id = $1) as linked
     from leaderboard.commit_data where repository_id = $1`,
    [id],
  );
  expect(rows[0], `seed ${SEED}`).toMatchObject({ emails: EMAILS, processed: EMAILS });
  expect(rows[0].linked).toBe(rows[0].commits);
  expect(await setup.history(id)).toEqual(["pending", "commits_processing", "users_processing", "completed"]);
  for (const job of jobs) expect((await setup.stillwake.get(job)).state, `seed ${SEED}`).toBe("completed");

  const refused = new Map<number, number>();
  for (const call of github.calls) if (call.refused) refused.set(call.window, (refused.get(call.window) ?? 0) + 1);
  const windows = Math.max(...github.calls.map(({ window }) => window));
  const maxRefused = Math.max(0, ...refused.values());
  const answered = github.calls.filter(({ status, email }) => status === 200 && email?.startsWith("p"));
  recordFigure("leaderboard: refused calls in a window, at most", maxRefused, "", `${windows} windows, seed ${SEED}`);
  recordFigure(
    "leaderboard: look-ups",
    EMAILS,
    "",
    `${round(seconds)} s, ${github.calls.length} calls, ${broken} broken`,
  );
  recordFigure("leaderboard: calls answered and asked again", answered.length - EMAILS);
  recordFigure(
    "leaderboard: minimum of machines during a wait",
    Math.max(...waits.map(({ min }) => min)),
    "",
    `${waits.length} waits`,
  );
  expect(maxRefused, `seed ${SEED}`).toBeLessThanOrEqual(1);
  expect(waits.length).toBeGreaterThan(0);
  for (const { min } of waits) expect(min, `seed ${SEED}`).toBe(0);
  const commitsMs = await reading;
  recordFigure("leaderboard: a reading while the rate limit is exhausted", Math.round(commitsMs!), "ms", "500 commits");
});
