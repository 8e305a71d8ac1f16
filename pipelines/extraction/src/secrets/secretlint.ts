// The built-in scanner: secretlint with its recommended rules, in a process of its own that can be ended when an expression meets a text it cannot cope with.
// It is given files by name and its configuration as an argument, because a .secretlintrc.js of the repository would be run.
import fs from "node:fs/promises";
import path from "node:path";
import { ExecError, type StepHandle } from "stillwake/worker";
import { MOST_FINDINGS } from "../analysis/collect.ts";
import { type SourceFile, sourceFiles, within } from "../analysis/source-files.ts";
import { tell } from "../told.ts";
import { packagedTool } from "../tools.ts";
import type { Place } from "./place.ts";

const RULES = JSON.stringify({ rules: [{ id: "@secretlint/secretlint-rule-preset-recommend" }] });
/** Its report carries the whole text of every file, and is made in memory: so many files, and so much of them, at a time. */
const BATCH = { files: 1_000, bytes: 24 * 2 ** 20, argumentBytes: 256 * 1024 };
const LARGEST_REPORT = 512 * 2 ** 20;
/** It marks its own times, and looks through all earlier marks at each: 2,000 small files take 45 s so, and 3 s without. */
const UNTIMED = "data:text/javascript,performance.mark=()=>{}";
const HEAP_MB = 1024;

export async function lookWithSecretlint(step: StepHandle, directory: string, timeoutMs: number): Promise<Place[]> {
  const program = await packagedTool("secretlint");
  if (!program) throw tell("Secret scan unavailable (secretlint is not in the package)", { code: "SECRETS_MISSING" });
  const folder = path.join(await step.scratch(), "secretlint");
  await fs.mkdir(folder, { recursive: true });
  const deadline = performance.now() + timeoutMs;
  const places: Place[] = [];
  for await (const files of batches(sourceFiles(directory, step.signal))) {
    const leftMs = Math.max(Math.round(deadline - performance.now()), 1);
    const report = path.join(folder, "report.json");
    const args = [
      `--max-old-space-size=${HEAP_MB}`,
      "--import",
      UNTIMED,
      program,
      "--secretlintrcJSON",
      RULES,
      "--format=json",
    ];
    args.push(
      "--no-color",
      "--maskSecrets",
      `--output=${report}`,
      `--secretlintignore=${path.join(folder, "nothing")}`,
      "--no-glob",
      "--",
    );
    args.push(...files.map(({ file }) => file));
    // With --output it answers 0 whether or not it has found something, and 2 when it takes no part in any of the files.
    const ran = await step
      .exec(process.execPath, args, { cwd: folder, log: "none", timeout: `${leftMs}ms` })
      .catch((error) => (hadNothing(error) ? undefined : Promise.reject(error)));
    if (!ran) continue;
    places.push(...(await read(report, directory)));
    await fs.rm(report);
    if (places.length >= 4 * MOST_FINDINGS) break;
  }
  return places;
}

async function* batches(files: AsyncIterable<SourceFile>): AsyncGenerator<SourceFile[]> {
  let batch: SourceFile[] = [];
  let bytes = 0;
  let argumentBytes = 0;
  for await (const one of files) {
    const named = Buffer.byteLength(one.file) + 9;
    const full =
      batch.length >= BATCH.files || bytes + one.bytes > BATCH.bytes || argumentBytes + named > BATCH.argumentBytes;
    if (batch.length > 0 && full) {
      yield batch;
      batch = [];
      bytes = argumentBytes = 0;
    }
    batch.push(one);
    bytes += one.bytes;
    argumentBytes += named;
  }
  if (batch.length > 0) yield batch;
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

async function read(report: string, directory: string): Promise<Place[]> {
  let linted: unknown;
  try {
    if ((await fs.stat(report)).size <= LARGEST_REPORT) linted = JSON.parse(await fs.readFile(report, "utf8"));
  } catch {}
  if (!Array.isArray(linted))
    throw tell("Secret scan failed: secretlint wrote no report that can be read", { code: "SECRETS_REPORT" });
  const places: Place[] = [];
  for (const { filePath, messages } of linted as Linted[]) {
    const place = typeof filePath === "string" ? within(directory, filePath) : undefined;
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
