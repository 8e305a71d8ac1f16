// The step "uploading": writes the reports as artifacts of the job. The same findings give the same bytes, so a repeated
// attempt writes identical reports.
import { userError } from "@stillwake/kit/failures";
import type { JobContext } from "stillwake/worker";
import type { Input } from "../contract.ts";
import { ARTIFACTS, type Checkout, type Coverage, type Exploited, type Finding, type Vulnerability } from "../model.ts";
import { writeFindings } from "./findings.ts";
import { orderVulnerabilities } from "./order.ts";
import { type Origin, readOrigins } from "./origins.ts";
import { writeSarif } from "./sarif.ts";
import { writeSummary } from "./summary.ts";

export interface Report {
  name: string;
  size: number;
  sha256: string;
}

export interface ReportInput {
  input: Pick<Input, "projectId" | "provider" | "repository" | "packagePath">;
  checkout: Checkout;
  /** The manifests and lockfiles below the package path, by their paths in the repository. */
  sbom: { components: number; manifests?: readonly string[] };
  dependencies: { direct: number; transitive: number };
  /** Undefined, these three: not scanned. */
  vulnerabilities: Vulnerability[] | undefined;
  code: Finding[] | undefined;
  secrets: Finding[] | undefined;
  /** Of the vulnerability scan; null if it is not known. */
  coverage: Coverage | null;
  /** Undefined if no feed could be read. */
  exploited: Exploited | undefined;
  /** ISO time of the extraction from its checkpoint, so that repeated attempts write the same. */
  at?: string;
}

export interface Content extends ReportInput {
  extractionId: string;
  origins: ReadonlyMap<string, Origin>;
}

export const REPORTS = {
  sbom: ARTIFACTS.sbom,
  findings: "reports/findings.json",
  sarif: "reports/findings.sarif",
  summary: "reports/summary.html",
} as const;

export async function writeReports(job: JobContext, report: ReportInput): Promise<Report[]> {
  const { vulnerabilities, exploited, sbom, input } = report;
  const wanted = new Set(vulnerabilities?.map(({ purl }) => purl));
  const content: Content = {
    ...report,
    vulnerabilities: vulnerabilities && orderVulnerabilities(vulnerabilities, exploited),
    extractionId: job.id,
    origins:
      wanted.size === 0
        ? new Map()
        : await readOrigins(await job.artifactFile(REPORTS.sbom), wanted, {
            packagePath: input.packagePath,
            manifests: sbom.manifests ?? [],
          }),
  };
  // Wait for all of them, so that none is still running when the job ends.
  const results = await Promise.allSettled([
    // It exists since the step "sbom": this only returns its size and hash.
    job.artifact(REPORTS.sbom, () => {
      throw userError("The SBOM is no longer in the store", { code: "SBOM_GONE" });
    }),
    job.artifact(REPORTS.findings, () => writeFindings(content)),
    job.artifact(REPORTS.sarif, () => writeSarif(content)),
    job.artifact(REPORTS.summary, () => writeSummary(content)),
  ]);
  return results.map((result) => {
    if (result.status === "rejected") throw result.reason;
    const { name, size, sha256 } = result.value;
    return { name, size, sha256 };
  });
}
