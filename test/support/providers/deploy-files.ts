// What holds for the files of every deployment: Dockerfiles, what they leave out, and scripts. Each answers what is wrong, in words.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import { readConfig } from "../../../src/config.ts";

const require = createRequire(import.meta.url);
/** Not everybody has it. */
export const hasShellcheck = spawnSync("shellcheck", ["--version"]).status === 0;

/** One base with a whole version, packages by the lockfile and programs by version, nobody's, and told to end by SIGTERM; and what the linter says. */
export function wrongInDockerfile(file: string): string[] {
  const text = fs.readFileSync(file, "utf8");
  const { run } = require("dockerfilelint") as { run(dir: string, text: string): { line: string; title: string }[] };
  const bases = new Set(text.match(/^FROM \S+/gm));
  const installed = [...text.matchAll(/apt-get install -y --no-install-recommends ([^\n\\]*)/g)]
    .flatMap(([, names]) => names!.trim().split(/\s+/))
    .filter((one) => !/^[a-z0-9-]+=\d/.test(one));
  return [
    ...run(".", text).map(({ line, title }) => `${line}: ${title}`),
    ...(bases.size === 1 && /^FROM node:\d+\.\d+\.\d+-bookworm-slim$/.test([...bases][0]!) ? [] : [...bases]),
    ...installed.map((name) => `${name} is installed in no certain version`),
    ...(text.match(/^.*\bnpm (?!ci\b|run\b)\w+.*$/gm) ?? []).filter((line) => !line.startsWith("#")),
    ...(text.match(/^.*\bnpm ci\b.*$/gm) ?? []).filter((line) => !line.includes("--ignore-scripts")),
    ...[/^USER 1000:1000$/m, /^STOPSIGNAL SIGTERM$/m, /^ENTRYPOINT \[/m]
      .filter((needed) => !needed.test(text))
      .map((needed) => `there is no ${needed.source}`),
  ];
}

/** Everything is left out but what is named, and of that what never belongs into an image. */
export function wrongInIgnored(file: string): string[] {
  const lines = fs
    .readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"));
  const allowed = lines.filter((line) => line.startsWith("!"));
  const never = ["**/dist", "**/node_modules", "**/.env", "**/.env.*", "**/.npmrc", "**/*.pem", "**/*.key"];
  return [
    ...(lines[0] === "*" ? [] : ["it does not begin with *"]),
    ...allowed.filter((line) => /\.env|\.npmrc|\.stillwake|\.git/.test(line)),
    // What comes later counts.
    ...never.filter((one) => lines.indexOf(one) < lines.lastIndexOf(allowed.at(-1) ?? "*")),
  ];
}

/** Bash takes it, it says what it is for, stops at the first error, can be started, and shellcheck finds nothing where there is one. */
export function wrongInScript(file: string): string[] {
  const text = fs.readFileSync(file, "utf8");
  return [
    String(spawnSync("bash", ["-n", file]).stderr),
    /^#!\/usr\/bin\/env bash\n(#.*\n)+set -euo pipefail\n/.test(text) ? "" : "its head is another",
    (fs.statSync(file).mode & 0o111) === 0o111 ? "" : "it cannot be started",
    hasShellcheck ? String(spawnSync("shellcheck", [file]).stdout) : "",
  ].filter(Boolean);
}

/** The variables that these look at, and those that a worker of Stillwake does. */
export function variablesRead(...readers: ((env: NodeJS.ProcessEnv) => unknown)[]): Set<string> {
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
