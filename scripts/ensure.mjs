// Brings a clone to the point where a command can run: the right Node, the locked packages, a current build.
// It is imported by every other script and depends on nothing, because it runs before node_modules exists.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
export const inRoot = (...parts) => path.join(root, ...parts);

// The library runs on Node 20.12. The tools that build and test it need a little more.
const MINIMUM_NODE = [20, 19];

/** Installs what is missing and builds what is stale. Ends the process with a message when it cannot. */
export async function ensure({ build = true } = {}) {
  requireNode();
  if (!staleInstall() && !(build && staleBuild())) return;
  await withLock(() => {
    const reason = staleInstall();
    if (reason) install(reason);
    if (build && staleBuild()) {
      console.log("Building");
      compile();
    }
  });
}

/** Runs a program in the project root with our output, and returns its exit code. */
export function run(program, args, options = {}) {
  const result = spawnSync(program, args, { cwd: root, stdio: "inherit", ...options });
  if (result.error) throw result.error;
  return result.status ?? 1;
}

/** Runs a JavaScript file of an installed package, which avoids the platform's shell wrappers. */
export function runNode(file, args = [], options = {}) {
  return run(process.execPath, [inRoot(file), ...args], options);
}

function requireNode() {
  const [major, minor] = process.versions.node.split(".").map(Number);
  const [wantMajor, wantMinor] = MINIMUM_NODE;
  if (major > wantMajor || (major === wantMajor && minor >= wantMinor)) return;
  fail(`Stillwake is built and tested with Node ${MINIMUM_NODE.join(".")} or later, and this is ${process.version}.`);
}

/**
 * Compares package-lock.json with the record npm leaves in node_modules, entry by entry. File times are not
 * enough (a checkout changes them), and a stamp of our own would not notice an install made by hand. The record
 * is written last, so an interrupted install counts as stale.
 */
function staleInstall() {
  const wanted = readJson("package-lock.json")?.packages;
  const installed = readJson("node_modules/.package-lock.json")?.packages;
  if (!wanted) return "package-lock.json is missing";
  if (!installed) return "the packages are not installed yet";
  for (const [name, entry] of Object.entries(wanted)) {
    if (!name.includes("node_modules/")) continue;
    const found = installed[name];
    if (!found && entry.optional && !isForThisMachine(entry)) continue;
    if (!found || !fs.existsSync(inRoot(name))) return `${name} is not installed`;
    if (found.version !== entry.version) return `${name} is ${found.version} and should be ${entry.version}`;
  }
  return null;
}

/** Of the optional packages only those made for this machine must be there; the rest serve other machines. */
function isForThisMachine({ os, cpu, libc }) {
  if (!os && !cpu) return false;
  const suits = (wanted, actual) => !wanted || wanted.includes(actual);
  return suits(os, process.platform) && suits(cpu, process.arch) && (!libc || suits(libc, "glibc") === hasGlibc());
}

function hasGlibc() {
  process.report.excludeNetwork = true;
  return process.report.getReport().header.glibcVersionRuntime !== undefined;
}

function install(reason) {
  console.log(
    `Installing packages (${reason}); about a minute, 900 MB with all that the tests and the example systems need`,
  );
  // The outer command's own flags (-w, --omit, --json) arrive as npm_config_* and must not shape this install.
  const kept = /^npm_config_(registry|cache|cafile|userconfig|globalconfig|.*proxy|.*offline|strict_ssl)$/i;
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => name !== "NODE_ENV" && (!/^npm_/i.test(name) || kept.test(name))),
  );
  const args = ["ci", "--include=dev", "--include=optional", "--ignore-scripts", "--prefer-offline"];
  args.push("--no-audit", "--no-fund", "--loglevel=error");
  const npm = process.env.npm_execpath;
  const status = npm?.endsWith("js")
    ? run(process.execPath, [npm, ...args], { env })
    : run("npm", args, { env, shell: process.platform === "win32" });
  if (status !== 0) fail("npm could not install the packages; its message is above.", status);
}

const TSC = "node_modules/typescript/bin/tsc";
const VITE = "node_modules/vite/bin/vite.js";

/** The example systems. The kit is what they share, and is built before them. */
const SYSTEMS = fs
  .readdirSync(inRoot("pipelines"))
  .filter((name) => name !== "kit" && fs.existsSync(inRoot(`pipelines/${name}/tsconfig.json`)));
const KIT = ["pipelines/kit/src", "pipelines/kit/tsconfig.json", "src", "tsconfig.json"];

/** What is built, in order: each from its sources, with a record whose time says when. What is newer than the record has to be built again. */
const BUILDS = [
  {
    record: "dist/.tsbuildinfo",
    sources: ["src", "tsconfig.json", "tsconfig.build.json"],
    commands: [[TSC, "-p", "tsconfig.build.json"]],
  },
  {
    record: "dist/.browser.tsbuildinfo",
    sources: ["src/view", "src/react", "src/element", "src/text", "tsconfig.json", "tsconfig.browser.json"],
    commands: [[TSC, "-p", "tsconfig.browser.json"]],
  },
  {
    record: "dist/web/index.html",
    // Not web itself: the bundler puts a file of its own there for a moment.
    sources: [
      ...["src", "public", "index.html", "watch.html", "watch.ts", "watch.css", "embed.ts"].map(
        (name) => `web/${name}`,
      ),
      ...["web/vite.config.ts", "ui/vite-config.ts", "ui/src", "src/view", "src/react", "src/element", "src/text"],
    ],
    commands: [
      [VITE, "build", "web", "--logLevel", "error"],
      [VITE, "build", "web", "--logLevel", "error", "--mode", "embed"],
    ],
  },
  {
    record: "pipelines/kit/dist/.tsbuildinfo",
    sources: KIT,
    commands: [[TSC, "-p", "pipelines/kit"]],
  },
  ...SYSTEMS.flatMap((name) => {
    const here = `pipelines/${name}`;
    return [
      {
        record: `${here}/dist/.tsbuildinfo`,
        sources: [`${here}/src`, `${here}/tsconfig.json`, ...KIT],
        commands: [[TSC, "-p", here]],
      },
      {
        record: `${here}/dist/ui/index.html`,
        sources: [
          ...["src", "public", "index.html", "vite.config.ts"].map((file) => `${here}/ui/${file}`),
          ...[`${here}/src`, "pipelines/kit/src", "ui/vite-config.ts", "ui/src", "src/view", "src/react", "src/text"],
        ],
        commands: [[VITE, "build", `${here}/ui`, "--logLevel", "error"]],
      },
    ].filter(({ record }) => !record.endsWith("index.html") || fs.existsSync(inRoot(`${here}/ui/index.html`)));
  }),
];

function staleBuild() {
  return BUILDS.some(isStale);
}

function isStale({ record, sources }) {
  const built = modified(inRoot(record));
  if (built === undefined || (modified(inRoot("node_modules/.package-lock.json")) ?? 0) > built) return true;
  return sources.flatMap((source) => walk(inRoot(source))).some((file) => (modified(file) ?? 0) > built);
}

function compile() {
  for (const build of BUILDS.filter(isStale)) {
    const began = Date.now();
    // What is built is for users, whoever asks for it: under a test runner the pages would be bundled with React's own checks.
    const env = { ...process.env, NODE_ENV: "production" };
    const status = build.commands.reduce((failed, [file, ...args]) => failed || runNode(file, args, { env }), 0);
    // The compiler keeps its record after errors too, and leaves it alone when nothing changed in substance. Its time
    // is therefore set here: to the beginning after a success, because a file may change while others are read, and long ago after a
    // failure, so that the next command tries again.
    const built = new Date(status === 0 ? began : 0);
    if (fs.existsSync(inRoot(build.record))) fs.utimesSync(inRoot(build.record), built, built);
    if (status !== 0) fail("The build failed; the messages are above.", status);
  }
}

/** One command at a time installs or builds; the others wait and then find everything done. */
async function withLock(work) {
  const lock = inRoot(".stillwake/ensure.lock");
  fs.mkdirSync(path.dirname(lock), { recursive: true });
  while (!takeLock(lock)) await new Promise((resolve) => setTimeout(resolve, 200));
  const release = () => fs.rmSync(lock, { recursive: true, force: true });
  process.on("exit", release);
  try {
    work();
  } finally {
    release();
    process.off("exit", release);
  }
}

function takeLock(lock) {
  try {
    fs.mkdirSync(lock);
    fs.writeFileSync(path.join(lock, "pid"), String(process.pid));
    return true;
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
  }
  if (holderIsGone(lock)) fs.rmSync(lock, { recursive: true, force: true });
  return false;
}

function holderIsGone(lock) {
  try {
    process.kill(Number(fs.readFileSync(path.join(lock, "pid"), "utf8")), 0);
    return false;
  } catch (error) {
    if (error.code === "ESRCH") return true;
    // A lock without a pid is being taken this moment, unless it has been so for a while.
    return error.code === "ENOENT" && Date.now() - (modified(lock) ?? Date.now()) > 5000;
  }
}

function readJson(file) {
  try {
    return JSON.parse(fs.readFileSync(inRoot(file), "utf8"));
  } catch {
    return null;
  }
}

function modified(file) {
  return fs.statSync(file, { throwIfNoEntry: false })?.mtimeMs;
}

/** A file, or a directory with all in it. A directory's own time moves when a file is added or removed, so deletions are noticed too. */
function walk(place) {
  if (!fs.statSync(place, { throwIfNoEntry: false })?.isDirectory()) return [place];
  const entries = fs.readdirSync(place, { recursive: true });
  return [place, ...entries.map((entry) => path.join(place, entry))];
}

function fail(message, status = 1) {
  console.error(message);
  process.exit(status);
}
