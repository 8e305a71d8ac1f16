// Gitleaks, where it is installed. It blacks out what it finds before it writes it down. Nothing of the repository decides what it finds: neither a configuration,
// nor a list of what to ignore, nor marks in the lines.
import { randomUUID } from "node:crypto";
import fs from "node:fs/promises";
import path from "node:path";
import { tell } from "@stillwake/kit/user-error";
import type { StepHandle } from "stillwake/worker";
import { MAX_FINDINGS } from "../analysis/collect.ts";
import { isSkipped, LARGEST_FILE, SKIPPED_FOR_SECRETS, sayLargeFiles, within } from "../analysis/source-files.ts";
import type { Place } from "./place.ts";

/** By itself it answers 1 for secrets and for trouble alike. */
const FOUND = 42;
const LARGEST_REPORT = 64 * 2 ** 20;
/** Named, so that the .gitleaks.toml of the repository does not decide what is looked for. */
const CONFIG = "[extend]\nuseDefault = true\n";
/** Read from the top of what is searched, whatever else is named. */
const IGNORED = ".gitleaksignore";

export async function lookWithGitleaks(
  step: StepHandle,
  program: string,
  directory: string,
  timeoutMs: number,
): Promise<Place[]> {
  const folder = path.join(await step.scratch(), "gitleaks");
  const report = path.join(folder, "report.json");
  const config = path.join(folder, "config.toml");
  await fs.rm(folder, { recursive: true, force: true });
  await fs.mkdir(folder);
  await fs.writeFile(config, CONFIG);
  const args = ["dir", "--no-banner", "--no-color", "--log-level=error", "--redact=100", `--exit-code=${FOUND}`];
  args.push(
    "--report-format=json",
    `--report-path=${report}`,
    `--config=${config}`,
    `--gitleaks-ignore-path=${folder}`,
  );
  args.push("--ignore-gitleaks-allow", `--max-target-megabytes=${Math.ceil(LARGEST_FILE / 1e6)}`, "--", directory);
  const places = await withoutIgnored(directory, async (called) => {
    await step.exec(program, args, { cwd: folder, log: "none", okCodes: [0, FOUND], timeout: `${timeoutMs}ms` });
    return (await read(report, directory)).map((place) =>
      place.path === called ? { ...place, path: IGNORED } : place,
    );
  });
  await sayLargeFiles(step, directory, SKIPPED_FOR_SECRETS);
  return places;
}

/** It has another name meanwhile, and stays where it is: a secret may stand in it, too. */
async function withoutIgnored<T>(directory: string, work: (called: string) => Promise<T>): Promise<T> {
  const called = `ignored-${randomUUID()}`;
  const [from, to] = [path.join(directory, IGNORED), path.join(directory, called)];
  const found = await fs.lstat(from).catch(() => undefined);
  // A folder of that name is a folder to it.
  if (!found || found.isDirectory()) return work(called);
  await fs.rename(from, to);
  try {
    return await work(called);
  } finally {
    // Where all of it is gone by now, the reason is another one.
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

async function read(report: string, directory: string): Promise<Place[]> {
  let leaks: unknown;
  try {
    if ((await fs.stat(report)).size <= LARGEST_REPORT) leaks = JSON.parse(await fs.readFile(report, "utf8"));
  } catch {}
  if (!Array.isArray(leaks))
    throw tell("Secret scan failed: Gitleaks wrote no report that can be read", { code: "SECRETS_REPORT" });
  const places: Place[] = [];
  for (const leak of leaks.slice(0, 4 * MAX_FINDINGS) as (Leak | null)[]) {
    const { RuleID: rule, File: file, SymlinkFile: link, StartLine: line, EndLine: endLine } = leak ?? {};
    const place = typeof file === "string" ? within(directory, file) : undefined;
    if (typeof rule !== "string" || place === undefined || link || isSkipped(place, SKIPPED_FOR_SECRETS)) continue;
    places.push({ rule, path: place, line: Number(line), endLine: Number(endLine) });
  }
  return places;
}
