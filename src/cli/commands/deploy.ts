// stillwake deploy: the files that bring a project to a platform, made of its own settings. It writes what is not there, never over what somebody has
// changed, and calls no platform: what the files do is for a person to read first.
import fs from "node:fs";
import path from "node:path";
import type { Provider, ProviderContext } from "../../orchestrator/provider.ts";
import type { Call } from "../command.ts";
import { loadConfigFile } from "../config-file.ts";
import { cloudRunFiles, cloudRunPools } from "../deploy/cloud-run.ts";
import { flyFiles, flyPools } from "../deploy/fly.ts";
import { kubernetesFiles, kubernetesPools } from "../deploy/kubernetes.ts";
import { type Deployment, type Files, type Platform, readDeployment, refuse } from "../deploy/settings.ts";
import type { KnownPool } from "../deploy/sizes.ts";
import { nextSteps } from "../deploy/steps.ts";
import { inLine } from "../output/escape.ts";
import type { Screen } from "../output/screen.ts";

const makers: Record<Platform, { files(of: Deployment): Files; pools(of: Deployment): string[] }> = {
  fly: { files: flyFiles, pools: flyPools },
  "cloud-run": { files: cloudRunFiles, pools: cloudRunPools },
  kubernetes: { files: kubernetesFiles, pools: kubernetesPools },
};

export async function deployCommand({ words: [platform = ""], flags, screen }: Call): Promise<number> {
  const dir = path.resolve(flags.out ?? "deploy");
  const folder = path.relative(process.cwd(), dir);
  if (folder === "" || folder.startsWith("..") || !/^[\w./-]+$/.test(folder)) {
    refuse(
      "out",
      `--out ${JSON.stringify(flags.out)} cannot be used`,
      "Name a folder below that of the project, such as deploy",
    );
  }
  const pools = await poolsOf(flags.config, screen);
  const deployment = readDeployment(platform, flags, {
    name: projectName(screen),
    pools,
    root: path.relative(dir, process.cwd()),
    folder,
  });
  const { files, pools: settings } = makers[deployment.platform];
  const made = files(deployment);
  if (flags.print) print(made, folder, screen);
  else write(made, dir, { force: flags.force === true, folder, screen });
  const missing = deployment.pools.filter(({ described }) => !described);
  for (const line of nextSteps(deployment, settings({ ...deployment, pools: missing }))) screen.say(line);
  return 0;
}

/** One stream, each file under its name. */
function print(files: Files, folder: string, screen: Screen): void {
  const parts = Object.entries(files).map(([name, text]) => `==> ${folder}/${name} <==\n${text}`);
  screen.print(parts.join("\n").trimEnd());
}

/** All of them or none: files of two deployments beside one another would fit neither. */
function write(
  files: Files,
  dir: string,
  { force, folder, screen }: { force: boolean; folder: string; screen: Screen },
): void {
  const there = Object.keys(files).map((name) => [name, read(path.join(dir, name))] as const);
  const changed = there.filter(([name, text]) => text !== undefined && text !== files[name]).map(([name]) => name);
  if (changed.length > 0 && !force) {
    refuse(
      "out",
      `${changed.map((name) => `${folder}/${name}`).join(", ")} ${changed.length === 1 ? "is" : "are"} there with another text, so nothing was written`,
      "Compare with --print; --force writes over them, --out writes elsewhere",
    );
  }
  fs.mkdirSync(dir, { recursive: true });
  for (const [name, before] of there) {
    const file = path.join(dir, name);
    const text = files[name]!;
    if (text !== before) fs.writeFileSync(file, text);
    if (name.endsWith(".sh")) fs.chmodSync(file, 0o755);
    screen.print(
      `${before === undefined ? "made     " : text === before ? "unchanged" : "replaced "}  ${folder}/${name}`,
    );
  }
}

function read(file: string): string | undefined {
  try {
    return fs.readFileSync(file, "utf8");
  } catch (error) {
    const { code } = error as { code?: string };
    if (code === "ENOENT") return undefined;
    return refuse("out", `${inLine(file)} cannot be read: ${code}`, "Name another folder with --out");
  }
}

function projectName(screen: Screen): string {
  const text = read(path.resolve("package.json"));
  if (text === undefined) screen.say("There is no package.json here: the image is built from the folder of a project.");
  else if (!fs.existsSync("package-lock.json"))
    screen.say("There is no package-lock.json here, which the image needs: npm install makes one.");
  try {
    const { name } = JSON.parse(text ?? "{}") as { name?: unknown };
    if (typeof name === "string" && name !== "") return name;
  } catch {
    screen.say("package.json is no JSON: the folder's name is taken.");
  }
  return path.basename(process.cwd());
}

/** What stillwake.config tells. One that was not asked for and cannot be read is no reason to stop: flags and defaults remain. */
async function poolsOf(given: string | undefined, screen: Screen): Promise<KnownPool[]> {
  let pools: unknown;
  try {
    ({ pools } = await loadConfigFile(given));
  } catch (error) {
    if (given !== undefined) throw error;
    screen.say(
      `The pools of stillwake.config are not known, since it cannot be read here: ${inLine((error as Error).message)}`,
    );
  }
  if (typeof pools !== "object" || pools === null) return [];
  return Object.entries(pools as Record<string, PoolLike>).map(([name, { slots, warm, max, grace, provider }]) => {
    const { kind, facts: { size, memoryMb, region } = {} } = describe(name, provider, screen);
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

/** A provider says what its machines are without being asked for any; one that needs what is not here, such as a cluster, cannot. */
function describe(pool: string, provider: PoolLike["provider"], screen: Screen): Partial<Provider> {
  const clock = { now: () => 0, sleep: async () => {} };
  try {
    return provider?.({ fleet: "00000000", pool, slots: 1, graceMs: 30_000, say: () => {}, clock }) ?? {};
  } catch (error) {
    screen.say(
      `The size of pool ${inLine(pool)} is not known here, so it is the usual one unless flags tell: ${inLine((error as Error).message)}`,
    );
    return {};
  }
}
