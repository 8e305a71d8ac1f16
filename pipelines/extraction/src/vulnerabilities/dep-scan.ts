// dep-scan, when the operator has installed it: it knows far more advisories than a folder holds, and looks whether the code reaches what is vulnerable.
// Its database is downloaded by itself and kept in the cache; everything else of it stays in the scratch directory.
import fs from "node:fs/promises";
import path from "node:path";
import { stripVTControlCharacters } from "node:util";
import { tell } from "@stillwake/kit/user-error";
import { ExecError, type StepHandle } from "stillwake/worker";
import type { Vulnerability } from "../model.ts";
import type { Settings } from "../settings.ts";
import { sentenceOf } from "../untrusted.ts";
import { BadReport, type Report, readReports } from "./vdr.ts";

export interface Scanned {
  sbom: string;
  /** The checkout. */
  source: string;
  settings: Pick<Settings, "cache" | "limits">;
}

/** Throws what people are to be told. */
export async function runDepScan(
  step: StepHandle,
  program: string,
  { sbom, source, settings }: Scanned,
): Promise<Vulnerability[]> {
  const scratch = await step.scratch();
  const folder = await fs.mkdtemp(path.join(scratch, "dep-scan-"));
  // The report is written beside the SBOM by some versions and among the reports by others: here it is the same folder.
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
        // Never the checkout: dep-scan takes options from a file of the directory it is started in.
        cwd: folder,
        env: { VDB_HOME: database, FETCH_LICENSE: "false", NO_COLOR: "1", PYTHONIOENCODING: "utf-8" },
        timeout: `${settings.limits.vulnerabilitiesMs}ms`,
        log: "none",
      },
    )
    .catch((error: unknown) => {
      throw inWords(error, scratch);
    });

  const report = await reportIn(folder);
  if (!report) {
    // Without findings it writes no report, and without its database neither.
    if (/no (?:oss )?vulnerabilities (?:were )?(?:detected|found)/i.test(stdout + stderr)) return [];
    throw failed("dep-scan left no report");
  }
  if (report.cut)
    step.log.warn(`dep-scan reported more than we keep: ${report.vulnerabilities.length} findings are shown`);
  return report.vulnerabilities;
}

async function reportIn(folder: string): Promise<Report | undefined> {
  try {
    return await readReports(folder);
  } catch (error) {
    throw failed(error instanceof BadReport ? error.message : "its report cannot be read", error);
  }
}

/** A scan that was stopped with its step has not failed: that error is the step's own. */
function inWords(error: unknown, scratch: string): unknown {
  if (!(error instanceof ExecError) || error.kind === "aborted") return error;
  if (error.kind === "timeout") return tell("Vulnerability scan timed out", { code: "SCAN_TIMEOUT", cause: error });
  const line = firstLine(error.stderr, scratch);
  if (line) return failed(line, error);
  if (error.kind === "oom") return failed("out of memory", error);
  return failed(
    error.signal ? `ended by ${error.signal}` : error.kind === "exit" ? `exit code ${error.exitCode}` : error.message,
    error,
  );
}

function failed(reason: string, cause?: unknown): Error {
  return tell(`Vulnerability scan failed: ${reason}`, { code: "SCAN_FAILED", cause });
}

/** The first line with anything in it, without colours. Of paths on this machine only those in the scratch directory are anybody's business. */
function firstLine(text: string, scratch: string): string | undefined {
  for (const line of stripVTControlCharacters(text).split(/\r?\n|\r/)) {
    const words = sentenceOf(line, 2000);
    if (!words) continue;
    const told = words
      .replaceAll(`${scratch}/`, "")
      .replace(/(?<![\w:/.-])\/(?:[^\s/:'"`,;)\]]+\/)+([^\s/:'"`,;)\]]*)/g, "…/$1");
    return sentenceOf(told, 300);
  }
  return undefined;
}
