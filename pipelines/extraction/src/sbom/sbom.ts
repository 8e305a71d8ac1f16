// The bill of materials: cdxgen reads the manifests and lockfiles of the checkout. It is given no network, no program to start and no directory to
// write but the scratch one, because what it reads is a stranger's; and what it writes is believed only after a look, because it answers 0 for much that went wrong.
import fs from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { tell } from "@stillwake/kit/user-error";
import { ExecError, type ExecResult, type StepHandle } from "stillwake/worker";
import type { Settings } from "../settings.ts";
import { packagedTool } from "../tools.ts";
import { textOf } from "../untrusted.ts";
import { crashLine, unreadableIn } from "./complaints.ts";
import { type Bom, readBom } from "./components.ts";
import { fence } from "./fence.ts";
import { damagedIn, findManifests } from "./manifests.ts";

export interface SbomSource {
  /** The checkout. */
  directory: string;
  packagePath: string;
  settings: Pick<Settings, "limits">;
}

/** A component is a little over 1 KB of it: room for about 200,000. */
const LARGEST = 256 * 2 ** 20;
const MB = 2 ** 20;
const MAX_MANIFESTS = 300;
const MAX_MANIFEST = 500;

export interface Made {
  file: string;
  components: number;
  /** Manifests and lockfiles below the package path, by their paths in the repository: the nearest, as many as a checkpoint has room for. */
  manifests: string[];
}

export async function makeSbom(step: StepHandle, { directory, packagePath, settings }: SbomSource): Promise<Made> {
  const scratch = await step.scratch();
  const place = await inside(directory, packagePath);
  const file = path.join(scratch, "sbom.cdx.json");
  const work = path.join(scratch, "cdxgen");
  await fs.rm(file, { force: true });
  await fs.mkdir(work, { recursive: true });

  const { stdout, stderr } = await generate(step, { scratch, place, file, work, timeoutMs: settings.limits.sbomMs });
  const { dependencies, unnamed } = await read(file);
  const unreadable = unreadableIn(`${stdout}\n${stderr}`, place);
  if (dependencies.length === 0) throw await nothing(place, packagePath, unreadable);
  for (const name of unreadable.slice(0, 10)) {
    step.log.warn(`'${name}' could not be read - its dependencies are missing from the bill of materials`);
  }
  if (unnamed > 0) step.log.info(`${unnamed} components without a package URL were left out`);
  const root = await fs.realpath(directory);
  const manifests = (await findManifests(place))
    .map((name) => path.relative(root, path.join(place, name)))
    .filter((name) => textOf(name, MAX_MANIFEST) === name)
    .slice(0, MAX_MANIFESTS);
  return { file, components: dependencies.length, manifests };
}

/** The path of the folder, whatever links there may be on the way to it; a folder that is not in the checkout is not there. */
async function inside(directory: string, packagePath: string): Promise<string> {
  const root = await fs.realpath(directory);
  const place = await fs.realpath(path.resolve(root, packagePath)).catch(() => undefined);
  const within = place === root || place?.startsWith(root + path.sep);
  if (place && within && (await fs.stat(place)).isDirectory()) return place;
  throw noManifest(packagePath);
}

interface Call {
  scratch: string;
  place: string;
  file: string;
  work: string;
  timeoutMs: number;
}

async function generate(step: StepHandle, { scratch, place, file, work, timeoutMs }: Call): Promise<ExecResult> {
  const cdxgen = await packagedTool("cdxgen");
  if (!cdxgen)
    throw tell("SBOM generation is not available (cdxgen is not installed)", { code: "SBOM_TOOL", fatal: true });
  // An absolute path: a relative one of two parts is taken for the name of a model in a public registry.
  const flags = [
    "--no-install-deps",
    "--no-babel",
    "--no-validate",
    "--exclude-type",
    "github",
    "--spec-version",
    "1.6",
  ];
  try {
    return await step.exec(
      process.execPath,
      [
        `--max-old-space-size=${heapMb()}`,
        ...(await fence(scratch, cdxgen)),
        cdxgen,
        ...flags,
        "--output",
        file,
        place,
      ],
      { cwd: work, env: { ...ENVIRONMENT, HOME: work, TMPDIR: work }, log: "none", timeout: `${timeoutMs}ms` },
    );
  } catch (error) {
    throw failed(error, scratch);
  }
}

/**
 * cdxgen starts package managers and wrapper scripts of the repository, and asks registries for licences. Each of these lists allows one name that
 * nothing has; left empty, they would allow everything.
 */
const ENVIRONMENT = {
  CDXGEN_ALLOWED_COMMANDS: "none",
  CDXGEN_ALLOWED_HOSTS: "none.invalid",
  FETCH_LICENSE: "false",
  CDXGEN_NO_BANNER: "true",
  NO_COLOR: "1",
};

/** Six tenths of what the machine or its cgroup has, at least Node's usual 1 GB and at most what 200,000 components take. */
function heapMb(): number {
  const limit = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  const memory = Math.min(os.totalmem(), limit);
  return Math.round(Math.min(Math.max((memory * 0.6) / MB, 1024), 8192));
}

/**
 * Neither a time-out nor a crash is final: a machine with too little of everything is as good a reason as the repository, and the next attempt may be on
 * another one. The clone is not repeated, so the most that it costs is the time limit once for each attempt.
 */
function failed(error: unknown, scratch: string): unknown {
  if (!(error instanceof ExecError) || error.kind === "aborted") return error;
  const { kind, stderr, stdout } = error;
  if (kind === "timeout") {
    const message = "SBOM generation timed out - the repository may be too large or complex";
    return tell(message, { code: "SBOM_TIMEOUT", cause: error });
  }
  if (kind === "oom" || /JavaScript heap out of memory/.test(stderr)) {
    return tell("SBOM generation ran out of memory - the repository may be too large or complex", {
      code: "SBOM_MEMORY",
      cause: error,
    });
  }
  const line =
    crashLine(`${stderr}\n${stdout}`, scratch) ?? `it was ended by ${error.signal ?? `exit code ${error.exitCode}`}`;
  return tell(`SBOM generation failed: ${line}`, { code: "SBOM_FAILED", cause: error });
}

async function read(file: string): Promise<Bom> {
  const unusable = (why: string, cause?: unknown) =>
    tell(`SBOM generation failed: ${why}`, { code: "SBOM_UNUSABLE", ...(cause !== undefined && { cause }) });
  const found = await fs.lstat(file).catch(() => undefined);
  if (!found?.isFile()) throw unusable("cdxgen wrote no result");
  if (found.size > LARGEST) {
    const message = `SBOM generation failed: the result is larger than ${LARGEST / MB} MB`;
    throw tell(message, { code: "SBOM_TOO_LARGE", fatal: true });
  }
  try {
    return await readBom(file);
  } catch (error) {
    throw unusable("the result cannot be read", error);
  }
}

/** Why there are no components. A lockfile that is damaged looks the same as an empty one, unless somebody looks. */
async function nothing(place: string, packagePath: string, unreadable: readonly string[]): Promise<Error> {
  const manifests = await findManifests(place);
  const [damaged] = unreadable.length > 0 ? unreadable : await damagedIn(place, manifests);
  if (damaged !== undefined) {
    const message = `'${damaged}' could not be read - it may be damaged or in an unsupported format`;
    return tell(message, { code: "SBOM_DAMAGED", fatal: true });
  }
  if (manifests.length === 0) return noManifest(packagePath);
  const message = "No dependencies found - the package manifest may be empty or in an unsupported format";
  return tell(message, { code: "SBOM_EMPTY", fatal: true });
}

function noManifest(packagePath: string): Error {
  const message = `No package manifest found at '${packagePath}' - check your project's package path setting`;
  return tell(message, { code: "SBOM_NO_MANIFEST", fatal: true });
}
