// The three scans of an extraction, side by side: none needs what another finds, and a machine is paid for by the second. Each is optional and keeps what it found
// as an artifact, so that a later attempt goes on with it; an operator with small machines has them one after the other.
import fs from "node:fs/promises";
import type { JobContext, StepHandle, StepOptions } from "stillwake/worker";
import { analyseCode } from "./analysis/analyse.ts";
import { ARTIFACTS, type Exploited, type Finding, type Vulnerability } from "./model.ts";
import { findSecrets } from "./secrets/find-secrets.ts";
import type { Settings } from "./settings.ts";
import { exploitationOf } from "./vulnerabilities/exploitation.ts";
import { scanVulnerabilities } from "./vulnerabilities/scan.ts";

/** Undefined, each: nobody could look. */
export interface Scanned {
  vulnerabilities: { total: number; critical: number } | undefined;
  exploited: Exploited | undefined;
  code: number | undefined;
  secrets: number | undefined;
}

export async function scanAll(
  job: JobContext,
  tree: Tree,
  settings: Settings,
  far: (done: number) => void,
): Promise<Scanned> {
  const scanned: Scanned = { vulnerabilities: undefined, exploited: undefined, code: undefined, secrets: undefined };
  let done = 0;
  const scans = [
    async () => Object.assign(scanned, await vulnerabilitiesOf(job, tree, settings)),
    async () => {
      scanned.code = await search(
        job,
        "semgrep",
        ARTIFACTS.code,
        { start: "Running static code analysis...", end: (found) => `Static analysis complete - ${found} findings` },
        async (step) => analyseCode(step, { directory: await tree.directory(), settings }),
      );
    },
    async () => {
      scanned.secrets = await search(
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
        async (step) => findSecrets(step, { directory: await tree.directory(), settings }),
      );
    },
  ].map((scan) => async () => {
    await scan();
    done += 1;
    far(done);
  });
  if (settings.sideBySide) {
    // All of them are waited for: what is still at work when the job ends would be at work beside the next one.
    const ends = await Promise.allSettled(scans.map((scan) => scan()));
    for (const end of ends) if (end.status === "rejected") throw end.reason;
  } else {
    for (const scan of scans) await scan();
  }
  tree.check();
  return scanned;
}

/** What the scans have kept, in this attempt or in an earlier one. */
export async function readFound(job: JobContext, scanned: Scanned) {
  const { vulnerabilities, exploited, code, secrets } = scanned;
  return {
    vulnerabilities: vulnerabilities && (await read<Vulnerability>(job, ARTIFACTS.vulnerabilities)),
    exploited,
    code: code === undefined ? undefined : await read<Finding>(job, ARTIFACTS.code),
    secrets: secrets === undefined ? undefined : await read<Finding>(job, ARTIFACTS.secrets),
  };
}

/** Files that are fetched when the first step needs them. That they cannot be had is no failure of that step: an optional one would be left out for it. */
export class Tree {
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

/** And how likely they are to be exploited, which is looked up for those that were found. */
async function vulnerabilitiesOf(job: JobContext, tree: Tree, settings: Settings) {
  const vulnerabilities = await job.optional(
    "vuln_scan",
    {
      start: "Running vulnerability scan...",
      end: ({ total, critical }) =>
        `Vulnerability scan complete - found ${total} vulnerabilities (${critical} critical)`,
    },
    async (step: StepHandle) => {
      const sbom = await job.artifactFile(ARTIFACTS.sbom);
      const found = await scanVulnerabilities(step, { sbom, tree: () => tree.directory(), settings });
      const kept = await keep(job, ARTIFACTS.vulnerabilities, found);
      return { total: kept.length, critical: kept.filter(({ severity }) => severity === "critical").length };
    },
  );
  const exploited =
    vulnerabilities &&
    (await job.optional<Exploited>("vuln_scan/exploitation", async (step) =>
      exploitationOf(step, await read<Vulnerability>(job, ARTIFACTS.vulnerabilities), settings),
    ));
  return { vulnerabilities, exploited };
}

/** An optional step that looks for findings, keeps them as an artifact and answers how many there are. */
function search(
  job: JobContext,
  name: string,
  artifact: string,
  options: StepOptions<number>,
  look: (step: StepHandle) => Promise<Finding[]>,
): Promise<number | undefined> {
  return job.optional<number>(name, options, async (step) => (await keep(job, artifact, await look(step))).length);
}

/** Answers what is kept. That is what an earlier attempt has found, if it died between the artifact and the end of its step. */
async function keep<One>(job: JobContext, artifact: string, found: One[]): Promise<One[]> {
  const { existing } = await job.artifact(artifact, () => JSON.stringify(found));
  return existing ? read<One>(job, artifact) : found;
}

async function read<One>(job: JobContext, artifact: string): Promise<One[]> {
  return JSON.parse(await fs.readFile(await job.artifactFile(artifact), "utf8")) as One[];
}
