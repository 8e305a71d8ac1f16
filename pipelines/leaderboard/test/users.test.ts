// The users pipeline: the compiled pipeline under a real worker, against a fake GitHub.
import { waitFor } from "stillwake/testing";
import { beforeEach, describe, expect, it } from "vitest";
import { readContributors } from "../src/board.ts";
import { loginFromNoreply } from "../src/commits/count.ts";
import type { Call, Fault, SampleUser } from "../src/demo/github-server.ts";
import { findUser } from "../src/users/find.ts";
import { setUpLeaderboards } from "./support/leaderboards.ts";

const setup = await setUpLeaderboards();
const { pool, stillwake } = setup;

const USERS: SampleUser[] = [
  { login: "ada", id: 1, name: "Ada Lovelace", email: "ada@example.com" },
  { login: "grace", id: 2, name: "Grace Hopper", email: "grace@example.com" },
  { login: "linus", id: 3, name: null, email: "linus@example.com" },
];
let faults: (call: Readonly<Call>) => Fault | undefined | Promise<undefined> = () => undefined;
const github = await setup.serveGitHub({
  users: USERS,
  search: { limit: 10_000, windowMs: 60_000 },
  onCall: (call) => faults(call),
});
const TOKEN = "a-token-that-is-in-no-log";

beforeEach(() => {
  faults = () => undefined;
  github.calls.length = 0;
});

/** Addresses that were searched, and users that were read. */
const requested = () => github.calls.map(({ email, path }) => email ?? path);

async function withWorker<T>(work: () => Promise<T>, options: Parameters<typeof setup.worker>[1] = {}): Promise<T> {
  const worker = setup.worker("users", {
    ...options,
    environment: { LEADERBOARD_GITHUB_TOKEN: TOKEN, ...options.environment },
  });
  await worker.start();
  // Backoff is not tested here.
  await pool.query("update stillwake.pipelines set backoff_initial = '10ms', backoff_max = '20ms'");
  try {
    return await work();
  } finally {
    await worker.stop();
  }
}

async function board(id: string): Promise<[name: string | null, commits: number][]> {
  const { rows } = await readContributors(pool, id, { limit: 100 });
  return rows.map(({ login, name, commits }) => [login ?? name, commits]);
}

async function processed(id: string): Promise<Record<string, string | null>> {
  const { rows } = await pool.query(
    `select d.author_email, case when d.processed then e.source end as source
     from leaderboard.commit_data d left join leaderboard.contributor_emails e on e.email = d.author_email where d.repository_id = $1`,
    [id],
  );
  return Object.fromEntries(rows.map((row) => [row.author_email, row.source]));
}

describe("the login of a noreply address", () => {
  it.each([
    ["ada@users.noreply.github.com", "ada"],
    ["1234567+ada@users.noreply.github.com", "ada"],
    ["1234567+Ada-L@Users.NoReply.GitHub.com", "ada-l"],
    ["49699333+dependabot[bot]@users.noreply.github.com", "dependabot[bot]"],
    ["1+ada_acme@users.noreply.github.com", "ada_acme"],
    ["noreply@github.com", undefined],
    ["ada@users.noreply.github.com.example.com", undefined],
    ["+ada@users.noreply.github.com", undefined],
    ["1+@users.noreply.github.com", undefined],
    ["a b@users.noreply.github.com", undefined],
    ["", undefined],
  ])("%s", (email, login) => {
    expect(loginFromNoreply(email)).toEqual(login);
  });
});

describe("an address is looked up", () => {
  it("with as few calls as possible: none, from the database, by a search", async () => {
    const { id } = await setup.addCounted("acme/order", {
      "7+noreply-name@users.noreply.github.com": 9,
      "old-name@users.noreply.github.com": 8,
      "ada@example.com": 7,
      "nobody@example.com": 6,
      "": 5,
      'a"b in:login@example.com': 4,
      "no-at-sign": 3,
    });
    await withWorker(() => setup.waitForStatus(id, "completed"));
    expect(requested().sort()).toEqual(["ada@example.com", "nobody@example.com"]);
    expect(await board(id)).toEqual([
      ["noreply-name", 9],
      ["old-name", 8],
      ["ada", 7],
      ["Nobody", 6],
      ["", 5],
      ['A"B In:Login', 4],
      ["No-At-Sign", 3],
    ]);

    // Another repository with the same contributors needs no call.
    github.calls.length = 0;
    const again = await setup.addCounted("acme/same", { "ada@example.com": 1, "nobody@example.com": 2 });
    await withWorker(() => setup.waitForStatus(again.id, "completed"));
    expect(requested()).toEqual([]);
    expect(await board(again.id)).toEqual([
      ["Nobody", 2],
      ["ada", 1],
    ]);
  });

  it("again after a day: known users by login (free if unchanged), unknown ones by a search", async () => {
    const emails = { "grace@example.com": 3, "linus@example.com": 2, "someone@example.com": 1 };
    const { id } = await setup.addCounted("acme/day", emails);
    await withWorker(() => setup.waitForStatus(id, "completed"));
    const nextDay = async () => {
      await pool.query("update leaderboard.contributor_emails set checked_at = checked_at - interval '25 hours'");
      github.calls.length = 0;
      expect(await setup.lookUpAgain(id)).toMatchObject({ lookups: 3, jobs: 1 });
      await withWorker(() => setup.waitForStatus(id, "completed"));
    };
    await nextDay();
    expect(github.calls.map(({ path, status }) => [path, status])).toEqual([
      ["/users/grace", 200],
      ["/users/linus", 200],
      ["/search/users", 200],
    ]);
    await nextDay();
    expect(github.calls.map(({ path, status }) => [path, status])).toEqual([
      ["/users/grace", 304],
      ["/users/linus", 304],
      ["/search/users", 200],
    ]);
    // The login no longer exists: the address is searched again.
    USERS.splice(
      USERS.findIndex(({ login }) => login === "linus"),
      1,
      { login: "linus-2", id: 3, name: "Linus", email: "linus@example.com" },
    );
    await nextDay();
    expect(requested()).toEqual(["/users/grace", "/users/linus", "linus@example.com", "someone@example.com"]);
    expect(await board(id)).toEqual([
      ["grace", 3],
      ["linus-2", 2],
      ["Someone", 1],
    ]);
  });

  it("as one of several addresses of a user, whose commits are summed", async () => {
    USERS.push({ login: "many", id: 9, name: "Many", email: "many@example.com" });
    const { id } = await setup.addCounted("acme/many", {
      "many@example.com": 5,
      "many@users.noreply.github.com": 4,
      "9+many@users.noreply.github.com": 3,
      "other@example.com": 6,
    });
    await withWorker(() => setup.waitForStatus(id, "completed"));
    expect(await board(id)).toEqual([
      ["many", 12],
      ["Other", 6],
    ]);
    const { rows } = await pool.query(
      "select sum(commit_count)::integer as linked from leaderboard.contributions where repository_id = $1",
      [id],
    );
    expect(rows[0].linked).toBe(18);
  });

  it("without being logged", async () => {
    const { id, jobs } = await setup.addCounted("acme/quiet", { "secretive@example.com": 2, "refused@example.com": 1 });
    let refused = 0;
    faults = ({ email }) => (email === "refused@example.com" && refused++ === 0 ? { status: 500 } : undefined);
    await withWorker(() => setup.waitForStatus(id, "completed"));
    const logged = JSON.stringify([await stillwake.logs(jobs[0]!), await stillwake.get(jobs[0]!)]);
    expect(logged).not.toMatch(/secretive|refused@|a-token-that/);
  });
});

describe("an address that cannot be looked up", () => {
  it.each<[string, Fault]>([
    ["an error (500)", { status: 500 }],
    ["a result that is not ready (202)", { status: 202 }],
    ["a page instead of JSON", { garbage: true }],
    ["an incomplete response", { cut: true }],
  ])(
    "because of %s does not fail the others or the repository, and is retried without reading commits",
    async (_, fault) => {
      const name = `bad${github.calls.length}-${Object.keys(fault)[0]}${fault.status ?? ""}`;
      const bad = `${name}@example.com`;
      const { id, jobs } = await setup.addCounted(`acme/${name}`, { "ada@example.com": 3, [bad]: 2, [`x${bad}`]: 1 });
      faults = ({ email }) => (email === bad ? fault : undefined);
      await withWorker(async () => {
        const { job, lines } = await setup.waitForJob(jobs[0]!);
        expect(job, lines.join("\n")).toMatchObject({
          state: "failed",
          failure: { cause: { code: "LOOK_UP_FAILED" } },
        });
        // The others are searched once, this one in every attempt.
        expect(github.calls.filter(({ email }) => email === `x${bad}`)).toHaveLength(1);
        expect(github.calls.filter(({ email }) => email === bad)).toHaveLength(5);
        const after = await setup.waitForStatus(id, "users_processing");
        expect(after.lookups).toEqual({ total: 3, processed: 2, failed: 1 });

        faults = () => undefined;
        expect(await setup.lookUpAgain(id)).toMatchObject({ lookups: 1, jobs: 1 });
        await setup.waitForStatus(id, "completed");
      });
      expect(await setup.history(id)).toEqual(["pending", "commits_processing", "users_processing", "completed"]);
    },
  );

  it("because GitHub rejects the search (422) has no user", async () => {
    const { id } = await setup.addCounted("acme/wrong", { "wrong@example.com": 1 });
    faults = () => ({ status: 422 });
    await withWorker(() => setup.waitForStatus(id, "completed"));
    expect(await processed(id)).toEqual({ "wrong@example.com": "email" });
  });
});

describe("a GitHub failure", () => {
  it("of all calls opens the breaker: batches pause without using up attempts, and resume later", async () => {
    const emails = Object.fromEntries(Array.from({ length: 60 }, (_, n) => [`p${n}@example.com`, 100 - n]));
    const { id, jobs } = await setup.addCounted("acme/broken", emails);
    faults = () => ({ status: 503 });
    await withWorker(async () => {
      await waitFor(async () => (await stillwake.flow.breakers())[0]?.state === "open", { timeout: 30_000 });
      await waitFor(
        async () => (await Promise.all(jobs.map((job) => stillwake.get(job)))).every(({ state }) => state === "paused"),
        {
          timeout: 30_000,
          what: "all batches to pause",
        },
      );
      const calls = github.calls.length;
      expect(calls).toBeLessThanOrEqual(6);
      faults = () => undefined;
      await stillwake.flow.close("github");
      await setup.waitForStatus(id, "completed");
    });
    for (const job of jobs) expect((await stillwake.get(job)).attempt).toBeLessThanOrEqual(1);
  });

  it("of the token pauses all workers without charging attempts, and logs what to set", async () => {
    const emails = Object.fromEntries(Array.from({ length: 120 }, (_, n) => [`t${n}@example.com`, 200 - n]));
    const { id, jobs } = await setup.addCounted("acme/token", emails);
    faults = () => ({ status: 401 });
    await withWorker(async () => {
      const lines = async () => (await Promise.all(jobs.map((job) => stillwake.logs(job)))).flat();
      const isLogged = async () =>
        (await lines()).some(({ message }) => message.includes("set LEADERBOARD_GITHUB_TOKEN"));
      await waitFor(isLogged, { timeout: 30_000 });
      await waitFor(async () => (await stillwake.get(jobs[0]!)).state === "queued", { timeout: 30_000 });
      expect(github.calls).toHaveLength(1);
      const [limit] = (await stillwake.flow.limits()).filter(({ name }) => name === "github-search");
      expect(+limit!.blockedUntil! - Date.now()).toBeGreaterThan(800_000);
      expect((await stillwake.get(jobs[0]!)).attempt).toBe(0);
      faults = () => undefined;
      await stillwake.flow.reset("github-search");
      await pool.query("update stillwake.live_jobs set run_at = stillwake.now()");
      await setup.waitForStatus(id, "completed");
    });
  });

  it("of one address (403 without rate limit headers) does not delay the others", async () => {
    const { id, jobs } = await setup.addCounted("acme/forbidden", {
      "f1@example.com": 3,
      "f2@example.com": 2,
      "f3@example.com": 1,
    });
    faults = ({ email }) => (email === "f2@example.com" ? { status: 403 } : undefined);
    await withWorker(async () => {
      expect((await setup.waitForJob(jobs[0]!)).job.state).toBe("failed");
    });
    expect((await setup.waitForStatus(id, "users_processing")).lookups).toEqual({ total: 3, processed: 2, failed: 1 });
  });
});

it("a running batch skips addresses that were assigned to another one", async () => {
  const emails = { "r1@example.com": 3, "r2@example.com": 2, "r3@example.com": 1 };
  const { id, jobs } = await setup.addCounted("acme/repeated", emails);
  faults = async ({ email }) => {
    if (email !== "r1@example.com") return;
    await pool.query(
      "update leaderboard.commit_data set reading = gen_random_uuid() where repository_id = $1 and author_email = 'r2@example.com'",
      [id],
    );
  };
  await withWorker(async () => {
    expect((await setup.waitForJob(jobs[0]!)).job).toMatchObject({
      state: "completed",
      output: { emails: 2, calls: 2 },
    });
    expect(requested()).toEqual(["r1@example.com", "r3@example.com"]);
    await setup.lookUpAgain(id);
    await setup.waitForStatus(id, "completed");
  });
  expect(requested()).toEqual(["r1@example.com", "r3@example.com", "r2@example.com"]);
});

describe("names in the commits of a repository", () => {
  it("are shown only on its own board; other names come from GitHub profiles", async () => {
    USERS.push({ login: "known-well", id: 77, name: "Known Well", email: "well@example.com" });
    const honest = await setup.addCounted("acme/honest", {
      "well@example.com": 2,
      "known-well@users.noreply.github.com": 1,
      "plain@example.com": 1,
    });
    await withWorker(() => setup.waitForStatus(honest.id, "completed"));
    // A day later the profile is read.
    await pool.query("update leaderboard.contributor_emails set checked_at = checked_at - interval '25 hours'");
    await setup.lookUpAgain(honest.id);
    await withWorker(() => setup.waitForStatus(honest.id, "completed"));
    const evil = await setup.addCounted("evil/evil", {
      "1+known-well@users.noreply.github.com": 1,
      "plain@example.com": 1,
    });
    await pool.query("update leaderboard.commit_data set author_name = 'Buy pills' where repository_id = $1", [
      evil.id,
    ]);
    await withWorker(() => setup.waitForStatus(evil.id, "completed"));
    const names = async (id: string) =>
      (await readContributors(pool, id, { limit: 10 })).rows.map(({ name }) => name).sort();
    expect(await names(honest.id)).toEqual(["Known Well", "Plain"]);
    expect(await names(evil.id)).toEqual(["Buy pills", "Known Well"]);
    const { rows } = await pool.query(
      "select github_id::integer from leaderboard.contributors where login = 'known-well'",
    );
    expect(rows).toEqual([{ github_id: 77 }]);
  });

  it("a user found for another repository appears on the board when it is looked up again", async () => {
    const one = await setup.addCounted("acme/one", { "late@example.com": 1 });
    const two = await setup.addCounted("acme/two", { "late@example.com": 2 });
    await withWorker(async () => {
      await setup.waitForStatus(one.id, "completed");
      await setup.waitForStatus(two.id, "completed");
      USERS.push({ login: "late", id: 88, name: null, email: "late@example.com" });
      await pool.query(
        "update leaderboard.contributor_emails set checked_at = checked_at - interval '25 hours' where email = 'late@example.com'",
      );
      await setup.lookUpAgain(one.id);
      await setup.waitForStatus(one.id, "completed");
      expect(await board(one.id)).toEqual([["late", 1]]);
      expect(await setup.lookUpAgain(two.id)).toMatchObject({ lookups: 0, jobs: 0 });
    });
    expect(await board(two.id)).toEqual([["late", 2]]);
  });
});

it("only valid addresses are searched", async () => {
  const searched: string[] = [];
  const stub = {
    calls: 0,
    user: async () => undefined,
    userByEmail: async (email: string) => void searched.push(email),
  };
  const invalid = [
    'x" OR user:admin@example.com',
    "a@b@example.com",
    "a@localhost",
    "a:b@example.com",
    `${"a".repeat(250)}@example.com`,
    "a@-.com",
    "ü@example.com ",
  ];
  for (const email of [...invalid, "fine+tag@sub.example.co.uk", "o'neil@example.com"]) {
    await findUser({ email, login: null, githubId: null, etag: null }, stub as never);
  }
  expect(searched).toEqual(["fine+tag@sub.example.co.uk", "o'neil@example.com"]);
});
