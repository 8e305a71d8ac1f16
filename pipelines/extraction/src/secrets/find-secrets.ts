// The step "trufflehog": looks for passwords and keys that stand in the repository. TruffleHog or gitleaks where an operator has installed one, else
// secretlint, which comes with the package. What they find stays in their process and in this function: a finding has the kind and the place of a secret,
// and never the secret, a part of it, or a hash of it that could be guessed.
import fs from "node:fs/promises";
import { tell } from "@stillwake/kit/user-error";
import { ExecError, type StepHandle } from "stillwake/worker";
import { collect } from "../analysis/collect.ts";
import type { Finding } from "../model.ts";
import type { Settings } from "../settings.ts";
import { findTool } from "../tools.ts";
import { lookWithGitleaks } from "./gitleaks.ts";
import { type Place, placeOf } from "./place.ts";
import { lookWithSecretlint } from "./secretlint.ts";
import { lookWithTrufflehog } from "./trufflehog.ts";

interface FindOptions {
  directory: string;
  settings: Settings;
}

interface Engine {
  name: string;
  spoken: string;
  look(directory: string): Promise<Place[]>;
}

export async function findSecrets(step: StepHandle, { directory, settings }: FindOptions): Promise<Finding[]> {
  const real = await fs.realpath(directory);
  const { name, spoken, look } = await choose(step, settings);
  // The clone has no history: a key that was deleted in a later commit is not found, and it would be wrong to let anybody believe so.
  step.log.info(`${spoken} looks through the files of this commit - older commits are not searched`);
  try {
    return collect(step, "secret", name, (await look(real)).map(placeOf));
  } catch (error) {
    throw searchFailed(error, spoken);
  }
}

async function choose(step: StepHandle, settings: Settings): Promise<Engine> {
  const timeoutMs = settings.limits.secretsMs;
  const trufflehog = await findTool("trufflehog", settings.toolPath);
  if (trufflehog) {
    return {
      name: "trufflehog",
      spoken: "TruffleHog",
      look: (directory) => lookWithTrufflehog(step, trufflehog, directory, timeoutMs),
    };
  }
  const gitleaks = await findTool("gitleaks", settings.toolPath);
  if (gitleaks) {
    return {
      name: "gitleaks",
      spoken: "Gitleaks",
      look: (directory) => lookWithGitleaks(step, gitleaks, directory, timeoutMs),
    };
  }
  return {
    name: "secretlint",
    spoken: "The built-in scanner (secretlint)",
    look: (directory) => lookWithSecretlint(step, directory, timeoutMs),
  };
}

/** No word of the tool itself is repeated, and none is kept as a cause: it may quote what it has found. */
function searchFailed(error: unknown, spoken: string): unknown {
  if (!(error instanceof ExecError) || error.kind === "aborted") return error;
  const { kind, signal, exitCode } = error;
  // Node ends itself by SIGABRT when its heap is full.
  if (kind === "oom" || signal === "SIGABRT" || exitCode === 134) {
    return tell("Secret scan ran out of memory - scanning skipped", { code: "SECRETS_MEMORY" });
  }
  if (kind === "timeout" || kind === "silence")
    return tell("Secret scan timed out - scanning skipped", { code: "SECRETS_TIMEOUT" });
  const how = signal
    ? `was ended by ${signal}`
    : kind === "missing"
      ? "could not be started"
      : `ended with exit code ${exitCode}`;
  return tell(`Secret scan failed: ${spoken} ${how}`, { code: "SECRETS_FAILED" });
}
