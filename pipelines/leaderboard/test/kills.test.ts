// Kills runners and workers by SIGKILL at every step of both pipelines, chosen by a seed. Each repository is completed once, every
// address is processed, the counts equal those of git, and look-ups never cause commits to be read again.
import path from "node:path";
import { waitFor } from "stillwake/testing";
import { expect, it } from "vitest";
import { recordFigure } from "../../../test/support/figures.ts";
import { FULL } from "../../../test/support/processes/fault-checks.ts";
import { startWorker, type WorkerProcess } from "../../../test/support/processes/workers.ts";
import { faultyGitServer } from "../../kit/test/support/git-server.ts";
import { randomFrom } from "../src/demo/random.ts";
import { makeRepository, shortlog } from "./support/big-repository.ts";
import { PIPELINES, setUpLeaderboards } from "./support/leaderboards.ts";

const setup = await setUpLeaderboards();
const { pool, stillwake, root } = setup;
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const RUNS = FULL ? 200 : 14;
const TIME = 120_000;
const AUTHORS = 70;

type Name = "commits" | "users";

/** When to kill: at the nth call of git or GitHub, before or after a checkpoint is stored, or after some milliseconds. */
type Death =
  | { at: "git"; call: number }
  | { at: "github"; call: number }
  | { at: "point"; of: Name; point: string }
  | { at: "time"; of: Name; ms: number };

const POINTS: [Name, string][] = [
  ["commits", "before:reading"],
  ["commits", "after:reading"],
  ["commits", "before:storing"],
  ["commits", "after:storing"],
  ["users", "before:looking up"],
  ["users", "after:looking up"],
];

function deathOf(run: number, chance: () => number): Death {
  // Fault points in turn, the other kinds at random.
  if (run % 2 === 0) {
    const [of, point] = POINTS[(run / 2) % POINTS.length]!;
    return { at: "point", of, point };
  }
  const kind = chance();
  if (kind < 0.3) return { at: "git", call: 1 + Math.floor(chance() * 4) };
  if (kind < 0.7) return { at: "github", call: 1 + Math.floor(chance() * 40) };
  return { at: "time", of: chance() < 0.5 ? "commits" : "users", ms: Math.floor(chance() * 1500) };
}

const git = await faultyGitServer({ root });
let onGitHub = () => {};
const github = await setup.serveGitHub({
  users: Array.from({ length: AUTHORS }, (_, n) => ({
    login: `user-${n}`,
    id: n + 1,
    name: null,
    email: n % 2 === 0 ? `author-${n}@example.com` : null,
  })),
  search: { limit: 1_000_000, windowMs: 3600_000 },
  onCall: () => onGitHub() as undefined,
});
const env = { ...setup.env, LEADERBOARD_GITHUB_URL: git.url };

const workers: Partial<Record<Name, WorkerProcess>> = {};
async function start(name: Name, more: Record<string, string> = {}): Promise<void> {
  workers[name] = await startWorker({
    url: setup.url,
    pipelines: PIPELINES[name],
    env: { ...env, ...more },
    args: ["--pool", name, "--slots", "1", "--lease", "2s"],
  });
}
async function end(name: Name): Promise<void> {
  const worker = workers[name]!;
  const runners = worker.runners();
  worker.signal("SIGKILL");
  for (const pid of runners) kill(pid);
  await worker.exited;
}
function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has already exited.
  }
}

it(`${RUNS} repositories are completed once each, whatever is killed`, { timeout: RUNS * 30_000 }, async () => {
  const chance = randomFrom(SEED);
  // More crashes than the contracts allow, and no backoff: neither is tested here.
  await pool.query(
    `create function public.raise_crash_limit() returns trigger language plpgsql as
       'begin new.crash_limit := 100; new.backoff_initial := ''10 ms''; new.backoff_max := ''20 ms''; return new; end';
     create trigger raise_crash_limit before insert or update on stillwake.pipelines for each row execute function public.raise_crash_limit()`,
  );
  await start("commits");
  await start("users");
  let kills = 0;
  let readAgain = 0;
  for (let run = 0; run < RUNS; run++) {
    const death = deathOf(run, chance);
    const label = `seed ${SEED}, run ${run}: ${JSON.stringify(death)}`;
    const directory = path.join(root, `acme/run-${run}.git`);
    await makeRepository(directory, { commits: 200, authors: AUTHORS, seed: run, mailmap: run % 3 === 0, odd: true });
    // The authors are known from the previous run: half of them are outdated and looked up again.
    await pool.query(
      "update leaderboard.contributor_emails set checked_at = now() - interval '2 days' where random() < 0.5",
    );

    let killed: Promise<void> | undefined;
    const killOnce = (name: Name, whole = chance() < 0.4) => {
      if (killed) return;
      kills += 1;
      killed = (async () => {
        if (whole) {
          await end(name);
          await start(name);
        } else for (const pid of workers[name]!.runners()) kill(pid);
      })();
    };
    let githubCalls = 0;
    const gitCalls = git.requests.length;
    onGitHub = () => {
      githubCalls += 1;
      if (death.at === "github" && githubCalls === death.call) killOnce("users");
    };
    if (death.at === "point") {
      kills += 1;
      await end(death.of);
      await start(death.of, { STILLWAKE_CRASH: death.point });
    }
    const { id, reading } = await setup.request(`acme/run-${run}`);
    const timer = death.at === "time" ? setTimeout(() => killOnce(death.of), death.ms) : undefined;
    if (death.at === "git") {
      const reached = () => git.requests.length - gitCalls >= death.call;
      await waitFor(async () => reached() || (await stillwake.get(reading)).endedAt !== null, {
        timeout: TIME,
        interval: 1,
      });
      if (reached()) killOnce("commits");
    }
    await waitFor(
      async () =>
        (
          await pool.query(
            "select from leaderboard.repositories where id = $1 and status in ('users_processing', 'completed')",
            [id],
          )
        ).rowCount === 1,
      {
        timeout: TIME,
        what: `${label}: the commits to be counted`,
      },
    );
    const whenCounted = git.requests.length;
    await waitFor(
      async () =>
        (await pool.query("select from leaderboard.repositories where id = $1 and status = 'completed'", [id]))
          .rowCount === 1,
      {
        timeout: TIME,
        what: `${label}: the repository to be complete`,
      },
    );
    await waitFor(async () => (await stillwake.get(reading)).endedAt !== null, {
      timeout: TIME,
      what: `${label}: the reading to end`,
    });
    // A fast run may end before the kill.
    clearTimeout(timer);
    await killed;
    readAgain += git.requests.length - whenCounted;

    expect(await setup.history(id), label).toEqual(["pending", "commits_processing", "users_processing", "completed"]);
    const { rows } = await pool.query(
      `select (select sum(commit_count)::integer from leaderboard.commit_data where repository_id = $1) as commits,
         (select count(*)::integer from leaderboard.commit_data where repository_id = $1 and not processed) as unprocessed,
         (select sum(commit_count)::integer from leaderboard.contributions where repository_id = $1) as linked,
         (select count(*)::integer from leaderboard.counted) as counted`,
      [id],
    );
    const inGit = [...(await shortlog(directory)).values()].reduce((sum, count) => sum + count, 0);
    expect(rows[0], label).toEqual({ commits: inGit, unprocessed: 0, linked: inGit, counted: 0 });
    const { lookups } = (await stillwake.get(reading)).output as { lookups: number };
    expect((await stillwake.list({ parent: reading })).jobs.length, label).toBe(Math.ceil(lookups / 50));
    if (death.at === "point") {
      await end(death.of);
      await start(death.of);
    }
  }
  expect(readAgain, `seed ${SEED}`).toBe(0);
  recordFigure("leaderboard: repositories completed once each under kills", RUNS, "", `${kills} kills, seed ${SEED}`);
  recordFigure("leaderboard: git requests caused by look-ups", readAgain);
  recordFigure("leaderboard: GitHub calls in those runs", github.calls.length);
  await git.close();
});
