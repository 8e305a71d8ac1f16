// The API over HTTP with a real database: records, stages, the board, and when a repository is read again.
import { afterAll, describe, expect, it } from "vitest";
import { settleEmail } from "../../src/users/store.ts";
import { claimReading, serveApi } from "../support/app-server.ts";
import { setUpLeaderboards } from "../support/leaderboards.ts";

const setup = await setUpLeaderboards();
const { pool, stillwake } = setup;
const sample = { name: "Sample repository", repository: "stillwake-sample/lighthouse" };
const api = await serveApi(setup, { sample });

/** No response of this file contains an e-mail address. */
afterAll(() => {
  expect(api.responses.length).toBeGreaterThan(50);
  expect(api.responses.filter((text) => text.includes("@"))).toEqual([]);
  expect(api.internalErrors).toEqual([]);
});

const jobsOf = async (id: string) =>
  (await pool.query("select id, state from stillwake.jobs where key = $1 order by created_at", [id])).rows;
const byLogin = (login: string, name: string | null = null) =>
  ({ source: "search", login, githubId: null, name, etag: null }) as const;
const byAddress = { source: "email", login: null, githubId: null, name: null, etag: null } as const;

async function addCompleted(repository: string, counts: Record<string, number> = { "ada@example.com": 2 }) {
  const { id } = await setup.addCounted(repository, counts);
  const { reading } = await setup.request(repository);
  await claimReading(setup, reading, { outcome: "completed", output: null });
  for (const email of Object.keys(counts)) await settleEmail(pool, id, email, byAddress);
  return { id, reading };
}

describe("a repository", () => {
  it("has one record and one job, whatever form of its URL is sent in twenty concurrent requests", async () => {
    const forms = [
      "https://github.com/Acme/Once",
      "acme/once",
      "git@github.com:acme/once.git",
      "github.com/acme/once/",
    ];
    const requests = Array.from({ length: 20 }, (_, n) => api.post("/leaderboard", { url: forms[n % forms.length] }));
    const responses = await Promise.all(requests);
    expect(responses.map(({ status }) => status)).toEqual(Array(20).fill(202));
    expect(new Set(responses.map(({ body }) => body.id)).size).toBe(1);
    const { id, jobs } = responses[0]!.body;
    expect(await jobsOf(id)).toEqual([{ id: jobs.commits, state: "queued" }]);
    expect((await api.get("/leaderboard")).body).toMatchObject({
      total: 1,
      rows: [{ id, url: "https://github.com/acme/once", repository: "acme/once" }],
    });
    expect(await setup.history(id)).toEqual(["pending"]);
  });

  it("returns 202 while commits are counted and users are looked up, then 200 with the board", async () => {
    const made = await api.post("/leaderboard", { url: "acme/stages" });
    const { id, jobs } = made.body;
    const read = () => api.get(`/leaderboard/${id}`);
    expect([made.status, made.body]).toEqual([
      202,
      {
        ...{ id, url: "https://github.com/acme/stages", repository: "acme/stages" },
        ...{ status: "pending", stage: "commits", error: null, stuck: false },
        ...{ commits: null, authors: null, head: null, progress: null },
        lookups: { total: 0, processed: 0, failed: 0 },
        times: {
          ...{ createdAt: expect.any(String), updatedAt: expect.any(String) },
          ...{ commitsStartedAt: null, commitsEndedAt: null, usersEndedAt: null },
        },
        jobs: { commits: expect.any(String) },
        quota: { remaining: null, limit: null, resetAt: null, waiting: false, waitingUntil: null, reason: null },
        contributors: { rows: [], cursor: null, total: 0 },
      },
    ]);

    const { job, epoch, lease } = await claimReading(setup, jobs.commits);
    await pool.query("select leaderboard.begin_reading($1, $2)", [id, job]);
    await pool.query("select stillwake.progress($1, $2, $3, $4)", [job, epoch, lease, { done: 4711, total: 9000 }]);
    const counting = await read();
    expect([counting.status, counting.body]).toMatchObject([
      202,
      { status: "commits_processing", stage: "commits", progress: { done: 4711 }, commits: null },
    ]);
    expect(Date.parse(counting.body.times.commitsStartedAt)).not.toBeNaN();

    await setup.addCounted("acme/stages", { "ada@example.com": 3, "bob@example.com": 1 });
    const looking = await read();
    expect([looking.status, looking.body]).toMatchObject([
      202,
      { stage: "users", commits: 4, authors: 2, head: "head", progress: null, lookups: { total: 2, processed: 0 } },
    ]);
    await settleEmail(pool, id, "ada@example.com", byLogin("ada"));
    await settleEmail(pool, id, "bob@example.com", byAddress);
    const done = await read();
    expect([done.status, done.body]).toMatchObject([
      200,
      { status: "completed", stage: null, lookups: { total: 2, processed: 2, failed: 0 } },
    ]);
    const { commitsStartedAt, commitsEndedAt, usersEndedAt } = done.body.times;
    expect([commitsStartedAt, commitsEndedAt, usersEndedAt].map(Date.parse)).not.toContain(Number.NaN);
    // Another request returns it without reading commits.
    expect(await api.post("/leaderboard", { url: "acme/stages" })).toMatchObject({
      status: 200,
      body: { id, contributors: { total: 2 } },
    });
    expect(await jobsOf(id)).toHaveLength(1);
    expect(await setup.history(id)).toEqual(["pending", "commits_processing", "users_processing", "completed"]);
  });

  it("can be the sample, which has the same record as when it is requested by name", async () => {
    expect((await api.get("/me")).body).toEqual({ open: true, sample: "Sample repository" });
    const { status, body } = await api.post("/sample");
    expect([status, body.repository]).toEqual([202, sample.repository]);
    expect((await api.post("/leaderboard", { url: sample.repository })).body.id).toBe(body.id);
  });

  it("has a read token for its job, and is listed in pages, newest first", async () => {
    const { body } = await api.post("/leaderboard", { url: "acme/newest" });
    expect((await api.get(`/leaderboard/${body.id}/token`)).body.token).toMatch(/^swr_/);
    const first = (await api.get("/leaderboard?limit=1")).body;
    expect([first.rows.length, first.rows[0].repository]).toEqual([1, "acme/newest"]);
    expect(first.rows[0]).not.toHaveProperty("contributors");
    const rest = (await api.get(`/leaderboard?limit=200&cursor=${first.cursor}`)).body;
    expect(1 + rest.rows.length).toBe(first.total);
    expect(rest.rows.map((row: { id: string }) => row.id)).not.toContain(body.id);
  });
});

describe("the board", () => {
  it("shows known and unknown contributors with ranks and shares while users are looked up", async () => {
    const { id } = await setup.addCounted("acme/partial", {
      "ada@example.com": 40,
      "ada@old.example.com": 25,
      "bob@example.com": 20,
      "eve@example.com": 10,
      "one@example.com": 5,
    });
    const board = async () => (await api.get(`/leaderboard/${id}`)).body;
    await settleEmail(pool, id, "ada@example.com", byLogin("ada-l", "Ada Lovelace"));
    await settleEmail(pool, id, "bob@example.com", byAddress);
    const part = await board();
    expect(part).toMatchObject({ stage: "users", lookups: { total: 5, processed: 2, failed: 0 } });
    const ada = { login: "ada-l", name: "Ada Lovelace", initials: "AL", url: "https://github.com/ada-l", known: true };
    const unknown = { login: null, url: null };
    expect(part.contributors.rows).toEqual([
      { ...ada, rank: 1, commits: 40, share: 0.4 },
      { ...unknown, rank: 2, name: "Ada", initials: "A", commits: 25, share: 0.25, known: false },
      { ...unknown, rank: 3, name: "Bob", initials: "B", commits: 20, share: 0.2, known: true },
      { ...unknown, rank: 4, name: "Eve", initials: "E", commits: 10, share: 0.1, known: false },
      { ...unknown, rank: 5, name: "One", initials: "O", commits: 5, share: 0.05, known: false },
    ]);

    // Two rows of one contributor are merged.
    await settleEmail(pool, id, "ada@old.example.com", byLogin("Ada-L"));
    await settleEmail(pool, id, "eve@example.com", byLogin("dependabot[bot]"));
    await pool.query(
      "update leaderboard.commit_data set lookup_error = 'HTTP 500' where author_email = 'one@example.com'",
    );
    const whole = await board();
    expect(whole.lookups).toEqual({ total: 5, processed: 4, failed: 1 });
    expect(
      whole.contributors.rows.map((row: Record<string, unknown>) => [row.rank, row.login, row.commits, row.url]),
    ).toEqual([
      [1, "Ada-L", 65, "https://github.com/Ada-L"],
      [2, null, 20, null],
      [3, "dependabot[bot]", 10, "https://github.com/apps/dependabot"],
      [4, null, 5, null],
    ]);
    expect(sharesOf(whole.contributors.rows)).toBeCloseTo(1, 10);
  });

  it("never shows an e-mail address that an author used as a name", async () => {
    const { id } = await setup.addCounted("acme/names", { "a@example.com": 4, "b@example.com": 3, "c@example.com": 2 });
    await pool.query(
      `update leaderboard.commit_data set author_name = case author_email when 'a@example.com' then 'Mail.Me@example.com' else '<c@example.com>' end
       where repository_id = $1`,
      [id],
    );
    await settleEmail(pool, id, "b@example.com", byLogin("bee", "Bee (bee@example.com)"));
    await settleEmail(pool, id, "c@example.com", byAddress);
    const { rows } = (await api.get(`/leaderboard/${id}`)).body.contributors;
    expect(rows.map(({ name, initials }: { name: string; initials: string }) => [name, initials])).toEqual([
      ["Mail.Me", "MM"],
      ["Bee (bee)", "BB"],
      ["c", "C"],
    ]);
  });

  it("pages through 250 contributors without gaps or repetitions, for any page size", async () => {
    const counts = Object.fromEntries(Array.from({ length: 250 }, (_, n) => [`p${n}@example.com`, 1 + (n % 7)]));
    const { id } = await setup.addCounted("acme/pages", counts);
    for (let n = 0; n < 250; n += 3) await settleEmail(pool, id, `p${n}@example.com`, byLogin(`login-${n}`, `P${n}`));
    const first = (await api.get(`/leaderboard/${id}`)).body.contributors;
    expect([first.rows.length, first.total]).toEqual([100, 250]);
    for (const limit of [7, 100, 200]) {
      const rows = await pagesOf(id, limit);
      expect(new Set(rows.map(({ name }) => name))).toEqual(new Set(Array.from({ length: 250 }, (_, n) => `P${n}`)));
      expect(rows).toHaveLength(250);
      expect(rows.map(({ commits }) => commits)).toEqual(rows.map(({ commits }) => commits).sort((a, b) => b - a));
      expect(sharesOf(rows)).toBeCloseTo(1, 10);
      // The rank is one more than the number of rows with more commits.
      for (const { rank, commits } of rows) {
        expect(rank).toBe(1 + rows.filter((other) => other.commits > commits).length);
      }
    }
  });
});

interface Row {
  name: string;
  rank: number;
  commits: number;
  share: number;
}

async function pagesOf(id: string, limit: number): Promise<Row[]> {
  const rows: Row[] = [];
  for (let cursor: string | null = ""; cursor !== null; ) {
    const { body } = await api.get(`/leaderboard/${id}?limit=${limit}${cursor && `&cursor=${cursor}`}`);
    rows.push(...body.contributors.rows);
    cursor = body.contributors.cursor;
  }
  return rows;
}

function sharesOf(rows: readonly Pick<Row, "share">[]): number {
  return rows.reduce((sum, { share }) => sum + share, 0);
}

describe("a board that was read", () => {
  it("is read again with refresh, and shows the old board until then", async () => {
    const { id, reading } = await addCompleted("acme/refresh");
    expect((await api.post("/leaderboard", { url: "acme/refresh", refresh: false })).status).toBe(200);
    const again = await api.post("/leaderboard", { url: "acme/refresh", refresh: true });
    expect([again.status, again.body]).toMatchObject([
      202,
      { id, status: "pending", stage: "commits", commits: 2, contributors: { total: 1 } },
    ]);
    expect(again.body.jobs.commits).not.toBe(reading);
    // A second refresh starts no second reading.
    expect((await api.post("/leaderboard", { url: "acme/refresh", refresh: true })).body.jobs).toEqual(again.body.jobs);
    expect(await jobsOf(id)).toHaveLength(2);
  });

  it("can be read again while users are looked up, but not while its job is still active", async () => {
    const { id } = await setup.addCounted("acme/early", { "ada@example.com": 1, "new@example.com": 2 });
    const { reading } = await setup.request("acme/early");
    const early = await api.post("/leaderboard", { url: "acme/early", refresh: true });
    expect(early.body).toMatchObject({ stage: "users", jobs: { commits: reading } });
    await claimReading(setup, reading, { outcome: "completed", output: null });
    const late = await api.post("/leaderboard", { url: "acme/early", refresh: true });
    expect(late.body).toMatchObject({ id, status: "pending", stage: "commits" });
    expect(late.body.jobs.commits).not.toBe(reading);
  });

  it.each([
    ["23 hours", 200],
    ["24 hours 1 second", 202],
  ])("%s ago returns %i", async (ago, status) => {
    const repository = `acme/ago-${status}`;
    const { id } = await addCompleted(repository);
    await pool.query(
      "update leaderboard.repositories set commits_ended_at = now() - $2::interval, users_ended_at = now() - $2::interval where id = $1",
      [id, ago],
    );
    // GET starts no reading.
    expect((await api.get(`/leaderboard/${id}`)).status).toBe(200);
    expect((await api.post("/leaderboard", { url: repository })).status).toBe(status);
    expect(await jobsOf(id)).toHaveLength(status === 202 ? 2 : 1);
  });

  it("shows the sentence of its failure, and is read again on the next request", async () => {
    const { body } = await api.post("/leaderboard", { url: "acme/failed" });
    const sentence = "Reading the commits failed: Repository not found";
    const end = { outcome: "failed", fatal: true, failure: { message: "x", sentence } };
    await claimReading(setup, body.jobs.commits, end);
    const failed = await api.get(`/leaderboard/${body.id}`);
    expect([failed.status, failed.body]).toMatchObject([200, { status: "failed", stage: null, error: sentence }]);
    const again = await api.post("/leaderboard", { url: "acme/failed" });
    expect([again.status, again.body]).toMatchObject([202, { id: body.id, status: "pending", error: null }]);
    expect(again.body.jobs.commits).not.toBe(body.jobs.commits);

    await stillwake.cancel(again.body.jobs.commits);
    expect((await api.get("/leaderboard?limit=200")).body.rows).toContainEqual(
      expect.objectContaining({ id: body.id, status: "failed", error: "Reading the commits was cancelled" }),
    );
  });
});
