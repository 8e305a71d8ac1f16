// The built-in engine: ast-grep, which comes with the package, and the rules in rules/code.
import fs from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { userError } from "@stillwake/kit/failures";
import type { StepHandle } from "stillwake/worker";
import { SEVERITIES, type Severity } from "../model.ts";
import type { Settings } from "../settings.ts";
import { packagedTool } from "../tools.ts";
import { OutputTooLarge, runInBatches } from "./batches.ts";
import { MAX_FINDINGS, type Match } from "./collect.ts";
import { explainAnalysisFailure } from "./failure.ts";
import {
  isMinified,
  isMinifiedFile,
  logSkipped,
  noneSkipped,
  pathWithin,
  SKIPPED_FOLDERS,
  type SourceFile,
  sourceFiles,
} from "./source-files.ts";

/** Relative to the package, from src/ and from dist/. */
const RULES = fileURLToPath(new URL("../../rules", import.meta.url));
/** Files of the languages that the rules cover. */
const CODE = /\.(?:[cm]?[jt]s|[jt]sx|py3?|pyi|bzl|go)$/;
const BATCH = { files: 1_000, bytes: 64 * 2 ** 20 };
/** About 25,000 matches. Each contains its source lines, so long lines make it larger. */
const MAX_OUTPUT = 32 * 2 ** 20;
/** Ignore files of the repository are not respected. */
const IGNORE_FILES = ["hidden", "dot", "exclude", "global", "parent", "vcs"];

export async function runAstGrep(step: StepHandle, directory: string, settings: Settings): Promise<Match[]> {
  const program = await packagedTool("ast-grep");
  if (!program)
    throw userError("Static analysis unavailable (no ast-grep program for this platform)", {
      code: "ANALYSIS_MISSING",
    });
  step.log.info(`Using the built-in rules instead (ast-grep, ${await countRules()} rules)`);
  const args = [
    "scan",
    "--config",
    path.join(RULES, "sgconfig.yml"),
    "--custom-languages=ignore",
    "--json=stream",
    "--include-metadata",
    "--color=never",
  ];
  args.push(...IGNORE_FILES.flatMap((kind) => ["--no-ignore", kind]));
  args.push("--max-results", String(4 * MAX_FINDINGS), "--");

  const deadline = performance.now() + settings.limits.analysisMs;
  const skipped = noneSkipped();
  const minified = { files: 0, findings: 0 };
  const wanted = (name: string) => CODE.test(name);
  const files = sourceFiles(directory, { signal: step.signal, skip: SKIPPED_FOLDERS, wanted, skipped });
  const run = async (batch: readonly SourceFile[]) => {
    const { stdout, bytesOut } = await step.exec(program, [...args, ...batch.map(({ file }) => file)], {
      log: "none",
      maxOutput: MAX_OUTPUT,
      timeout: `${Math.max(Math.round(deadline - performance.now()), 1)}ms`,
    });
    if (bytesOut > MAX_OUTPUT) throw new OutputTooLarge("the output of ast-grep is too large");
    const matches: Match[] = [];
    for (const line of stdout.split("\n")) {
      const match = parseMatch(line, directory);
      if (match === "minified") minified.findings += 1;
      else if (match) matches.push(match);
    }
    return matches;
  };
  const matches = await runInBatches(withoutMinified(files, minified), {
    step,
    max: BATCH,
    maxFound: 4 * MAX_FINDINGS,
    run,
  }).catch((error) => Promise.reject(explainAnalysisFailure(error)));
  if (minified.files > 0)
    step.log.info(
      `${minified.files === 1 ? "1 minified file was" : `${minified.files} minified files were`} not searched`,
    );
  if (minified.findings > 0) step.log.info("Findings in minified lines are omitted", { findings: minified.findings });
  logSkipped(step, skipped);
  return matches;
}

async function* withoutMinified(
  files: AsyncIterable<SourceFile>,
  minified: { files: number },
): AsyncGenerator<SourceFile> {
  for await (const file of files) {
    if (/\.min\.[^/]*$/.test(file.path) || (await isMinifiedFile(file))) minified.files += 1;
    else yield file;
  }
}

async function countRules(): Promise<number> {
  const folder = path.join(RULES, "code");
  let rules = 0;
  for (const name of await fs.readdir(folder)) {
    if (name.endsWith(".yml"))
      rules += (await fs.readFile(path.join(folder, name), "utf8")).match(/^id: /gm)?.length ?? 0;
  }
  return rules;
}

interface Line {
  text?: unknown;
  file?: unknown;
  lines?: unknown;
  ruleId?: unknown;
  message?: unknown;
  range?: { start?: { line?: unknown }; end?: { line?: unknown } };
  metadata?: { severity?: unknown; cwe?: unknown };
}

/** ast-grep counts lines from 0. A truncated line is skipped. */
function parseMatch(json: string, directory: string): Match | "minified" | undefined {
  if (!json.startsWith("{")) return undefined;
  let line: Line;
  try {
    line = JSON.parse(json) as Line;
  } catch {
    return undefined;
  }
  const { text, file, lines, ruleId: rule, message, range, metadata } = line;
  if (typeof rule !== "string" || typeof file !== "string" || typeof text !== "string") return undefined;
  const relative = pathWithin(directory, file);
  if (relative === undefined) return undefined;
  if (typeof lines === "string" && isMinified(lines.split("\n", 1)[0]!)) return "minified";
  return {
    rule,
    severity: severityOf(metadata?.severity),
    path: relative,
    line: Number(range?.start?.line) + 1,
    endLine: Number(range?.end?.line) + 1,
    message: typeof message === "string" ? message : rule,
    cwe: Array.isArray(metadata?.cwe) ? (metadata.cwe as string[]) : [],
    text,
  };
}

function severityOf(value: unknown): Severity {
  return SEVERITIES.find((severity) => severity === value) ?? "unknown";
}
