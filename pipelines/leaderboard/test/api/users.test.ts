// The second stage through the API: looking up again without reading commits, what GitHub's budget lets us do, and what has been in work for too long.
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { settle } from "../../src/users/store.ts";
import { hand, serve } from "../support/app-server.ts";
import { stage } from "../support/leaderboards.ts";

const place = await stage();
const { pool, stillwake } = place;
const github = await place.github({
  users: [{ login: "grace", id: 2, name: "Grace Hopper", email: "grace@example.com" }],
  search: { limit: 10_000, windowMs: 60_000 },
});
const api = await serve(place);

afterAll(() => {
  expect(api.answers.filter((text) => text.includes("@"))).toEqual([]);
  expect(api.inside).toEqual([]);
});
beforeEach(() => {
  github.calls.length = 0;
});

const byAddress = { source: "email", login: null, githubId: null, name: null, etag: null } as const;
const jobsOf = async (id: string) =>
  (await pool.query("select pipeline, state from stillwake.jobs where input ->> 'repositoryId' = $1", [id])).rows;

async function working<T>(work: () => Promise<T>): Promise<T> {
  const worker = place.worker("users");
  await worker.start();
  try {
    return await work();
  } finally {
    await worker.stop();
  }
}

describe("looking up again", () => {
  it("is refused before the commits are counted, and says what to do", async () => {
    const { id, jobs } = (await api.post("/leaderboard", { url: "acme/uncounted" })).body;
    const refused = async () => (await api.post(`/leaderboard/${id}/users`)).body;
    const problem = { status: 409, code: "NOT_COUNTED", detail: "Its commits are not counted yet" };
    expect(await refused()).toEqual({ ...problem, remedy: "Wait until they are" });
    await pool.query("select leaderboard.begin_reading($1, $2)", [id, jobs.commits]);
    expect(await refused()).toEqual({ ...problem, remedy: "Wait until they are" });
    await hand(place, jobs.commits, { outcome: "failed", fatal: true, failure: { message: "Gone" } });
    expect((await api.get(`/leaderboard/${id}`)).body.status).toBe("failed");
    expect(await refused()).toEqual({ ...problem, remedy: "Read it again: POST /leaderboard with its url" });
    expect(await jobsOf(id)).toHaveLength(1);
  });

  it("makes batches of what nobody is at and no job that reads commits; what is on its way is left to it", async () => {
    const counts = Object.fromEntries(Array.from({ length: 60 }, (_, n) => [`p${n}@example.com`, 100 - n]));
    const { id, jobs: before } = await place.counted("acme/again", { ...counts, "grace@example.com": 1 });
    for (let n = 0; n < 8; n++) await settle(pool, id, `p${n}@example.com`, byAddress);
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
    await working(async () => {
      await place.until(id, "completed");
      expect((await place.ended(before[1]!)).job).toMatchObject({ state: "completed", output: { emails: 11 } });
    });
    // Each was asked for once.
    expect(github.calls.map(({ email }) => email).sort()).toEqual(
      [...Object.keys(counts).slice(8), "grace@example.com"].sort(),
    );
    const board = (await api.get(`/leaderboard/${id}`)).body;
    expect(board).toMatchObject({ status: "completed", jobs: { commits: reading } });
    expect(await place.history(id)).toEqual(["pending", "commits_processing", "users_processing", "completed"]);
  });

  it("when everybody was looked up today has nothing to do, and after a day has everybody again", async () => {
    const { id } = await place.counted("acme/day", { "x@example.com": 2, "y@users.noreply.github.com": 1 });
    await settle(pool, id, "x@example.com", byAddress);
    expect((await api.post(`/leaderboard/${id}/users`)).body).toEqual({ id, lookups: 0, jobs: 0 });
    expect((await api.get(`/leaderboard/${id}`)).body.status).toBe("completed");
    await pool.query("update leaderboard.contributor_emails set checked_at = now() - interval '25 hours'");
    expect((await api.post(`/leaderboard/${id}/users`)).body).toEqual({ id, lookups: 1, jobs: 1 });
    // Whoever was known stays known until somebody has looked.
    const { body } = await api.get(`/leaderboard/${id}`);
    expect(body).toMatchObject({ stage: "users", lookups: { total: 2, processed: 1 }, times: { usersEndedAt: null } });
    expect(body.contributors.rows.map(({ known }: { known: boolean }) => known)).toEqual([true, true]);
  });

  it("by several at once makes one batch of what nobody is at", async () => {
    const { id, jobs } = await place.counted("acme/at-once", { "m@example.com": 2, "n@example.com": 1 });
    await stillwake.cancel(jobs[0]!);
    const answers = await Promise.all(Array.from({ length: 8 }, () => api.post(`/leaderboard/${id}/users`)));
    expect(answers.map(({ status, body }) => [status, body.lookups]).sort()).toEqual([
      ...Array(7).fill([202, 0]),
      [202, 2],
    ]);
    await working(() => place.until(id, "completed"));
    const asked = github.calls.map(({ email }) => email).filter((email) => /^[mn]@/.test(email ?? ""));
    expect(asked.sort()).toEqual(["m@example.com", "n@example.com"]);
  });
});

describe("in work for more than an hour", () => {
  const hours = (id: string, ago: string) =>
    pool.query("update leaderboard.repositories set status_since = now() - $2::interval where id = $1", [id, ago]);
  const stuck = async () =>
    (await api.get("/stuck")).body.rows.map(({ repository }: { repository: string }) => repository);

  it("is stuck, in each of its stages, until it has gone on; what is over never is", async () => {
    const { id: waits } = (await api.post("/leaderboard", { url: "acme/stuck-waits" })).body;
    const { id: reads } = await place.ask("acme/stuck-reads");
    const { reading } = await place.ask("acme/stuck-reads");
    await pool.query("select leaderboard.begin_reading($1, $2)", [reads, reading]);
    const { id: looks } = await place.counted("acme/stuck-looks", { "slow@example.com": 1 });
    const { id: over } = await place.counted("acme/stuck-over", { "fast@example.com": 1 });
    await settle(pool, over, "fast@example.com", byAddress);
    for (const id of [waits, reads, looks, over]) await hours(id, "59 minutes");
    expect(await stuck()).toEqual([]);
    for (const id of [waits, reads, looks, over]) await hours(id, "61 minutes");
    expect(await stuck()).toEqual(["acme/stuck-looks", "acme/stuck-reads", "acme/stuck-waits"]);
    expect((await api.get(`/leaderboard/${looks}`)).body).toMatchObject({ stuck: true, stage: "users" });
    expect((await api.get(`/leaderboard/${over}`)).body).toMatchObject({ stuck: false, stage: null });

    await settle(pool, looks, "slow@example.com", byAddress);
    await pool.query(
      "select leaderboard.begin_reading($1, (select reading from leaderboard.repositories where id = $1))",
      [waits],
    );
    expect(await stuck()).toEqual(["acme/stuck-reads"]);
  });
});

describe("GitHub's budget", () => {
  /** As a worker passes on what GitHub has told it. */
  const told = (limit: string, words: object) =>
    pool.query("select stillwake.use_limit($1, null, 0, null, 0, 0, 0, 0, $2)", [limit, words]);
  const budgets = async () => (await api.get("/budget")).body;
  const unknown = { remaining: null, limit: null, resetAt: null, waiting: false, waitingUntil: null, reason: null };
  beforeEach(async () => {
    // Known to the engine from the first call on.
    await pool.query("select stillwake.register_limit('github-core', $1)", [{ learn: true }]);
    for (const limit of ["github-search", "github-core"]) await stillwake.flow.reset(limit);
  });

  it("is unknown until somebody has asked, and then what was told, for searches and for all else apart", async () => {
    expect(await budgets()).toEqual({ search: unknown, core: unknown });
    await told("github-search", { limit: 30, remaining: 11, reset_ms: 40_000 });
    await told("github-core", { limit: 5000, remaining: 4999, reset_ms: 3_000_000 });
    const { search, core } = await budgets();
    expect(search).toMatchObject({ ...unknown, limit: 30, remaining: 11, resetAt: expect.any(String) });
    expect(core).toMatchObject({ ...unknown, limit: 5000, remaining: 4999, resetAt: expect.any(String) });
    expect(Date.parse(search.resetAt)).toBeLessThan(Date.parse(core.resetAt));
    // Of a board, and of the list of them, it is that of searches.
    const { body } = await api.post("/leaderboard", { url: "acme/budget" });
    expect(body.budget).toEqual(search);
    expect((await api.get("/leaderboard?limit=1")).body.rows[0].budget).toEqual(search);
  });

  it("that is used up makes wait until it is renewed, and says so", async () => {
    await told("github-search", { limit: 30, remaining: 0, reset_ms: 40_000 });
    const { search, core } = await budgets();
    expect(search).toMatchObject({ limit: 30, remaining: 0, waiting: true });
    expect(search.reason).toBe("the budget of github-search is used up");
    expect(search.waitingUntil).toBe(search.resetAt);
    expect(core.waiting).toBe(false);
  });

  it("that is left is no use while GitHub has refused a call", async () => {
    await told("github-search", { limit: 30, remaining: 25, reset_ms: 40_000, refused_ms: 5000 });
    const { search } = await budgets();
    expect(search).toMatchObject({ limit: 30, remaining: 25, waiting: true });
    expect(search.reason).toBe("github-search has refused a call");
    expect(Date.parse(search.waitingUntil)).toBeLessThan(Date.parse(search.resetAt));
  });
});
