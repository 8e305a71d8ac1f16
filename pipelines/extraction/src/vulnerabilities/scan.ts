// The step "vuln_scan": dep-scan where it is installed. Where it is not, or fails, the person is told so, and the built-in matcher stands in with the
// advisories this installation has: fewer findings are better than none, as long as nobody takes them for all.

import { Told, tell } from "@stillwake/kit/user-error";
import type { StepHandle } from "stillwake/worker";
import type { Vulnerability } from "../model.ts";
import { dependenciesOf } from "../sbom/components.ts";
import type { Settings } from "../settings.ts";
import { findTool } from "../tools.ts";
import { loadAdvisories } from "./advisories.ts";
import { runDepScan } from "./dep-scan.ts";
import { matchAdvisories } from "./match.ts";
import { type Component, componentOf } from "./packages.ts";

export interface ScanOptions {
  sbom: string;
  /** The checkout; asked for only by dep-scan. */
  tree(): Promise<string>;
  settings: Pick<Settings, "advisories" | "cache" | "limits" | "toolPath">;
}

const MAX_FINDINGS = 50_000;

export async function scanVulnerabilities(step: StepHandle, options: ScanOptions): Promise<Vulnerability[]> {
  const program = await findTool("depscan", options.settings.toolPath);
  let why = tell("Vulnerability scanning unavailable (dep-scan not installed)", { code: "SCAN_UNAVAILABLE" });
  if (program) {
    // Files that cannot be fetched again are no failure of dep-scan, and nothing stands in for them.
    const source = await options.tree();
    try {
      return await runDepScan(step, program, { ...options, source });
    } catch (error) {
      if (!(error instanceof Told)) throw error;
      why = error;
    }
  }
  return standIn(step, options, why);
}

/** Without a single advisory nobody has looked: then the step itself fails with those words, and what was known before stays. */
async function standIn(step: StepHandle, { sbom, settings }: ScanOptions, why: Error): Promise<Vulnerability[]> {
  const components = await componentsOf(sbom);
  const wanted = new Set(components.map(({ key }) => key));
  const advisories = await loadAdvisories(settings.advisories, wanted, step.signal).catch((error: unknown) => {
    if (isMissing(error)) throw why;
    throw error;
  });
  if (advisories.count === 0) throw why;

  step.log.warn(why.message);
  step.log.info(`The built-in matcher stands in, with ${counted(advisories.count, "advisory", "advisories")}`);
  if (advisories.broken.count > 0) {
    const { count, names } = advisories.broken;
    step.log.warn(`${counted(count, "file", "files")} of the advisories cannot be read`, { files: names });
  }
  if (advisories.left > 0)
    step.log.warn(
      `${counted(advisories.left, "file", "files")} of the advisories are past the limits and were left out`,
    );

  const { vulnerabilities, undecided, unversioned } = matchAdvisories(components, advisories);
  if (undecided.length > 0) {
    step.log.warn(
      `${counted(undecided.length, "version", "versions")} cannot be compared with the advisories of the package`,
      {
        components: undecided.slice(0, 50),
      },
    );
  }
  if (unversioned.length > 0) {
    step.log.warn(
      `${counted(unversioned.length, "package has", "packages have")} advisories and no version to compare with them`,
      { components: unversioned.slice(0, 50) },
    );
  }
  if (vulnerabilities.length > MAX_FINDINGS)
    step.log.warn(`Only the ${MAX_FINDINGS} worst of ${vulnerabilities.length} vulnerabilities are kept`);
  return vulnerabilities.slice(0, MAX_FINDINGS);
}

async function componentsOf(sbom: string): Promise<Component[]> {
  const components: Component[] = [];
  for await (const { purl } of dependenciesOf(sbom)) {
    const component = componentOf(purl);
    if (component) components.push(component);
  }
  return components;
}

function isMissing(error: unknown): boolean {
  return ["ENOENT", "ENOTDIR", "EACCES"].includes((error as NodeJS.ErrnoException).code ?? "");
}

function counted(count: number, one: string, many: string): string {
  return `${count} ${count === 1 ? one : many}`;
}
