// An extraction from top to bottom: clone, bill of materials, dependencies, vulnerabilities, code, secrets, reports. Critical steps end the job when they
// fail, optional ones leave a warning. What a step found stands in its result or in an artifact, so that another attempt, on another machine, goes on behind it.
import fs from "node:fs/promises";
import { applicationPool } from "@stillwake/kit/database";
import { explain, saying, sayingIn } from "@stillwake/kit/failures";
import { Fatal } from "stillwake";
import { implement, type StepHandle } from "stillwake/worker";
import { cloneRepository, restoreCheckout, SOURCE, type Source } from "./clone/clone.ts";
import { extraction, type Output, PROVIDER_NAMES } from "./contract.ts";
import { ARTIFACTS } from "./model.ts";
import { begin, complete } from "./outcomes.ts";
import { writeReports } from "./reports/reports.ts";
import { withoutPlaces } from "./sbom/places.ts";
import { makeSbom } from "./sbom/sbom.ts";
import { readFound, scanAll, Tree } from "./scans.ts";
import { readSettings } from "./settings.ts";
import { reaching, syncDependencies } from "./sync.ts";

export default implement(
  extraction,
  (job, input) =>
    saying(job, "Extraction", async (): Promise<Output> => {
      const settings = readSettings();
      const pool = applicationPool(settings.databaseUrl, "EXTRACTION_DATABASE_URL");
      const source: Source = { input, settings, hide: (value) => job.secret(value) };
      const standing = { projectId: input.projectId, extractionId: job.id };
      await begin(pool, standing).catch((error) => {
        if (error instanceof Fatal) throw error;
        job.log.warn("The project's page may be late", { error: String(error) });
      });

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
            return { components: made.components, manifests: made.manifests };
          }),
      );

      far(2);

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
        reaching(pool),
        async (tx) => syncDependencies(tx, standing, await job.artifactFile(ARTIFACTS.sbom)),
      );
      const dependencies = { direct: synced.direct, transitive: synced.transitive };

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
      const ended = await job.tx("storing", {}, pool, (tx) =>
        complete(tx, standing, { ...found, reports: reports ?? [], result }),
      );
      if (ended.superseded) job.log.warn("A later extraction of this project has completed - what it found stays");
      await job.step("complete", (step) => step.log.success("Extraction complete", { took_ms: ended.tookMs }));
      return result;
    }),
  { explain },
);
