// The users stage through the API: looking up again without reading commits, GitHub's rate limit, and stuck repositories.
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { settleEmail } from "../../src/users/store.ts";
import { claimReading, serveApi } from "../support/app-server.ts";
import { setUpLeaderboards } from "../support/leaderboards.ts";

const setup = await setUpLeaderboards();
const { pool, stillwake } = setup;
const github = await setup.serveGitHub({
  users: [{ login: "grace", id: 2, name: "Grace Hopper", email: "grace@example.com" }],
  search: { limit: 10_000, windowMs: 60_000 },
});
const api = await serveApi(setup);

afterAll(() => {
  expect(api.responses.filter((text) => text.includes("@"))).toEqual([]);
  expect(api.internalErrors).toEqual([]);
});
beforeEach(() => {
  github.calls.length = 0;
});

const byAddress = { source: "email", login: null, githubId: null, name: null, etag: null } as const;
const jobsOf = async (id: string) =>
  (await pool.query("select pipeline, state from stillwake.jobs where input ->> 'repositoryId' = $1", [id])).rows;

async function withWorker<T>(work: () => Promise<T>): Promise<T> {
  const worker = setup.worker("users");
  await worker.start();
  try {
    return await work();
  } finally {
    await worker.stop();
  }
}

describe("looking up again", () => {
  it("is refused with a remedy before the commits are counted", async () => {
    const { id, jobs } = (await api.post("/leaderboard", { url: "acme/uncounted" })).body;
    const refused = async () => (await api.post(`/leaderboard/${id}/users`)).body;
    const problem = { status: 409, code: "NOT_COUNTED", detail: "The commits are not counted yet" };
    expect(await refused()).toEqual({ ...problem, remedy: "Wait until they are counted" });
    await pool.query("select leaderboard.begin_reading($1, $2)", [id, jobs.commits]);
    expect(await refused()).toEqual({ ...problem, remedy: "Wait until they are counted" });
    await claimReading(setup, jobs.commits, { outcome: "failed", fatal: true, failure: { message: "Gone" } });
    expect((await api.get(`/leaderboard/${id}`)).body.status).toBe("failed");
    expect(await refused()).toEqual({ ...problem, remedy: "Read it again: POST /leaderboard with its url" });
    expect(await jobsOf(id)).toHaveLength(1);
  });

  it("creates batches only for addresses without an active job, and no reading", async () => {
    const counts = Object.fromEntries(Array.from({ length: 60 }, (_, n) => [`p${n}@example.com`, 100 - n]));
    const { id, jobs: before } = await setup.addCounted("acme/again", { ...counts, "grace@example.com": 1 });
    for (let n = 0; n < 8; n++) await settleEmail(pool, id, `p${n}@example.com`, byAddress);
    const reading = (await api.get(`/leaderboard/${id}`)).body.jobs.commits;
    const again = async () => {
      const { status, body } = await api.post(`/leaderboard/${id}/users`);
      return [status, body];
    };

    expect(await again()).toEqual([202, { id, lookups: 0, jobs: 0 }]);
    await stillwake.cancel(before[0]!);
    expect(await again()).toEqual([202, { id, lookups: 42, jobs: 1 }]);
    expect((await jobsOf(id)).map(({ pipeline }) => pipeline).sort()).toEqual([
      "leaderboard-commits",
      ...Array(3).fill("leaderboard-users"),
    ]);
    await withWorker(async () => {
      await setup.waitForStatus(id, "completed");
      expect((await setup.waitForJob(before[1]!)).job).toMatchObject({ state: "completed", output: { emails: 11 } });
    });
    // Each address was searched once.
    expect(github.calls.map(({ email }) => email).sort()).toEqual(
      [...Object.keys(counts).slice(8), "grace@example.com"].sort(),
    );
    const board = (await api.get(`/leaderboard/${id}`)).body;
    expect(board).toMatchObject({ status: "completed", jobs: { commits: reading } });
    expect(await setup.history(id)).toEqual(["pending", "commits_processing", "users_processing", "completed"]);
  });

  it("does nothing for addresses looked up today, and looks up all of them after a day", async () => {
    const { id } = await setup.addCounted("acme/day", { "x@example.com": 2, "y@users.noreply.github.com": 1 });
    await settleEmail(pool, id, "x@example.com", byAddress);
    expect((await api.post(`/leaderboard/${id}/users`)).body).toEqual({ id, lookups: 0, jobs: 0 });
    expect((await api.get(`/leaderboard/${id}`)).body.status).toBe("completed");
    await pool.query("update leaderboard.contributor_emails set checked_at = now() - interval '25 hours'");
    expect((await api.post(`/leaderboard/${id}/users`)).body).toEqual({ id, lookups: 1, jobs: 1 });
    // Known contributors stay known until then.
    const { body } = await api.get(`/leaderboard/${id}`);
    expect(body).toMatchObject({ stage: "users", lookups: { total: 2, processed: 1 }, times: { usersEndedAt: null } });
    expect(body.contributors.rows.map(({ known }: { known: boolean }) => known)).toEqual([true, true]);
  });

  it("in several concurrent requests creates one batch", async () => {
    const { id, jobs } = await setup.addCounted("acme/at-once", { "m@example.com": 2, "n@example.com": 1 });
    await stillwake.cancel(jobs[0]!);
    const responses = await Promise.all(Array.from({ length: 8 }, () => api.post(`/leaderboard/${id}/users`)));
    expect(responses.map(({ status, body }) => [status, body.lookups]).sort()).toEqual([
      ...Array(7).fill([202, 0]),
      [202, 2],
    ]);
    await withWorker(() => setup.waitForStatus(id, "completed"));
    const searched = github.calls.map(({ email }) => email).filter((email) => /^[mn]@/.test(email ?? ""));
    expect(searched.sort()).toEqual(["m@example.com", "n@example.com"]);
  });
});

describe("a repository in progress for more than an hour", () => {
  const hours = (id: string, ago: string) =>
    pool.query("update leaderboard.repositories set status_since = now() - $2::interval where id = $1", [id, ago]);
  const stuck = async () =>
    (await api.get("/stuck")).body.rows.map(({ repository }: { repository: string }) => repository);

  it("is stuck in each stage until it progresses; a completed one never is", async () => {
    const { id: waits } = (await api.post("/leaderboard", { url: "acme/stuck-waits" })).body;
    const { id: reads } = await setup.request("acme/stuck-reads");
    const { reading } = await setup.request("acme/stuck-reads");
    await pool.query("select leaderboard.begin_reading($1, $2)", [reads, reading]);
    const { id: looks } = await setup.addCounted("acme/stuck-looks", { "slow@example.com": 1 });
    const { id: over } = await setup.addCounted("acme/stuck-over", { "fast@example.com": 1 });
    await settleEmail(pool, over, "fast@example.com", byAddress);
    for (const id of [waits, reads, looks, over]) await hours(id, "59 minutes");
    expect(await stuck()).toEqual([]);
    for (const id of [waits, reads, looks, over]) await hours(id, "61 minutes");
    expect(await stuck()).toEqual(["acme/stuck-looks", "acme/stuck-reads", "acme/stuck-waits"]);
    expect((await api.get(`/leaderboard/${looks}`)).body).toMatchObject({ stuck: true, stage: "users" });
    expect((await api.get(`/leaderboard/${over}`)).body).toMatchObject({ stuck: false, stage: null });

    await settleEmail(pool, looks, "slow@example.com", byAddress);
    await pool.query(
      "select leaderboard.begin_reading($1, (select reading from leaderboard.repositories where id = $1))",
      [waits],
    );
    expect(await stuck()).toEqual(["acme/stuck-reads"]);
  });
});

describe("GitHub's rate limit", () => {
  /** Like a worker that reports response headers. */
  const report = (limit: string, headers: object) =>
    pool.query("select stillwake.use_limit($1, null, 0, null, 0, 0, 0, 0, $2)", [limit, headers]);
  const quotas = async () => (await api.get("/quota")).body;
  const unknown = { remaining: null, limit: null, resetAt: null, waiting: false, waitingUntil: null, reason: null };
  beforeEach(async () => {
    // Limits are registered with the first call.
    await pool.query("select stillwake.register_limit('github-core', $1)", [{ learn: true }]);
    for (const limit of ["github-search", "github-core"]) await stillwake.flow.reset(limit);
  });

  it("is unknown before the first call, then as reported, separately for searches and other calls", async () => {
    expect(await quotas()).toEqual({ search: unknown, core: unknown });
    await report("github-search", { limit: 30, remaining: 11, reset_ms: 40_000 });
    await report("github-core", { limit: 5000, remaining: 4999, reset_ms: 3_000_000 });
    const { search, core } = await quotas();
    expect(search).toMatchObject({ ...unknown, limit: 30, remaining: 11, resetAt: expect.any(String) });
    expect(core).toMatchObject({ ...unknown, limit: 5000, remaining: 4999, resetAt: expect.any(String) });
    expect(Date.parse(search.resetAt)).toBeLessThan(Date.parse(core.resetAt));
    // Boards and lists show the limit of searches.
    const { body } = await api.post("/leaderboard", { url: "acme/quota" });
    expect(body.quota).toEqual(search);
    expect((await api.get("/leaderboard?limit=1")).body.rows[0].quota).toEqual(search);
  });

  it("shows until when look-ups wait if it is exhausted", async () => {
    await report("github-search", { limit: 30, remaining: 0, reset_ms: 40_000 });
    const { search, core } = await quotas();
    expect(search).toMatchObject({ limit: 30, remaining: 0, waiting: true });
    expect(search.reason).toBe("the quota of github-search is used up");
    expect(search.waitingUntil).toBe(search.resetAt);
    expect(core.waiting).toBe(false);
  });

  it("blocks look-ups while GitHub has rejected a call, even if calls remain", async () => {
    await report("github-search", { limit: 30, remaining: 25, reset_ms: 40_000, refused_ms: 5000 });
    const { search } = await quotas();
    expect(search).toMatchObject({ limit: 30, remaining: 25, waiting: true });
    expect(search.reason).toBe("github-search has rejected a call");
    expect(Date.parse(search.waitingUntil)).toBeLessThan(Date.parse(search.resetAt));
  });
});
