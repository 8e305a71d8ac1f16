// Large repositories with 5,000 authors: the counts equal those of git, in little more time than git itself, in bounded memory.
import { execFile } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { recordFigure } from "../../../test/support/figures.ts";
import { FULL, round } from "../../../test/support/processes/fault-checks.ts";
import { startWorker } from "../../../test/support/processes/workers.ts";
import { makeRepository, shortlog } from "./support/big-repository.ts";
import { PIPELINES, setUpLeaderboards } from "./support/leaderboards.ts";

const setup = await setUpLeaderboards();
const { pool, root, folder } = setup;
/** The full run also has a million commits. */
const SIZES = [{ commits: 100_000, rounds: FULL ? 7 : 2 }, ...(FULL ? [{ commits: 1_000_000, rounds: 2 }] : [])].map(
  (size) => ({ ...size, label: size.commits.toLocaleString("en-US") }),
);
const run = promisify(execFile);

/** Seconds that plain git takes for a bare clone without trees and a log with .mailmap. */
async function runPlainGit(url: string): Promise<number> {
  const directory = path.join(folder, "plain-git");
  fs.rmSync(directory, { recursive: true, force: true });
  const began = performance.now();
  await run("git", ["clone", "--quiet", "--bare", "--filter=tree:0", "--single-branch", "--no-tags", url, directory]);
  await run("git", ["-C", directory, "log", "--format=%aE %aN"], { maxBuffer: 2 ** 28, encoding: "buffer" });
  return (performance.now() - began) / 1000;
}

it.each(SIZES)(
  "counts $label commits as git does, in little more time and little memory",
  {
    timeout: 600_000,
  },
  async ({ commits, rounds, label }) => {
    const name = `acme/large-${commits}`;
    const directory = path.join(root, `${name}.git`);
    await makeRepository(directory, { commits, authors: 5000, seed: 1, mailmap: true, odd: true });
    const worker = await startWorker({
      url: setup.url,
      pipelines: PIPELINES.commits,
      env: setup.env,
      args: ["--pool", "commits", "--slots", "1"],
    });
    const plain: number[] = [];
    const ours: number[] = [];
    let id = "";
    for (let round = 0; round < rounds; round++) {
      plain.push(await runPlainGit(`${setup.git.url}/${name}.git`));
      // Count all commits each time.
      await pool.query("update leaderboard.repositories set head = null");
      const requested = await setup.request(name, true);
      id = requested.id;
      const { job, logs } = await setup.waitForJob(requested.reading);
      expect(job.state).toBe("completed");
      const steps = logs.flatMap(({ data }) => (data as { took_ms?: number } | null)?.took_ms ?? []);
      ours.push(steps.reduce((sum, ms) => sum + ms, 0) / 1000);
    }
    const [runner = 0] = worker.runners();
    const status = fs.readFileSync(`/proc/${runner}/status`, "utf8");
    const peakMb = Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024;
    worker.signal("SIGTERM");
    await worker.exited;

    const { rows } = await pool.query(
      "select count(*)::integer as authors, sum(commit_count)::integer as commits from leaderboard.commit_data where repository_id = $1",
      [id],
    );
    const inGit = new Map<string, number>();
    for (const [email, count] of await shortlog(directory))
      inGit.set(email.trim(), (inGit.get(email.trim()) ?? 0) + count);
    expect(rows[0]).toEqual({ authors: inGit.size, commits });
    const counted = await pool.query(
      "select author_email, commit_count::integer from leaderboard.commit_data where repository_id = $1",
      [id],
    );
    const wrong = counted.rows.filter(
      ({ author_email, commit_count }) => !author_email.includes("…") && inGit.get(author_email) !== commit_count,
    );
    expect(wrong).toEqual([]);

    const min = (values: number[]) => Math.min(...values);
    recordFigure(
      `leaderboard: ${label} commits with plain git`,
      round(min(plain)),
      "s",
      "clone and log, best of several",
    );
    recordFigure(`leaderboard: ${label} commits, the commit stage`, round(min(ours)), "s");
    recordFigure(`leaderboard: ${label} commits, ratio to the bare git commands`, round(min(ours) / min(plain)), "×");
    recordFigure(`leaderboard: ${label} commits, peak memory of the runner`, Math.round(peakMb), "MB");
    expect(peakMb).toBeLessThan(150);
    if (FULL) expect(min(ours) / min(plain)).toBeLessThanOrEqual(1.5);
  },
);
