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
