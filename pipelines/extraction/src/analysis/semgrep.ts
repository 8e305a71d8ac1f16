// Runs Semgrep and reads its report, whose content depends on untrusted code.
import fs from "node:fs/promises";
import path from "node:path";
import { userError } from "@stillwake/kit/failures";
import { ExecError, type StepHandle } from "stillwake/worker";
import type { Severity } from "../model.ts";
import type { Settings } from "../settings.ts";
import { storable } from "../untrusted.ts";
import { MAX_FINDINGS, type Match } from "./collect.ts";
import { explainAnalysisFailure, firstLine } from "./failure.ts";
import { isMinified, logLargeFiles, MAX_FILE_BYTES, pathWithin, readText, SKIPPED_FOLDERS } from "./source-files.ts";

const MAX_REPORT_BYTES = 128 * 2 ** 20;
/** With --strict, and in older versions, 1 means that there are findings. */
const OK_CODES = [0, 1];
const NO_RULES = 7;

interface Report {
  results: unknown[];
  errors: { message?: unknown; type?: unknown; path?: unknown }[];
}

export async function runSemgrep(
  step: StepHandle,
  program: string,
  directory: string,
  settings: Settings,
): Promise<Match[]> {
  const file = path.join(await step.scratch(), "semgrep.json");
  await fs.rm(file, { force: true });
  const args = [
    "scan",
    "--json",
    `--output=${file}`,
    "--quiet",
    "--metrics=off",
    "--disable-version-check",
    "--no-git-ignore",
  ];
  args.push(`--config=${settings.semgrepConfig}`, `--max-target-bytes=${MAX_FILE_BYTES}`, "--timeout=30");
  args.push(...SKIPPED_FOLDERS.map((folder) => `--exclude=${folder}`), "--exclude=*.min.*", "--", directory);
  let report: Report | undefined;
  try {
    await step.exec(program, args, {
      log: "none",
      okCodes: OK_CODES,
      timeout: `${settings.limits.analysisMs}ms`,
      env: { SEMGREP_SEND_METRICS: "off", SEMGREP_ENABLE_VERSION_CHECK: "0" },
    });
    report = await readReport(file);
  } catch (error) {
    if (error instanceof ExecError && error.exitCode === NO_RULES) {
      throw userError(`Static analysis skipped (Semgrep could not load the rules ${settings.semgrepConfig})`, {
        code: "ANALYSIS_RULES",
        cause: error,
      });
    }
    // With --quiet the reason may only be in the report.
    throw explainAnalysisFailure(error, errorIn(await readReport(file)));
  }
  if (!report) throw userError("Static analysis failed: Semgrep wrote no readable report", { code: "ANALYSIS_REPORT" });
  logUnreadFiles(step, report, directory);
  await logLargeFiles(step, directory, SKIPPED_FOLDERS);
  return readMatches(step, report, directory);
}

async function readReport(file: string): Promise<Report | undefined> {
  try {
    if ((await fs.stat(file)).size > MAX_REPORT_BYTES) return undefined;
    const report = JSON.parse(await fs.readFile(file, "utf8")) as Partial<Report> | null;
    if (!Array.isArray(report?.results)) return undefined;
    return { results: report.results, errors: Array.isArray(report.errors) ? report.errors.filter(isObject) : [] };
  } catch {
    return undefined;
  }
}

function errorIn(report: Report | undefined): string | undefined {
  const message = report?.errors.find((error) => typeof error.message === "string")?.message;
  return message === undefined ? undefined : firstLine(message as string);
}

function logUnreadFiles(step: StepHandle, { errors }: Report, directory: string): void {
  const files = new Set(
    errors.flatMap(({ path: file }) => (typeof file === "string" ? (pathWithin(directory, file) ?? []) : [])),
  );
  if (files.size === 0) return;
  const names = [...files]
    .sort()
    .slice(0, 20)
    .map((name) => storable(name, 300));
  step.log.info(`Static analysis could not read all of ${files.size === 1 ? "1 file" : `${files.size} files`}`, {
    files: names,
  });
}

interface Result {
  check_id?: unknown;
  path?: unknown;
  start?: { line?: unknown };
  end?: { line?: unknown };
  extra?: { message?: unknown; severity?: unknown; is_ignored?: unknown; metadata?: { cwe?: unknown } };
}

async function readMatches(step: StepHandle, { results }: Report, directory: string): Promise<Match[]> {
  const matches: Match[] = [];
  const texts = new Map<string, string[] | undefined>();
  for (const result of results.slice(0, 4 * MAX_FINDINGS) as Result[]) {
    step.signal.throwIfAborted();
    const { check_id: rule, path: file, start, end, extra } = isObject(result) ? result : {};
    if (typeof rule !== "string" || typeof file !== "string" || !isObject(extra) || extra.is_ignored === true) continue;
    const relative = pathWithin(directory, file);
    if (relative === undefined) continue;
    const line = Number(start?.line);
    const endLine = Number(end?.line);
    // The report contains the lines only with a Semgrep login. Results are grouped by file, so one file is cached.
    if (!texts.has(relative)) {
      texts.clear();
      texts.set(relative, (await readText(directory, relative))?.split("\n"));
    }
    const text = texts.get(relative)?.slice(line - 1, Math.min(endLine, line + 20));
    if (text?.[0] !== undefined && isMinified(text[0])) continue;
    const { message, severity, metadata } = extra;
    matches.push({
      rule,
      severity: severityOf(severity),
      path: relative,
      line,
      endLine,
      message: typeof message === "string" ? message : rule,
      cwe: [metadata?.cwe ?? []].flat() as string[],
      text: text?.join("\n") ?? "",
    });
  }
  return matches;
}

const SEVERITIES: Record<string, Severity> = {
  CRITICAL: "critical",
  HIGH: "high",
  ERROR: "high",
  MEDIUM: "medium",
  WARNING: "medium",
  LOW: "low",
  INFO: "low",
};

function severityOf(value: unknown): Severity {
  return (
    (typeof value === "string" && Object.hasOwn(SEVERITIES, value.toUpperCase()) && SEVERITIES[value.toUpperCase()]) ||
    "unknown"
  );
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
