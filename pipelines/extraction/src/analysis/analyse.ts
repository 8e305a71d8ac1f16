// The step "semgrep": static analysis with Semgrep if it is installed, else with ast-grep and the rules in rules/code.
// Neither runs code of the repository or reads its configuration. Ignore comments and .semgrepignore are respected.
import fs from "node:fs/promises";
import { findTool } from "@stillwake/kit/tools";
import type { StepHandle } from "stillwake/worker";
import type { Finding } from "../model.ts";
import type { Settings } from "../settings.ts";
import { runAstGrep } from "./ast-grep.ts";
import { collect } from "./collect.ts";
import { runSemgrep } from "./semgrep.ts";

interface AnalyseOptions {
  directory: string;
  settings: Settings;
}

export async function analyseCode(step: StepHandle, { directory, settings }: AnalyseOptions): Promise<Finding[]> {
  // Tools report real paths; realpath also fails for a missing directory, which some tools accept silently.
  const real = await fs.realpath(directory);
  const semgrep = await findTool("semgrep", settings.toolPath);
  if (semgrep) return collect(step, "code", "semgrep", await runSemgrep(step, semgrep, real, settings));
  step.log.warning("Static analysis skipped (Semgrep not installed)");
  return collect(step, "code", "ast-grep", await runAstGrep(step, real, settings));
}
