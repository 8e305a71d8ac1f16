// The settings of a deployment, checked once: names, pools, sizes. Flags take precedence over the pools of stillwake.config, these over
// defaults. Every value for a shell script or a YAML file is restricted to a narrow alphabet here, so that no template has to escape
// anything. Single YAML values are quoted all the same: they may be "on" or "123".
import { InvalidInput } from "../../errors.ts";
import { findClosest } from "../../text/suggest.ts";
import type { Flags } from "../flags.ts";
import { type KnownPool, type Platform, platforms, readSize } from "./sizes.ts";

export type { Platform } from "./sizes.ts";

/** File contents by path, relative to the output directory. */
export type Files = Record<string, string>;

/** Properties of the project. */
export interface Project {
  /** From package.json, or the name of its directory. */
  name: string;
  pools: readonly KnownPool[];
  /** Path from the output directory to the project. */
  root: string;
  /** Path from the project to the output directory. */
  folder: string;
}

export interface Deployment {
  platform: Platform;
  /** The app that serves the API and runs the orchestrator; the workers' app is `<name>-workers`. */
  name: string;
  region: string;
  /** Google Cloud project. */
  project: string;
  namespace: string;
  image: string;
  /** For `stillwake worker --pipelines`; empty if stillwake.config has them. */
  pipelines: readonly string[];
  pools: readonly DeployedPool[];
  root: string;
  folder: string;
}

export interface DeployedPool {
  name: string;
  /** The name in the alphabet of the platforms. */
  slug: string;
  /** Whether stillwake.config has a provider of this platform for it, or one that could not be read. */
  described: boolean;
  /** "performance-8x" on Fly; vCPUs elsewhere. */
  size: string;
  memoryMb: number;
  slots: number;
  warm: number;
  max: number;
  grace: string;
  /** Cron expression: drained on a schedule, without an orchestrator. */
  drain: string | undefined;
}

/** Key of a --drain without a pool name: it applies to every pool without a separate one. */
const EVERY = "";

export function readDeployment(platform: string, flags: Flags, project: Project): Deployment {
  if (!isPlatform(platform)) {
    const closest = findClosest(platform, platforms);
    return reject(
      "platform",
      `Unknown platform ${JSON.stringify(platform)}`,
      closest ? `Did you mean ${closest}?` : `Use one of: ${platforms.join(", ")}`,
    );
  }
  rejectUnusableFlags(platform, flags);
  // A Google service account name has at most 30 characters; one is "<name>-orchestrator".
  const maxLength = platform === "cloud-run" ? 17 : 40;
  const name = checkPattern(
    "name",
    flags.name ?? slugify(project.name, maxLength),
    new RegExp(`^[a-z]([a-z0-9-]{0,${maxLength - 2}}[a-z0-9])?$`),
    `Use lower-case letters, digits and dashes, at most ${maxLength}`,
  );
  const gcp = flags.project ?? "PROJECT";
  const region = checkPattern(
    "region",
    flags.region ?? regionOf(platform, project),
    /^[a-z][a-z0-9-]{1,30}$/,
    `Use a region such as ${defaultRegion[platform]}`,
  );
  return {
    platform,
    name,
    region,
    project:
      gcp === "PROJECT"
        ? gcp
        : checkPattern("project", gcp, /^[a-z][a-z0-9-]{4,28}[a-z0-9]$/, "Use the project's id, such as acme-prod"),
    namespace: checkPattern(
      "namespace",
      flags.namespace ?? name,
      /^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$/,
      "Use lower-case letters, digits and dashes, at most 40",
    ),
    image: imageOf(platform, flags.image, { name, region, gcp }),
    pipelines: (flags.pipelines ?? []).map((path) =>
      checkPattern("pipelines", path, /^\.?\.?[\w@./-]+$/, "Use a path in the project, such as ./pipelines"),
    ),
    pools: poolsOf(platform, flags, project),
    root: project.root,
    folder: project.folder,
  };
}

/** The worker command without pool options. */
export function workerCommand({ pipelines }: Deployment): string[] {
  return ["stillwake", "worker", ...pipelines.flatMap((path) => ["--pipelines", path])];
}

function poolsOf(platform: Platform, flags: Flags, project: Project): DeployedPool[] {
  const drains = parseDrains(flags.drain ?? []);
  const selected = selectPools(flags.pool, project.pools, drains);
  const pools = selected.map((pool): DeployedPool => {
    checkPattern("pool", pool.name, /^[a-z0-9][a-z0-9_.-]{0,59}$/, "Use lower-case letters, digits and _ . -");
    const warm = checkInteger("warm", flags.warm ?? pool.warm ?? 0, 0);
    const max = checkInteger("max", flags.max ?? pool.max ?? Math.max(5, warm), 1);
    if (warm > max)
      reject("warm", `Pool ${pool.name} has warm ${warm}, above its max of ${max}`, "Raise --max, or lower --warm");
    if (warm > 0 && platform !== "fly")
      reject(
        "warm",
        `${platform} does not support warm machines`,
        "Remove --warm: machines are created when there is work",
      );
    const platformPool = pool.kind === undefined || pool.kind === platform ? pool : { name: pool.name };
    // The memory of the config belongs to its size; another size may not allow it.
    const memory = flags.memory ?? (flags.size === undefined ? platformPool.memoryMb : undefined);
    return {
      name: pool.name,
      slug: slugify(pool.name),
      described: pool.kind === platform || pool.unread === true,
      ...readSize(platform, { size: flags.size ?? platformPool.size, memory }),
      slots: checkInteger("slots", flags.slots ?? pool.slots ?? 1, 1),
      warm,
      max,
      grace: typeof pool.grace === "string" && /^\d+s$/.test(pool.grace) ? pool.grace : "30s",
      drain: drains.get(pool.name) ?? drains.get(EVERY),
    };
  });
  if (platform === "cloud-run" && pools.some(({ slug }) => slug === "watchdog"))
    reject("pool", "The pool name watchdog is reserved for the watchdog job", "Rename the pool");
  const slugs = pools.map(({ slug }) => slug);
  const duplicate = pools.find(({ slug }, index) => slugs.indexOf(slug) !== index);
  if (duplicate)
    reject(
      "pool",
      `Two pools have the same short name ${duplicate.slug}`,
      "Generate the files of each with --pool, into separate directories",
    );
  return pools;
}

/** A pool named by --drain needs no entry in stillwake.config. */
function selectPools(
  only: string | undefined,
  known: readonly KnownPool[],
  drains: ReadonlyMap<string, string>,
): KnownPool[] {
  const named = [...drains.keys()].filter((name) => name !== EVERY);
  if (only !== undefined) {
    const other = named.find((name) => name !== only);
    if (other !== undefined)
      reject("drain", `--drain names pool ${JSON.stringify(other)}, but --pool is ${only}`, "Remove one of them");
    return [known.find(({ name }) => name === only) ?? { name: only }];
  }
  const base = known.length > 0 || (named.length > 0 && !drains.has(EVERY)) ? known : [{ name: "default" }];
  const added = named.filter((name) => !base.some((pool) => pool.name === name));
  return [...base, ...added.map((name) => ({ name }))];
}

/** By pool: "*\/5 * * * *" for all of them, or "commits=*\/5 * * * *" for one. */
function parseDrains(values: readonly string[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const value of values) {
    const [, pool = EVERY, cron = ""] = /^(?:([\w.-]+)=)?(.*)$/s.exec(value)!;
    checkPattern(
      "drain",
      cron,
      /^[\d*/,-]+( [\d*/,A-Za-z-]+){4}$/,
      'Use a cron expression with five fields, such as "*/5 * * * *" or "users=0 */4 * * *"',
    );
    found.set(pool, cron);
  }
  return found;
}

const platformFlags: { [Flag in keyof Flags]?: readonly Platform[] } = {
  project: ["cloud-run"],
  drain: ["cloud-run"],
  namespace: ["kubernetes"],
  image: ["cloud-run", "kubernetes"],
};

function rejectUnusableFlags(platform: Platform, flags: Flags): void {
  for (const [flag, supported] of Object.entries(platformFlags)) {
    if (flags[flag as keyof Flags] !== undefined && !supported.includes(platform))
      reject(flag, `--${flag} does not apply to ${platform}`, `It is for ${supported.join(" and ")}: remove it`);
  }
}

const defaultRegion: Record<Platform, string> = { fly: "iad", "cloud-run": "us-central1", kubernetes: "cluster" };

function regionOf(platform: Platform, { pools }: Project): string {
  const configured = pools.find(({ kind, region }) => kind === platform && region !== undefined)?.region;
  return configured ?? defaultRegion[platform];
}

/** deploy.sh for Cloud Run tags each image; on Kubernetes the tag is in the files and has to change with the code. */
function imageOf(
  platform: Platform,
  flag: string | undefined,
  { name, region, gcp }: { name: string; region: string; gcp: string },
): string {
  const fallback =
    platform === "cloud-run" ? `${region}-docker.pkg.dev/${gcp}/${name}/${name}` : `registry.example.com/${name}:v1`;
  const image = checkPattern(
    "image",
    flag ?? fallback,
    /^[A-Za-z0-9][\w./:@-]*$/,
    "Use a repository, such as registry.example.com/acme",
  );
  const [, tag] = /[:@]([^/]+)$/.exec(image) ?? [];
  if (platform === "cloud-run" && tag !== undefined)
    reject("image", `--image ${JSON.stringify(image)} has a tag`, "Remove it: deploy.sh tags each image");
  if (platform === "kubernetes" && (tag === undefined || tag === "latest"))
    reject(
      "image",
      `--image ${JSON.stringify(image)} has no version tag`,
      "Add one that changes with the code, such as registry.example.com/acme:v1",
    );
  return image;
}

function slugify(text: string, maxLength = 30): string {
  const slug = text
    .replace(/^@/, "")
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^[-0-9]+|-+$/g, "");
  return slug.slice(0, maxLength).replace(/-+$/, "") || "pipelines";
}

function isPlatform(text: string): text is Platform {
  return (platforms as readonly string[]).includes(text);
}

function checkInteger(flag: string, text: string | number, min: number): number {
  const value = Number(text);
  if (String(text).trim() !== "" && Number.isInteger(value) && value >= min && value <= 1000) return value;
  return reject(flag, `Invalid --${flag} ${JSON.stringify(text)}`, `Use a whole number from ${min} to 1000`);
}

function checkPattern(flag: string, value: string, pattern: RegExp, remedy: string): string {
  return pattern.test(value) ? value : reject(flag, `Invalid --${flag} ${JSON.stringify(value)}`, remedy);
}

export function reject(field: string, message: string, remedy: string): never {
  throw new InvalidInput(message, { field, remedy });
}
