// Credentials of a clone: installation tokens of GitHub, credentials of other providers, and where they must never appear.
import { generateKeyPairSync, randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import pg from "pg";
import { afterAll, describe, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { Repository } from "../../../kit/test/support/git-server.ts";
import { credentialsOf } from "../../src/clone/credentials.ts";
import { readSettings } from "../../src/settings.ts";
import { setUpClones, warningsAndErrors } from "../support/clone-job.ts";
import { githubApi } from "../support/github-api.ts";

const TOKEN = `ghs_${randomBytes(18).toString("hex")}`;
const { server, clone, url, folder } = await setUpClones({ token: TOKEN });
const github = await githubApi({ token: TOKEN });
afterAll(() => github.close());
const app = {
  EXTRACTION_GITHUB_API_URL: github.url,
  EXTRACTION_GITHUB_APP_ID: github.app.id,
  EXTRACTION_GITHUB_APP_KEY: github.app.key,
};
new Repository(server.root, "acme/site").commitFiles({ "a.txt": "private" });
new Repository(server.root, "acme/large").commitFiles({ "a.bin": randomBytes(2 ** 20) });

const RECONNECT = "Authentication failed - your GitHub App installation may need to be reconnected";
const NOT_FOUND = "Repository not found - it may have been deleted or made private";
const PROVIDER = { host: "github.com", confidential: true };
const basicOf = (user: string, token: string) => `Basic ${Buffer.from(`${user}:${token}`).toString("base64")}`;

describe("a private repository", () => {
  it("of GitHub is fetched with a read-only token for this repository", async () => {
    github.requests.length = 0;
    server.requests.length = 0;
    const { job } = await clone({ input: { installationId: "77" }, env: app });
    expect(job.state).toBe("completed");
    expect(github.requests.map(({ installation, body }) => ({ installation, body }))).toEqual([
      { installation: "77", body: { repositories: ["site"], permissions: { contents: "read" } } },
    ]);
    expect(server.requests.map(({ authorization }) => authorization)).toEqual(
      server.requests.map(() => basicOf("x-access-token", TOKEN)),
    );
  });

  it("of GitHub is fetched with a new token when its files are fetched again", async () => {
    github.requests.length = 0;
    const { job } = await clone({ input: { installationId: "78" }, env: app, loseFiles: true, inspect: () => {} });
    expect(job.state).toBe("completed");
    expect(github.requests).toHaveLength(2);
  });

  it.each([
    ["gitlab", "oauth2"],
    ["bitbucket", "x-token-auth"],
  ] as const)("of %s is fetched with the credential of the job, as user %s", async (provider, user) => {
    server.requests.length = 0;
    const { job } = await clone({ input: { provider, credential: TOKEN } });
    expect(job.state).toBe("completed");
    expect(server.requests[0]?.authorization).toBe(basicOf(user, TOKEN));
  });

  it("is requested anonymously without credentials, and looks like a missing one", async () => {
    server.requests.length = 0;
    const ran = await clone();
    expect(warningsAndErrors(ran)[0]).toBe(`error: ${NOT_FOUND}`);
    expect(server.requests[0]?.authorization).toBeUndefined();
  });

  it.each([
    ["github", { installationId: "80" }],
    ["gitlab", { credential: TOKEN }],
    ["bitbucket", { credential: TOKEN }],
  ] as const)("of %s is requested at a mirror without a token, and none is created", async (provider, secret) => {
    github.requests.length = 0;
    server.requests.length = 0;
    const mirror = { EXTRACTION_MIRRORS: `${provider}:acme=${server.url}` };
    const ran = await clone({ input: { provider, ...secret }, env: { ...app, ...mirror } });
    expect(warningsAndErrors(ran)[0]).toBe(`error: ${NOT_FOUND}`);
    expect(server.requests.length).toBeGreaterThan(0);
    expect(server.requests.filter(({ authorization }) => authorization !== undefined)).toEqual([]);
    expect(github.requests).toEqual([]);
  });

  it.each([
    ["github", "GitHub", { installationId: "81" }],
    ["gitlab", "GitLab", { credential: TOKEN }],
    ["bitbucket", "Bitbucket", { credential: TOKEN }],
  ] as const)("of %s is not requested over plain http, and no token is created", async (provider, name, secret) => {
    github.requests.length = 0;
    const setting = `EXTRACTION_${provider.toUpperCase()}_URL`;
    const ran = await clone({ input: { provider, ...secret }, env: { ...app, [setting]: "http://140.82.121.4" } });
    expect(warningsAndErrors(ran)[0]).toBe(
      `error: The token for ${name} is not sent to 140.82.121.4 over plain http - set ${setting} to an https URL, or allow its network with EXTRACTION_ALLOW_ADDRESSES`,
    );
    expect(ran.job).toMatchObject({ state: "failed", failure: { code: "CLONE_PLAIN_HTTP", name: "Fatal" } });
    expect(github.requests).toEqual([]);
  });
});

describe("an installation token that is not created", () => {
  const forged = generateKeyPairSync("rsa", {
    modulusLength: 2048,
    privateKeyEncoding: { type: "pkcs8", format: "pem" },
    publicKeyEncoding: { type: "spki", format: "pem" },
  });
  github.responses = {
    404: { status: 404, body: { message: "Not Found" } },
    403: { status: 403, body: { message: "This installation has been suspended" } },
    422: {
      status: 422,
      body: {
        message:
          "There is at least one repository that does not exist or is not accessible to the parent installation.",
      },
    },
    429: { status: 403, headers: { "x-ratelimit-remaining": "0" }, body: { message: "API rate limit exceeded" } },
    500: { status: 502, body: "<html>" },
    301: { status: 301, headers: { location: "http://127.0.0.1:9/" } },
    200: { status: 201, body: { token: "short" } },
  };
  const tokenFor = (installationId: string, env: Record<string, string> = {}, signal = new AbortController().signal) =>
    credentialsOf(readSettings({ ...app, ...env }), () => {}).tokenFor(
      { provider: "github", repository: "acme/site", installationId },
      PROVIDER,
      signal,
    );

  it.each([
    ["the installation is gone", "404", {}, { message: RECONNECT, name: "Fatal" }],
    ["the installation is suspended", "403", {}, { message: RECONNECT, name: "Fatal" }],
    [
      "the App's key was replaced",
      "1",
      { EXTRACTION_GITHUB_APP_KEY: forged.privateKey },
      { message: RECONNECT, name: "Fatal" },
    ],
    ["the App is unknown", "1", { EXTRACTION_GITHUB_APP_ID: "1" }, { message: RECONNECT, name: "Fatal" }],
    ["the installation has no access to the repository", "422", {}, { message: NOT_FOUND, name: "Fatal" }],
    ["the rate limit is exceeded", "429", {}, { code: "CLONE_RATE_LIMITED", name: "UserError" }],
    [
      "GitHub fails",
      "500",
      {},
      { message: "GitHub did not create a token (HTTP 502) - it will be retried", name: "UserError" },
    ],
    [
      "GitHub redirects",
      "301",
      {},
      { message: "GitHub did not create a token (HTTP 301) - it will be retried", name: "UserError" },
    ],
    [
      "the response is invalid",
      "200",
      {},
      { message: "GitHub returned no token - it will be retried", name: "UserError" },
    ],
    [
      "GitHub cannot be reached",
      "1",
      { EXTRACTION_GITHUB_API_URL: "http://127.0.0.1:9" },
      { message: "GitHub could not be reached for a token - check the worker's network", name: "UserError" },
    ],
    [
      "the App's key is invalid",
      "1",
      { EXTRACTION_GITHUB_APP_KEY: "bm8ga2V5" },
      {
        message: "The key of the GitHub App is invalid - set EXTRACTION_GITHUB_APP_KEY to its PEM, or to base64 of it",
        name: "Fatal",
      },
    ],
    [
      "the worker has no App settings",
      "1",
      { EXTRACTION_GITHUB_APP_ID: "" },
      {
        message:
          "The GitHub App is not set up on the worker - set EXTRACTION_GITHUB_APP_ID and EXTRACTION_GITHUB_APP_KEY",
        name: "Fatal",
      },
    ],
  ])("because %s has a message", async (_reason, installation, env, expected) => {
    await expect(tokenFor(installation, env as Record<string, string>)).rejects.toMatchObject(expected);
  });

  it("is the failure of the job", async () => {
    const ran = await clone({ input: { installationId: "404" }, env: app });
    expect(warningsAndErrors(ran)).toEqual([`error: ${RECONNECT}`, `error: Extraction failed: ${RECONNECT}`]);
    expect(ran.job.failure).toMatchObject({ code: "CLONE_AUTH", step: "cloning" });
  });

  it("because the job was cancelled is passed on as it is", async () => {
    const stopping = new AbortController();
    stopping.abort(new Error("cancelled"));
    await expect(tokenFor("1", {}, stopping.signal)).rejects.toThrow("cancelled");
  });

  it("is created with a key in base64 or with escaped line ends", async () => {
    const keys = [Buffer.from(github.app.key).toString("base64"), github.app.key.replaceAll("\n", "\\n")];
    for (const key of keys) {
      expect(await tokenFor("1", { EXTRACTION_GITHUB_APP_KEY: key })).toEqual({
        user: "x-access-token",
        token: TOKEN,
        expiresAt: expect.any(Date),
      });
    }
  });

  it("is redacted before it is used, and so is the JWT", async () => {
    const redacted: unknown[] = [];
    github.requests.length = 0;
    const settings = readSettings(app);
    await credentialsOf(settings, (value) => redacted.push(value)).tokenFor(
      { provider: "github", repository: "acme/site", installationId: "1" },
      PROVIDER,
      new AbortController().signal,
    );
    expect(redacted).toEqual([github.requests[0]?.jwt, TOKEN]);
  });
});

describe("the token of a clone", () => {
  const skipped = process.platform === "linux" ? "" : " (skipped: command lines are read from /proc, on Linux)";
  it.skipIf(skipped !== "")(
    `is in no command line, no file, no line of the log and no row, during and after the clone${skipped}`,
    async () => {
      const forms = formsOf(TOKEN);
      const seen = { commandLines: 0, files: 0, hits: [] as string[] };
      let done = false;
      server.faults["acme/large"] = "slow";
      const ran = clone({
        input: { repository: "acme/large", installationId: "79" },
        env: app,
        inspect: (directory) => seen.hits.push(...hitsIn(path.dirname(directory), forms).hits),
      }).finally(() => {
        done = true;
      });
      while (!done) {
        const commands = commandLines();
        seen.commandLines += commands.filter((line) => line.includes("acme/large.git")).length;
        seen.hits.push(...commands.filter((line) => forms.some((form) => line.includes(form))));
        const found = hitsIn(path.join(folder, "scratch"), forms);
        seen.files += found.files;
        seen.hits.push(...found.hits);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      const { job, logs } = await ran;
      expect(job.state).toBe("completed");
      expect(seen.hits).toEqual([]);
      // The test has read command lines and files.
      expect(seen.commandLines).toBeGreaterThan(0);
      expect(seen.files).toBeGreaterThan(0);
      const text = JSON.stringify({ job, logs });
      expect(forms.filter((form) => text.includes(form))).toEqual([]);
      expect(await rowsWith(forms)).toEqual([]);
      recordFigure("extraction: command lines of a clone that were read", seen.commandLines);
      recordFigure("extraction: command lines with the token", seen.hits.length);
    },
  );

  it("is in no row if the clone fails", async () => {
    const credential = `glpat-${randomBytes(12).toString("hex")}`;
    const ran = await clone({ input: { provider: "gitlab", credential } });
    expect(ran.job.state).toBe("failed");
    const forms = formsOf(credential, "oauth2");
    expect(forms.filter((form) => JSON.stringify(ran).includes(form))).toEqual([]);
    expect(await rowsWith(forms)).toEqual([]);
  });
});

function formsOf(token: string, user = "x-access-token"): string[] {
  const base64 = (text: string) => Buffer.from(text).toString("base64").replace(/=+$/, "");
  return [token, base64(token), base64(`${user}:${token}`), Buffer.from(token).toString("hex")];
}

function commandLines(): string[] {
  return fs
    .readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
      } catch {
        return "";
      }
    });
}

function hitsIn(directory: string, forms: readonly string[]): { files: number; hits: string[] } {
  const hits: string[] = [];
  let files = 0;
  try {
    for (const entry of fs.readdirSync(directory, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const content = fs.readFileSync(path.join(entry.parentPath, entry.name), "latin1");
      files += 1;
      if (forms.some((form) => content.includes(form))) hits.push(entry.name);
    }
  } catch {
    // Files may disappear meanwhile.
  }
  return { files, hits };
}

/** Stillwake's tables that contain one of these texts. */
async function rowsWith(forms: readonly string[]): Promise<string[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const { rows: tables } = await client.query<{ name: string }>(
      "select format('%I.%I', table_schema, table_name) as name from information_schema.tables where table_schema = 'stillwake' and table_type = 'BASE TABLE'",
    );
    const found: string[] = [];
    for (const { name } of tables) {
      const { rows } = await client.query<{ row: string }>(`select to_jsonb(t)::text as row from ${name} t`);
      if (rows.some(({ row }) => forms.some((form) => row.includes(form)))) found.push(name);
    }
    expect(tables.length).toBeGreaterThan(10);
    return found;
  } finally {
    await client.end();
  }
}
