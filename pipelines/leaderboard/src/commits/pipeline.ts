// A reading from top to bottom: fetch the commits, count them by author, store the counts, deal out the look-ups. Git is all it needs of the world, so that nothing of
// GitHub's API can hold it up.
import { applicationPool } from "@stillwake/kit/database";
import { explain, saying, sayingIn } from "@stillwake/kit/failures";
import type pg from "pg";
import { implement, type StepHandle } from "stillwake/worker";
import { commits, users } from "../contract.ts";
import { readSettings } from "../settings.ts";
import { type Clone, withClone } from "./clone.ts";
import { countCommits } from "./count.ts";
import { addCounts, beginReading, endReading, forgetCounts, type Known, resumeReading, type Stored } from "./store.ts";

export default implement(
  commits,
  (job, { repositoryId, repository }) =>
    saying(job, "Reading the commits", async () => {
      const settings = readSettings();
      const pool = applicationPool(settings.databaseUrl, "LEADERBOARD_DATABASE_URL");
      const reading = { repositoryId, jobId: job.id };

      const read = await job.step(
        "reading",
        {
          start: `Reading the commits of ${repository}...`,
          end: ({ counted, whole }) => `${number(counted)} ${whole ? "commits" : "new commits"} counted`,
        },
        (step: StepHandle) =>
          sayingIn(step, async () => {
            const known = await beginReading(pool, reading);
            const fence = String(step.fencingToken);
            await forgetCounts(pool, reading, fence);
            return withClone(step, repository, settings, async (clone) => {
              step.log.info("Commits fetched", { head: clone.head });
              const since = await sinceOf(clone, known);
              const total = await totalOf(clone, since);
              const counted = await countCommits(clone, {
                since,
                flush: (counts) => addCounts(pool, reading, fence, counts),
                onProgress: (done) =>
                  step.progress({ done, total: Math.max(done, total) }, `${number(done)} commits counted`),
              });
              return { fence, whole: since === undefined, head: clone.head, mailmap: clone.mailmap, counted };
            });
          }),
      );

      const stored = await job.tx(
        "storing",
        {
          end: ({ commits: all, authors }: Stored) => `${number(all)} commits by ${number(authors)} authors stored`,
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
        const batch = stored.batches === 1 ? "one batch" : `${number(stored.batches)} batches`;
        job.log.success(`${number(stored.lookups)} contributors to look up, in ${batch}`);
      } else {
        job.log.success("Leaderboard complete - everybody is known");
      }
      return { head: read.head, commits: stored.commits, authors: stored.authors, lookups: stored.lookups };
    }),
  { explain },
);

/** Where to count from: the last commit that was counted, if it is a part of this history and the same .mailmap was in force. Undefined: from the first. */
async function sinceOf({ git, head, mailmap }: Clone, known: Known): Promise<string | undefined> {
  if (known.head === null || known.mailmap !== mailmap) return undefined;
  // 1: it is none. 128: it is not even there.
  const { code } = await git.local(["merge-base", "--is-ancestor", known.head, head], { okCodes: [0, 1, 128] });
  return code === 0 ? known.head : undefined;
}

/** To count them takes git a good part of what counting by author takes: only where the number of what came says nothing. */
async function totalOf({ git, head, objects }: Clone, since: string | undefined): Promise<number> {
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

function number(value: number): string {
  return value.toLocaleString("en-US");
}
