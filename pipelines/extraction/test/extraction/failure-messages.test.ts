// The table of failures for people, row by row: whole extractions by the compiled pipeline under a real worker, with real tools or
// scripts that fail like them, and the exact messages in the job's log.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { waitFor } from "stillwake/testing";
import { afterAll, describe, expect, it } from "vitest";
import { faultyGitServer, Repository } from "../../../kit/test/support/git-server.ts";
import { extraction } from "../../src/contract.ts";
import { readSettings } from "../../src/settings.ts";
import { type Extracted, type ExtractOptions, setUpExtractions } from "../support/extractions.ts";
import { githubApi } from "../support/github-api.ts";

const setup = await setUpExtractions();
const root = path.join(setup.folder, "repositories");
fs.mkdirSync(root);
const server = await faultyGitServer({ root });
const github = await githubApi({ token: `ghs_${randomUUID()}` });
afterAll(async () => {
  await server.close();
  await github.close();
});
Object.assign(setup.env, {
  EXTRACTION_GITHUB_API_URL: github.url,
  EXTRACTION_GITHUB_APP_ID: github.app.id,
  EXTRACTION_GITHUB_APP_KEY: github.app.key,
  EXTRACTION_GITHUB_URL: server.url,
  EXTRACTION_GITLAB_URL: server.url,
  EXTRACTION_BITBUCKET_URL: server.url,
  EXTRACTION_ALLOW_ADDRESSES: "127.0.0.1/32",
});

const LOCK = JSON.stringify({
  name: "small",
  version: "1.0.0",
  lockfileVersion: 3,
  packages: {
    "": { name: "small", version: "1.0.0", dependencies: { minimist: "1.2.0" } },
    "node_modules/minimist": { version: "1.2.0" },
  },
});
const SMALL = {
  "package.json": JSON.stringify({ name: "small", version: "1.0.0", dependencies: { minimist: "1.2.0" } }),
  "package-lock.json": LOCK,
};
new Repository(root, "acme/small").commitFiles(SMALL);

/** With `files` or `fault` it creates a separate repository. */
async function extract(
  {
    fault,
    files,
    ...input
  }: Parameters<typeof setup.extract>[0] & { fault?: number; files?: Record<string, string | Buffer> },
  options?: ExtractOptions,
): Promise<Extracted> {
  const repository = files || fault ? `acme/r-${randomUUID().slice(0, 8)}` : input.repository;
  if (files) new Repository(root, repository).commitFiles(files);
  if (fault) server.faults[repository] = fault;
  return setup.extract({ ...input, repository }, options);
}

/** The job failed at once: the message as a line of the step, and as the failure of the job. */
function expectFatal({ job, lines, logs }: Extracted, message: string, step: string) {
  expect(lines.slice(-2)).toEqual([`error ${message}`, `error Extraction failed: ${message}`]);
  expect(logs.at(-2)?.step).toBe(step);
  expect(job).toMatchObject({ state: "failed", attempt: 1 });
  expect(job.failure?.sentence).toBe(`Extraction failed: ${message}`);
}

describe("a clone that fails", { timeout: 120_000 }, () => {
  const reconnect = "Authentication failed - your GitHub App installation may need to be reconnected";
  const notFound = "Repository not found - it may have been deleted or made private";
  it.each([401, 403])("GitHub returns %i: the installation may need to be reconnected", async (fault) => {
    const result = await extract({ repository: "", fault, installationId: "77" });
    expect(result.lines[0]).toBe("info Cloning repository from GitHub...");
    expectFatal(result, reconnect, "cloning");
  });

  it.each([401, 403])("GitHub returns %i without a token: the repository may not exist", async (fault) => {
    expectFatal(await extract({ repository: "", fault }), notFound, "cloning");
  });

  it.each([
    ["gitlab", "GitLab"],
    ["bitbucket", "Bitbucket"],
  ] as const)("%s rejects its token: the integration must be reconnected", async (provider, name) => {
    const result = await extract({ repository: "", fault: 401, provider, credential: "expired-long-ago" });
    expect(result.lines[0]).toBe(`info Cloning repository from ${name}...`);
    expectFatal(
      result,
      `Authentication failed - reconnect your ${name} integration in Organization Settings`,
      "cloning",
    );
  });

  it("the repository is gone", async () => {
    expectFatal(await extract({ repository: "acme/nowhere" }), notFound, "cloning");
  });

  it("the branch is missing", async () => {
    expectFatal(
      await extract({ repository: "acme/small", branch: "releases/9" }),
      "Branch 'releases/9' not found in repository",
      "cloning",
    );
  });

  it("the repository is too large", async () => {
    const files = { ...SMALL, "large.bin": Buffer.alloc(3 * 2 ** 20, randomUUID()) };
    const result = await extract({ repository: "", files }, { env: { EXTRACTION_CLONE_GB: "0.001" } });
    expectFatal(result, "Repository is too large to scan (>0.001GB)", "cloning");
  });
});

describe("an SBOM that fails", { timeout: 120_000 }, () => {
  it.each(["services/api", "docs"])("there is no manifest at %s", async (packagePath) => {
    const files = { ...SMALL, "docs/readme.md": "Text" };
    expectFatal(
      await extract({ repository: "", files, packagePath }),
      `No package manifest found at '${packagePath}' - check your project's package path setting`,
      "sbom",
    );
  });

  it("there are no dependencies", async () => {
    const files = { "package.json": JSON.stringify({ name: "empty", version: "1.0.0" }) };
    expectFatal(
      await extract({ repository: "", files }),
      "No dependencies found - the package manifest may be empty or in an unsupported format",
      "sbom",
    );
  });

  it("cdxgen is slow, and killed", async () => {
    const result = await extract({ repository: "acme/small" }, { env: { EXTRACTION_SBOM_SECONDS: "0.2" } });
    const message = "SBOM generation timed out - the repository may be too large or complex";
    expect(result.lines).toContain(`error ${message}`);
    expect(result.lines.at(-1)).toBe(`error Extraction failed: ${message}`);
    expect(result.job.state).toBe("failed");
  });
});

describe("a database that fails", { timeout: 120_000 }, () => {
  it("is retried with a warning, and the job continues", async () => {
    const holder = await setup.pool.connect();
    await holder.query("begin; lock table extraction.dependencies in access exclusive mode");
    const extracted = extract({ repository: "acme/small" });
    /** Terminates the connection that waits for the table, like a failover. It takes a moment to end. */
    const terminated: number[] = [];
    const terminate = async () => {
      // Not on the holder: pg_stat_activity does not change within a transaction.
      const { rows } = await setup.pool.query(
        `select pid, pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock' and query like '%extraction.dependencies%' and pid <> all ($1)`,
        [terminated],
      );
      terminated.push(...rows.map(({ pid }) => pid));
      return rows.length > 0;
    };
    await waitFor(terminate, { timeout: 60_000, what: "the first connection" });
    await waitFor(terminate, { timeout: 60_000, what: "the second connection" });
    await holder.query("rollback");
    holder.release();
    const { job, lines } = await extracted;
    const warnings = lines.filter((line) => line === "warning Database connection error during sync - will retry");
    expect(warnings).toHaveLength(2);
    expect(lines).toContain("success Dependencies synced (1 direct, 0 transitive)");
    expect(job).toMatchObject({ state: "completed", attempt: 1 });
  });
});

describe("tools that fail", { timeout: 120_000 }, () => {
  const depScan = (script: string, env = {}) =>
    extract({ repository: "acme/small" }, { tools: { depscan: script }, env });

  it("dep-scan is not installed: a warning, and the built-in matcher is used", async () => {
    const { job, lines } = await extract({ repository: "acme/small" });
    expect(lines).toContain("warning Vulnerability scanning unavailable (dep-scan not installed)");
    expect(lines.filter((line) => line.startsWith("success Vulnerability scan complete - found "))).toHaveLength(1);
    expect(lines).toContain("warning Static analysis skipped (Semgrep not installed)");
    expect(lines).toContain("success Static analysis complete - 0 findings");
    expect(lines).toContain("success Secret scan complete - no secrets found");
    expect(lines).toContain("success Reports uploaded successfully");
    expect(lines.at(-1)).toBe("success Extraction complete");
    expect(job).toMatchObject({ state: "completed", missing: [] });
  });

  it("dep-scan is slow, and killed", async () => {
    const { job, lines } = await depScan("exec sleep 60", { EXTRACTION_VULNERABILITIES_SECONDS: "0.3" });
    expect(lines).toContain("warning Vulnerability scan timed out");
    expect(job.state).toBe("completed");
  });

  it("dep-scan crashes: the first line of its stderr", async () => {
    const { job, lines } = await depScan(
      "echo 'The database of vulnerabilities is damaged' >&2; echo more >&2; exit 3",
    );
    expect(lines).toContain("warning Vulnerability scan failed: The database of vulnerabilities is damaged");
    expect(job.state).toBe("completed");
  });

  it.each(["exit 137", "kill -9 $$"])("Semgrep runs out of memory: %s", async (script) => {
    const { job, lines } = await extract({ repository: "acme/small" }, { tools: { semgrep: script } });
    expect(lines).toContain("warning Static analysis ran out of memory - scanning skipped");
    expect(job).toMatchObject({ state: "completed", missing: ["semgrep"] });
  });
});

describe("an extraction that cannot continue", { timeout: 120_000 }, () => {
  it("because there is no store fails at once and is not retried", async () => {
    const { job, lines } = await extract({ repository: "acme/small" }, { worker: { store: undefined as never } });
    expect(job).toMatchObject({ state: "failed", attempt: 1 });
    expect(job.failure?.sentence).toMatch(/^Extraction failed: /);
    expect(lines.at(-1)).toBe(`error ${job.failure?.sentence}`);
    expect(lines.join("\n")).not.toContain("it will be retried");
    await setup.pool.query("select extraction.record_outcomes()");
    const { rows } = await setup.pool.query(
      "select e.error, r.error as shown from extraction.extractions e join extraction.repositories r using (project_id) where e.id = $1",
      [job.id],
    );
    const error = job.failure?.sentence?.replace("Extraction failed: ", "");
    expect(rows).toEqual([{ error, shown: error }]);
  });

  it("because its project was deleted fails before anything is fetched", async () => {
    const { job, lines } = await extract({ repository: "acme/small", projectId: randomUUID() });
    expect(lines).toEqual(["error Extraction failed: The project was deleted"]);
    expect(job).toMatchObject({ state: "failed", attempt: 1, failure: { code: "PROJECT_GONE" } });
  });

  it("that is retried after a later one has completed keeps the findings of the later one", async () => {
    const input = await setup.input({ repository: "acme/small" });
    const { id } = await setup.stillwake.enqueue(extraction, input);
    await setup.pool.query("insert into extraction.extractions (id, project_id) values ($1, $2)", [
      id,
      input.projectId,
    ]);
    await setup.stillwake.cancel(id);
    const later = await extract({ repository: "acme/small", projectId: input.projectId });
    expect(later.lines).toContain("success Dependencies synced (1 direct, 0 transitive)");
    await setup.stillwake.retry(id);
    const worker = setup.worker();
    await worker.start();
    const { job, lines } = await setup.waitForJob(id).finally(() => worker.stop());
    expect(job).toMatchObject({ state: "completed", output: { dependencies: { direct: 1, transitive: 0 } } });
    expect(lines).toContain("success Dependencies not synced - a later extraction of this project has stored its own");
    expect(lines.slice(-2)).toEqual([
      "warning A later extraction of this project has completed - its findings stay",
      "success Extraction complete",
    ]);
    const { rows } = await setup.pool.query(
      "select distinct extraction_id from extraction.dependencies where project_id = $1",
      [input.projectId],
    );
    expect(rows).toEqual([{ extraction_id: later.job.id }]);
  });

  it("has a timeout longer than the sum of its steps, so that a slow step fails with its own message", () => {
    const { cloneMs, sbomMs, vulnerabilitiesMs, analysisMs, secretsMs } = readSettings({}).limits;
    const steps = cloneMs + sbomMs + vulnerabilitiesMs + analysisMs + secretsMs;
    const [, minutes] = /^(\d+)m$/.exec(String(extraction.options.timeout)) ?? [];
    expect(Number(minutes) * 60_000).toBeGreaterThanOrEqual(1.25 * steps);
  });
});

describe("a machine that fails", { timeout: 120_000 }, () => {
  it("three times fails the job without pipeline code", async () => {
    const message = "Extraction failed after 3 attempts (machine crash or timeout)";
    // Its parent is the runner.
    const { job, lines } = await extract({ repository: "acme/small" }, { tools: { trufflehog: "kill -9 $PPID" } });
    expect(job).toMatchObject({ state: "failed", crashes: 3 });
    expect(job.failure).toMatchObject({ code: "POISONED", sentence: message });
    expect(lines.filter((line) => line === "success Repository cloned successfully")).toHaveLength(1);
    await setup.pool.query("select extraction.record_outcomes()");
    const { rows } = await setup.pool.query("select status, error from extraction.extractions where id = $1", [job.id]);
    expect(rows).toEqual([{ status: "failed", error: message }]);
  });
});
