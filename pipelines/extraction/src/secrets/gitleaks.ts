// Runs Gitleaks, which redacts secrets in its report. Configuration, ignore lists and ignore comments of the repository have no effect.
import { randomUUID } from "node:crypto";
import fs from "node:fs/promises";
import path from "node:path";
import { userError } from "@stillwake/kit/failures";
import type { StepHandle } from "stillwake/worker";
import { MAX_FINDINGS } from "../analysis/collect.ts";
import { isSkipped, logLargeFiles, MAX_FILE_BYTES, pathWithin, SKIPPED_FOR_SECRETS } from "../analysis/source-files.ts";
import type { SecretLocation } from "./find-secrets.ts";

/** Its default exit code 1 means secrets or an error. */
const FOUND_EXIT_CODE = 42;
const MAX_REPORT_BYTES = 64 * 2 ** 20;
/** Used instead of the repository's .gitleaks.toml. */
const CONFIG = "[extend]\nuseDefault = true\n";
/** Gitleaks always reads it from the scanned folder. */
const IGNORE_FILE = ".gitleaksignore";

export async function runGitleaks(
  step: StepHandle,
  program: string,
  directory: string,
  timeoutMs: number,
): Promise<SecretLocation[]> {
  const folder = path.join(await step.scratch(), "gitleaks");
  const report = path.join(folder, "report.json");
  const config = path.join(folder, "config.toml");
  await fs.rm(folder, { recursive: true, force: true });
  await fs.mkdir(folder);
  await fs.writeFile(config, CONFIG);
  const args = [
    "dir",
    "--no-banner",
    "--no-color",
    "--log-level=error",
    "--redact=100",
    `--exit-code=${FOUND_EXIT_CODE}`,
  ];
  args.push(
    "--report-format=json",
    `--report-path=${report}`,
    `--config=${config}`,
    `--gitleaks-ignore-path=${folder}`,
  );
  args.push("--ignore-gitleaks-allow", `--max-target-megabytes=${Math.ceil(MAX_FILE_BYTES / 1e6)}`, "--", directory);
  const locations = await withIgnoreFileRenamed(directory, async (renamed) => {
    await step.exec(program, args, {
      cwd: folder,
      log: "none",
      okCodes: [0, FOUND_EXIT_CODE],
      timeout: `${timeoutMs}ms`,
    });
    return (await readReport(report, directory)).map((location) =>
      location.path === renamed ? { ...location, path: IGNORE_FILE } : location,
    );
  });
  await logLargeFiles(step, directory, SKIPPED_FOR_SECRETS);
  return locations;
}

/** The file is renamed and not moved away, because it may contain a secret too. */
async function withIgnoreFileRenamed<T>(directory: string, work: (renamed: string) => Promise<T>): Promise<T> {
  const renamed = `ignored-${randomUUID()}`;
  const [from, to] = [path.join(directory, IGNORE_FILE), path.join(directory, renamed)];
  const found = await fs.lstat(from).catch(() => undefined);
  // Gitleaks treats a folder of that name as a folder.
  if (!found || found.isDirectory()) return work(renamed);
  await fs.rename(from, to);
  try {
    return await work(renamed);
  } finally {
    // Fails only if the whole checkout is gone.
    await fs.rename(to, from).catch(() => {});
  }
}

interface Leak {
  RuleID?: unknown;
  File?: unknown;
  SymlinkFile?: unknown;
  StartLine?: unknown;
  EndLine?: unknown;
}

async function readReport(report: string, directory: string): Promise<SecretLocation[]> {
  let leaks: unknown;
  try {
    if ((await fs.stat(report)).size <= MAX_REPORT_BYTES) leaks = JSON.parse(await fs.readFile(report, "utf8"));
  } catch {}
  if (!Array.isArray(leaks))
    throw userError("Secret scan failed: Gitleaks wrote no readable report", { code: "SECRETS_REPORT" });
  const locations: SecretLocation[] = [];
  for (const leak of leaks.slice(0, 4 * MAX_FINDINGS) as (Leak | null)[]) {
    const { RuleID: rule, File: file, SymlinkFile: link, StartLine: line, EndLine: endLine } = leak ?? {};
    const relative = typeof file === "string" ? pathWithin(directory, file) : undefined;
    if (typeof rule !== "string" || relative === undefined || link || isSkipped(relative, SKIPPED_FOR_SECRETS))
      continue;
    locations.push({ rule, path: relative, line: Number(line), endLine: Number(endLine) });
  }
  return locations;
}
