// The step "uploading": what an extraction found, for people and for other tools, as artifacts of the job. The same findings make the same bytes, so that an
// attempt that has to make them again makes the same reports.

import { tell } from "@stillwake/kit/user-error";
import type { JobContext } from "stillwake/worker";
import type { Input } from "../contract.ts";
import { ARTIFACTS, type Checkout, type Exploited, type Finding, type Vulnerability } from "../model.ts";
import { writeFindings } from "./findings.ts";
import { orderVulnerabilities } from "./order.ts";
import { type Origin, originsOf } from "./origins.ts";
import { writeSarif } from "./sarif.ts";
import { writeSummary } from "./summary.ts";

export interface Report {
  name: string;
  size: number;
  sha256: string;
}

export interface Given {
  input: Pick<Input, "projectId" | "provider" | "repository" | "packagePath">;
  checkout: Checkout;
  /** The manifests and lockfiles below the package path, by their paths in the repository. */
  sbom: { components: number; manifests?: readonly string[] };
  dependencies: { direct: number; transitive: number };
  /** Undefined, these three: nobody could look. */
  vulnerabilities: Vulnerability[] | undefined;
  code: Finding[] | undefined;
  secrets: Finding[] | undefined;
  /** Undefined when no feed could be asked. */
  exploited: Exploited | undefined;
  /** When the extraction was made, in ISO form: a time that the job has kept, never that of the moment. */
  at?: string;
}

/** All that a report is made of. */
export interface Content extends Given {
  extractionId: string;
  origins: ReadonlyMap<string, Origin>;
}

export const REPORTS = {
  sbom: ARTIFACTS.sbom,
  findings: "reports/findings.json",
  sarif: "reports/findings.sarif",
  summary: "reports/summary.html",
} as const;

export async function writeReports(job: JobContext, given: Given): Promise<Report[]> {
  const { vulnerabilities, exploited, sbom, input } = given;
  const wanted = new Set(vulnerabilities?.map(({ purl }) => purl));
  const content: Content = {
    ...given,
    vulnerabilities: vulnerabilities && orderVulnerabilities(vulnerabilities, exploited),
    extractionId: job.id,
    origins:
      wanted.size === 0
        ? new Map()
        : await originsOf(await job.artifactFile(REPORTS.sbom), wanted, {
            packagePath: input.packagePath,
            manifests: sbom.manifests ?? [],
          }),
  };
  // All of them are waited for, as of the scans.
  const ends = await Promise.allSettled([
    // It is there since its own step: this only asks for its size and hash.
    job.artifact(REPORTS.sbom, () => {
      throw tell("The bill of materials is no longer in the store", { code: "SBOM_GONE" });
    }),
    job.artifact(REPORTS.findings, () => writeFindings(content)),
    job.artifact(REPORTS.sarif, () => writeSarif(content)),
    job.artifact(REPORTS.summary, () => writeSummary(content)),
  ]);
  return ends.map((end) => {
    if (end.status === "rejected") throw end.reason;
    const { name, size, sha256 } = end.value;
    return { name, size, sha256 };
  });
}
