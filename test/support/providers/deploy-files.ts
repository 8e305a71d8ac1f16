// Checks for the files of every deployment: Dockerfiles, .dockerignore files and scripts. Each returns a list of problems.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import { readConfig } from "../../../src/config.ts";

const require = createRequire(import.meta.url);
/** It is optional. */
export const hasShellcheck = spawnSync("shellcheck", ["--version"]).status === 0;

/** One base image with a full version, pinned packages and programs, no root user, SIGTERM; and the linter's findings. */
export function checkDockerfile(file: string): string[] {
  const text = fs.readFileSync(file, "utf8");
  const { run } = require("dockerfilelint") as { run(dir: string, text: string): { line: string; title: string }[] };
  const stages = [...text.matchAll(/^FROM \S+ AS (\S+)$/gm)].map(([, name]) => `FROM ${name}`);
  const bases = new Set(text.match(/^FROM \S+/gm)?.filter((base) => !stages.includes(base)));
  const installed = [...text.matchAll(/apt-get install -y --no-install-recommends ([^\n\\]*)/g)]
    .flatMap(([, names]) => names!.trim().split(/\s+/))
    .filter((name) => !/^[a-z0-9-]+=\d/.test(name));
  return [
    // The linter takes the name of an earlier stage for an image without a tag.
    ...run(".", text.replace(new RegExp(`^(${stages.join("|") || "(?!)"}) `, "gm"), `${[...bases][0]} `)).map(
      ({ line, title }) => `${line}: ${title}`,
    ),
    ...(bases.size === 1 && /^FROM node:\d+\.\d+\.\d+-bookworm-slim$/.test([...bases][0]!) ? [] : [...bases]),
    ...installed.map((name) => `${name} is installed without a version`),
    ...(text.match(/^.*\bnpm (?!ci\b|run\b)\w+.*$/gm) ?? []).filter((line) => !line.startsWith("#")),
    ...(text.match(/^.*\bnpm ci\b.*$/gm) ?? []).filter((line) => !line.includes("--ignore-scripts")),
    ...[/^USER 1000:1000$/m, /^STOPSIGNAL SIGTERM$/m, /^ENTRYPOINT \[/m]
      .filter((required) => !required.test(text))
      .map((required) => `missing: ${required.source}`),
  ];
}

/** Ignores everything except listed paths, and then the files that must never be in an image. */
export function checkDockerignore(file: string): string[] {
  const lines = fs
    .readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"));
  const allowed = lines.filter((line) => line.startsWith("!"));
  const never = ["**/dist", "**/node_modules", "**/.env", "**/.env.*", "**/.npmrc", "**/*.pem", "**/*.key"];
  return [
    ...(lines[0] === "*" ? [] : ["it does not start with *"]),
    ...allowed.filter((line) => /\.env|\.npmrc|\.stillwake|\.git/.test(line)),
    // Later lines take precedence.
    ...never.filter((path) => lines.indexOf(path) < lines.lastIndexOf(allowed.at(-1) ?? "*")),
  ];
}

/** Valid bash with a header comment and set -euo pipefail, executable, and without shellcheck findings (if installed). */
export function checkScript(file: string): string[] {
  const text = fs.readFileSync(file, "utf8");
  return [
    String(spawnSync("bash", ["-n", file]).stderr),
    /^#!\/usr\/bin\/env bash\n(#.*\n)+set -euo pipefail\n/.test(text) ? "" : "it has another header",
    (fs.statSync(file).mode & 0o111) === 0o111 ? "" : "it is not executable",
    hasShellcheck ? String(spawnSync("shellcheck", [file]).stdout) : "",
  ].filter(Boolean);
}

/** The environment variables that the readers and the worker's configuration read. */
export function collectVariables(...readers: ((env: NodeJS.ProcessEnv) => unknown)[]): Set<string> {
  const names = new Set<string>();
  const env = new Proxy({} as NodeJS.ProcessEnv, {
    get(_, name) {
      names.add(String(name));
      return undefined;
    },
  });
  for (const read of [readConfig, ...readers]) read(env);
  return names;
}

/** The keys of fly.toml that our files use, by table. */
export const flyKeys = {
  "": ["app", "primary_region", "kill_signal", "kill_timeout", "env", "build", "processes", "http_service", "vm"],
  build: ["dockerfile", "ignorefile"],
  http_service: [
    "internal_port",
    "force_https",
    "auto_stop_machines",
    "auto_start_machines",
    "min_machines_running",
    "processes",
    "checks",
  ],
  checks: ["method", "path", "interval", "timeout", "grace_period"],
  vm: ["size", "memory", "processes"],
};

/** The start of a fake fly: it records the call, reads the app, and fails at the command in FAIL. */
export const fakeFlyHead = `#!/usr/bin/env bash
set -eu
echo "$*" >>"$STATE/calls"
app=""
for ((at = 1; at < $#; at++)); do
  [[ "\${!at}" == --app ]] && { next=$((at + 1)); app="\${!next}"; }
done
[[ "$1 $2" == "\${FAIL:-}" ]] && exit 1
`;
