// Other versions of Node, which npm carries as packages.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { cleanEnv } from "./registry.ts";

/** Installs the newest Node of a major version below `dir`, unless it is there, and returns its program. */
export function installNode(major: number, dir: string): string {
  const home = path.join(dir, `node-${major}`);
  const program = path.join(home, "node_modules/node/bin/node");
  if (fs.existsSync(program)) return program;
  fs.mkdirSync(home);
  const source = `npm:node-${process.platform}-${process.arch}@^${major}.0.0`;
  fs.writeFileSync(path.join(home, "package.json"), JSON.stringify({ private: true, dependencies: { node: source } }));
  const args = ["install", "--ignore-scripts", "--no-audit", "--no-fund"];
  const { status, stderr } = spawnSync("npm", args, { cwd: home, env: cleanEnv() });
  if (status !== 0) throw new Error(String(stderr));
  return program;
}
