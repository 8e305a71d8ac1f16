// The built-in scanner: secretlint with its recommended rules, in a separate process that can be killed if a regular
// expression takes too long. Files and configuration are arguments, because a .secretlintrc.js of the repository would run.
import fs from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { userError } from "@stillwake/kit/failures";
import { ExecError, type StepHandle } from "stillwake/worker";
import { runInBatches } from "../analysis/batches.ts";
import { MAX_FINDINGS } from "../analysis/collect.ts";
import {
  logSkipped,
  noneSkipped,
  pathWithin,
  SKIPPED_FOR_SECRETS,
  type SourceFile,
  sourceFiles,
} from "../analysis/source-files.ts";
import { packagedTool } from "../tools.ts";
import type { SecretLocation } from "./find-secrets.ts";

const PRESET = "@secretlint/secretlint-rule-preset-recommend";
const RULES = JSON.stringify({ rules: [{ id: PRESET }] });
/** Its report contains the text of every file and is built in memory, so batches are limited. */
const BATCH = { files: 1_000, bytes: 24 * 2 ** 20 };
const MAX_REPORT_BYTES = 512 * 2 ** 20;
/** It searches all earlier performance marks for each new one: 2,000 small files take 45 s with them, 3 s without. */
const NO_PERFORMANCE_MARKS = "data:text/javascript,performance.mark=()=>{}";
/**
 * This rule of the preset lets a comment ("secretlint-disable") hide secrets, so it is removed. The preset has no option to
 * disable a rule, so the rule is removed from its list before secretlint reads it.
 */
const COMMENT_RULE = "@secretlint/secretlint-rule-filter-comments";
const HEAP_MB = 1024;

export async function runSecretlint(step: StepHandle, directory: string, timeoutMs: number): Promise<SecretLocation[]> {
  const program = await packagedTool("secretlint");
  if (!program) throw userError("Secret scan unavailable (secretlint is not installed)", { code: "SECRETS_MISSING" });
  const folder = path.join(await step.scratch(), "secretlint");
  await fs.mkdir(folder, { recursive: true });
  const deadline = performance.now() + timeoutMs;
  const skipped = noneSkipped();
  const files = sourceFiles(directory, { signal: step.signal, skip: SKIPPED_FOR_SECRETS, skipped });
  const report = path.join(folder, "report.json");
  const args = [
    `--max-old-space-size=${HEAP_MB}`,
    "--import",
    NO_PERFORMANCE_MARKS,
    "--import",
    withoutCommentRule(program),
  ];
  args.push(program, "--secretlintrcJSON", RULES);
  args.push("--format=json", "--no-color", "--maskSecrets", `--output=${report}`);
  args.push(`--secretlintignore=${path.join(folder, "nothing")}`, "--no-glob", "--");
  const run = async (batch: readonly SourceFile[]) => {
    const remainingMs = Math.max(Math.round(deadline - performance.now()), 1);
    const originals = await withoutBackslashes(batch, path.join(folder, "plain"));
    await fs.rm(report, { force: true });
    // With --output it exits with 0 whether or not it found something, and with 2 if it can scan none of the files.
    const result = await step
      .exec(process.execPath, [...args, ...originals.keys()], { cwd: folder, log: "none", timeout: `${remainingMs}ms` })
      .catch((error) => (foundNoTarget(error) ? undefined : Promise.reject(error)));
    return result ? readReport(report, (file) => pathWithin(directory, originals.get(file) ?? file)) : [];
  };
  const locations = await runInBatches(files, { step, max: BATCH, maxFound: 4 * MAX_FINDINGS, run });
  await fs.rm(folder, { recursive: true, force: true });
  logSkipped(step, skipped);
  return locations;
}

/** Resolved like the program does, so that it is the same module. Throws if the preset no longer has the rule. */
function withoutCommentRule(program: string): string {
  const preset = pathToFileURL(createRequire(program).resolve(PRESET)).href;
  const code = [
    `import { rules } from ${JSON.stringify(preset)};`,
    `const at = rules.findIndex(({ meta }) => meta.id === ${JSON.stringify(COMMENT_RULE)});`,
    `if (at < 0) throw new Error("no such rule");`,
    "rules.splice(at, 1);",
  ];
  return `data:text/javascript,${encodeURIComponent(code.join(""))}`;
}

/** secretlint takes a backslash in a name for a separator, so it gets a copy. Maps scanned names to original ones. */
async function withoutBackslashes(batch: readonly SourceFile[], copies: string): Promise<Map<string, string>> {
  await fs.rm(copies, { recursive: true, force: true });
  const originals = new Map<string, string>();
  for (const { file } of batch) {
    let name = file;
    if (path.sep === "/" && file.includes("\\")) {
      name = path.join(copies, String(originals.size), path.basename(file).replaceAll("\\", "_"));
      await fs.mkdir(path.dirname(name), { recursive: true });
      await fs.copyFile(file, name);
    }
    originals.set(name, file);
  }
  return originals;
}

function foundNoTarget(error: unknown): boolean {
  return error instanceof ExecError && error.exitCode === 2 && error.stderr.includes("Not found target files");
}

interface Linted {
  filePath?: unknown;
  messages?: {
    ruleId?: unknown;
    messageId?: unknown;
    loc?: { start?: { line?: unknown }; end?: { line?: unknown } };
  }[];
}

async function readReport(report: string, toRelative: (file: string) => string | undefined): Promise<SecretLocation[]> {
  let linted: unknown;
  try {
    if ((await fs.stat(report)).size <= MAX_REPORT_BYTES) linted = JSON.parse(await fs.readFile(report, "utf8"));
  } catch {}
  if (!Array.isArray(linted))
    throw userError("Secret scan failed: secretlint wrote no readable report", { code: "SECRETS_REPORT" });
  const locations: SecretLocation[] = [];
  for (const { filePath, messages } of linted as Linted[]) {
    const relative = typeof filePath === "string" ? toRelative(filePath) : undefined;
    if (relative === undefined || !Array.isArray(messages)) continue;
    for (const { ruleId, messageId, loc } of messages) {
      const rule = [ruleId, messageId]
        .filter((id) => typeof id === "string")
        .map((id) => (id as string).replace(/^.*secretlint-rule-/, ""));
      locations.push({
        rule: rule.join("/"),
        path: relative,
        line: Number(loc?.start?.line),
        endLine: Number(loc?.end?.line),
      });
    }
  }
  return locations;
}
