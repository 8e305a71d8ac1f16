// Installs the peers on demand into .stillwake/bench, so that they are not part of the normal install. Two of them need Node
// 22.18: if this Node is older, a newer one is installed there too and runs everything that is measured.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

export const HOME = fileURLToPath(new URL("../.stillwake/bench/", import.meta.url));
const wanted = JSON.parse(fs.readFileSync(new URL("peers.json", import.meta.url), "utf8"));
const LOADER = path.join(HOME, "load.mjs");

/** Installs what is missing. Returns the Node to run the bench with. */
export function installPeers() {
  const [major, minor] = process.versions.node.split(".").map(Number);
  const recent = major > 22 || (major === 22 && minor >= 18);
  const node = recent ? {} : { node22: `npm:node-${process.platform}-${process.arch}@${wanted.node}` };
  const dependencies = { ...wanted.packages, ...node };
  const manifest = JSON.stringify({ private: true, dependencies, overrides: wanted.overrides });
  if (!isInstalled(manifest)) install(manifest, Object.keys(dependencies));
  return recent ? process.execPath : path.join(HOME, "node_modules/node22/bin/node");
}

/** Imports an installed peer. */
export async function load(name) {
  return (await import(pathToFileURL(LOADER).href)).load(name);
}

export function versionOf(name) {
  const file = path.join(HOME, "node_modules", name, "package.json");
  return JSON.parse(fs.readFileSync(file, "utf8")).version;
}

// The loader is written last, so an interrupted install is repeated.
function isInstalled(manifest) {
  const file = path.join(HOME, "package.json");
  return fs.existsSync(LOADER) && fs.existsSync(file) && fs.readFileSync(file, "utf8") === manifest;
}

function install(manifest, names) {
  console.log(`Installing ${names.join(", ")} into .stillwake/bench`);
  fs.mkdirSync(HOME, { recursive: true });
  fs.rmSync(LOADER, { force: true });
  fs.writeFileSync(path.join(HOME, "package.json"), manifest);
  // Flags of the outer npm command (--workspace, --silent) must not affect this install.
  const kept = /^npm_config_(registry|cache|cafile|userconfig|globalconfig|.*proxy|.*offline|strict_ssl)$/i;
  const env = Object.fromEntries(Object.entries(process.env).filter(([key]) => !/^npm_/i.test(key) || kept.test(key)));
  const args = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", HOME];
  const { status } = spawnSync("npm", args, { cwd: HOME, env, stdio: "inherit", shell: process.platform === "win32" });
  if (status !== 0) process.exit(status ?? 1);
  fs.writeFileSync(LOADER, "export const load = (name) => import(name);\n");
}
