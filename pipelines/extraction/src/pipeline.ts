// An extraction from top to bottom: clone, bill of materials, dependencies, vulnerabilities, code, secrets, reports. Critical steps end the job when they
// fail, optional ones leave a warning. What a step found stands in its result or in an artifact, so that another attempt, on another machine, goes on behind it.
import fs from "node:fs/promises";
import { implement, type StepHandle } from "stillwake/worker";
import { cloneRepository, restoreCheckout, SOURCE, type Source } from "./clone/clone.ts";
import { extraction, type Output, PROVIDER_NAMES } from "./contract.ts";
import { applicationPool } from "./database.ts";
import { begin, complete } from "./ends.ts";
import { explain, saying, sayingIn } from "./failures.ts";
import { ARTIFACTS } from "./model.ts";
import { writeReports } from "./reports/reports.ts";
import { withoutPlaces } from "./sbom/places.ts";
import { makeSbom } from "./sbom/sbom.ts";
import { readFound, scanAll, Tree } from "./scans.ts";
import { readSettings } from "./settings.ts";
import { reaching, syncDependencies } from "./sync.ts";

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
      far(1);
      /** The files of that very commit: those of this attempt, or fetched again when they went with another machine. */
      const tree = new Tree(() => restoreCheckout(job, source, checkout));

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

      const scanned = await scanAll(job, tree, settings, (done) => far(3 + done));
      const found = await readFound(job, scanned);

      const reports = await job.optional(
        "uploading",
        { start: "Uploading reports to storage...", end: "Reports uploaded successfully" },
        async () => writeReports(job, { input, checkout, sbom, dependencies, at: checkout.at, ...found }),
      );

      far(7);

      const result: Output = {
        commit: checkout.commit,
        dependencies,
        vulnerabilities: scanned.vulnerabilities ?? null,
        findings: scanned.code ?? null,
        secrets: scanned.secrets ?? null,
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
