// The step "vuln_scan": runs dep-scan if it is installed. If it is not, or fails, a warning is logged, and the operator's
// advisories are used; without any, OSV.dev is asked. If nothing can be checked, the step fails with a warning that says so.
import { UserError, userError } from "@stillwake/kit/failures";
import { findTool } from "@stillwake/kit/tools";
import type pg from "pg";
import type { StepHandle } from "stillwake/worker";
import type { VulnerabilityScan } from "../model.ts";
import { readBom } from "../sbom/components.ts";
import type { Settings } from "../settings.ts";
import { loadAdvisories } from "./advisories.ts";
import { runDepScan } from "./dep-scan.ts";
import { matchAdvisories } from "./match.ts";
import { askOsv, type KnownScan } from "./osv.ts";
import { componentOf } from "./packages.ts";

export interface ScanOptions {
  sbom: string;
  /** The checkout; only dep-scan needs it. */
  source(): Promise<string>;
  /** The application's tables. */
  pool: pg.Pool;
  settings: Pick<Settings, "advisories" | "cache" | "limits" | "osvPrivate" | "osvUrl" | "toolPath">;
}

/** Begins the message of the failed step; the reason follows. */
export const NOT_CHECKED = "Vulnerabilities were not checked: ";
const MAX_FINDINGS = 50_000;

export async function scanVulnerabilities(step: StepHandle, options: ScanOptions): Promise<VulnerabilityScan> {
  const program = await findTool("depscan", options.settings.toolPath);
  let reason = "Vulnerability scanning unavailable (dep-scan not installed)";
  if (program) {
    // Outside the try: a failed fetch of the files is not a failure of dep-scan.
    const source = await options.source();
    try {
      return { vulnerabilities: await runDepScan(step, program, { ...options, source }), coverage: null };
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      reason = error.message;
    }
  }
  step.log.warning(reason);
  return scanWithoutDepScan(step, options);
}

async function scanWithoutDepScan(step: StepHandle, { sbom, pool, settings }: ScanOptions): Promise<VulnerabilityScan> {
  const purls = (await readBom(sbom)).dependencies.map(({ purl }) => purl);
  const scan =
    settings.advisories === ""
      ? await useOsv(step, purls, pool, settings)
      : await useBuiltInMatcher(step, purls, settings.advisories);
  const { vulnerabilities, coverage } = scan;
  const { checked, total, notes } = coverage;
  if (checked === 0 && total > 0 && vulnerabilities.length === 0) throw notChecked(notes.join("; "));
  if (checked < total) {
    step.log.warning(`Only ${checked} of ${total} dependencies were checked for vulnerabilities: ${notes.join("; ")}`);
  }
  if (vulnerabilities.length > MAX_FINDINGS)
    step.log.warning(`Only the ${MAX_FINDINGS} most severe of ${vulnerabilities.length} vulnerabilities are kept`);
  return { vulnerabilities: vulnerabilities.slice(0, MAX_FINDINGS), coverage };
}

async function useOsv(
  step: StepHandle,
  purls: readonly string[],
  pool: pg.Pool,
  settings: ScanOptions["settings"],
): Promise<KnownScan> {
  if (settings.osvUrl === "")
    throw notChecked("OSV.dev is turned off (EXTRACTION_OSV_URL), and there are no advisories (EXTRACTION_ADVISORIES)");
  return askOsv(step, { purls, pool, settings });
}

async function useBuiltInMatcher(step: StepHandle, purls: readonly string[], folder: string): Promise<KnownScan> {
  const components = purls.flatMap((purl) => componentOf(purl) ?? []);
  const wanted = new Set(components.map(({ key }) => key));
  const advisories = await loadAdvisories(folder, wanted, step.signal).catch((error: unknown) => {
    if (isMissing(error)) throw notChecked("the folder of EXTRACTION_ADVISORIES cannot be read", error);
    throw error;
  });
  if (advisories.count === 0) throw notChecked("the folder of EXTRACTION_ADVISORIES contains no advisories");

  step.log.info(`Using the built-in matcher instead, with ${countOf(advisories.count, "advisory", "advisories")}`);
  if (advisories.broken.count > 0) {
    const { count, names } = advisories.broken;
    step.log.warning(`${countOf(count, "file", "files")} of the advisories could not be read`, { files: names });
  }
  if (advisories.skipped > 0)
    step.log.warning(
      `${countOf(advisories.skipped, "file", "files")} of the advisories exceed the limits and were skipped`,
    );

  const { vulnerabilities, undecided, unversioned } = matchAdvisories(components, advisories);
  if (undecided.length > 0) {
    step.log.warning(
      `${countOf(undecided.length, "version", "versions")} cannot be compared with the package's advisories`,
      {
        components: undecided.slice(0, 50),
      },
    );
  }
  if (unversioned.length > 0) {
    step.log.warning(
      `${countOf(unversioned.length, "package has", "packages have")} advisories but no version to compare`,
      { components: unversioned.slice(0, 50) },
    );
  }
  const others = purls.length - components.length;
  const notes = others > 0 ? [`${countOf(others, "is", "are")} of a kind that the matcher does not support`] : [];
  return { vulnerabilities, coverage: { checked: components.length, total: purls.length, notes } };
}

function notChecked(why: string, cause?: unknown): Error {
  return userError(`${NOT_CHECKED}${why}`, { code: "NOT_CHECKED", cause });
}

function isMissing(error: unknown): boolean {
  return ["ENOENT", "ENOTDIR", "EACCES"].includes((error as NodeJS.ErrnoException).code ?? "");
}

function countOf(count: number, singular: string, plural: string): string {
  return `${count} ${count === 1 ? singular : plural}`;
}
