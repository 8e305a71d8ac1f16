// Runs TruffleHog. It prints secrets in clear text, so its output never leaves this file. Verification is off: it would send
// the keys to third parties.
import fs from "node:fs/promises";
import path from "node:path";
import { userError } from "@stillwake/kit/failures";
import type { StepHandle } from "stillwake/worker";
import { MAX_FINDINGS } from "../analysis/collect.ts";
import { isSkipped, pathWithin, readText, SKIPPED_FOR_SECRETS } from "../analysis/source-files.ts";
import type { SecretLocation } from "./find-secrets.ts";

/** Exit code with --fail. Without it the exit code is always 0. */
const FOUND_EXIT_CODE = 183;
const MAX_OUTPUT = 32 * 2 ** 20;
/** Makes it scan lines with the comment "trufflehog:ignore". It exists since September 2026. */
const NO_IGNORE_TAG = "--no-ignore-tag";

export async function runTrufflehog(
  step: StepHandle,
  program: string,
  directory: string,
  timeoutMs: number,
): Promise<SecretLocation[]> {
  const folder = path.join(await step.scratch(), "trufflehog");
  const excluded = path.join(folder, "excluded.txt");
  await fs.mkdir(folder, { recursive: true });
  await fs.writeFile(
    excluded,
    `${SKIPPED_FOR_SECRETS.map((folder) => `(^|/)${folder.replaceAll(".", "[.]")}/`).join("\n")}\n`,
  );
  const args = [
    "filesystem",
    directory,
    "--json",
    "--no-update",
    "--no-verification",
    "--fail",
    `--exclude-paths=${excluded}`,
  ];
  if (await supportsOption(NO_IGNORE_TAG, step, program, timeoutMs)) args.push(NO_IGNORE_TAG);
  else step.log.info("Lines marked trufflehog:ignore are not scanned - update TruffleHog to scan them");
  const { code, stdout, stderr } = await step.exec(program, args, {
    cwd: folder,
    log: "none",
    okCodes: [0, FOUND_EXIT_CODE],
    maxOutput: MAX_OUTPUT,
    timeout: `${timeoutMs}ms`,
  });
  const locations = await readMatches(step, stdout, directory);
  // It exits with 0 even if it could not read anything; only its log shows that.
  if (code === 0 && hasFailed(stderr)) {
    throw userError("Secret scan failed: TruffleHog could not read the files", { code: "SECRETS_UNREAD" });
  }
  return locations;
}

/** Reads --help, because TruffleHog does nothing if it gets an unknown option. */
async function supportsOption(option: string, step: StepHandle, program: string, timeoutMs: number): Promise<boolean> {
  const options = { log: "none", timeout: `${timeoutMs}ms`, okCodes: [0, 1] } as const;
  const { stdout, stderr } = await step.exec(program, ["filesystem", "--help"], options);
  // The stream depends on the version.
  return `${stdout}${stderr}`.includes(option);
}

interface Line {
  SourceMetadata?: { Data?: { Filesystem?: { file?: unknown; line?: unknown } } };
  DetectorName?: unknown;
  Raw?: unknown;
}

async function readMatches(step: StepHandle, output: string, directory: string): Promise<SecretLocation[]> {
  const locations: SecretLocation[] = [];
  for (const json of output.split("\n")) {
    step.signal.throwIfAborted();
    const line = parseObject(json) as Line | undefined;
    const { file, line: number } = line?.SourceMetadata?.Data?.Filesystem ?? {};
    if (typeof file !== "string" || typeof line?.DetectorName !== "string") continue;
    const relative = pathWithin(directory, file);
    if (
      relative === undefined ||
      isSkipped(relative, SKIPPED_FOR_SECRETS) ||
      (await isReachedByLink(directory, relative))
    )
      continue;
    const { from, to } = await locateLines(directory, relative, line.Raw, number);
    locations.push({ rule: line.DetectorName, path: relative, line: from, endLine: to });
    if (locations.length >= 4 * MAX_FINDINGS) break;
  }
  return locations;
}

/** TruffleHog follows links, whose targets are not part of the repository. */
async function isReachedByLink(directory: string, relative: string): Promise<boolean> {
  const file = path.join(directory, relative);
  return (await fs.realpath(file).catch(() => file)) !== file;
}

/**
 * TruffleHog counts lines from 0 or 1, depending on its version, or reports none. So the text is searched, and the match nearest
 * to the reported line is taken. In archives it is not found.
 */
async function locateLines(
  directory: string,
  relative: string,
  raw: unknown,
  reported: unknown,
): Promise<{ from: number; to: number }> {
  const near = typeof reported === "number" && reported > 0 ? reported : 1;
  const secret = typeof raw === "string" ? raw.trim() : "";
  const text = secret === "" ? undefined : await readText(directory, relative);
  let from: number | undefined;
  let line = 1;
  let last = 0;
  for (let at = text?.indexOf(secret) ?? -1; at >= 0; at = text!.indexOf(secret, at + secret.length)) {
    line += countNewlines(text!.slice(last, at));
    last = at;
    if (from === undefined || Math.abs(line - near) <= Math.abs(from - near)) from = line;
    else break;
  }
  const first = from ?? near;
  return { from: first, to: first + (from === undefined ? 0 : countNewlines(secret)) };
}

function countNewlines(text: string): number {
  return text.split("\n").length - 1;
}

function hasFailed(stderr: string): boolean {
  const lines = stderr
    .split("\n")
    .map((line) => parseObject(line) as { level?: unknown; msg?: unknown; chunks?: unknown } | undefined);
  const finished = lines.find((line) => line?.msg === "finished scanning");
  return lines.some((line) => line?.level === "error") && (!finished || finished.chunks === 0);
}

function parseObject(json: string): object | undefined {
  if (!json.startsWith("{")) return undefined;
  try {
    return JSON.parse(json) as object;
  } catch {
    return undefined;
  }
}
