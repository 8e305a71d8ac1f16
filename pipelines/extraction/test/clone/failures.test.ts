// Messages of failed clones: every row of the failure table and other failures, against a real server with faults.
import { ExecError } from "stillwake/worker";
import { describe, expect, it } from "vitest";
import { type Fault, Repository } from "../../../kit/test/support/git-server.ts";
import { explainCloneFailure } from "../../src/clone/clone.ts";
import { readSettings } from "../../src/settings.ts";
import { type CloneOptions, setUpClones, warningsAndErrors } from "../support/clone-job.ts";

const { server, clone, cloneOnOwnWorker: cloneAlone } = await setUpClones();
new Repository(server.root, "acme/site").commitFiles({ "a.txt": "a".repeat(5000), "b.txt": "b" });
new Repository(server.root, "acme/empty");

interface Row extends CloneOptions {
  when: string;
  fault?: Fault;
  code: string;
  message: string;
}

const EMPTY = "Repository is empty - push a commit to it, and check that its URL is not a sign-in page";
const RECONNECT = "Authentication failed - your GitHub App installation may need to be reconnected";
const NOT_FOUND = "Repository not found - it may have been deleted or made private";
const SIGNED = { credential: "ghs-expired-long-ago" };

describe.concurrent("the job fails at once if", () => {
  const rows: Row[] = [
    { when: "GitHub returns 401", fault: 401, input: SIGNED, code: "CLONE_AUTH", message: RECONNECT },
    { when: "GitHub returns 403", fault: 403, input: SIGNED, code: "CLONE_AUTH", message: RECONNECT },
    { when: "GitHub returns 401 without a token", fault: 401, code: "CLONE_NOT_FOUND", message: NOT_FOUND },
    { when: "GitHub returns 403 without a token", fault: 403, code: "CLONE_NOT_FOUND", message: NOT_FOUND },
    {
      when: "GitLab returns 401 without a token",
      fault: 401,
      input: { provider: "gitlab" },
      code: "CLONE_NOT_FOUND",
      message: NOT_FOUND,
    },
    {
      when: "GitLab returns 401",
      fault: 401,
      input: { provider: "gitlab", credential: "glpat-expired-long-ago" },
      code: "CLONE_AUTH",
      message: "Authentication failed - reconnect your GitLab integration in Organization Settings",
    },
    {
      when: "Bitbucket returns 403",
      fault: 403,
      input: { provider: "bitbucket", credential: "bb-expired-long-ago" },
      code: "CLONE_AUTH",
      message: "Authentication failed - reconnect your Bitbucket integration in Organization Settings",
    },
    { when: "the provider returns 404", fault: 404, code: "CLONE_NOT_FOUND", message: NOT_FOUND },
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
    { when: "the response is a sign-in page", fault: "page", code: "CLONE_EMPTY", message: EMPTY },
    {
      when: "it has moved",
      fault: "redirect",
      code: "CLONE_MOVED",
      message: "Repository has moved - change its name in the project's settings",
    },
    {
      when: "the host has a private address",
      env: { EXTRACTION_ALLOW_ADDRESSES: "" },
      code: "CLONE_ADDRESS",
      message:
        "Connecting to 127.0.0.1 is not allowed - the operator can allow its network with EXTRACTION_ALLOW_ADDRESSES",
    },
  ];

  it.each(rows.map((row) => [row.when, row] as const))("%s", async (_when, row) => {
    const ran = await clone(optionsOf(row));
    expect(warningsAndErrors(ran)).toEqual([`error: ${row.message}`, `error: Extraction failed: ${row.message}`]);
    expect(ran.job).toMatchObject({ state: "failed", failure: { code: row.code, name: "Fatal", step: "cloning" } });
  });

  it("git is not installed", async () => {
    const message = "Git is not installed on the worker - install git 2.39.4 or later";
    const ran = await cloneAlone({}, { worker: { environment: { PATH: "/nowhere" } } });
    expect(warningsAndErrors(ran)).toEqual([`error: ${message}`, `error: Extraction failed: ${message}`]);
    expect(ran.attempts).toBe(1);
  });
});

describe.concurrent("the job is retried if", () => {
  const rows: Row[] = [
    {
      when: "the provider returns 429",
      fault: 429,
      code: "CLONE_RATE_LIMITED",
      message: "GitHub rate limit reached - it will be retried later",
    },
    {
      when: "the provider returns 500",
      fault: 500,
      code: "CLONE_UPSTREAM",
      message: "GitHub is not available (HTTP 500)",
    },
    {
      when: "the provider returns 503",
      fault: 503,
      code: "CLONE_UPSTREAM",
      message: "GitHub is not available (HTTP 503)",
    },
    {
      when: "the response is a page of several lines",
      fault: "long page",
      code: "CLONE_PAGE",
      message: "GitHub returned a web page instead of a repository",
    },
    {
      when: "the connection is reset",
      fault: "reset",
      code: "CLONE_CUT",
      message: "The connection to GitHub was lost while cloning",
    },
    {
      when: "the connection is closed midway",
      fault: "cut",
      code: "CLONE_CUT",
      message: "The connection to GitHub was lost while cloning",
    },
    {
      when: "there is no response",
      fault: "hang",
      env: { EXTRACTION_SLOW_SECONDS: "1" },
      code: "CLONE_STALLED",
      message: "GitHub has sent almost no data for 1 second",
    },
    {
      when: "the response stalls",
      fault: "stall",
      env: { EXTRACTION_SLOW_SECONDS: "1" },
      code: "CLONE_STALLED",
      message: "GitHub has sent almost no data for 1 second",
    },
    {
      when: "it takes too long",
      fault: "hang",
      env: { EXTRACTION_CLONE_SECONDS: "1" },
      code: "CLONE_TIMEOUT",
      message: "Cloning took longer than 1 second and was stopped",
    },
    {
      when: "the connection is refused",
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
    expect(warningsAndErrors(ran)).toEqual([`error: ${row.message}`, `error: Extraction failed: ${row.message}`]);
    expect(ran.job).toMatchObject({
      state: "failed",
      failure: { code: "RETRIES_EXHAUSTED", cause: { code: row.code, name: "UserError" } },
    });
  });

  it("the next attempt can succeed", async () => {
    new Repository(server.root, "acme/moody").commitFiles({ "a.txt": "a" });
    server.faults["acme/moody"] = 503;
    const ran = cloneAlone({ input: { repository: "acme/moody" } }, {});
    await expect
      .poll(() => server.requests.some(({ path }) => path.startsWith("/acme/moody")), { timeout: 20_000 })
      .toBe(true);
    delete server.faults["acme/moody"];
    const { job, attempts, ...rest } = await ran;
    expect({ state: job.state, attempts }).toEqual({ state: "completed", attempts: 2 });
    expect(warningsAndErrors(rest as typeof rest & { job: typeof job })).toEqual([
      "error: GitHub is not available (HTTP 503)",
      "error: Attempt 1 of 2 failed - it will be retried",
    ]);
  });
});

describe("git's error output", () => {
  const { limits } = readSettings({});
  const explain = (stderr: string, more: { signal?: NodeJS.Signals; exitCode?: number; branch?: string } = {}) => {
    const failure = { kind: "exit", exitCode: 128, signal: null, stdout: "", stderr, ...more } as const;
    return explainCloneFailure(new ExecError("EXEC_FAILED", "git failed", failure), {
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
    ["an exceeded disk quota", "error: unable to write file a.bin: Disk quota exceeded", "CLONE_TOO_LARGE"],
    ["too large an allocation", "fatal: attempting to allocate 4294967296 over limit 1073741824", "CLONE_TOO_LARGE"],
    [
      "an unsafe object",
      "error: object 8d6b0f3: hasDotdot: contains '..'\nfatal: fsck error in packed object",
      "CLONE_UNSAFE",
    ],
    ["an unsafe path", "error: invalid path '.git/config'", "CLONE_UNSAFE"],
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
      "a quoted name that looks like an error",
      "fatal: unable to access 'https://x/The requested URL returned error: 401': Recv failure",
      "CLONE_CUT",
    ],
    [
      "a misleading message of the server",
      "remote: fatal: Authentication failed\nremote: No space left on device\nfatal: early EOF",
      "CLONE_CUT",
    ],
    ["an unknown error", "fatal: something new", "CLONE_FAILED"],
  ])("is recognized: %s", (_case, stderr, code) => {
    expect(explain(stderr)).toMatchObject({ code });
  });

  it("is quoted in part if it is not recognized", () => {
    expect(explain(`warning: one\nfatal: ${"x".repeat(1000)}`)).toMatchObject({
      message: `Cloning failed: fatal: ${"x".repeat(293)}`,
    });
  });

  it("of a file over the system's limit is recognized by the signal", () => {
    expect(explain("", { signal: "SIGXFSZ" })).toMatchObject({ code: "CLONE_TOO_LARGE" });
  });

  it("of a cancelled job is passed on as it is", () => {
    const stopped = new Error("cancelled");
    expect(explainCloneFailure(stopped, { input: { provider: "github", branch: undefined }, limits })).toBe(stopped);
  });
});

/** Each row with a fault has a separate repository, so that rows can run concurrently. */
let repositories = 0;
function optionsOf({ fault, input, env }: Row): CloneOptions {
  if (fault === undefined) return { ...(input && { input }), ...(env && { env }) };
  repositories += 1;
  const repository = `acme/row-${repositories}`;
  new Repository(server.root, repository).commitFiles({ "a.txt": "a".repeat(5000) });
  server.faults[repository] = fault;
  return { input: { ...input, repository }, ...(env && { env }) };
}
