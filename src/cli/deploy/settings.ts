// What the files of a deployment are made of, checked once: names, pools, sizes. Flags go before the pools of stillwake.config, these before the
// defaults. Every value that ends up in a shell script or a YAML file is held to a narrow alphabet here, so that no template has to escape anything. What
// stands alone in YAML is quoted there all the same: it may be called "on" or "123".
import { InvalidInput } from "../../errors.ts";
import { nearest } from "../../text/suggest.ts";
import type { Flags } from "../flags.ts";
import { type KnownPool, type Platform, platforms, sizesOf } from "./sizes.ts";

export type { Platform } from "./sizes.ts";

/** Paths relative to the folder of the deployment, and their texts. */
export type Files = Record<string, string>;

/** What the project tells of itself. */
export interface Project {
  /** Of its package.json, or its folder's. */
  name: string;
  pools: readonly KnownPool[];
  /** From the folder of the files to that of the project, and back. */
  root: string;
  folder: string;
}

export interface Deployment {
  platform: Platform;
  /** Of the app that serves the API and runs the orchestrator; its workers have one of their own, `<name>-workers`. */
  name: string;
  region: string;
  /** Of Google. */
  project: string;
  namespace: string;
  image: string;
  /** As `stillwake worker` takes it; empty where stillwake.config has it. */
  pipelines: readonly string[];
  pools: readonly DeployedPool[];
  root: string;
  folder: string;
}

export interface DeployedPool {
  /** As the pipelines call it, and as a platform can. */
  name: string;
  slug: string;
  /** Whether stillwake.config has machines of this platform for it, as far as can be told. */
  described: boolean;
  /** "performance-8x" of Fly; vCPUs elsewhere. */
  size: string;
  memoryMb: number;
  slots: number;
  warm: number;
  max: number;
  grace: string;
  /** A cron: drained by the clock, without an orchestrator. */
  drain: string | undefined;
}

/** Whose clock it is when no pool is named: that of every pool without one of its own. */
const EVERY = "";

export function readDeployment(platform: string, flags: Flags, project: Project): Deployment {
  if (!isPlatform(platform)) {
    const near = nearest(platform, platforms);
    return refuse(
      "platform",
      `There are no files for ${JSON.stringify(platform)}`,
      near ? `Did you mean ${near}?` : `There is: ${platforms.join(", ")}`,
    );
  }
  unfit(platform, flags);
  // Google's service accounts have names of 30 letters at most, and one is called "<name>-orchestrator".
  const most = platform === "cloud-run" ? 17 : 40;
  const name = match(
    "name",
    flags.name ?? plain(project.name, most),
    new RegExp(`^[a-z]([a-z0-9-]{0,${most - 2}}[a-z0-9])?$`),
    `Use lower-case letters, digits and dashes, ${most} at most`,
  );
  const gcp = flags.project ?? "PROJECT";
  const region = match(
    "region",
    flags.region ?? regionOf(platform, project),
    /^[a-z][a-z0-9-]{1,30}$/,
    `Such as ${defaultRegion[platform]}`,
  );
  return {
    platform,
    name,
    region,
    project:
      gcp === "PROJECT"
        ? gcp
        : match("project", gcp, /^[a-z][a-z0-9-]{4,28}[a-z0-9]$/, "Use the project's id, such as acme-prod"),
    namespace: match(
      "namespace",
      flags.namespace ?? name,
      /^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$/,
      "Use lower-case letters, digits and dashes, 40 at most",
    ),
    image: imageOf(platform, flags.image, { name, region, gcp }),
    pipelines: (flags.pipelines ?? []).map((path) =>
      match("pipelines", path, /^\.?\.?[\w@./-]+$/, "Use a path in the project, such as ./pipelines"),
    ),
    pools: poolsOf(platform, flags, project),
    root: project.root,
    folder: project.folder,
  };
}

/** The arguments of a worker that are the same for every pool. */
export function workerWords({ pipelines }: Deployment): string[] {
  return ["stillwake", "worker", ...pipelines.flatMap((path) => ["--pipelines", path])];
}

function poolsOf(platform: Platform, flags: Flags, project: Project): DeployedPool[] {
  const drains = drainsOf(flags.drain ?? []);
  const wanted = wantedPools(flags.pool, project.pools, drains);
  const pools = wanted.map((pool): DeployedPool => {
    match("pool", pool.name, /^[a-z0-9][a-z0-9_.-]{0,59}$/, "Use lower-case letters, digits and _ . -");
    const warm = whole("warm", flags.warm ?? pool.warm ?? 0, 0);
    const max = whole("max", flags.max ?? pool.max ?? Math.max(5, warm), 1);
    if (warm > max)
      refuse(
        "warm",
        `Pool ${pool.name} keeps ${warm} machines warm and may have ${max}`,
        "Raise --max, or lower --warm",
      );
    if (warm > 0 && platform !== "fly")
      refuse(
        "warm",
        `${platform} keeps no stopped machines`,
        "Leave --warm out: its machines are made when there is work",
      );
    const ours = pool.kind === undefined || pool.kind === platform ? pool : { name: pool.name };
    // Its memory goes with its size: beside another one it may not exist.
    const memory = flags.memory ?? (flags.size === undefined ? ours.memoryMb : undefined);
    return {
      name: pool.name,
      slug: plain(pool.name),
      described: pool.kind === platform || pool.unread === true,
      ...sizesOf(platform, { size: flags.size ?? ours.size, memory }),
      slots: whole("slots", flags.slots ?? pool.slots ?? 1, 1),
      warm,
      max,
      grace: typeof pool.grace === "string" && /^\d+s$/.test(pool.grace) ? pool.grace : "30s",
      drain: drains.get(pool.name) ?? drains.get(EVERY),
    };
  });
  if (platform === "cloud-run" && pools.some(({ slug }) => slug === "watchdog"))
    refuse("pool", "A pool is called watchdog, as the job that covers lost pokes is", "Give the pool another name");
  const slugs = pools.map(({ slug }) => slug);
  const twin = pools.find(({ slug }, index) => slugs.indexOf(slug) !== index);
  if (twin)
    refuse(
      "pool",
      `Two pools would both be called ${twin.slug}`,
      "Make the files of each with --pool, into folders of their own",
    );
  return pools;
}

/** A pool that the clock drains needs no machines in stillwake.config: to name its clock is to name it. */
function wantedPools(
  only: string | undefined,
  known: readonly KnownPool[],
  drains: ReadonlyMap<string, string>,
): KnownPool[] {
  const named = [...drains.keys()].filter((name) => name !== EVERY);
  if (only !== undefined) {
    const stranger = named.find((name) => name !== only);
    if (stranger !== undefined)
      refuse("drain", `--drain names pool ${JSON.stringify(stranger)}, and --pool is ${only}`, "Leave one of them out");
    return [known.find(({ name }) => name === only) ?? { name: only }];
  }
  const usual = known.length > 0 || (named.length > 0 && !drains.has(EVERY)) ? known : [{ name: "default" }];
  const more = named.filter((name) => !usual.some((pool) => pool.name === name));
  return [...usual, ...more.map((name) => ({ name }))];
}

/** By pool: "*\/5 * * * *" for all of them, or "commits=*\/5 * * * *" for one. */
function drainsOf(given: readonly string[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const one of given) {
    const [, pool = EVERY, cron = ""] = /^(?:([\w.-]+)=)?(.*)$/s.exec(one)!;
    match(
      "drain",
      cron,
      /^[\d*/,-]+( [\d*/,A-Za-z-]+){4}$/,
      'Use a cron of five parts, such as "*/5 * * * *" or "users=0 */4 * * *"',
    );
    found.set(pool, cron);
  }
  return found;
}

const only: { [Flag in keyof Flags]?: readonly Platform[] } = {
  project: ["cloud-run"],
  drain: ["cloud-run"],
  namespace: ["kubernetes"],
  image: ["cloud-run", "kubernetes"],
};

function unfit(platform: Platform, flags: Flags): void {
  for (const [flag, fits] of Object.entries(only)) {
    if (flags[flag as keyof Flags] !== undefined && !fits.includes(platform))
      refuse(flag, `--${flag} means nothing on ${platform}`, `It is for ${fits.join(" and ")}: leave it out`);
  }
}

const defaultRegion: Record<Platform, string> = { fly: "iad", "cloud-run": "us-central1", kubernetes: "cluster" };

function regionOf(platform: Platform, { pools }: Project): string {
  const told = pools.find(({ kind, region }) => kind === platform && region !== undefined)?.region;
  return told ?? defaultRegion[platform];
}

/** Cloud Run's scripts name each image anew; in a cluster the files do, and an image that changes under its name could not be told from the one before. */
function imageOf(
  platform: Platform,
  given: string | undefined,
  { name, region, gcp }: { name: string; region: string; gcp: string },
): string {
  const usual =
    platform === "cloud-run" ? `${region}-docker.pkg.dev/${gcp}/${name}/${name}` : `registry.example.com/${name}:v1`;
  const image = match(
    "image",
    given ?? usual,
    /^[A-Za-z0-9][\w./:@-]*$/,
    "Use a repository, such as registry.example.com/acme",
  );
  const [, tag] = /[:@]([^/]+)$/.exec(image) ?? [];
  if (platform === "cloud-run" && tag !== undefined)
    refuse("image", `--image ${JSON.stringify(image)} has a tag`, "Leave it out: deploy.sh gives each image its own");
  if (platform === "kubernetes" && (tag === undefined || tag === "latest"))
    refuse(
      "image",
      `--image ${JSON.stringify(image)} has no tag of its own`,
      "Give it one that changes with the code, such as registry.example.com/acme:v1",
    );
  return image;
}

function plain(text: string, most = 30): string {
  const word = text
    .replace(/^@/, "")
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^[-0-9]+|-+$/g, "");
  return word.slice(0, most).replace(/-+$/, "") || "pipelines";
}

function isPlatform(text: string): text is Platform {
  return (platforms as readonly string[]).includes(text);
}

function whole(flag: string, given: string | number, least: number): number {
  const value = Number(given);
  if (String(given).trim() !== "" && Number.isInteger(value) && value >= least && value <= 1000) return value;
  return refuse(flag, `--${flag} ${JSON.stringify(given)} cannot be used`, `Use a whole number from ${least} to 1000`);
}

function match(flag: string, value: string, pattern: RegExp, remedy: string): string {
  return pattern.test(value) ? value : refuse(flag, `--${flag} ${JSON.stringify(value)} cannot be used`, remedy);
}

export function refuse(field: string, what: string, remedy: string): never {
  throw new InvalidInput(what, { field, remedy });
}
