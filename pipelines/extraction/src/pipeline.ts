// An extraction from top to bottom: clone, bill of materials, dependencies, vulnerabilities, code, secrets, reports. Critical steps end the job when they
// fail, optional ones leave a warning. What a step found stands in its result or in an artifact, so that another attempt, on another machine, goes on behind it.
import fs from "node:fs/promises";
import type { JobContext, StepHandle, StepOptions } from "stillwake/worker";
import { implement } from "stillwake/worker";
import { analyseCode } from "./analysis/analyse.ts";
import { cloneRepository, restoreCheckout, SOURCE, type Source } from "./clone/clone.ts";
import { extraction, type Output, PROVIDER_NAMES } from "./contract.ts";
import { applicationPool } from "./database.ts";
import { begin, complete } from "./ends.ts";
import { explain, saying, sayingIn } from "./failures.ts";
import { ARTIFACTS, type Exploitation, type Finding, type Vulnerability } from "./model.ts";
import { writeReports } from "./reports/reports.ts";
import { withoutPlaces } from "./sbom/places.ts";
import { makeSbom } from "./sbom/sbom.ts";
import { findSecrets } from "./secrets/find-secrets.ts";
import { readSettings } from "./settings.ts";
import { reaching, syncDependencies } from "./sync.ts";
import { exploitationOf } from "./vulnerabilities/exploitation.ts";
import { scanVulnerabilities } from "./vulnerabilities/scan.ts";

export default implement(
  extraction,
  (job, input) =>
    saying(job, async (): Promise<Output> => {
      const settings = readSettings();
      const pool = applicationPool(settings.databaseUrl);
      const source: Source = { input, settings, hide: (value) => job.secret(value) };
      await begin(pool, job.id, input.projectId).catch((error) =>
        job.log.warn("The project's page may be late", { error: String(error) }),
      );

      /** How many of its seven parts are done. */
      const far = (done: number) => job.progress({ done, total: 7 });

      const checkout = await job.step(
        "cloning",
        {
          start: `Cloning repository from ${PROVIDER_NAMES[input.provider]}...`,
          end: "Repository cloned successfully",
        },
        (step: StepHandle) =>
          sayingIn(step, async () => ({ ...(await cloneRepository(step, source)), at: new Date().toISOString() })),
      );
      /** The files of that very commit: those of this attempt, or fetched again when they went with another machine. */
      const tree = new Tree(() => restoreCheckout(job, source, checkout));

      far(1);
      const sbom = await job.step(
        "sbom",
        {
          start: "Generating software bill of materials...",
          end: ({ components }) => `SBOM generated - found ${components} dependencies`,
        },
        (step: StepHandle) =>
          sayingIn(step, async () => {
            const directory = await tree.directory();
            const made = await makeSbom(step, { directory, packagePath: input.packagePath, settings });
            const places = [directory, await fs.realpath(directory), await job.scratch(), `../${SOURCE}`];
            await job.artifact(ARTIFACTS.sbom, () => withoutPlaces(made.file, places));
            return { components: made.components };
          }),
      );

      far(2);
      const dependencies = await job.tx(
        "deps_sync",
        {
          start: "Syncing dependencies to database...",
          end: ({ direct, transitive }) => `Dependencies synced (${direct} direct, ${transitive} transitive)`,
          retry: { attempts: 3 },
        },
        reaching(pool),
        async (tx) =>
          syncDependencies(
            tx,
            { projectId: input.projectId, extractionId: job.id },
            await job.artifactFile(ARTIFACTS.sbom),
          ),
      );

      far(3);
      const vulnerabilities = await job.optional(
        "vuln_scan",
        {
          start: "Running vulnerability scan...",
          end: ({ total, critical }) =>
            `Vulnerability scan complete - found ${total} vulnerabilities (${critical} critical)`,
        },
        async (step: StepHandle) => {
          const found = await scanVulnerabilities(step, {
            sbom: await job.artifactFile(ARTIFACTS.sbom),
            tree: () => tree.directory(),
            settings,
          });
          const kept = await keep(job, ARTIFACTS.vulnerabilities, found);
          return { total: kept.length, critical: kept.filter(({ severity }) => severity === "critical").length };
        },
      );
      tree.check();
      const exploited =
        vulnerabilities &&
        (await job.optional<Record<string, Exploitation>>("vuln_scan/exploitation", async (step) =>
          exploitationOf(step, await read<Vulnerability>(job, ARTIFACTS.vulnerabilities), settings),
        ));

      far(4);
      const code = await search(
        job,
        "semgrep",
        ARTIFACTS.code,
        {
          start: "Running static code analysis...",
          end: (found) => `Static analysis complete - ${found} findings`,
        },
        async (step) => analyseCode(step, { directory: await tree.directory(), settings }),
      );
      tree.check();

      far(5);
      const secrets = await search(
        job,
        "trufflehog",
        ARTIFACTS.secrets,
        {
          start: "Scanning for exposed secrets...",
          end: (found) =>
            `Secret scan complete - ${found === 0 ? "no secrets found" : found === 1 ? "1 secret found" : `${found} secrets found`}`,
        },
        async (step) => findSecrets(step, { directory: await tree.directory(), settings }),
      );
      tree.check();

      far(6);
      const found = {
        vulnerabilities: vulnerabilities && (await read<Vulnerability>(job, ARTIFACTS.vulnerabilities)),
        exploited: exploited ?? {},
        code: code === undefined ? undefined : await read<Finding>(job, ARTIFACTS.code),
        secrets: secrets === undefined ? undefined : await read<Finding>(job, ARTIFACTS.secrets),
      };
      const reports = await job.optional(
        "uploading",
        { start: "Uploading reports to storage...", end: "Reports uploaded successfully" },
        async () => writeReports(job, { input, checkout, sbom, dependencies, at: checkout.at, ...found }),
      );

      far(7);
      const result: Output = {
        commit: checkout.commit,
        dependencies,
        vulnerabilities: vulnerabilities ?? null,
        findings: code ?? null,
        secrets: secrets ?? null,
        reports: (reports ?? []).map(({ name }) => name),
      };
      const tookMs = await job.tx("storing", {}, pool, (tx) =>
        complete(tx, job.id, input.projectId, { ...found, reports: reports ?? [], result }),
      );
      await job.step("complete", (step) => step.log.success("Extraction complete", { took_ms: tookMs }));
      return result;
    }),
  { explain },
);

/** An optional step that looks for findings, keeps them as an artifact and answers how many there are. */
function search(
  job: JobContext,
  name: string,
  artifact: string,
  options: StepOptions<number>,
  look: (step: StepHandle) => Promise<Finding[]>,
): Promise<number | undefined> {
  return job.optional<number>(name, options, async (step) => {
    const found = await look(step);
    return (await keep(job, artifact, found)).length;
  });
}

/** Answers what is kept. That is what an earlier attempt has found, if it died between the artifact and the end of its step. */
async function keep<One>(job: JobContext, artifact: string, found: One[]): Promise<One[]> {
  const { existing } = await job.artifact(artifact, () => JSON.stringify(found));
  return existing ? read<One>(job, artifact) : found;
}

async function read<One>(job: JobContext, artifact: string): Promise<One[]> {
  return JSON.parse(await fs.readFile(await job.artifactFile(artifact), "utf8")) as One[];
}

/** Files that are fetched when the first step needs them. That they cannot be had is no failure of that step: an optional one would be left out for it. */
class Tree {
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
