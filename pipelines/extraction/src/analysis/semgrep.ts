// Semgrep, where it is installed. Its report is written to a file and read as what it is: something a stranger's code has had a hand in.
import fs from "node:fs/promises";
import path from "node:path";
import { tell } from "@stillwake/kit/user-error";
import { ExecError, type StepHandle } from "stillwake/worker";
import type { Severity } from "../model.ts";
import type { Settings } from "../settings.ts";
import { MAX_FINDINGS, type Match, storable } from "./collect.ts";
import { analysisFailed, firstLine } from "./failed.ts";
import { isMinified, LARGEST_FILE, SKIPPED_FOLDERS, sayLargeFiles, textOf, within } from "./source-files.ts";

const LARGEST_REPORT = 128 * 2 ** 20;
/** Findings are an answer and not a failure; with --strict or an older version they come as 1. */
const OK_CODES = [0, 1];
const NO_RULES = 7;

interface Report {
  results: unknown[];
  errors: { message?: unknown; type?: unknown; path?: unknown }[];
}

export async function lookWithSemgrep(
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
  args.push(`--config=${settings.semgrepConfig}`, `--max-target-bytes=${LARGEST_FILE}`, "--timeout=30");
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
      throw tell(`Static analysis skipped (Semgrep could not load the rules ${settings.semgrepConfig})`, {
        code: "ANALYSIS_RULES",
        cause: error,
      });
    }
    // With --quiet the reason may stand in the report alone.
    throw analysisFailed(error, reasonIn(await readReport(file)));
  }
  if (!report)
    throw tell("Static analysis failed: Semgrep wrote no report that can be read", { code: "ANALYSIS_REPORT" });
  sayUnread(step, report, directory);
  await sayLargeFiles(step, directory, SKIPPED_FOLDERS);
  return read(step, report, directory);
}

async function readReport(file: string): Promise<Report | undefined> {
  try {
    if ((await fs.stat(file)).size > LARGEST_REPORT) return undefined;
    const report = JSON.parse(await fs.readFile(file, "utf8")) as Partial<Report> | null;
    if (!Array.isArray(report?.results)) return undefined;
    return { results: report.results, errors: Array.isArray(report.errors) ? report.errors.filter(isObject) : [] };
  } catch {
    return undefined;
  }
}

function reasonIn(report: Report | undefined): string | undefined {
  const message = report?.errors.find((one) => typeof one.message === "string")?.message;
  return message === undefined ? undefined : firstLine(message as string);
}

function sayUnread(step: StepHandle, { errors }: Report, directory: string): void {
  const files = new Set(
    errors.flatMap(({ path: file }) => (typeof file === "string" ? (within(directory, file) ?? []) : [])),
  );
  if (files.size === 0) return;
  const some = [...files]
    .sort()
    .slice(0, 20)
    .map((one) => storable(one, 300));
  step.log.info(`Static analysis could not read all of ${files.size === 1 ? "1 file" : `${files.size} files`}`, {
    files: some,
  });
}

interface Result {
  check_id?: unknown;
  path?: unknown;
  start?: { line?: unknown };
  end?: { line?: unknown };
  extra?: { message?: unknown; severity?: unknown; is_ignored?: unknown; metadata?: { cwe?: unknown } };
}

async function read(step: StepHandle, { results }: Report, directory: string): Promise<Match[]> {
  const matches: Match[] = [];
  const texts = new Map<string, string[] | undefined>();
  for (const result of results.slice(0, 4 * MAX_FINDINGS) as Result[]) {
    step.signal.throwIfAborted();
    const { check_id: rule, path: file, start, end, extra } = isObject(result) ? result : {};
    if (typeof rule !== "string" || typeof file !== "string" || !isObject(extra) || extra.is_ignored === true) continue;
    const place = within(directory, file);
    if (place === undefined) continue;
    const line = Number(start?.line);
    const endLine = Number(end?.line);
    // The report has these lines only for those who are logged in. Results come file by file, so that one is enough to remember.
    if (!texts.has(place)) {
      texts.clear();
      texts.set(place, (await textOf(directory, place))?.split("\n"));
    }
    const text = texts.get(place)?.slice(line - 1, Math.min(endLine, line + 20));
    if (text?.[0] !== undefined && isMinified(text[0])) continue;
    const { message, severity, metadata } = extra;
    matches.push({
      rule,
      severity: severityOf(severity),
      path: place,
      line,
      endLine,
      message: typeof message === "string" ? message : rule,
      cwe: [metadata?.cwe ?? []].flat() as string[],
      text: text?.join("\n") ?? "",
    });
  }
  return matches;
}

const SEVERITY: Record<string, Severity> = {
  CRITICAL: "critical",
  HIGH: "high",
  ERROR: "high",
  MEDIUM: "medium",
  WARNING: "medium",
  LOW: "low",
  INFO: "low",
};

function severityOf(given: unknown): Severity {
  return (
    (typeof given === "string" && Object.hasOwn(SEVERITY, given.toUpperCase()) && SEVERITY[given.toUpperCase()]) ||
    "unknown"
  );
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
