// npm run check: the static checks, without running any test.
import { fileURLToPath } from "node:url";
import { ensure, runNode } from "./ensure.mjs";

const CHECKS = {
  "format and lint": [
    "node_modules/@biomejs/biome/bin/biome",
    "check",
    "--error-on-warnings",
    "--diagnostic-level=warn",
  ],
  types: ["node_modules/typescript/bin/tsc", "-p", "tsconfig.json"],
  "types of the live view": ["node_modules/typescript/bin/tsc", "-p", "tsconfig.browser.json", "--noEmit"],
  "types of the shared UI": ["node_modules/typescript/bin/tsc", "-p", "ui"],
  "types of the dashboard": ["node_modules/typescript/bin/tsc", "-p", "web/tsconfig.json"],
  "types of the clip's page": ["node_modules/typescript/bin/tsc", "-p", "pipelines/clip/ui"],
  "types of the extraction's page": ["node_modules/typescript/bin/tsc", "-p", "pipelines/extraction/ui"],
  "types of the leaderboard's page": ["node_modules/typescript/bin/tsc", "-p", "pipelines/leaderboard/ui"],
  "unused code": ["node_modules/knip/bin/knip.js", "--no-progress"],
  "mutants apply": ["scripts/mutants.mjs", "--check"],
  licences: ["scripts/licences.mjs"],
  package: ["node_modules/publint/src/cli.js", "--strict"],
  "package create-stillwake": ["node_modules/publint/src/cli.js", "create-stillwake", "--strict"],
};

/** Runs every check, so that one report names all failures. Returns whether all passed. */
export function check() {
  const failed = [];
  for (const [name, [file, ...args]] of Object.entries(CHECKS)) {
    if (runNode(file, args) !== 0) failed.push(name);
  }
  if (failed.length > 0) console.error(`\nChecks that failed: ${failed.join(", ")}.`);
  return failed.length === 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await ensure();
  process.exit(check() ? 0 : 1);
}
