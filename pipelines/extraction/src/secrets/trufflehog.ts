// TruffleHog, where it is installed. It prints what it finds in clear, so that its output goes nowhere but into this function, and its lines are let go of
// as soon as the place is known. It asks nobody whether a key is still good: that would send a stranger's keys around the world.
import fs from "node:fs/promises";
import path from "node:path";
import { tell } from "@stillwake/kit/user-error";
import type { StepHandle } from "stillwake/worker";
import { MAX_FINDINGS } from "../analysis/collect.ts";
import { isSkipped, SKIPPED_FOR_SECRETS, textOf, within } from "../analysis/source-files.ts";
import type { Place } from "./place.ts";

/** With --fail. Without it, 0 says nothing. */
const FOUND = 183;
const MAX_OUTPUT = 32 * 2 ** 20;
/** It passes over lines with the mark "trufflehog:ignore", and can be told otherwise only since September 2026. */
const NO_MARKS = "--no-ignore-tag";

export async function lookWithTrufflehog(
  step: StepHandle,
  program: string,
  directory: string,
  timeoutMs: number,
): Promise<Place[]> {
  const folder = path.join(await step.scratch(), "trufflehog");
  const excluded = path.join(folder, "excluded.txt");
  await fs.mkdir(folder, { recursive: true });
  await fs.writeFile(
    excluded,
    `${SKIPPED_FOR_SECRETS.map((one) => `(^|/)${one.replaceAll(".", "[.]")}/`).join("\n")}\n`,
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
  if (await knows(NO_MARKS, step, program, timeoutMs)) args.push(NO_MARKS);
  else step.log.info("Lines marked trufflehog:ignore are not searched - a later TruffleHog would search them");
  const { code, stdout, stderr } = await step.exec(program, args, {
    cwd: folder,
    log: "none",
    okCodes: [0, FOUND],
    maxOutput: MAX_OUTPUT,
    timeout: `${timeoutMs}ms`,
  });
  const places = await read(step, stdout, directory);
  // It ends with 0 when it could not read a thing; that shows only in what it says.
  if (code === 0 && hasFailed(stderr)) {
    throw tell("Secret scan failed: TruffleHog could not read the files", { code: "SECRETS_UNREAD" });
  }
  return places;
}

/** Asked for its help, because it takes no part in anything when it is given an option that it does not know. */
async function knows(option: string, step: StepHandle, program: string, timeoutMs: number): Promise<boolean> {
  const asked = { log: "none", timeout: `${timeoutMs}ms`, okCodes: [0, 1] } as const;
  const { stdout, stderr } = await step.exec(program, ["filesystem", "--help"], asked);
  // Which of the two it is differs by version.
  return `${stdout}${stderr}`.includes(option);
}

interface Line {
  SourceMetadata?: { Data?: { Filesystem?: { file?: unknown; line?: unknown } } };
  DetectorName?: unknown;
  Raw?: unknown;
}

async function read(step: StepHandle, output: string, directory: string): Promise<Place[]> {
  const places: Place[] = [];
  for (const json of output.split("\n")) {
    step.signal.throwIfAborted();
    const line = parse(json) as Line | undefined;
    const { file, line: number } = line?.SourceMetadata?.Data?.Filesystem ?? {};
    if (typeof file !== "string" || typeof line?.DetectorName !== "string") continue;
    const place = within(directory, file);
    if (place === undefined || isSkipped(place, SKIPPED_FOR_SECRETS) || (await isReachedByLink(directory, place)))
      continue;
    const { from, to } = await linesOf(directory, place, line.Raw, number);
    places.push({ rule: line.DetectorName, path: place, line: from, endLine: to });
    if (places.length >= 4 * MAX_FINDINGS) break;
  }
  return places;
}

/** It follows links, and what they lead to is not of this repository. */
async function isReachedByLink(directory: string, place: string): Promise<boolean> {
  const file = path.join(directory, place);
  return (await fs.realpath(file).catch(() => file)) !== file;
}

/**
 * What it says of the line is counted from 0 or from 1, by its version, or left out. So the text is looked for, and the place that is nearest to what was said
 * is meant. Of a file that is packed, nobody can tell.
 */
async function linesOf(
  directory: string,
  place: string,
  raw: unknown,
  said: unknown,
): Promise<{ from: number; to: number }> {
  const near = typeof said === "number" && said > 0 ? said : 1;
  const secret = typeof raw === "string" ? raw.trim() : "";
  const text = secret === "" ? undefined : await textOf(directory, place);
  let from: number | undefined;
  let line = 1;
  let last = 0;
  for (let at = text?.indexOf(secret) ?? -1; at >= 0; at = text!.indexOf(secret, at + secret.length)) {
    line += ends(text!.slice(last, at));
    last = at;
    if (from === undefined || Math.abs(line - near) <= Math.abs(from - near)) from = line;
    else break;
  }
  const first = from ?? near;
  return { from: first, to: first + (from === undefined ? 0 : ends(secret)) };
}

function ends(text: string): number {
  return text.split("\n").length - 1;
}

function hasFailed(stderr: string): boolean {
  const lines = stderr
    .split("\n")
    .map((one) => parse(one) as { level?: unknown; msg?: unknown; chunks?: unknown } | undefined);
  const finished = lines.find((one) => one?.msg === "finished scanning");
  return lines.some((one) => one?.level === "error") && (!finished || finished.chunks === 0);
}

function parse(json: string): object | undefined {
  if (!json.startsWith("{")) return undefined;
  try {
    return JSON.parse(json) as object;
  } catch {
    return undefined;
  }
}
