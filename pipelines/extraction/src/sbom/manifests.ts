// The manifests and lockfiles below a folder. When cdxgen found no dependency, none at all, an empty one and a damaged one are three different
// things to the person who set the package path; and where it does not say which file names a package, the reports name the nearest of its kind.
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
/** Other people's manifests, and git's own files. */
const PASSED_OVER = new Set(["node_modules", ".git", "vendor", "bower_components", ".venv", "venv"]);

const MAX_FOLDERS = 20_000;
const MAX_FOUND = 1000;
const DEEPEST = 20;

/** As seen from the folder, the nearest first. Links are not followed. */
export async function findManifests(place: string): Promise<string[]> {
  const found: string[] = [];
  let level = [""];
  let folders = 0;
  for (let depth = 0; depth <= DEEPEST && level.length > 0; depth++) {
    const below: string[] = [];
    for (const folder of level) {
      if (++folders > MAX_FOLDERS || found.length >= MAX_FOUND) return found;
      for (const entry of await entriesOf(path.join(place, folder))) {
        const name = path.join(folder, entry.name);
        if (entry.isDirectory() && !PASSED_OVER.has(entry.name)) below.push(name);
        else if (entry.isFile() && (NAMES.has(entry.name) || ENDINGS.test(entry.name))) found.push(name);
      }
    }
    level = below;
  }
  return found;
}

/** Those that should be JSON and are not. cdxgen passes over most of them without a word. */
export async function damagedIn(place: string, manifests: readonly string[]): Promise<string[]> {
  const damaged: string[] = [];
  for (const name of manifests) {
    if (!/(?<!deno)\.json$|^(?:.*\/)?(?:Pipfile|composer)\.lock$/.test(name)) continue;
    const file = path.join(place, name);
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

async function entriesOf(folder: string) {
  const entries = await fs.readdir(folder, { withFileTypes: true }).catch(() => []);
  return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
}
