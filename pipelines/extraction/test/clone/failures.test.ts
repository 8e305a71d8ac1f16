// What a person is told when a clone fails: every row of the failure table, and the rest of what servers do, against a real server that fails so.
import { ExecError } from "stillwake/worker";
import { describe, expect, it } from "vitest";
import { type Fault, Repository } from "../../../kit/test/support/git-server.ts";
import { refusalOf } from "../../src/clone/refusals.ts";
import { readSettings } from "../../src/settings.ts";
import { type CloneOptions, cloning, troubles } from "../support/clone-job.ts";

const { server, clone, cloneAlone } = await cloning();
new Repository(server.root, "acme/site").commitFiles({ "a.txt": "a".repeat(5000), "b.txt": "b" });
new Repository(server.root, "acme/empty");

interface Row extends CloneOptions {
  when: string;
  fault?: Fault;
  code: string;
  message: string;
}

const EMPTY = "Repository is empty - push a commit to it, and see that its address does not lead to a sign-in page";
const RECONNECT = "Authentication failed - your GitHub App installation may need to be reconnected";
const NOT_FOUND = "Repository not found - it may have been deleted or made private";
const SIGNED = { credential: "ghs-expired-long-ago" };

describe.concurrent("the job ends at once, and says why, when", () => {
  const rows: Row[] = [
    { when: "GitHub answers 401", fault: 401, input: SIGNED, code: "CLONE_AUTH", message: RECONNECT },
    { when: "GitHub answers 403", fault: 403, input: SIGNED, code: "CLONE_AUTH", message: RECONNECT },
    { when: "GitHub answers anybody 401", fault: 401, code: "CLONE_NOT_FOUND", message: NOT_FOUND },
    { when: "GitHub answers anybody 403", fault: 403, code: "CLONE_NOT_FOUND", message: NOT_FOUND },
    {
      when: "GitLab answers anybody 401",
      fault: 401,
      input: { provider: "gitlab" },
      code: "CLONE_NOT_FOUND",
      message: NOT_FOUND,
    },
    {
      when: "GitLab answers 401",
      fault: 401,
      input: { provider: "gitlab", credential: "glpat-expired-long-ago" },
      code: "CLONE_AUTH",
      message: "Authentication failed - reconnect your GitLab integration in Organization Settings",
    },
    {
      when: "Bitbucket answers 403",
      fault: 403,
      input: { provider: "bitbucket", credential: "bb-expired-long-ago" },
      code: "CLONE_AUTH",
      message: "Authentication failed - reconnect your Bitbucket integration in Organization Settings",
    },
    { when: "the provider answers 404", fault: 404, code: "CLONE_NOT_FOUND", message: NOT_FOUND },
    {
      when: "there is no such repository",
      input: { repository: "acme/nothing" },
      code: "CLONE_NOT_FOUND",
      message: NOT_FOUND,
    },
    {
      when: "there is no such branch",
      input: { branch: "nope/2.x" },
      code: "CLONE_BRANCH",
      message: "Branch 'nope/2.x' not found in repository",
    },
    {
      when: "it is over the limit",
      env: { EXTRACTION_CLONE_GB: String(4096 / 2 ** 30) },
      code: "CLONE_TOO_LARGE",
      message: "Repository is too large to scan (>0.00000381GB)",
    },
    {
      when: "there are too many files",
      env: { EXTRACTION_CLONE_FILES: "1" },
      code: "CLONE_TOO_MANY_FILES",
      message: "Repository has too many files to scan (>1)",
    },
    { when: "it is empty", input: { repository: "acme/empty" }, code: "CLONE_EMPTY", message: EMPTY },
    { when: "a sign-in page answers", fault: "page", code: "CLONE_EMPTY", message: EMPTY },
    {
      when: "it has moved",
      fault: "redirect",
      code: "CLONE_MOVED",
      message: "Repository has moved - change its name in the project's settings to the new one",
    },
    {
      when: "the host has an inner address",
      env: { EXTRACTION_ALLOW_ADDRESSES: "" },
      code: "CLONE_ADDRESS",
      message:
        "127.0.0.1 may not be connected to from here - the operator can allow its range by EXTRACTION_ALLOW_ADDRESSES",
    },
  ];

  it.each(rows.map((row) => [row.when, row] as const))("%s", async (_when, row) => {
    const ran = await clone(optionsOf(row));
    expect(troubles(ran)).toEqual([`error: ${row.message}`, `error: Extraction failed: ${row.message}`]);
    expect(ran.job).toMatchObject({ state: "failed", failure: { code: row.code, name: "Fatal", step: "cloning" } });
  });

  it("git is not installed", async () => {
    const message = "Git is not installed on the worker - install git 2.39.4 or later";
    const ran = await cloneAlone({}, { worker: { env: { PATH: "/nowhere" } } });
    expect(troubles(ran)).toEqual([`error: ${message}`, `error: Extraction failed: ${message}`]);
    expect(ran.attempts).toBe(1);
  });
});

describe.concurrent("another attempt is worth it when", () => {
  const rows: Row[] = [
    {
      when: "the provider answers 429",
      fault: 429,
      code: "CLONE_RATE_LIMITED",
      message: "GitHub limits how often it may be asked - it is asked again later",
    },
    {
      when: "the provider answers 500",
      fault: 500,
      code: "CLONE_UPSTREAM",
      message: "GitHub is in trouble of its own (HTTP 500)",
    },
    {
      when: "the provider answers 503",
      fault: 503,
      code: "CLONE_UPSTREAM",
      message: "GitHub is in trouble of its own (HTTP 503)",
    },
    {
      when: "a page of many lines answers",
      fault: "long page",
      code: "CLONE_PAGE",
      message: "GitHub answered with a page instead of a repository",
    },
    {
      when: "the connection is reset",
      fault: "reset",
      code: "CLONE_CUT",
      message: "The connection to GitHub was lost while cloning",
    },
    {
      when: "it is cut in the middle",
      fault: "cut",
      code: "CLONE_CUT",
      message: "The connection to GitHub was lost while cloning",
    },
    {
      when: "no answer comes",
      fault: "hang",
      env: { EXTRACTION_SLOW_SECONDS: "1" },
      code: "CLONE_STALLED",
      message: "GitHub has sent next to nothing for 1 second",
    },
    {
      when: "the rest of an answer does not come",
      fault: "stall",
      env: { EXTRACTION_SLOW_SECONDS: "1" },
      code: "CLONE_STALLED",
      message: "GitHub has sent next to nothing for 1 second",
    },
    {
      when: "it takes too long",
      fault: "hang",
      env: { EXTRACTION_CLONE_SECONDS: "1" },
      code: "CLONE_TIMEOUT",
      message: "Cloning took longer than 1 second and was stopped",
    },
    {
      when: "nobody listens",
      env: { EXTRACTION_GITHUB_URL: "http://127.0.0.1:9" },
      code: "CLONE_UNREACHABLE",
      message: "GitHub could not be reached - check the worker's network",
    },
    {
      when: "there is no TLS",
      env: { EXTRACTION_GITHUB_URL: server.url.replace("http:", "https:") },
      code: "CLONE_TLS",
      message: "No secure connection to GitHub - its certificate could not be verified",
    },
    {
      when: "the host has no address",
      env: { EXTRACTION_GITHUB_URL: "https://git.invalid" },
      code: "CLONE_DNS",
      message: "git.invalid could not be found - check the worker's network and name servers",
    },
  ];

  it.each(rows.map((row) => [row.when, row] as const))("%s", async (_when, row) => {
    const ran = await clone(optionsOf(row));
    expect(troubles(ran)).toEqual([`error: ${row.message}`, `error: Extraction failed: ${row.message}`]);
    expect(ran.job).toMatchObject({
      state: "failed",
      failure: { code: "RETRIES_EXHAUSTED", cause: { code: row.code, name: "Told" } },
    });
  });

  it("and then it succeeds, in the next attempt", async () => {
    new Repository(server.root, "acme/moody").commitFiles({ "a.txt": "a" });
    server.faults["acme/moody"] = 503;
    const ran = cloneAlone({ input: { repository: "acme/moody" } }, {});
    await expect
      .poll(() => server.requests.some(({ path }) => path.startsWith("/acme/moody")), { timeout: 20_000 })
      .toBe(true);
    delete server.faults["acme/moody"];
    const { job, attempts, ...rest } = await ran;
    expect({ state: job.state, attempts }).toEqual({ state: "completed", attempts: 2 });
    expect(troubles(rest as typeof rest & { job: typeof job })).toEqual([
      "error: GitHub is in trouble of its own (HTTP 503)",
      "error: Attempt 1 of 2 failed - it is tried again",
    ]);
  });
});

describe("what git says", () => {
  const { limits } = readSettings({});
  const said = (stderr: string, more: { signal?: NodeJS.Signals; exitCode?: number; branch?: string } = {}) => {
    const failure = { kind: "exit", exitCode: 128, signal: null, stdout: "", stderr, ...more } as const;
    return refusalOf(new ExecError("EXEC_FAILED", "git failed", failure), {
      input: { provider: "gitlab", branch: more.branch },
      limits,
    });
  };
  const access = "fatal: unable to access 'https://git.example.com/acme/site.git/':";

  it.each([
    [
      "a full disk",
      "fatal: write error: No space left on device\nfatal: fetch-pack: invalid index-pack output",
      "CLONE_TOO_LARGE",
    ],
    ["a full share", "error: unable to write file a.bin: Disk quota exceeded", "CLONE_TOO_LARGE"],
    ["more memory than there is", "fatal: attempting to allocate 4294967296 over limit 1073741824", "CLONE_TOO_LARGE"],
    [
      "an object that is not safe",
      "error: object 8d6b0f3: hasDotdot: contains '..'\nfatal: fsck error in packed object",
      "CLONE_UNSAFE",
    ],
    ["a path that is not safe", "error: invalid path '.git/config'", "CLONE_UNSAFE"],
    ["an expired password", `${access} The requested URL returned error: 401`, "CLONE_AUTH"],
    ["a wrong password", "fatal: Authentication failed for 'https://git.example.com/acme/site.git/'", "CLONE_AUTH"],
    [
      "a damaged repository",
      "remote: aborting due to possible repository corruption on the remote side.\nfatal: early EOF",
      "CLONE_DAMAGED",
    ],
    [
      "an unverified certificate",
      `${access} server certificate verification failed. CAfile: none CRLfile: none`,
      "CLONE_TLS",
    ],
    [
      "a name in the words of an error",
      "fatal: unable to access 'https://x/The requested URL returned error: 401': Recv failure",
      "CLONE_CUT",
    ],
    [
      "a lie of the other side",
      "remote: fatal: Authentication failed\nremote: No space left on device\nfatal: early EOF",
      "CLONE_CUT",
    ],
    ["something new", "fatal: the moon is full", "CLONE_FAILED"],
  ])("of %s is understood", (_what, stderr, code) => {
    expect(said(stderr)).toMatchObject({ code });
  });

  it("is repeated when it is not understood, cut and without the rest", () => {
    expect(said(`warning: one\nfatal: ${"x".repeat(1000)}`)).toMatchObject({
      message: `Cloning failed: fatal: ${"x".repeat(293)}`,
    });
  });

  it("of a file over a limit of the system is understood by the signal", () => {
    expect(said("", { signal: "SIGXFSZ" })).toMatchObject({ code: "CLONE_TOO_LARGE" });
  });

  it("of a job that was cancelled is left as it is", () => {
    const stopped = new Error("cancelled");
    expect(refusalOf(stopped, { input: { provider: "github", branch: undefined }, limits })).toBe(stopped);
  });
});

/** Each row that fails by the server has a repository of its own, so that rows can be met side by side. */
let rowsMet = 0;
function optionsOf({ fault, input, env }: Row): CloneOptions {
  if (fault === undefined) return { ...(input && { input }), ...(env && { env }) };
  rowsMet += 1;
  const repository = `acme/row-${rowsMet}`;
  new Repository(server.root, repository).commitFiles({ "a.txt": "a".repeat(5000) });
  server.faults[repository] = fault;
  return { input: { ...input, repository }, ...(env && { env }) };
}
