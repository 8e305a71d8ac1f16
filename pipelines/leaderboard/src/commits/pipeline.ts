// The pipeline "leaderboard-commits" (a reading): fetches the commits, counts them by author, stores the counts and spawns the
// look-ups. It uses git only, so GitHub's API rate limit cannot delay it.
import { applicationPool } from "@stillwake/kit/database";
import { explain, logJobFailure, logStepFailure } from "@stillwake/kit/failures";
import type pg from "pg";
import { implement, type StepHandle } from "stillwake/worker";
import { commits, users } from "../contract.ts";
import { readSettings } from "../settings.ts";
import { type Clone, withClone } from "./clone.ts";
import { countCommits } from "./count.ts";
import {
  addCounts,
  beginReading,
  deleteCounts,
  endReading,
  type LastReading,
  resumeReading,
  type Stored,
} from "./store.ts";

export default implement(
  commits,
  (job, { repositoryId, repository }) =>
    logJobFailure(job, "Reading the commits", async () => {
      const settings = readSettings();
      const pool = applicationPool(settings.databaseUrl, "LEADERBOARD_DATABASE_URL");
      const reading = { repositoryId, jobId: job.id };

      const read = await job.step(
        "reading",
        {
          start: `Reading the commits of ${repository}...`,
          end: ({ counted, whole }) => `${formatCount(counted)} ${whole ? "commits" : "new commits"} counted`,
        },
        (step: StepHandle) =>
          logStepFailure(step, async () => {
            const last = await beginReading(pool, reading);
            const fence = String(step.fencingToken);
            await deleteCounts(pool, reading, fence);
            return withClone(step, repository, settings, async (clone) => {
              step.log.info("Commits fetched", { head: clone.head });
              const since = await findStart(clone, last);
              const total = await estimateTotal(clone, since);
              const counted = await countCommits(clone, {
                since,
                flush: (counts) => addCounts(pool, reading, fence, counts),
                onProgress: (done) =>
                  step.progress({ done, total: Math.max(done, total) }, `${formatCount(done)} commits counted`),
              });
              return { fence, whole: since === undefined, head: clone.head, mailmap: clone.mailmap, counted };
            });
          }),
      );

      const stored = await job.tx(
        "storing",
        {
          end: ({ commits: all, authors }: Stored) =>
            `${formatCount(all)} commits by ${formatCount(authors)} authors stored`,
          retry: { attempts: 3 },
        },
        pool,
        (tx: pg.PoolClient): Promise<Stored> => endReading(tx, reading, read),
      );
      await resumeReading(pool, reading);
      if (stored.batches > 0) {
        const batches = Array.from({ length: stored.batches }, (_, batch) => ({
          repositoryId,
          reading: job.id,
          batch,
        }));
        await job.spawn(users, batches);
        const batch = stored.batches === 1 ? "one batch" : `${formatCount(stored.batches)} batches`;
        job.log.success(`${formatCount(stored.lookups)} contributors to look up, in ${batch}`);
      } else {
        job.log.success("Leaderboard complete - all contributors are known");
      }
      return { head: read.head, commits: stored.commits, authors: stored.authors, lookups: stored.lookups };
    }),
  { explain },
);

/** The last counted commit, if it is part of this history and the .mailmap is the same. Undefined: count all commits. */
async function findStart({ git, head, mailmap }: Clone, last: LastReading): Promise<string | undefined> {
  if (last.head === null || last.mailmap !== mailmap) return undefined;
  // 1: not an ancestor. 128: unknown commit.
  const { code } = await git.local(["merge-base", "--is-ancestor", last.head, head], { okCodes: [0, 1, 128] });
  return code === 0 ? last.head : undefined;
}

/** The number of fetched objects if known: `rev-list --count` takes almost as long as counting by author. */
async function estimateTotal({ git, head, objects }: Clone, since: string | undefined): Promise<number> {
  if (since === undefined && objects !== undefined) return objects;
  const { stdout } = await git.local([
    "rev-list",
    "--count",
    head,
    ...(since === undefined ? [] : [`^${since}`]),
    "--",
  ]);
  return Number(stdout.trim());
}

function formatCount(value: number): string {
  return value.toLocaleString("en-US");
}
