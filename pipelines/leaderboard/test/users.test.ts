// Looking up contributors: the compiled pipeline under a real worker, against a server that speaks like GitHub.

import { waitFor } from "stillwake/testing";
import { beforeEach, describe, expect, it } from "vitest";
import { readContributors } from "../src/board.ts";
import type { Call, Fault, SampleUser } from "../src/demo/github-server.ts";
import { namedBy } from "../src/noreply.ts";
import { find } from "../src/users/find.ts";
import { stage } from "./support/leaderboards.ts";

const place = await stage();
const { pool, stillwake } = place;

const USERS: SampleUser[] = [
  { login: "ada", id: 1, name: "Ada Lovelace", email: "ada@example.com" },
  { login: "grace", id: 2, name: "Grace Hopper", email: "grace@example.com" },
  { login: "linus", id: 3, name: null, email: "linus@example.com" },
];
let faults: (call: Readonly<Call>) => Fault | undefined | Promise<undefined> = () => undefined;
const github = await place.github({
  users: USERS,
  search: { limit: 10_000, windowMs: 60_000 },
  onCall: (call) => faults(call),
});
const TOKEN = "a-token-that-is-in-no-log";

beforeEach(() => {
  faults = () => undefined;
  github.calls.length = 0;
});

/** E-mails that were asked for, and users that were read. */
const asked = () => github.calls.map(({ email, path }) => email ?? path);

async function working<T>(work: () => Promise<T>, options: Parameters<typeof place.worker>[1] = {}): Promise<T> {
  const worker = place.worker("users", { ...options, env: { LEADERBOARD_GITHUB_TOKEN: TOKEN, ...options.env } });
  await worker.start();
  // Its pauses are not what is tested, and take their time.
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

describe("an address of GitHub's own", () => {
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
  ])("%s", (email, named) => {
    expect(namedBy(email)).toEqual(named);
  });
});

describe("an address is looked up", () => {
  it("in the order of what it costs: not at all, in the database, by a search", async () => {
    const { id } = await place.counted("acme/order", {
      "7+noreply-name@users.noreply.github.com": 9,
      "old-name@users.noreply.github.com": 8,
      "ada@example.com": 7,
      "nobody@example.com": 6,
      "": 5,
      'a"b in:login@example.com': 4,
      "no-at-sign": 3,
    });
    await working(() => place.until(id, "completed"));
    expect(asked().sort()).toEqual(["ada@example.com", "nobody@example.com"]);
    expect(await board(id)).toEqual([
      ["noreply-name", 9],
      ["old-name", 8],
      ["ada", 7],
      ["Nobody", 6],
      ["", 5],
      ['A"B In:Login', 4],
      ["No-At-Sign", 3],
    ]);

    // Another repository with the same people: everybody is known.
    github.calls.length = 0;
    const again = await place.counted("acme/same", { "ada@example.com": 1, "nobody@example.com": 2 });
    await working(() => place.until(again.id, "completed"));
    expect(asked()).toEqual([]);
    expect(await board(again.id)).toEqual([
      ["Nobody", 2],
      ["ada", 1],
    ]);
  });

  it("again after a day: known ones by their name, which costs nothing when nothing has changed, unknown ones by a search", async () => {
    const emails = { "grace@example.com": 3, "linus@example.com": 2, "someone@example.com": 1 };
    const { id } = await place.counted("acme/day", emails);
    await working(() => place.until(id, "completed"));
    const nextDay = async () => {
      await pool.query("update leaderboard.contributor_emails set checked_at = checked_at - interval '25 hours'");
      github.calls.length = 0;
      expect(await place.lookUpAgain(id)).toMatchObject({ lookups: 3, jobs: 1 });
      await working(() => place.until(id, "completed"));
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
    // Nobody of that name any more: the address is searched for again.
    USERS.splice(
      USERS.findIndex(({ login }) => login === "linus"),
      1,
      { login: "linus-2", id: 3, name: "Linus", email: "linus@example.com" },
    );
    await nextDay();
    expect(asked()).toEqual(["/users/grace", "/users/linus", "linus@example.com", "someone@example.com"]);
    expect(await board(id)).toEqual([
      ["grace", 3],
      ["linus-2", 2],
      ["Someone", 1],
    ]);
  });

  it("as one of several of the same person, whose commits are added up", async () => {
    USERS.push({ login: "many", id: 9, name: "Many", email: "many@example.com" });
    const { id } = await place.counted("acme/many", {
      "many@example.com": 5,
      "many@users.noreply.github.com": 4,
      "9+many@users.noreply.github.com": 3,
      "other@example.com": 6,
    });
    await working(() => place.until(id, "completed"));
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

  it("with no word of it in any log", async () => {
    const { id, jobs } = await place.counted("acme/quiet", { "secretive@example.com": 2, "refused@example.com": 1 });
    let refused = 0;
    faults = ({ email }) => (email === "refused@example.com" && refused++ === 0 ? { status: 500 } : undefined);
    await working(() => place.until(id, "completed"));
    const said = JSON.stringify([await stillwake.logs(jobs[0]!), await stillwake.get(jobs[0]!)]);
    expect(said).not.toMatch(/secretive|refused@|a-token-that/);
  });
});

describe("one address that cannot be looked up", () => {
  it.each<[string, Fault]>([
    ["a broken answer (500)", { status: 500 }],
    ["an answer that is not there yet (202)", { status: 202 }],
    ["a page in the place of JSON", { garbage: true }],
    ["an answer that breaks off", { cut: true }],
  ])(
    "for %s does not fail the others, nor the repository, and is retried without reading commits",
    async (_, fault) => {
      const name = `bad${github.calls.length}-${Object.keys(fault)[0]}${fault.status ?? ""}`;
      const bad = `${name}@example.com`;
      const { id, jobs } = await place.counted(`acme/${name}`, { "ada@example.com": 3, [bad]: 2, [`x${bad}`]: 1 });
      faults = ({ email }) => (email === bad ? fault : undefined);
      await working(async () => {
        const { job, lines } = await place.ended(jobs[0]!);
        expect(job, lines.join("\n")).toMatchObject({
          state: "failed",
          failure: { cause: { code: "LOOK_UP_FAILED" } },
        });
        // Every other was asked for once, this one in every attempt.
        expect(github.calls.filter(({ email }) => email === `x${bad}`)).toHaveLength(1);
        expect(github.calls.filter(({ email }) => email === bad)).toHaveLength(5);
        const after = await place.until(id, "users_processing");
        expect(after.lookups).toEqual({ total: 3, processed: 2, failed: 1 });

        faults = () => undefined;
        expect(await place.lookUpAgain(id)).toMatchObject({ lookups: 1, jobs: 1 });
        await place.until(id, "completed");
      });
      expect(await place.history(id)).toEqual(["pending", "commits_processing", "users_processing", "completed"]);
    },
  );

  it("because GitHub calls the question wrong (422) is an address and no more", async () => {
    const { id } = await place.counted("acme/wrong", { "wrong@example.com": 1 });
    faults = () => ({ status: 422 });
    await working(() => place.until(id, "completed"));
    expect(await processed(id)).toEqual({ "wrong@example.com": "email" });
  });
});

describe("GitHub in trouble", () => {
  it("as a whole opens the breaker: batches pause instead of using up their attempts, and go on when it has healed", async () => {
    const emails = Object.fromEntries(Array.from({ length: 60 }, (_, n) => [`p${n}@example.com`, 100 - n]));
    const { id, jobs } = await place.counted("acme/broken", emails);
    faults = () => ({ status: 503 });
    await working(async () => {
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
      await place.until(id, "completed");
    });
    for (const job of jobs) expect((await stillwake.get(job)).attempt).toBeLessThanOrEqual(1);
  });

  it("with our token keeps everybody away for a while, at no batch's expense, and says what to set", async () => {
    const emails = Object.fromEntries(Array.from({ length: 120 }, (_, n) => [`t${n}@example.com`, 200 - n]));
    const { id, jobs } = await place.counted("acme/token", emails);
    faults = () => ({ status: 401 });
    await working(async () => {
      const said = async () => (await Promise.all(jobs.map((job) => stillwake.logs(job)))).flat();
      const isSaid = async () => (await said()).some(({ message }) => message.includes("set LEADERBOARD_GITHUB_TOKEN"));
      await waitFor(isSaid, { timeout: 30_000 });
      await waitFor(async () => (await stillwake.get(jobs[0]!)).state === "queued", { timeout: 30_000 });
      expect(github.calls).toHaveLength(1);
      const [limit] = (await stillwake.flow.limits()).filter(({ name }) => name === "github-search");
      expect(+limit!.blockedUntil! - Date.now()).toBeGreaterThan(800_000);
      expect((await stillwake.get(jobs[0]!)).attempt).toBe(0);
      faults = () => undefined;
      await stillwake.flow.reset("github-search");
      await pool.query("update stillwake.live_jobs set run_at = stillwake.now()");
      await place.until(id, "completed");
    });
  });

  it("for one address alone (403 without a word about limits) does not hold up the others", async () => {
    const { id, jobs } = await place.counted("acme/forbidden", {
      "f1@example.com": 3,
      "f2@example.com": 2,
      "f3@example.com": 1,
    });
    faults = ({ email }) => (email === "f2@example.com" ? { status: 403 } : undefined);
    await working(async () => {
      expect((await place.ended(jobs[0]!)).job.state).toBe("failed");
    });
    expect((await place.until(id, "users_processing")).lookups).toEqual({ total: 3, processed: 2, failed: 1 });
  });
});

it("a batch that is at work leaves to another what is dealt out anew meanwhile", async () => {
  const emails = { "r1@example.com": 3, "r2@example.com": 2, "r3@example.com": 1 };
  const { id, jobs } = await place.counted("acme/anew", emails);
  faults = async ({ email }) => {
    if (email !== "r1@example.com") return;
    await pool.query(
      "update leaderboard.commit_data set reading = gen_random_uuid() where repository_id = $1 and author_email = 'r2@example.com'",
      [id],
    );
  };
  await working(async () => {
    expect((await place.ended(jobs[0]!)).job).toMatchObject({ state: "completed", output: { emails: 2, calls: 2 } });
    expect(asked()).toEqual(["r1@example.com", "r3@example.com"]);
    await place.lookUpAgain(id);
    await place.until(id, "completed");
  });
  expect(asked()).toEqual(["r1@example.com", "r3@example.com", "r2@example.com"]);
});

describe("what one repository says of somebody", () => {
  it("is shown on its own board alone: names of others come from their own pages", async () => {
    USERS.push({ login: "known-well", id: 77, name: "Known Well", email: "well@example.com" });
    const honest = await place.counted("acme/honest", {
      "well@example.com": 2,
      "known-well@users.noreply.github.com": 1,
      "plain@example.com": 1,
    });
    await working(() => place.until(honest.id, "completed"));
    // A day later its own page is read.
    await pool.query("update leaderboard.contributor_emails set checked_at = checked_at - interval '25 hours'");
    await place.lookUpAgain(honest.id);
    await working(() => place.until(honest.id, "completed"));
    const evil = await place.counted("evil/evil", {
      "1+known-well@users.noreply.github.com": 1,
      "plain@example.com": 1,
    });
    await pool.query("update leaderboard.commit_data set author_name = 'Buy pills' where repository_id = $1", [
      evil.id,
    ]);
    await working(() => place.until(evil.id, "completed"));
    const names = async (id: string) =>
      (await readContributors(pool, id, { limit: 10 })).rows.map(({ name }) => name).sort();
    expect(await names(honest.id)).toEqual(["Known Well", "Plain"]);
    expect(await names(evil.id)).toEqual(["Buy pills", "Known Well"]);
    const { rows } = await pool.query(
      "select github_id::integer from leaderboard.contributors where login = 'known-well'",
    );
    expect(rows).toEqual([{ github_id: 77 }]);
  });

  it("and what another has found out of an address reaches its board when it is looked up again", async () => {
    const one = await place.counted("acme/one", { "late@example.com": 1 });
    const two = await place.counted("acme/two", { "late@example.com": 2 });
    await working(async () => {
      await place.until(one.id, "completed");
      await place.until(two.id, "completed");
      USERS.push({ login: "late", id: 88, name: null, email: "late@example.com" });
      await pool.query(
        "update leaderboard.contributor_emails set checked_at = checked_at - interval '25 hours' where email = 'late@example.com'",
      );
      await place.lookUpAgain(one.id);
      await place.until(one.id, "completed");
      expect(await board(one.id)).toEqual([["late", 1]]);
      expect(await place.lookUpAgain(two.id)).toMatchObject({ lookups: 0, jobs: 0 });
    });
    expect(await board(two.id)).toEqual([["late", 2]]);
  });
});

it("a question is asked for nothing but an address", async () => {
  const asks: string[] = [];
  const stub = { calls: 0, user: async () => undefined, userByEmail: async (email: string) => void asks.push(email) };
  const hostile = [
    'x" OR user:admin@example.com',
    "a@b@example.com",
    "a@localhost",
    "a:b@example.com",
    `${"a".repeat(250)}@example.com`,
    "a@-.com",
    "ü@example.com ",
  ];
  for (const email of [...hostile, "fine+tag@sub.example.co.uk", "o'neil@example.com"]) {
    await find({ email, login: null, githubId: null, etag: null }, stub as never);
  }
  expect(asks).toEqual(["fine+tag@sub.example.co.uk", "o'neil@example.com"]);
});
