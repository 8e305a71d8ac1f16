// Runs dep-scan, which knows more advisories than the built-in matcher and checks whether the code reaches the vulnerability.
// It downloads its database into the cache; all its other files are in the scratch directory.
import fs from "node:fs/promises";
import path from "node:path";
import { stripVTControlCharacters } from "node:util";
import { userError } from "@stillwake/kit/failures";
import { ExecError, type StepHandle } from "stillwake/worker";
import type { Vulnerability } from "../model.ts";
import type { Settings } from "../settings.ts";
import { shortLine } from "../untrusted.ts";
import { InvalidReport, type Report, readReports } from "./vdr.ts";

export interface DepScanOptions {
  sbom: string;
  /** The checkout. */
  source: string;
  settings: Pick<Settings, "cache" | "limits">;
}

/** Throws a UserError if the scan fails. */
export async function runDepScan(
  step: StepHandle,
  program: string,
  { sbom, source, settings }: DepScanOptions,
): Promise<Vulnerability[]> {
  const scratch = await step.scratch();
  const folder = await fs.mkdtemp(path.join(scratch, "dep-scan-"));
  // Some versions write the report beside the SBOM, others to --reports-dir: here it is the same folder.
  const bom = path.join(folder, "sbom.json");
  await fs.copyFile(sbom, bom);
  const database = path.join(settings.cache, "vdb");
  await fs.mkdir(database, { recursive: true });

  const { stdout, stderr } = await step
    .exec(
      program,
      [
        "--no-banner",
        "--no-vuln-table",
        "--profile",
        "research",
        "--src",
        source,
        "--bom",
        bom,
        "--reports-dir",
        folder,
      ],
      {
        // Never the checkout: dep-scan reads options from a file in its working directory.
        cwd: folder,
        env: { VDB_HOME: database, FETCH_LICENSE: "false", NO_COLOR: "1", PYTHONIOENCODING: "utf-8" },
        timeout: `${settings.limits.vulnerabilitiesMs}ms`,
        log: "none",
      },
    )
    .catch((error: unknown) => {
      throw explainFailure(error, scratch);
    });

  const report = await readReportIn(folder);
  if (!report) {
    // It writes no report without findings, but also if its database is missing.
    if (/no (?:oss )?vulnerabilities (?:were )?(?:detected|found)/i.test(stdout + stderr)) return [];
    throw scanFailed("dep-scan wrote no report");
  }
  if (report.truncated)
    step.log.warning(`dep-scan reported too many findings - only ${report.vulnerabilities.length} are kept`);
  return report.vulnerabilities;
}

async function readReportIn(folder: string): Promise<Report | undefined> {
  try {
    return await readReports(folder);
  } catch (error) {
    throw scanFailed(error instanceof InvalidReport ? error.message : "its report cannot be read", error);
  }
}

/** An aborted step is passed on as it is. */
function explainFailure(error: unknown, scratch: string): unknown {
  if (!(error instanceof ExecError) || error.kind === "aborted") return error;
  if (error.kind === "timeout")
    return userError("Vulnerability scan timed out", { code: "SCAN_TIMEOUT", cause: error });
  const line = firstLine(error.stderr, scratch);
  if (line) return scanFailed(line, error);
  if (error.kind === "oom") return scanFailed("out of memory", error);
  return scanFailed(
    error.signal ? `killed by ${error.signal}` : error.kind === "exit" ? `exit code ${error.exitCode}` : error.message,
    error,
  );
}

function scanFailed(reason: string, cause?: unknown): Error {
  return userError(`Vulnerability scan failed: ${reason}`, { code: "SCAN_FAILED", cause });
}

/** The first non-empty line without colours. Paths outside the scratch directory are shortened. */
function firstLine(text: string, scratch: string): string | undefined {
  for (const line of stripVTControlCharacters(text).split(/\r?\n|\r/)) {
    const text = shortLine(line, 2000);
    if (!text) continue;
    const shortened = text
      .replaceAll(`${scratch}/`, "")
      .replace(/(?<![\w:/.-])\/(?:[^\s/:'"`,;)\]]+\/)+([^\s/:'"`,;)\]]*)/g, "…/$1");
    return shortLine(shortened, 300);
  }
  return undefined;
}
