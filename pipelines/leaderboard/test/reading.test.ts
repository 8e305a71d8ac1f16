// The commits pipeline: real git over HTTP and real workers; counts are compared with those of git.
import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { serveRepositories } from "@stillwake/kit/demo/git-server";
import { waitFor } from "stillwake/testing";
import { describe, expect, it } from "vitest";
import { git, importRepository } from "../src/demo/fast-import.ts";
import { makeRepository, shortlog } from "./support/big-repository.ts";
import { setUpLeaderboards } from "./support/leaderboards.ts";

const setup = await setUpLeaderboards();
const { pool, root, stillwake } = setup;

type Env = Record<string, string>;

async function counts(id: string): Promise<Record<string, number>> {
  const { rows } = await pool.query(
    "select author_email, commit_count::integer from leaderboard.commit_data where repository_id = $1",
    [id],
  );
  return Object.fromEntries(rows.map((row) => [row.author_email, row.commit_count]));
}

/** Runs the reading until its job has ended. */
async function read(repository: string, { refresh = false, env = {} }: { refresh?: boolean; env?: Env } = {}) {
  const worker = setup.worker("commits", { environment: env });
  await worker.start();
  await pool.query("update stillwake.pipelines set backoff_initial = '10ms', backoff_max = '20ms'");
  try {
    const { id, reading } = await setup.request(repository, refresh);
    return { id, ...(await setup.waitForJob(reading)) };
  } finally {
    await worker.stop();
  }
}

interface TestCommit {
  email: string;
  name?: string;
  mailmap?: string;
}

/** Commits after the existing ones, or instead of them. */
async function commitAll(
  directory: string,
  testCommits: readonly TestCommit[],
  from: "nothing" | "main" = "nothing",
): Promise<void> {
  const text = testCommits.map(({ email, name = "Author", mailmap }, index) => {
    const who = `${name} <${email}> ${1_700_000_000 + index} +0000`;
    const parent = index === 0 && from === "main" ? "from refs/heads/main^0\n" : "";
    const file =
      mailmap === undefined ? "" : `M 100644 inline .mailmap\ndata ${Buffer.byteLength(mailmap)}\n${mailmap}\n`;
    return `commit refs/heads/main\nauthor ${who}\ncommitter ${who}\ndata 2\n.\n${parent}${file}`;
  });
  if (from === "nothing") fs.rmSync(directory, { recursive: true, force: true });
  await importRepository(directory, [Buffer.from(`${text.join("\n")}\ndone\n`)]);
}

const A = { email: "a@example.com" };
const B = { email: "b@example.com" };

describe("a reading", () => {
  it("counts as git does, under a mailmap and with odd authors", async () => {
    const directory = path.join(root, "acme/odd.git");
    await makeRepository(directory, { commits: 3000, authors: 200, seed: 7, mailmap: true, odd: true });
    const { id, job, lines } = await read("acme/odd");
    expect(job, lines.join("\n")).toMatchObject({ state: "completed", output: { commits: 3000 } });
    const expected: Record<string, number> = {};
    for (const [email, commits] of await shortlog(directory)) {
      // Beyond what an index takes, an address is known by its beginning and its hash.
      const long = Buffer.byteLength(email) > 1000;
      const key = long ? `${email.slice(0, 100)}…${createHash("sha256").update(email).digest("hex")}` : email.trim();
      expected[key] = (expected[key] ?? 0) + commits;
    }
    expect(await counts(id)).toEqual(expected);
  });

  it("logs its progress", async () => {
    await commitAll(path.join(root, "acme/words.git"), [A, A, B]);
    const { lines } = await read("acme/words");
    expect(lines).toEqual([
      "info Reading the commits of acme/words...",
      "info Commits fetched",
      "success 3 commits counted",
      "success 3 commits by 2 authors stored",
      "success 2 contributors to look up, in one batch",
    ]);
  });

  it("assigns look-ups to batches of fifty, addresses with the most commits first, once", async () => {
    const people = Array.from({ length: 120 }, (_, n) => ({ email: `p${String(n).padStart(3, "0")}@example.com` }));
    await commitAll(path.join(root, "acme/batches.git"), [...people, ...people.slice(90)]);
    const { id, job } = await read("acme/batches");
    const { jobs } = await stillwake.list({ parent: job.id });
    expect(jobs.map(({ input }) => (input as { batch: number }).batch).sort()).toEqual([0, 1, 2]);
    const { rows } = await pool.query(
      "select batch, count(*)::integer as size, max(commit_count)::integer as most from leaderboard.commit_data where repository_id = $1 group by batch order by batch",
      [id],
    );
    expect(rows).toEqual([
      { batch: 0, size: 50, most: 2 },
      { batch: 1, size: 50, most: 1 },
      { batch: 2, size: 20, most: 1 },
    ]);
    expect(JSON.stringify(jobs)).not.toContain("@example.com");
  });
});

describe("an untrusted history", () => {
  it("cannot forge commits with a carriage return in a name", async () => {
    const name = "A\r\u0001victim@example.com\u0001V\r00000000-0000-0000-0000-000000000000 victim@example.com";
    await commitAll(path.join(root, "acme/forged.git"), [{ email: "a@example.com", name }]);
    const { id, job } = await read("acme/forged");
    expect(job.output).toMatchObject({ commits: 1, authors: 1 });
    expect(await counts(id)).toEqual({ "a@example.com": 1 });
  });

  it("has no effect with a .mailmap that is a link, a folder, a submodule or too large", async () => {
    const entries = {
      link: "M 120000 inline .mailmap\ndata 11\n/etc/passwd\n",
      folder: "M 100644 inline .mailmap/a\ndata 1\nx\n",
      submodule: "M 160000 1234567890123456789012345678901234567890 .mailmap\n",
      huge: `M 100644 inline .mailmap\ndata ${2 ** 21}\n${"<b@example.com> <a@example.com>\n".repeat(2 ** 16)}\n`,
    };
    for (const [name, entry] of Object.entries(entries)) {
      const who = "A <a@example.com> 1700000000 +0000";
      const stream = `commit refs/heads/main\nauthor ${who}\ncommitter ${who}\ndata 2\n.\n${entry}\ndone\n`;
      await importRepository(path.join(root, `acme/${name}.git`), [Buffer.from(stream)]);
      const { id, lines, job } = await read(`acme/${name}`);
      expect(job.state, lines.join("\n")).toBe("completed");
      expect(await counts(id), name).toEqual({ "a@example.com": 1 });
      expect(
        lines.filter((line) => line.startsWith("warning")),
        name,
      ).toEqual(name === "huge" ? ["warning The .mailmap is larger than 1 MB and is ignored"] : []);
    }
  });
});

describe("reading again", () => {
  const directory = path.join(root, "acme/again.git");
  const again = async (env: Env = {}) => {
    const { id, logs, job } = await read("acme/again", { refresh: true, env });
    expect(job.state, logs.map(({ message }) => message).join("\n")).toBe("completed");
    return { id, counted: logs.map(({ message }) => /^(.* commits) counted$/.exec(message)?.[1]).find(Boolean) };
  };
  const env = { LEADERBOARD_CACHE: path.join(setup.folder, "cache") };

  it("counts new commits and adds them, with or without a cached clone", async () => {
    await commitAll(directory, [A, A, B]);
    const { id, job } = await read("acme/again", { env });
    expect(job.output).toMatchObject({ commits: 3, authors: 2 });
    await commitAll(directory, [A, { email: "c@example.com" }], "main");
    expect(await again(env)).toMatchObject({ counted: "2 new commits" });
    expect(await counts(id)).toEqual({ "a@example.com": 3, "b@example.com": 1, "c@example.com": 1 });
    await commitAll(directory, [B], "main");
    expect(await again()).toMatchObject({ counted: "1 new commits" });
    expect(await counts(id)).toEqual({ "a@example.com": 3, "b@example.com": 2, "c@example.com": 1 });
  });

  it("adds nothing when nothing is new", async () => {
    const { id, counted } = await again(env);
    expect(counted).toBe("0 new commits");
    expect(await counts(id)).toEqual({ "a@example.com": 3, "b@example.com": 2, "c@example.com": 1 });
  });

  it("counts all commits if the .mailmap has changed", async () => {
    await commitAll(directory, [{ ...A, mailmap: "Ada <a@example.com>\nAda <a@example.com> <b@example.com>" }], "main");
    const { id, counted } = await again(env);
    expect(counted).toBe("7 commits");
    expect(await counts(id)).toEqual({ "a@example.com": 6, "c@example.com": 1 });
    const { rows } = await pool.query(
      "select author_name from leaderboard.commit_data where repository_id = $1 and author_email = 'a@example.com'",
      [id],
    );
    expect(rows).toEqual([{ author_name: "Ada" }]);
  });

  it("counts all commits if the history was rewritten, and removes authors who are not in it", async () => {
    await commitAll(directory, [{ email: "d@example.com" }, A]);
    const { id, counted } = await again(env);
    expect(counted).toBe("2 commits");
    expect(await counts(id)).toEqual({ "a@example.com": 1, "d@example.com": 1 });
  });

  it("replaces a damaged cached clone", async () => {
    const [kept = ""] = fs.readdirSync(env.LEADERBOARD_CACHE);
    fs.rmSync(path.join(env.LEADERBOARD_CACHE, kept, "objects"), { recursive: true });
    await commitAll(directory, [B], "main");
    const { counted } = await again(env);
    expect(counted).toBe("1 new commits");
    expect(fs.readdirSync(env.LEADERBOARD_CACHE)).toEqual([kept]);
  });

  it("replaces a cached clone with a damaged history in the next attempt", async () => {
    const [kept = ""] = fs.readdirSync(env.LEADERBOARD_CACHE);
    const [pack = ""] = fs
      .readdirSync(path.join(env.LEADERBOARD_CACHE, kept, "objects/pack"))
      .filter((name) => name.endsWith(".pack"));
    // The newest commit is fetched; the older ones are damaged.
    await pool.query("update leaderboard.repositories set head = null");
    await commitAll(directory, [B], "main");
    const file = path.join(env.LEADERBOARD_CACHE, kept, "objects/pack", pack);
    fs.chmodSync(file, 0o600);
    fs.truncateSync(file, 20);
    const { counted } = await again(env);
    expect(counted).toMatch(/^\d commits$/);
  });

  it("replaces a cached clone that has grown too large", async () => {
    const [kept = ""] = fs.readdirSync(env.LEADERBOARD_CACHE);
    fs.writeFileSync(path.join(env.LEADERBOARD_CACHE, kept, "objects/pack/tmp_pack_left"), Buffer.alloc(3 * 2 ** 20));
    await commitAll(directory, [A], "main");
    const { counted } = await again({ ...env, LEADERBOARD_CLONE_GB: String(2 / 1024) });
    expect(counted).toBe("1 new commits");
  });

  it("fetches only the root tree to find a .mailmap", async () => {
    const [kept = ""] = fs.readdirSync(env.LEADERBOARD_CACHE);
    const { stdout } = await git(path.join(env.LEADERBOARD_CACHE, kept), ["count-objects", "-v"]).then((text) => ({
      stdout: text.toString(),
    }));
    // Commits, root trees of the newest commits, and their mailmaps.
    expect(Number(/in-pack: (\d+)/.exec(stdout)![1])).toBeLessThan(12);
  });

  it("keeps the most recently used clones within the limit of the cache", async () => {
    await commitAll(path.join(root, "acme/other.git"), [A]);
    const small = { ...env, LEADERBOARD_CACHE_GB: "0.0000001" };
    expect((await read("acme/other", { env: small })).job.state).toBe("completed");
    // The other clone may still be in use by another worker.
    expect(fs.readdirSync(env.LEADERBOARD_CACHE)).toHaveLength(2);
    for (const kept of fs.readdirSync(env.LEADERBOARD_CACHE))
      fs.utimesSync(path.join(env.LEADERBOARD_CACHE, kept), 1, 1);
    await commitAll(path.join(root, "acme/third.git"), [A]);
    expect((await read("acme/third", { env: small })).job.state).toBe("completed");
    expect(fs.readdirSync(env.LEADERBOARD_CACHE)).toHaveLength(1);
  });
});

describe("a server", () => {
  it("that refuses tree:0 is asked for blob:none, and one that refuses that too for the whole repository", async () => {
    for (const [name, refused, filters] of [
      ["no-trees", ["tree"], ["tree:0"]],
      ["everything", ["tree", "blob:none"], ["tree:0", "blob:none"]],
    ] as const) {
      const directory = path.join(root, `acme/${name}.git`);
      await commitAll(directory, [A, { ...B, mailmap: "<a@example.com> <b@example.com>" }]);
      for (const filter of refused) await git(directory, ["config", `uploadpackfilter.${filter}.allow`, "false"]);
      const { id, lines, job } = await read(`acme/${name}`);
      expect(job.state, lines.join("\n")).toBe("completed");
      expect(lines.filter((line) => line.includes("filter"))).toEqual(
        filters.map((filter) => `info The server rejected the filter ${filter} - trying another one`),
      );
      expect(await counts(id)).toEqual({ "a@example.com": 2 });
    }
  });

  it("without filters sends the whole repository, and the log says so", async () => {
    await commitAll(path.join(root, "acme/old.git"), [A, { ...B, mailmap: "<a@example.com> <b@example.com>" }]);
    const old = await serveRepositories({ root, toolPath: process.env.PATH ?? "", filters: false });
    try {
      const { id, lines } = await read("acme/old", { env: { LEADERBOARD_GITHUB_URL: old.url } });
      expect(lines).toContain("info The server does not support filters and has sent the whole repository");
      expect(await counts(id)).toEqual({ "a@example.com": 2 });
    } finally {
      await old.close();
    }
  });
});

describe("a repository that cannot be read", () => {
  const failed = async (repository: string, env: Env = {}) => {
    const { id, lines, job } = await read(repository, { env });
    expect(job.state).toBe("failed");
    await pool.query("select leaderboard.record_outcomes()");
    const { rows } = await pool.query("select status, error from leaderboard.repositories where id = $1", [id]);
    return { lines: lines.filter((line) => line.startsWith("error")), ...rows[0] };
  };

  it("because it does not exist", async () => {
    const message = "Repository not found - it may have been deleted or made private";
    expect(await failed("acme/nowhere")).toEqual({
      lines: [`error ${message}`, `error Reading the commits failed: ${message}`],
      status: "failed",
      error: `Reading the commits failed: ${message}`,
    });
  });

  it("because it is empty", async () => {
    await importRepository(path.join(root, "acme/empty.git"), [Buffer.from("done\n")]).catch(() => {});
    expect((await failed("acme/empty")).error).toMatch(/^Reading the commits failed: Repository is empty/);
  });

  it("because it is too large", async () => {
    await makeRepository(path.join(root, "acme/large.git"), {
      commits: 20_000,
      authors: 20,
      seed: 1,
      mailmap: false,
      odd: false,
    });
    const { error } = await failed("acme/large", { LEADERBOARD_CLONE_GB: "0.0001" });
    expect(error).toBe("Reading the commits failed: Repository is too large to read (>0.0001GB)");
  });

  it("is read again on the next request", async () => {
    await commitAll(path.join(root, "acme/nowhere.git"), [A]);
    const { id, job } = await read("acme/nowhere");
    expect(job.state).toBe("completed");
    expect(await setup.history(id)).toEqual([
      ...["pending", "commits_processing", "failed"],
      ...["pending", "commits_processing", "users_processing"],
    ]);
  });
});

it("a reading that failed while storing can be retried", async () => {
  await commitAll(path.join(root, "acme/retried.git"), [A, B]);
  await pool.query(
    `create function public.refuses() returns trigger language plpgsql as 'begin raise exception ''no room''; end';
     create trigger refuses before insert on leaderboard.commit_data for each row execute function public.refuses()`,
  );
  const { id, reading } = await setup.request("acme/retried");
  await pool.query("update stillwake.live_jobs set max_attempts = 1 where id = $1", [reading]);
  const worker = setup.worker("commits");
  await worker.start();
  try {
    expect((await setup.waitForJob(reading)).job.state).toBe("failed");
    await pool.query("drop function public.refuses cascade; select leaderboard.record_outcomes()");
    await stillwake.retry(reading);
    await waitFor(async () => (await stillwake.get(reading)).state === "completed", { timeout: 30_000 });
  } finally {
    await worker.stop();
  }
  expect(await counts(id)).toEqual({ "a@example.com": 1, "b@example.com": 1 });
  expect(await setup.history(id)).toEqual([
    ...["pending", "commits_processing", "failed"],
    ...["commits_processing", "users_processing"],
  ]);
});

describe("a reading that fails after storing and before spawning look-ups", () => {
  const failToSpawn = async (repository: string) => {
    await commitAll(path.join(root, `${repository}.git`), [A, B]);
    await pool.query(
      `create function public.refuses() returns trigger language plpgsql as 'begin raise exception ''no room''; end';
       create trigger refuses before insert on stillwake.live_jobs for each row when (new.pipeline = 'leaderboard-users') execute function public.refuses()`,
    );
    const { id, reading } = await setup.request(repository);
    await pool.query("update stillwake.live_jobs set max_attempts = 1 where id = $1", [reading]);
    try {
      await withWorker(async () => expect((await setup.waitForJob(reading)).job.state).toBe("failed"));
    } finally {
      await pool.query("drop function public.refuses cascade");
    }
    expect(await setup.history(id)).toEqual(["pending", "commits_processing", "users_processing"]);
    return { id, reading };
  };
  const withWorker = async (work: () => Promise<unknown>) => {
    const worker = setup.worker("commits");
    await worker.start();
    try {
      await work();
    } finally {
      await worker.stop();
    }
  };
  const recorded = async () => (await pool.query("select leaderboard.record_outcomes() as count")).rows[0].count;

  it("is failed, and is read again on the next request", async () => {
    const { id } = await failToSpawn("acme/undealt");
    expect(await recorded()).toBe(1);
    const { rows } = await pool.query("select status, error from leaderboard.repositories where id = $1", [id]);
    expect(rows).toEqual([{ status: "failed", error: expect.stringMatching(/^Reading the commits failed: /) }]);
    const again = await read("acme/undealt");
    expect(again.job).toMatchObject({ state: "completed", output: { commits: 2, authors: 2, lookups: 2 } });
    expect((await setup.waitForStatus(id, "users_processing")).error).toBeNull();
  });

  it("resumes when its job is retried", async () => {
    const { id, reading } = await failToSpawn("acme/dealt-late");
    expect(await recorded()).toBe(1);
    await stillwake.retry(reading);
    // A client requests it again before a worker claims the retried job.
    await setup.request("acme/dealt-late");
    await withWorker(() =>
      waitFor(async () => (await stillwake.get(reading)).state === "completed", { timeout: 30_000 }),
    );
    expect(await setup.history(id)).toEqual([
      ...["pending", "commits_processing", "users_processing", "failed"],
      ...["pending", "users_processing"],
    ]);
    const { rows } = await pool.query("select count(*)::integer from stillwake.jobs where parent_id = $1", [reading]);
    expect(rows).toEqual([{ count: 1 }]);
  });
});

it("a reading that was replaced by another one writes nothing", async () => {
  await commitAll(path.join(root, "acme/replaced.git"), [A]);
  const { id, reading } = await setup.request("acme/replaced");
  await pool.query("update leaderboard.repositories set reading = gen_random_uuid() where id = $1", [id]);
  const worker = setup.worker("commits");
  await worker.start();
  try {
    const { job } = await setup.waitForJob(reading);
    expect(job).toMatchObject({ state: "failed", failure: { code: "SUPERSEDED" } });
  } finally {
    await worker.stop();
  }
  expect(await counts(id)).toEqual({});
});
