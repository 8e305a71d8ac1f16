// stillwake deploy: generates the deployment files of a project from its settings. It never overwrites an edited file
// without --force, and calls no platform: the operator reads the files first.
import fs from "node:fs";
import path from "node:path";
import type { Provider, ProviderContext } from "../../orchestrator/provider.ts";
import { escapeLine } from "../../text/escape.ts";
import type { CommandContext } from "../command.ts";
import { loadConfigFile } from "../config-file.ts";
import type { Screen } from "../output/screen.ts";
import { cloudRunFiles, cloudRunPools } from "./cloud-run.ts";
import { flyFiles, flyPools } from "./fly.ts";
import { kubernetesFiles, kubernetesPools } from "./kubernetes.ts";
import { type Deployment, type Files, type Platform, readDeployment, reject } from "./settings.ts";
import type { KnownPool } from "./sizes.ts";
import { nextSteps } from "./steps.ts";

const generators: Record<Platform, { files(deployment: Deployment): Files; pools(deployment: Deployment): string[] }> =
  {
    fly: { files: flyFiles, pools: flyPools },
    "cloud-run": { files: cloudRunFiles, pools: cloudRunPools },
    kubernetes: { files: kubernetesFiles, pools: kubernetesPools },
  };

export async function writeDeployment({ args: [platform = ""], flags, screen }: CommandContext): Promise<number> {
  const dir = path.resolve(flags.out ?? "deploy");
  const folder = path.relative(process.cwd(), dir);
  if (folder === "" || folder.startsWith("..") || !/^[\w./-]+$/.test(folder)) {
    reject("out", `Invalid --out ${JSON.stringify(flags.out)}`, "Use a directory inside the project, such as deploy");
  }
  const pools = await readPools(flags.config, screen);
  const deployment = readDeployment(platform, flags, {
    name: projectName(screen),
    pools,
    root: path.relative(dir, process.cwd()),
    folder,
  });
  const { files, pools: settings } = generators[deployment.platform];
  const generated = files(deployment);
  if (flags.print) print(generated, folder, screen);
  else write(generated, dir, { force: flags.force === true, folder, screen });
  const missing = deployment.pools.filter(({ described }) => !described);
  for (const line of nextSteps(deployment, settings({ ...deployment, pools: missing }))) screen.printStderr(line);
  return 0;
}

/** All files in one stream, each under its name. */
function print(files: Files, folder: string, screen: Screen): void {
  const parts = Object.entries(files).map(([name, text]) => `==> ${folder}/${name} <==\n${text}`);
  screen.print(parts.join("\n").trimEnd());
}

/** Writes all files or none: files of two deployments do not fit together. */
function write(
  files: Files,
  dir: string,
  { force, folder, screen }: { force: boolean; folder: string; screen: Screen },
): void {
  const existing = Object.keys(files).map((name) => [name, read(path.join(dir, name))] as const);
  const changed = existing.filter(([name, text]) => text !== undefined && text !== files[name]).map(([name]) => name);
  if (changed.length > 0 && !force) {
    reject(
      "out",
      `${changed.map((name) => `${folder}/${name}`).join(", ")} ${changed.length === 1 ? "exists" : "exist"} with different content, so nothing was written`,
      "Compare with --print; use --force to overwrite, or --out for another directory",
    );
  }
  fs.mkdirSync(dir, { recursive: true });
  for (const [name, before] of existing) {
    const file = path.join(dir, name);
    const text = files[name]!;
    if (text !== before) fs.writeFileSync(file, text);
    if (name.endsWith(".sh")) fs.chmodSync(file, 0o755);
    screen.print(
      `${before === undefined ? "created  " : text === before ? "unchanged" : "replaced "}  ${folder}/${name}`,
    );
  }
}

function read(file: string): string | undefined {
  try {
    return fs.readFileSync(file, "utf8");
  } catch (error) {
    const { code } = error as { code?: string };
    if (code === "ENOENT") return undefined;
    return reject("out", `Cannot read ${escapeLine(file)}: ${code}`, "Choose another directory with --out");
  }
}

function projectName(screen: Screen): string {
  const text = read(path.resolve("package.json"));
  if (text === undefined) screen.printStderr("No package.json found: the image is built from a project directory.");
  else if (!fs.existsSync("package-lock.json"))
    screen.printStderr("No package-lock.json found, which the image needs: run npm install.");
  try {
    const { name } = JSON.parse(text ?? "{}") as { name?: unknown };
    if (typeof name === "string" && name !== "") return name;
  } catch {
    screen.printStderr("package.json is not valid JSON: using the directory name.");
  }
  return path.basename(process.cwd());
}

/** The pools of stillwake.config. If the default file cannot be read, flags and defaults apply. */
async function readPools(configPath: string | undefined, screen: Screen): Promise<KnownPool[]> {
  let pools: unknown;
  try {
    ({ pools } = await loadConfigFile(configPath));
  } catch (error) {
    if (configPath !== undefined) throw error;
    screen.printStderr(
      `Ignoring the pools of stillwake.config, which cannot be read: ${escapeLine((error as Error).message)}`,
    );
  }
  if (typeof pools !== "object" || pools === null) return [];
  return Object.entries(pools as Record<string, PoolLike>).map(([name, { slots, warm, max, grace, provider }]) => {
    const { kind, facts: { size, memoryMb, region } = {} } = readProviderFacts(name, provider, screen);
    const unread = provider !== undefined && kind === undefined;
    const known = { name, slots, warm, max, grace, kind, unread, size, memoryMb, region };
    return JSON.parse(JSON.stringify(known)) as KnownPool;
  });
}

interface PoolLike {
  slots?: number;
  warm?: number;
  max?: number;
  grace?: unknown;
  provider?: (context: ProviderContext) => Provider;
}

/** Creates the provider to read its facts. A provider that needs something missing here, such as a cluster, throws. */
function readProviderFacts(pool: string, provider: PoolLike["provider"], screen: Screen): Partial<Provider> {
  const clock = { now: () => 0, sleep: async () => {} };
  try {
    return provider?.({ fleet: "00000000", pool, slots: 1, graceMs: 30_000, report: () => {}, clock }) ?? {};
  } catch (error) {
    screen.printStderr(
      `Cannot read the machine size of pool ${escapeLine(pool)}, so the default or the flags apply: ${escapeLine((error as Error).message)}`,
    );
    return {};
  }
}
