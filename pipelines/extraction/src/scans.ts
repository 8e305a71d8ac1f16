// Runs the three scans concurrently, because machines are billed by the second, or one after the other on small machines
// (EXTRACTION_SIDE_BY_SIDE). Each scan is optional and stores its findings as an artifact for later attempts.
import fs from "node:fs/promises";
import { UserError } from "@stillwake/kit/failures";
import type pg from "pg";
import type { JobContext, StepHandle, StepOptions } from "stillwake/worker";
import { analyseCode } from "./analysis/analyse.ts";
import { ARTIFACTS, type Coverage, type Exploited, type Finding, type VulnerabilityScan } from "./model.ts";
import { findSecrets } from "./secrets/find-secrets.ts";
import type { Settings } from "./settings.ts";
import { lookUpExploitation } from "./vulnerabilities/exploitation.ts";
import { NOT_CHECKED, scanVulnerabilities } from "./vulnerabilities/scan.ts";

/** Undefined, for each: not scanned. */
export interface ScanCounts {
  vulnerabilities: { total: number; critical: number } | undefined;
  /** Null if it is not known. */
  coverage: Coverage | null;
  exploited: Exploited | undefined;
  code: number | undefined;
  secrets: number | undefined;
}

export interface ScanContext {
  files: LazyCheckout;
  settings: Settings;
  /** The application's tables. */
  pool: pg.Pool;
  /** Number of dependencies. */
  dependencies: number;
}

export async function scanAll(
  job: JobContext,
  context: ScanContext,
  onProgress: (done: number) => void,
): Promise<ScanCounts> {
  const { files, settings } = context;
  const scanned: ScanCounts = {
    vulnerabilities: undefined,
    coverage: null,
    exploited: undefined,
    code: undefined,
    secrets: undefined,
  };
  let done = 0;
  const scans = [
    async () => Object.assign(scanned, await scanForVulnerabilities(job, context)),
    async () => {
      scanned.code = await runOptionalScan(
        job,
        "semgrep",
        ARTIFACTS.code,
        { start: "Running static code analysis...", end: (found) => `Static analysis complete - ${found} findings` },
        async (step) => analyseCode(step, { directory: await files.directory(), settings }),
      );
    },
    async () => {
      scanned.secrets = await runOptionalScan(
        job,
        "trufflehog",
        ARTIFACTS.secrets,
        {
          start: "Scanning for exposed secrets...",
          end: (found) =>
            found === 0
              ? "Secret scan complete - no secrets found"
              : `Secret scan complete - ${found} ${found === 1 ? "secret" : "secrets"} found`,
        },
        async (step) => findSecrets(step, { directory: await files.directory(), settings }),
      );
    },
  ].map((scan) => async () => {
    await scan();
    done += 1;
    onProgress(done);
  });
  if (settings.sideBySide) {
    // Wait for all of them: a scan that is still running when the job ends would overlap with the next job.
    const results = await Promise.allSettled(scans.map((scan) => scan()));
    for (const result of results) if (result.status === "rejected") throw result.reason;
  } else {
    for (const scan of scans) await scan();
  }
  files.check();
  return scanned;
}

/** The findings of all scans, of this or an earlier attempt. */
export async function readResults(job: JobContext, scanned: ScanCounts) {
  const { vulnerabilities, coverage, exploited, code, secrets } = scanned;
  return {
    vulnerabilities: vulnerabilities && (await readVulnerabilities(job)),
    coverage,
    exploited,
    code: code === undefined ? undefined : await readResult<Finding[]>(job, ARTIFACTS.code),
    secrets: secrets === undefined ? undefined : await readResult<Finding[]>(job, ARTIFACTS.secrets),
  };
}

/**
 * Files that are fetched when the first step needs them. check() rethrows a failed fetch: it must fail the job, not just the
 * optional step that needed the files first.
 */
export class LazyCheckout {
  readonly #fetch: () => Promise<string>;
  #directory: Promise<string> | undefined;
  #failed: { error: unknown } | undefined;

  constructor(fetch: () => Promise<string>) {
    this.#fetch = fetch;
  }

  directory(): Promise<string> {
    this.#directory ??= this.#fetch().catch((error) => {
      this.#failed = { error };
      throw error;
    });
    return this.#directory;
  }

  check(): void {
    if (this.#failed) throw this.#failed.error;
  }
}

/** Also looks up how likely the findings are to be exploited. */
async function scanForVulnerabilities(job: JobContext, { files, settings, pool, dependencies }: ScanContext) {
  let reason = "the vulnerability scan failed";
  const scanned = await job.optional(
    "vuln_scan",
    { start: "Running vulnerability scan...", end: describeScan },
    async (step: StepHandle) => {
      try {
        const sbom = await job.artifactFile(ARTIFACTS.sbom);
        const found = await scanVulnerabilities(step, { sbom, source: () => files.directory(), pool, settings });
        const { vulnerabilities, coverage } = await saveResult(job, ARTIFACTS.vulnerabilities, found);
        const critical = vulnerabilities.filter(({ severity }) => severity === "critical").length;
        return { total: vulnerabilities.length, critical, coverage };
      } catch (error) {
        if (error instanceof UserError) reason = error.message.replace(NOT_CHECKED, "");
        throw error;
      }
    },
  );
  if (!scanned) return { vulnerabilities: undefined, coverage: { checked: 0, total: dependencies, notes: [reason] } };
  const { total, critical, coverage } = scanned;
  const exploited = await job.optional<Exploited>("vuln_scan/exploitation", async (step) =>
    lookUpExploitation(step, await readVulnerabilities(job), settings),
  );
  return { vulnerabilities: { total, critical }, coverage, exploited };
}

function describeScan({ total, critical, coverage }: { total: number; critical: number; coverage: Coverage | null }) {
  const found = `found ${total} vulnerabilities (${critical} critical)`;
  return coverage && coverage.checked < coverage.total
    ? `Vulnerability scan partly complete - ${found} in ${coverage.checked} of ${coverage.total} dependencies`
    : `Vulnerability scan complete - ${found}`;
}

async function readVulnerabilities(job: JobContext) {
  return (await readResult<VulnerabilityScan>(job, ARTIFACTS.vulnerabilities)).vulnerabilities;
}

/** An optional step that stores its findings as an artifact and returns their number. */
function runOptionalScan(
  job: JobContext,
  name: string,
  artifact: string,
  options: StepOptions<number>,
  scan: (step: StepHandle) => Promise<Finding[]>,
): Promise<number | undefined> {
  return job.optional<number>(
    name,
    options,
    async (step) => (await saveResult(job, artifact, await scan(step))).length,
  );
}

/** Returns the stored result: that of an earlier attempt, if it died after storing the artifact. */
async function saveResult<Result>(job: JobContext, artifact: string, result: Result): Promise<Result> {
  const { existing } = await job.artifact(artifact, () => JSON.stringify(result));
  return existing ? readResult<Result>(job, artifact) : result;
}

async function readResult<Result>(job: JobContext, artifact: string): Promise<Result> {
  return JSON.parse(await fs.readFile(await job.artifactFile(artifact), "utf8")) as Result;
}
