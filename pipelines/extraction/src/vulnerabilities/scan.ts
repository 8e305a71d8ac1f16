// The step "vuln_scan": runs dep-scan if it is installed. If it is not, or fails, a warning is logged and the built-in
// matcher is used with the operator's advisories.
import { UserError, userError } from "@stillwake/kit/failures";
import type { StepHandle } from "stillwake/worker";
import type { Vulnerability } from "../model.ts";
import { readDependencies } from "../sbom/components.ts";
import type { Settings } from "../settings.ts";
import { findTool } from "../tools.ts";
import { loadAdvisories } from "./advisories.ts";
import { runDepScan } from "./dep-scan.ts";
import { matchAdvisories } from "./match.ts";
import { type Component, componentOf } from "./packages.ts";

export interface ScanOptions {
  sbom: string;
  /** The checkout; only dep-scan needs it. */
  source(): Promise<string>;
  settings: Pick<Settings, "advisories" | "cache" | "limits" | "toolPath">;
}

const MAX_FINDINGS = 50_000;

export async function scanVulnerabilities(step: StepHandle, options: ScanOptions): Promise<Vulnerability[]> {
  const program = await findTool("depscan", options.settings.toolPath);
  let reason: Error = userError("Vulnerability scanning unavailable (dep-scan not installed)", {
    code: "SCAN_UNAVAILABLE",
  });
  if (program) {
    // Outside the try: a failed fetch of the files is not a failure of dep-scan.
    const source = await options.source();
    try {
      return await runDepScan(step, program, { ...options, source });
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      reason = error;
    }
  }
  return useBuiltInMatcher(step, options, reason);
}

/** Without any advisory it throws `reason`: the step fails, and the stored vulnerabilities stay. */
async function useBuiltInMatcher(
  step: StepHandle,
  { sbom, settings }: ScanOptions,
  reason: Error,
): Promise<Vulnerability[]> {
  const components = await componentsOf(sbom);
  const wanted = new Set(components.map(({ key }) => key));
  const advisories = await loadAdvisories(settings.advisories, wanted, step.signal).catch((error: unknown) => {
    if (isMissing(error)) throw reason;
    throw error;
  });
  if (advisories.count === 0) throw reason;

  step.log.warn(reason.message);
  step.log.info(`Using the built-in matcher instead, with ${countOf(advisories.count, "advisory", "advisories")}`);
  if (advisories.broken.count > 0) {
    const { count, names } = advisories.broken;
    step.log.warn(`${countOf(count, "file", "files")} of the advisories could not be read`, { files: names });
  }
  if (advisories.skipped > 0)
    step.log.warn(
      `${countOf(advisories.skipped, "file", "files")} of the advisories exceed the limits and were skipped`,
    );

  const { vulnerabilities, undecided, unversioned } = matchAdvisories(components, advisories);
  if (undecided.length > 0) {
    step.log.warn(
      `${countOf(undecided.length, "version", "versions")} cannot be compared with the package's advisories`,
      {
        components: undecided.slice(0, 50),
      },
    );
  }
  if (unversioned.length > 0) {
    step.log.warn(
      `${countOf(unversioned.length, "package has", "packages have")} advisories but no version to compare`,
      { components: unversioned.slice(0, 50) },
    );
  }
  if (vulnerabilities.length > MAX_FINDINGS)
    step.log.warn(`Only the ${MAX_FINDINGS} most severe of ${vulnerabilities.length} vulnerabilities are kept`);
  return vulnerabilities.slice(0, MAX_FINDINGS);
}

async function componentsOf(sbom: string): Promise<Component[]> {
  const components: Component[] = [];
  for await (const { purl } of readDependencies(sbom)) {
    const component = componentOf(purl);
    if (component) components.push(component);
  }
  return components;
}

function isMissing(error: unknown): boolean {
  return ["ENOENT", "ENOTDIR", "EACCES"].includes((error as NodeJS.ErrnoException).code ?? "");
}

function countOf(count: number, singular: string, plural: string): string {
  return `${count} ${count === 1 ? singular : plural}`;
}
