// The step "trufflehog": scans for passwords and keys with TruffleHog or gitleaks if one is installed, else with secretlint, which comes
// with the package. A finding has the kind and the location of a secret, never the secret, a part of it, or a hash that could be guessed.
import fs from "node:fs/promises";
import { userError } from "@stillwake/kit/failures";
import { findTool } from "@stillwake/kit/tools";
import { ExecError, type StepHandle } from "stillwake/worker";
import { collect, type Match } from "../analysis/collect.ts";
import type { Finding } from "../model.ts";
import type { Settings } from "../settings.ts";
import { runGitleaks } from "./gitleaks.ts";
import { runSecretlint } from "./secretlint.ts";
import { runTrufflehog } from "./trufflehog.ts";

interface FindOptions {
  directory: string;
  settings: Settings;
}

/** All that an engine returns about a secret. */
export interface SecretLocation {
  /** Name of the engine's rule. */
  rule: string;
  path: string;
  line: number;
  endLine: number;
}

interface Engine {
  name: string;
  label: string;
  scan(directory: string): Promise<SecretLocation[]>;
}

export async function findSecrets(step: StepHandle, { directory, settings }: FindOptions): Promise<Finding[]> {
  const realDirectory = await fs.realpath(directory);
  const { name, label, scan } = await chooseEngine(step, settings);
  // The clone has no history: a key that was deleted in a later commit is not found.
  step.log.info(`${label} scans the files of this commit - older commits are not scanned`);
  try {
    return collect(step, "secret", name, (await scan(realDirectory)).map(toMatch));
  } catch (error) {
    throw explainFailure(error, label);
  }
}

async function chooseEngine(step: StepHandle, settings: Settings): Promise<Engine> {
  const timeoutMs = settings.limits.secretsMs;
  const trufflehog = await findTool("trufflehog", settings.toolPath);
  if (trufflehog) {
    return {
      name: "trufflehog",
      label: "TruffleHog",
      scan: (directory) => runTrufflehog(step, trufflehog, directory, timeoutMs),
    };
  }
  const gitleaks = await findTool("gitleaks", settings.toolPath);
  if (gitleaks) {
    return {
      name: "gitleaks",
      label: "Gitleaks",
      scan: (directory) => runGitleaks(step, gitleaks, directory, timeoutMs),
    };
  }
  return {
    name: "secretlint",
    label: "The built-in scanner (secretlint)",
    scan: (directory) => runSecretlint(step, directory, timeoutMs),
  };
}

/** All have the same severity: whether a key is still valid is not checked. */
function toMatch({ rule, path, line, endLine }: SecretLocation): Match {
  return {
    rule: ruleName(rule),
    severity: "high",
    path,
    line,
    endLine,
    message: `Possible secret: ${readableName(rule)}`,
    cwe: ["CWE-798"],
  };
}

function ruleName(rule: string): string {
  return rule.replace(/[^\w./@:-]+/g, "-").slice(0, 100) || "secret";
}

/** Handles "aws-access-token" and "AWSSecretAccessKey". */
function readableName(rule: string): string {
  return ruleName(rule.slice(rule.lastIndexOf("/") + 1))
    .replace(/([a-z\d])([A-Z])/g, "$1 $2")
    .replace(/([A-Z]+)([A-Z][a-z])/g, "$1 $2")
    .replace(/[-_.:]+/g, " ")
    .trim();
}

/** Neither the tool's output nor the error is passed on: they may quote a secret. */
function explainFailure(error: unknown, label: string): unknown {
  if (!(error instanceof ExecError) || error.kind === "aborted") return error;
  const { kind, signal, exitCode } = error;
  // Node aborts with SIGABRT when its heap is full.
  if (kind === "oom" || signal === "SIGABRT" || exitCode === 134) {
    return userError("Secret scan ran out of memory - scanning skipped", { code: "SECRETS_MEMORY" });
  }
  if (kind === "timeout" || kind === "silence")
    return userError("Secret scan timed out - scanning skipped", { code: "SECRETS_TIMEOUT" });
  const reason = signal
    ? `was killed by ${signal}`
    : kind === "missing"
      ? "could not be started"
      : `failed with exit code ${exitCode}`;
  return userError(`Secret scan failed: ${label} ${reason}`, { code: "SECRETS_FAILED" });
}
