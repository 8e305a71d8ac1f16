// The contracts of the two pipelines, and GitHub's limits that all workers share. No Node and no database, because the page imports it.
//
//   leaderboard-commits   pool "commits"   counts the commits of a repository by author; uses git only
//   leaderboard-users     pool "users"     looks up fifty authors at GitHub; does not start while the rate limit is exhausted
import { breaker, limit, pipeline, rateLimitHeaders } from "stillwake/contract";
import { z } from "zod";

/** "owner/name" as GitHub allows it. URLs for git and the API are built from it. */
export const REPOSITORY = /^[a-z\d](?:[a-z\d-]{0,38})\/(?!\.{1,2}$)[a-z\d._][a-z\d._-]{0,99}$/;

/** E-mail addresses per look-up job. */
export const BATCH = 50;

/** GitHub has separate rate limits for searches and other calls. All workers learn them from response headers. */
export const searches = limit("github-search", { learn: rateLimitHeaders });
export const reads = limit("github-core", { learn: rateLimitHeaders });
/** While GitHub fails, all look-ups pause instead of using up their attempts. */
export const github = breaker("github", { failures: 5, pause: "30s", growth: 2, max: "15m" });

export const commits = pipeline("leaderboard-commits", {
  input: z.object({
    repositoryId: z.uuid().meta({ title: "Record" }),
    repository: z.string().max(200).regex(REPOSITORY).meta({ title: "Repository", description: "Such as acme/site." }),
  }),
  output: z.object({ head: z.string(), commits: z.number(), authors: z.number(), lookups: z.number() }),
  // One active reading per repository: another request returns the active one.
  key: "repositoryId",
  // Fairness: a small repository does not wait for all batches of a large one.
  tenant: "repositoryId",
  pool: "commits",
  retry: {
    attempts: 3,
    initial: "5s",
    max: "2m",
    exhausted: "Reading the commits failed after {attempts} attempts (machine crash or timeout)",
  },
  timeout: "2h",
  silence: "10m",
});

export const users = pipeline("leaderboard-users", {
  input: z.object({
    repositoryId: z.uuid().meta({ title: "Record" }),
    /** The reading, or manual look-up, that created the batch. Its e-mail addresses are in commit_data, never in a job. */
    reading: z.uuid().meta({ title: "Reading" }),
    batch: z.int().min(0).meta({ title: "Batch" }),
  }),
  output: z.object({ emails: z.number(), calls: z.number() }),
  tenant: "repositoryId",
  pool: "users",
  needs: [searches, github],
  retry: {
    attempts: 5,
    initial: "30s",
    max: "15m",
    exhausted: "Looking up contributors failed after {attempts} attempts (machine crash or timeout)",
  },
  timeout: "1h",
});
