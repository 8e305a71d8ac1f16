// Runs the three scans concurrently, because machines are billed by the second, or one after the other on small machines
// (EXTRACTION_SIDE_BY_SIDE). Each scan is optional and stores its findings as an artifact for later attempts.
import fs from "node:fs/promises";
import type { JobContext, StepHandle, StepOptions } from "stillwake/worker";
import { analyseCode } from "./analysis/analyse.ts";
import { ARTIFACTS, type Exploited, type Finding, type Vulnerability } from "./model.ts";
import { findSecrets } from "./secrets/find-secrets.ts";
import type { Settings } from "./settings.ts";
import { lookUpExploitation } from "./vulnerabilities/exploitation.ts";
import { scanVulnerabilities } from "./vulnerabilities/scan.ts";

/** Undefined, for each: not scanned. */
export interface ScanCounts {
  vulnerabilities: { total: number; critical: number } | undefined;
  exploited: Exploited | undefined;
  code: number | undefined;
  secrets: number | undefined;
}

export async function scanAll(
  job: JobContext,
  files: LazyCheckout,
  settings: Settings,
  onProgress: (done: number) => void,
): Promise<ScanCounts> {
  const scanned: ScanCounts = { vulnerabilities: undefined, exploited: undefined, code: undefined, secrets: undefined };
  let done = 0;
  const scans = [
    async () => Object.assign(scanned, await scanForVulnerabilities(job, files, settings)),
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
  const { vulnerabilities, exploited, code, secrets } = scanned;
  return {
    vulnerabilities: vulnerabilities && (await readFindings<Vulnerability>(job, ARTIFACTS.vulnerabilities)),
    exploited,
    code: code === undefined ? undefined : await readFindings<Finding>(job, ARTIFACTS.code),
    secrets: secrets === undefined ? undefined : await readFindings<Finding>(job, ARTIFACTS.secrets),
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
async function scanForVulnerabilities(job: JobContext, files: LazyCheckout, settings: Settings) {
  const vulnerabilities = await job.optional(
    "vuln_scan",
    {
      start: "Running vulnerability scan...",
      end: ({ total, critical }) =>
        `Vulnerability scan complete - found ${total} vulnerabilities (${critical} critical)`,
    },
    async (step: StepHandle) => {
      const sbom = await job.artifactFile(ARTIFACTS.sbom);
      const found = await scanVulnerabilities(step, { sbom, source: () => files.directory(), settings });
      const saved = await saveFindings(job, ARTIFACTS.vulnerabilities, found);
      return { total: saved.length, critical: saved.filter(({ severity }) => severity === "critical").length };
    },
  );
  const exploited =
    vulnerabilities &&
    (await job.optional<Exploited>("vuln_scan/exploitation", async (step) =>
      lookUpExploitation(step, await readFindings<Vulnerability>(job, ARTIFACTS.vulnerabilities), settings),
    ));
  return { vulnerabilities, exploited };
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
    async (step) => (await saveFindings(job, artifact, await scan(step))).length,
  );
}

/** Returns the stored findings: those of an earlier attempt, if it died after storing the artifact. */
async function saveFindings<Item>(job: JobContext, artifact: string, found: Item[]): Promise<Item[]> {
  const { existing } = await job.artifact(artifact, () => JSON.stringify(found));
  return existing ? readFindings<Item>(job, artifact) : found;
}

async function readFindings<Item>(job: JobContext, artifact: string): Promise<Item[]> {
  return JSON.parse(await fs.readFile(await job.artifactFile(artifact), "utf8")) as Item[];
}
