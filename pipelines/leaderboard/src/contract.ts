// The two pipelines of a leaderboard, and what they share with all workers: GitHub's budgets. No Node and no database: the page imports it as well.
//
//   leaderboard-commits   reads a repository, counts commits by author, spawns     pool "commits": git and nothing else, so no budget can hold it up
//   leaderboard-users     looks up fifty of the authors at GitHub                  pool "users": does not even start while the budget is used up
import { breaker, limit, pipeline, rateLimitHeaders } from "stillwake";
import { z } from "zod";

/** "owner/name", as GitHub allows it. What git and the API are given is rebuilt from it. */
export const REPOSITORY = /^[a-z\d](?:[a-z\d-]{0,38})\/(?!\.{1,2}$)[a-z\d._][a-z\d._-]{0,99}$/;

/** E-mails that one job looks up. */
export const BATCH = 50;

/** GitHub counts searches apart from everything else. What is left of each is learned from its answers, by all workers together. */
export const searches = limit("github-search", { learn: rateLimitHeaders });
export const reads = limit("github-core", { learn: rateLimitHeaders });
/** GitHub in trouble of its own: all look-ups pause instead of using up their attempts. */
export const github = breaker("github", { failures: 5, pause: "30s", growth: 2, max: "15m" });

export const commits = pipeline("leaderboard-commits", {
  input: z.object({
    repositoryId: z.uuid().meta({ title: "Record" }),
    repository: z.string().max(200).regex(REPOSITORY).meta({ title: "Repository", description: "Such as acme/site." }),
  }),
  output: z.object({ head: z.string(), commits: z.number(), authors: z.number(), lookups: z.number() }),
  // One reading of a repository at a time: asking again answers the one that is on its way.
  key: (given) => given.repositoryId,
  // Those who wait for a small repository are not behind the batches of a large one.
  tenant: (given) => given.repositoryId,
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
    /** The batch is one of those that this reading, or this asking again, has made. The e-mails themselves stand in commit_data and in no job. */
    reading: z.uuid().meta({ title: "Reading" }),
    batch: z.int().min(0).meta({ title: "Batch" }),
  }),
  output: z.object({ emails: z.number(), calls: z.number() }),
  tenant: (given) => given.repositoryId,
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
