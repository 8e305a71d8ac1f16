// The step "semgrep": looks for dangerous code. Semgrep where an operator has installed it, else ast-grep with the few rules of rules/code. Neither runs
// anything of the repository or is configured by it. Marks in the code itself, and Semgrep's .semgrepignore, do decide what is found: they are their authors' word.
import fs from "node:fs/promises";
import type { StepHandle } from "stillwake/worker";
import type { Finding } from "../model.ts";
import type { Settings } from "../settings.ts";
import { findTool } from "../tools.ts";
import { lookWithAstGrep } from "./ast-grep.ts";
import { collect } from "./collect.ts";
import { lookWithSemgrep } from "./semgrep.ts";

interface AnalyseOptions {
  directory: string;
  settings: Settings;
}

export async function analyseCode(step: StepHandle, { directory, settings }: AnalyseOptions): Promise<Finding[]> {
  // Tools name files by their real path, and some of them find an absent directory in order.
  const real = await fs.realpath(directory);
  const semgrep = await findTool("semgrep", settings.toolPath);
  if (semgrep) return collect(step, "code", "semgrep", await lookWithSemgrep(step, semgrep, real, settings));
  step.log.warn("Static analysis skipped (Semgrep not installed)");
  return collect(step, "code", "ast-grep", await lookWithAstGrep(step, real, settings));
}
