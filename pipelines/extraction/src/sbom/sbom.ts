// The step "sbom": cdxgen generates an SBOM from the manifests and lockfiles of the checkout. Because the files are untrusted, it gets no
// network, starts no programs and writes only to the scratch directory. Its exit code is 0 for many errors, so its output is checked.
import fs from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { userError } from "@stillwake/kit/failures";
import { ExecError, type ExecResult, type StepHandle } from "stillwake/worker";
import type { Settings } from "../settings.ts";
import { packagedTool } from "../tools.ts";
import { textOf } from "../untrusted.ts";
import { crashLine, unreadableFiles } from "./cdxgen-output.ts";
import { type Bom, readBom } from "./components.ts";
import { findDamaged, findManifests } from "./manifests.ts";
import { permissionFlags } from "./node-permissions.ts";

export interface SbomOptions {
  /** The checkout. */
  directory: string;
  packagePath: string;
  settings: Pick<Settings, "limits">;
}

/** About 200,000 components. */
const MAX_BYTES = 256 * 2 ** 20;
const MB = 2 ** 20;
const MAX_MANIFESTS = 300;
const MAX_MANIFEST = 500;

export interface Sbom {
  file: string;
  components: number;
  /** Manifests and lockfiles below the package path, relative to the repository: as many as fit into a checkpoint. */
  manifests: string[];
}

export async function generateSbom(step: StepHandle, { directory, packagePath, settings }: SbomOptions): Promise<Sbom> {
  const scratch = await step.scratch();
  const folder = await resolvePackagePath(directory, packagePath);
  const file = path.join(scratch, "sbom.cdx.json");
  const work = path.join(scratch, "cdxgen");
  await fs.rm(file, { force: true });
  await fs.mkdir(work, { recursive: true });

  const { stdout, stderr } = await runCdxgen(step, { scratch, folder, file, work, timeoutMs: settings.limits.sbomMs });
  const { dependencies, unnamed } = await readResult(file);
  const unreadable = unreadableFiles(`${stdout}\n${stderr}`, folder);
  if (dependencies.length === 0) throw await explainEmpty(folder, packagePath, unreadable);
  for (const name of unreadable.slice(0, 10)) {
    step.log.warning(`'${name}' could not be read - its dependencies are missing from the SBOM`);
  }
  if (unnamed > 0) step.log.info(`${unnamed} components without a package URL were omitted`);
  const root = await fs.realpath(directory);
  const manifests = (await findManifests(folder))
    .map((name) => path.relative(root, path.join(folder, name)))
    .filter((name) => textOf(name, MAX_MANIFEST) === name)
    .slice(0, MAX_MANIFESTS);
  return { file, components: dependencies.length, manifests };
}

/** The real path of the folder. A folder outside the checkout counts as missing. */
async function resolvePackagePath(directory: string, packagePath: string): Promise<string> {
  const root = await fs.realpath(directory);
  const folder = await fs.realpath(path.resolve(root, packagePath)).catch(() => undefined);
  const within = folder === root || folder?.startsWith(root + path.sep);
  if (folder && within && (await fs.stat(folder)).isDirectory()) return folder;
  throw noManifest(packagePath);
}

interface CdxgenOptions {
  scratch: string;
  folder: string;
  file: string;
  work: string;
  timeoutMs: number;
}

async function runCdxgen(
  step: StepHandle,
  { scratch, folder, file, work, timeoutMs }: CdxgenOptions,
): Promise<ExecResult> {
  const cdxgen = await packagedTool("cdxgen");
  if (!cdxgen)
    throw userError("SBOM generation is not available (cdxgen is not installed)", { code: "SBOM_TOOL", fatal: true });
  // The folder is absolute: cdxgen takes a relative path of two parts for a model name in a public registry.
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
        ...(await permissionFlags(scratch, cdxgen)),
        cdxgen,
        ...flags,
        "--output",
        file,
        folder,
      ],
      { cwd: work, env: { ...ENVIRONMENT, HOME: work, TMPDIR: work }, log: "none", timeout: `${timeoutMs}ms` },
    );
  } catch (error) {
    throw explainFailure(error, scratch);
  }
}

/**
 * Prevents cdxgen from starting package managers and wrapper scripts and from querying registries. The allow lists contain a
 * name that does not exist, because an empty list allows everything.
 */
const ENVIRONMENT = {
  CDXGEN_ALLOWED_COMMANDS: "none",
  CDXGEN_ALLOWED_HOSTS: "none.invalid",
  FETCH_LICENSE: "false",
  CDXGEN_NO_BANNER: "true",
  NO_COLOR: "1",
};

/** 60 % of the memory of the machine or its cgroup, from 1 GB to 8 GB (200,000 components). */
function heapMb(): number {
  const limit = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  const memory = Math.min(os.totalmem(), limit);
  return Math.round(Math.min(Math.max((memory * 0.6) / MB, 1024), 8192));
}

/** Timeouts and crashes are retried: the machine may be the cause, and the next attempt may run on another one. */
function explainFailure(error: unknown, scratch: string): unknown {
  if (!(error instanceof ExecError) || error.kind === "aborted") return error;
  const { kind, stderr, stdout } = error;
  if (kind === "timeout") {
    const message = "SBOM generation timed out - the repository may be too large or complex";
    return userError(message, { code: "SBOM_TIMEOUT", cause: error });
  }
  if (kind === "oom" || /JavaScript heap out of memory/.test(stderr)) {
    return userError("SBOM generation ran out of memory - the repository may be too large or complex", {
      code: "SBOM_MEMORY",
      cause: error,
    });
  }
  const line =
    crashLine(`${stderr}\n${stdout}`, scratch) ??
    (error.signal ? `killed by ${error.signal}` : `exit code ${error.exitCode}`);
  return userError(`SBOM generation failed: ${line}`, { code: "SBOM_FAILED", cause: error });
}

async function readResult(file: string): Promise<Bom> {
  const unusable = (reason: string, cause?: unknown) =>
    userError(`SBOM generation failed: ${reason}`, { code: "SBOM_UNUSABLE", ...(cause !== undefined && { cause }) });
  const found = await fs.lstat(file).catch(() => undefined);
  if (!found?.isFile()) throw unusable("cdxgen wrote no result");
  if (found.size > MAX_BYTES) {
    const message = `SBOM generation failed: the result is larger than ${MAX_BYTES / MB} MB`;
    throw userError(message, { code: "SBOM_TOO_LARGE", fatal: true });
  }
  try {
    return await readBom(file);
  } catch (error) {
    throw unusable("the result cannot be read", error);
  }
}

/** Explains why there are no components: no manifest, a damaged one, or an empty one. */
async function explainEmpty(folder: string, packagePath: string, unreadable: readonly string[]): Promise<Error> {
  const manifests = await findManifests(folder);
  const [damaged] = unreadable.length > 0 ? unreadable : await findDamaged(folder, manifests);
  if (damaged !== undefined) {
    const message = `'${damaged}' could not be read - it may be damaged or in an unsupported format`;
    return userError(message, { code: "SBOM_DAMAGED", fatal: true });
  }
  if (manifests.length === 0) return noManifest(packagePath);
  const message = "No dependencies found - the package manifest may be empty or in an unsupported format";
  return userError(message, { code: "SBOM_EMPTY", fatal: true });
}

function noManifest(packagePath: string): Error {
  const message = `No package manifest found at '${packagePath}' - check your project's package path setting`;
  return userError(message, { code: "SBOM_NO_MANIFEST", fatal: true });
}
