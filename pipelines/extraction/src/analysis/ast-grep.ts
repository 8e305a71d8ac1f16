// The built-in engine: ast-grep, a program that comes with the package, and the rules in rules/code.
import fs from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { tell } from "@stillwake/kit/user-error";
import type { StepHandle } from "stillwake/worker";
import { SEVERITIES, type Severity } from "../model.ts";
import type { Settings } from "../settings.ts";
import { packagedTool } from "../tools.ts";
import { inBatches, TooMuch } from "./batches.ts";
import { MAX_FINDINGS, type Match } from "./collect.ts";
import { analysisFailed } from "./failed.ts";
import {
  isMinified,
  isMinifiedFile,
  nothingPassedOver,
  SKIPPED_FOLDERS,
  type SourceFile,
  sayPassedOver,
  sourceFiles,
  within,
} from "./source-files.ts";

/** Of the package, from src/ and from dist/ alike. */
const RULES = fileURLToPath(new URL("../../rules", import.meta.url));
/** What the rules are written for, by the names that ast-grep knows its languages by. */
const CODE = /\.(?:[cm]?[jt]s|[jt]sx|py3?|pyi|bzl|go)$/;
const BATCH = { files: 1_000, bytes: 64 * 2 ** 20 };
/** About 25,000 matches. Each carries the lines it stands in, so that code of long lines says far more than it is. */
const MAX_OUTPUT = 32 * 2 ** 20;
/** Ignore files of the repository would decide what is looked at. */
const IGNORE_FILES = ["hidden", "dot", "exclude", "global", "parent", "vcs"];

export async function lookWithAstGrep(step: StepHandle, directory: string, settings: Settings): Promise<Match[]> {
  const program = await packagedTool("ast-grep");
  if (!program)
    throw tell("Static analysis unavailable (ast-grep has no program for this system)", { code: "ANALYSIS_MISSING" });
  step.log.info(`The built-in rules look instead (ast-grep, ${await countRules()} rules)`);
  const args = [
    "scan",
    "--config",
    path.join(RULES, "sgconfig.yml"),
    "--custom-languages=ignore",
    "--json=stream",
    "--include-metadata",
    "--color=never",
  ];
  args.push(...IGNORE_FILES.flatMap((one) => ["--no-ignore", one]));
  args.push("--max-results", String(4 * MAX_FINDINGS), "--");

  const deadline = performance.now() + settings.limits.analysisMs;
  const passedOver = nothingPassedOver();
  const minified = { files: 0, findings: 0 };
  const wanted = (name: string) => CODE.test(name);
  const files = sourceFiles(directory, { signal: step.signal, skip: SKIPPED_FOLDERS, wanted, passedOver });
  const look = async (batch: readonly SourceFile[]) => {
    const { stdout, bytesOut } = await step.exec(program, [...args, ...batch.map(({ file }) => file)], {
      log: "none",
      maxOutput: MAX_OUTPUT,
      timeout: `${Math.max(Math.round(deadline - performance.now()), 1)}ms`,
    });
    if (bytesOut > MAX_OUTPUT) throw new TooMuch("ast-grep said more than is read of it");
    const matches: Match[] = [];
    for (const line of stdout.split("\n")) {
      const match = read(line, directory);
      if (match === "minified") minified.findings += 1;
      else if (match) matches.push(match);
    }
    return matches;
  };
  const matches = await inBatches(written(files, minified), {
    step,
    most: BATCH,
    enough: 4 * MAX_FINDINGS,
    look,
  }).catch((error) => Promise.reject(analysisFailed(error)));
  if (minified.files > 0)
    step.log.info(
      `${minified.files === 1 ? "1 minified file was" : `${minified.files} minified files were`} not searched`,
    );
  if (minified.findings > 0) step.log.info("Findings in minified lines are left out", { findings: minified.findings });
  sayPassedOver(step, passedOver);
  return matches;
}

/** Those that a person wrote. */
async function* written(files: AsyncIterable<SourceFile>, minified: { files: number }): AsyncGenerator<SourceFile> {
  for await (const one of files) {
    if (/\.min\.[^/]*$/.test(one.path) || (await isMinifiedFile(one))) minified.files += 1;
    else yield one;
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

/** Lines are counted from 0 there. A line that was cut in two is none. */
function read(json: string, directory: string): Match | "minified" | undefined {
  if (!json.startsWith("{")) return undefined;
  let line: Line;
  try {
    line = JSON.parse(json) as Line;
  } catch {
    return undefined;
  }
  const { text, file, lines, ruleId: rule, message, range, metadata } = line;
  if (typeof rule !== "string" || typeof file !== "string" || typeof text !== "string") return undefined;
  const place = within(directory, file);
  if (place === undefined) return undefined;
  if (typeof lines === "string" && isMinified(lines.split("\n", 1)[0]!)) return "minified";
  return {
    rule,
    severity: severityOf(metadata?.severity),
    path: place,
    line: Number(range?.start?.line) + 1,
    endLine: Number(range?.end?.line) + 1,
    message: typeof message === "string" ? message : rule,
    cwe: Array.isArray(metadata?.cwe) ? (metadata.cwe as string[]) : [],
    text,
  };
}

function severityOf(given: unknown): Severity {
  return SEVERITIES.find((one) => one === given) ?? "unknown";
}
