// The pipeline: clone, SBOM, dependencies, vulnerabilities, code, secrets, reports. A failed critical step fails the
// attempt, a failed optional step leaves a warning. The results of a step are in its checkpoint or in an artifact, so that
// an attempt on another machine resumes after the last finished step.
import fs from "node:fs/promises";
import { applicationPool } from "@stillwake/kit/database";
import { explain, logJobFailure, logStepFailure } from "@stillwake/kit/failures";
import { Fatal } from "stillwake";
import { implement, type StepHandle } from "stillwake/worker";
import { cloneRepository, restoreCheckout, SOURCE, type Source } from "./clone/clone.ts";
import { extraction, type Output, PROVIDER_NAMES } from "./contract.ts";
import { ARTIFACTS } from "./model.ts";
import { recordCompletion, recordStart } from "./outcomes.ts";
import { writeReports } from "./reports/reports.ts";
import { generateSbom } from "./sbom/sbom.ts";
import { stripPaths } from "./sbom/strip-paths.ts";
import { LazyCheckout, readResults, scanAll } from "./scans.ts";
import { readSettings, settingsFor } from "./settings.ts";
import { explainDatabaseErrors, syncDependencies } from "./sync.ts";

export default implement(
  extraction,
  (job, input) =>
    logJobFailure(job, "Extraction", async (): Promise<Output> => {
      const settings = settingsFor(readSettings(), input);
      const pool = applicationPool(settings.databaseUrl, "EXTRACTION_DATABASE_URL");
      const source: Source = { input, settings, redact: (value) => job.secret(value) };
      const ref = { projectId: input.projectId, extractionId: job.id };
      await recordStart(pool, ref).catch((error) => {
        if (error instanceof Fatal) throw error;
        job.log.warning("Could not update the project's status - its page may be out of date", {
          error: String(error),
        });
      });

      const reportProgress = (done: number) => job.progress({ done, total: 7 });

      const checkout = await job.step(
        "cloning",
        {
          start: `Cloning repository from ${PROVIDER_NAMES[input.provider]}...`,
          end: "Repository cloned successfully",
        },
        (step: StepHandle) =>
          logStepFailure(step, async () => ({
            ...(await cloneRepository(step, source)),
            at: new Date().toISOString(),
          })),
      );
      reportProgress(1);
      /** The files of the cloned commit; fetched again if an earlier attempt cloned them on another machine. */
      const files = new LazyCheckout(() => restoreCheckout(job, source, checkout));

      const sbom = await job.step(
        "sbom",
        {
          start: "Generating software bill of materials...",
          end: ({ components }) => `SBOM generated - found ${components} dependencies`,
        },
        (step: StepHandle) =>
          logStepFailure(step, async () => {
            const directory = await files.directory();
            const generated = await generateSbom(step, { directory, packagePath: input.packagePath, settings });
            const paths = [directory, await fs.realpath(directory), await job.scratch(), `../${SOURCE}`];
            await job.artifact(ARTIFACTS.sbom, () => stripPaths(generated.file, paths));
            return { components: generated.components, manifests: generated.manifests };
          }),
      );

      reportProgress(2);

      const synced = await job.tx(
        "deps_sync",
        {
          start: "Syncing dependencies to database...",
          end: ({ direct, transitive, superseded }) =>
            superseded
              ? "Dependencies not synced - a later extraction of this project has stored its own"
              : `Dependencies synced (${direct} direct, ${transitive} transitive)`,
          retry: { attempts: 3 },
        },
        explainDatabaseErrors(pool),
        async (tx) => syncDependencies(tx, ref, await job.artifactFile(ARTIFACTS.sbom)),
      );
      const dependencies = { direct: synced.direct, transitive: synced.transitive };

      reportProgress(3);

      const scanned = await scanAll(
        job,
        { files, settings, pool, dependencies: dependencies.direct + dependencies.transitive },
        (done) => reportProgress(3 + done),
      );
      const results = await readResults(job, scanned);

      const reports = await job.optional(
        "uploading",
        { start: "Uploading reports to storage...", end: "Reports uploaded successfully" },
        async () => writeReports(job, { input, checkout, sbom, dependencies, at: checkout.at, ...results }),
      );

      reportProgress(7);

      const result: Output = {
        commit: checkout.commit,
        dependencies,
        vulnerabilities: scanned.vulnerabilities ?? null,
        coverage: scanned.coverage,
        findings: scanned.code ?? null,
        secrets: scanned.secrets ?? null,
        reports: (reports ?? []).map(({ name }) => name),
      };
      const completion = await job.tx("storing", {}, pool, (tx) =>
        recordCompletion(tx, ref, { ...results, reports: reports ?? [], result }),
      );
      if (completion.superseded)
        job.log.warning("A later extraction of this project has completed - its findings stay");
      await job.step("complete", (step) => step.log.success("Extraction complete", { took_ms: completion.tookMs }));
      return result;
    }),
  { explain },
);
