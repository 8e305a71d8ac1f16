// Finds manifests and lockfiles below a folder: to explain why cdxgen found no dependency (no manifest, an empty one, or a
// damaged one), and for reports that name the file of a package.
import fs from "node:fs/promises";
import path from "node:path";

const NAMES = new Set(
  `package.json package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb deno.json deno.lock bower.json
   requirements.txt pyproject.toml setup.py setup.cfg Pipfile Pipfile.lock poetry.lock uv.lock pdm.lock pylock.toml environment.yml
   go.mod go.sum go.work Gopkg.lock pom.xml build.gradle build.gradle.kts settings.gradle gradle.lockfile build.sbt build.mill bld.java
   Cargo.toml Cargo.lock composer.json composer.lock Gemfile Gemfile.lock pubspec.yaml pubspec.lock mix.exs mix.lock rebar.config rebar.lock
   Package.swift Package.resolved Podfile Podfile.lock Cartfile.resolved conan.lock conanfile.txt conanfile.py vcpkg.json
   packages.config packages.lock.json project.assets.json Directory.Packages.props paket.lock
   deps.edn project.clj stack.yaml cabal.project.freeze flake.nix flake.lock MODULE.bazel WORKSPACE`.split(/\s+/),
);
const ENDINGS = /(?:\.(?:csproj|fsproj|vbproj|sln|gemspec|cabal|nimble)|requirements[\w.-]*\.txt)$/;
/** Vendored manifests and git's own files. */
const SKIPPED_FOLDERS = new Set(["node_modules", ".git", "vendor", "bower_components", ".venv", "venv"]);

const MAX_FOLDERS = 20_000;
const MAX_FOUND = 1000;
const MAX_DEPTH = 20;

/** Paths relative to the folder, the nearest first. Follows no links. */
export async function findManifests(root: string): Promise<string[]> {
  const found: string[] = [];
  let level = [""];
  let folders = 0;
  for (let depth = 0; depth <= MAX_DEPTH && level.length > 0; depth++) {
    const below: string[] = [];
    for (const folder of level) {
      if (++folders > MAX_FOLDERS || found.length >= MAX_FOUND) return found;
      for (const entry of await readEntries(path.join(root, folder))) {
        const name = path.join(folder, entry.name);
        if (entry.isDirectory() && !SKIPPED_FOLDERS.has(entry.name)) below.push(name);
        else if (entry.isFile() && (NAMES.has(entry.name) || ENDINGS.test(entry.name))) found.push(name);
      }
    }
    level = below;
  }
  return found;
}

/** Manifests that should be JSON and are not. cdxgen skips most of them silently. */
export async function findDamaged(root: string, manifests: readonly string[]): Promise<string[]> {
  const damaged: string[] = [];
  for (const name of manifests) {
    if (!/(?<!deno)\.json$|^(?:.*\/)?(?:Pipfile|composer)\.lock$/.test(name)) continue;
    const file = path.join(root, name);
    const { size } = await fs.stat(file);
    if (size > 64 * 2 ** 20) continue;
    try {
      JSON.parse((await fs.readFile(file, "utf8")).replace(/^\uFEFF/, ""));
    } catch {
      damaged.push(name);
    }
  }
  return damaged;
}

async function readEntries(folder: string) {
  const entries = await fs.readdir(folder, { withFileTypes: true }).catch(() => []);
  return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
}
