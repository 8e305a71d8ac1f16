// The built-in scanner: secretlint with its recommended rules, in a process of its own that can be ended when an expression meets a text it cannot cope with.
// It is given files by name and its configuration as an argument, because a .secretlintrc.js of the repository would be run.
import fs from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { tell } from "@stillwake/kit/user-error";
import { ExecError, type StepHandle } from "stillwake/worker";
import { inBatches } from "../analysis/batches.ts";
import { MAX_FINDINGS } from "../analysis/collect.ts";
import {
  nothingPassedOver,
  SKIPPED_FOR_SECRETS,
  type SourceFile,
  sayPassedOver,
  sourceFiles,
  within,
} from "../analysis/source-files.ts";
import { packagedTool } from "../tools.ts";
import type { Place } from "./place.ts";

const PRESET = "@secretlint/secretlint-rule-preset-recommend";
const RULES = JSON.stringify({ rules: [{ id: PRESET }] });
/** Its report carries the whole text of every file, and is made in memory: so many files, and so much of them, at a time. */
const BATCH = { files: 1_000, bytes: 24 * 2 ** 20 };
const LARGEST_REPORT = 512 * 2 ** 20;
/** It marks its own times, and looks through all earlier marks at each: 2,000 small files take 45 s so, and 3 s without. */
const UNTIMED = "data:text/javascript,performance.mark=()=>{}";
/**
 * One of the recommended rules finds nothing: it hides what the others find behind a comment, "secretlint-disable", and whose repository it is could silence the
 * search by it. The preset heeds no option that leaves a rule out, and has its rules within itself; so it is taken out of the list before the list is read.
 */
const COMMENTS = "@secretlint/secretlint-rule-filter-comments";
const HEAP_MB = 1024;

export async function lookWithSecretlint(step: StepHandle, directory: string, timeoutMs: number): Promise<Place[]> {
  const program = await packagedTool("secretlint");
  if (!program) throw tell("Secret scan unavailable (secretlint is not in the package)", { code: "SECRETS_MISSING" });
  const folder = path.join(await step.scratch(), "secretlint");
  await fs.mkdir(folder, { recursive: true });
  const deadline = performance.now() + timeoutMs;
  const passedOver = nothingPassedOver();
  const files = sourceFiles(directory, { signal: step.signal, skip: SKIPPED_FOR_SECRETS, passedOver });
  const report = path.join(folder, "report.json");
  const args = [`--max-old-space-size=${HEAP_MB}`, "--import", UNTIMED, "--import", uncommented(program)];
  args.push(program, "--secretlintrcJSON", RULES);
  args.push("--format=json", "--no-color", "--maskSecrets", `--output=${report}`);
  args.push(`--secretlintignore=${path.join(folder, "nothing")}`, "--no-glob", "--");
  const look = async (batch: readonly SourceFile[]) => {
    const leftMs = Math.max(Math.round(deadline - performance.now()), 1);
    const named = await plainlyNamed(batch, path.join(folder, "plain"));
    await fs.rm(report, { force: true });
    // With --output it answers 0 whether or not it has found something, and 2 when it takes no part in any of the files.
    const ran = await step
      .exec(process.execPath, [...args, ...named.keys()], { cwd: folder, log: "none", timeout: `${leftMs}ms` })
      .catch((error) => (hadNothing(error) ? undefined : Promise.reject(error)));
    return ran ? read(report, (file) => within(directory, named.get(file) ?? file)) : [];
  };
  const places = await inBatches(files, { step, most: BATCH, enough: 4 * MAX_FINDINGS, look });
  await fs.rm(folder, { recursive: true, force: true });
  sayPassedOver(step, passedOver);
  return places;
}

/** Resolved as the program does, so that it is the same list. Ends the program where the list is another by now. */
function uncommented(program: string): string {
  const preset = pathToFileURL(createRequire(program).resolve(PRESET)).href;
  const code = [
    `import { rules } from ${JSON.stringify(preset)};`,
    `const at = rules.findIndex(({ meta }) => meta.id === ${JSON.stringify(COMMENTS)});`,
    `if (at < 0) throw new Error("no such rule");`,
    "rules.splice(at, 1);",
  ];
  return `data:text/javascript,${encodeURIComponent(code.join(""))}`;
}

/** A backslash is the mark of a folder to it, even in a name. Such a file is looked at as a copy; each by the name it is called by. */
async function plainlyNamed(batch: readonly SourceFile[], copies: string): Promise<Map<string, string>> {
  await fs.rm(copies, { recursive: true, force: true });
  const named = new Map<string, string>();
  for (const { file } of batch) {
    let name = file;
    if (path.sep === "/" && file.includes("\\")) {
      name = path.join(copies, String(named.size), path.basename(file).replaceAll("\\", "_"));
      await fs.mkdir(path.dirname(name), { recursive: true });
      await fs.copyFile(file, name);
    }
    named.set(name, file);
  }
  return named;
}

function hadNothing(error: unknown): boolean {
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

async function read(report: string, placeOf: (file: string) => string | undefined): Promise<Place[]> {
  let linted: unknown;
  try {
    if ((await fs.stat(report)).size <= LARGEST_REPORT) linted = JSON.parse(await fs.readFile(report, "utf8"));
  } catch {}
  if (!Array.isArray(linted))
    throw tell("Secret scan failed: secretlint wrote no report that can be read", { code: "SECRETS_REPORT" });
  const places: Place[] = [];
  for (const { filePath, messages } of linted as Linted[]) {
    const place = typeof filePath === "string" ? placeOf(filePath) : undefined;
    if (place === undefined || !Array.isArray(messages)) continue;
    for (const { ruleId, messageId, loc } of messages) {
      const rule = [ruleId, messageId]
        .filter((one) => typeof one === "string")
        .map((one) => (one as string).replace(/^.*secretlint-rule-/, ""));
      places.push({
        rule: rule.join("/"),
        path: place,
        line: Number(loc?.start?.line),
        endLine: Number(loc?.end?.line),
      });
    }
  }
  return places;
}
