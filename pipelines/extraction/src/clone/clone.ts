// The step "cloning": fetches the files of one commit into `source` in the scratch directory. Only files: git objects are removed, links
// become text files with their target, submodules are empty directories. An attempt on another machine fetches the same commit again.
import fs from "node:fs/promises";
import path from "node:path";
import { type RemoteOptions, resolveRemote } from "@stillwake/kit/git/address";
import {
  branchMissing,
  emptyRepository,
  explainGitFailure,
  type GitFailureContext,
  notFound,
} from "@stillwake/kit/git/failures";
import { basicOf, checkVersion, type Git, type GitPaths, openGit, type Runner } from "@stillwake/kit/git/git";
import type { JobContext, StepHandle } from "stillwake/worker";
import { type Input, PROVIDER_NAMES } from "../contract.ts";
import type { Checkout } from "../model.ts";
import type { Settings } from "../settings.ts";
import { authenticationFailed, credentialsOf } from "./credentials.ts";
import { checkDiskSpace, countTree, PURPOSE, type TreeSize } from "./limits.ts";

export const SOURCE = "source";

interface ClonePaths extends GitPaths {
  /** The files are written here and then moved to `source` as a whole. */
  tree: string;
}

export interface Source {
  input: Input;
  settings: Settings;
  /** Redacts the value from logs and failures from now on. */
  redact(value: unknown): void;
}

export async function cloneRepository(step: StepHandle, source: Source): Promise<Checkout> {
  const { branch } = source.input;
  // Invalid names, such as one that begins with "-", are never passed to git.
  if (branch !== undefined && !isBranchName(branch)) throw branchMissing(branch);
  return withGit(step, source, undefined, async (git, paths, url) => {
    const options = [
      "--bare",
      "--template=",
      "--quiet",
      "--depth=1",
      "--single-branch",
      "--no-tags",
      "--no-recurse-submodules",
    ];
    if (branch !== undefined) options.push(`--branch=${branch}`);
    await git.fetch(["clone", ...options, "--", url, paths.objects]);
    // Git clones a sign-in page without an error; it has no commit.
    const [{ stdout: commit }, head] = await Promise.all([
      git.local(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], { okCodes: [0, 1, 128] }),
      git.local(["symbolic-ref", "--short", "--quiet", "HEAD"], { okCodes: [0, 1] }),
    ]);
    if (!isCommit(commit.trim())) throw emptyRepository();
    const tree = await checkOut(step, git, paths, source, commit.trim());
    logSkipped(step, tree);
    return {
      commit: commit.trim(),
      branch: head.stdout.trim() || (branch ?? "HEAD"),
      files: tree.files,
      bytes: tree.bytes,
    };
  });
}

export function remoteOptionsOf(
  { provider, repository }: Pick<Input, "provider" | "repository">,
  { hosts, mirrors, allowAddresses }: Pick<Settings, "hosts" | "mirrors" | "allowAddresses">,
): RemoteOptions {
  return {
    repository,
    name: PROVIDER_NAMES[provider],
    base: hosts[provider],
    mirrors: mirrors.filter((mirror) => mirror.provider === provider),
    allowAddresses,
    prefix: "EXTRACTION",
  };
}

/** Returns the directory with the files of the commit, fetched again if this machine does not have them. */
export async function restoreCheckout(job: JobContext, source: Source, { commit }: Checkout): Promise<string> {
  const directory = path.join(await job.scratch(), SOURCE);
  // It is created by a rename, so it is complete if it exists.
  if (await fs.stat(directory).catch(() => undefined)) return directory;
  job.log.info("Fetching the files again - this machine does not have those of the previous attempt");
  await withGit(job, source, commit, async (git, paths, url) => {
    const format = commit.length === 64 ? ["--object-format=sha256"] : [];
    await git.local(["init", "--bare", "--template=", "--quiet", ...format]);
    const options = ["--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"];
    await git.fetch([`--git-dir=${paths.objects}`, "fetch", ...options, "--", url, commit]);
    await checkOut(job, git, paths, source, commit);
  });
  job.log.info("Files fetched again");
  return directory;
}

/** Prepares paths and credentials for git, explains its failures, and removes everything but the checked-out files. */
async function withGit<T>(
  runner: Runner,
  { input, settings, redact }: Source,
  commit: string | undefined,
  work: (git: Git, paths: ClonePaths, url: string) => Promise<T>,
): Promise<T> {
  const { limits } = settings;
  const folder = path.join(await runner.scratch(), "clone");
  const paths = {
    folder,
    home: path.join(folder, "home"),
    objects: path.join(folder, "objects"),
    tree: path.join(folder, "tree"),
  };
  let anonymous = false;
  try {
    await fs.rm(folder, { recursive: true, force: true });
    for (const directory of [paths.home, paths.tree]) await fs.mkdir(directory, { recursive: true, mode: 0o700 });
    checkVersion((await runner.exec("git", ["version"], { log: "none", timeout: "30s" })).stdout);
    const remote = await resolveRemote(remoteOptionsOf(input, settings));
    if (remote.mirror) runner.log.info(`Using the mirror at ${remote.host}`);
    const credential = await credentialsOf(settings, redact).tokenFor(input, remote, runner.signal);
    if (credential) redact(basicOf(credential));
    anonymous = credential === undefined;
    return await work(openGit(runner, { paths, limits, purpose: PURPOSE, remote, credential }), paths, remote.url);
  } catch (error) {
    throw explainCloneFailure(error, { input, limits, commit, anonymous });
  } finally {
    await fs.rm(folder, { recursive: true, force: true });
  }
}

export interface CloneFailureContext {
  input: Pick<Input, "provider"> & { branch?: string | undefined };
  limits: GitFailureContext["limits"];
  /** Set if the files of this commit are fetched again. */
  commit?: string | undefined;
  /** No token was sent: providers then report a private repository like a missing one. */
  anonymous?: boolean;
}

/** Returns the error to throw instead. */
export function explainCloneFailure(
  error: unknown,
  { input, limits, commit, anonymous }: CloneFailureContext,
): unknown {
  return explainGitFailure(error, {
    name: PROVIDER_NAMES[input.provider],
    branch: input.branch,
    commit: commit === undefined ? undefined : { id: commit, remedy: "start a new extraction" },
    limits,
    purpose: PURPOSE,
    movedRemedy: "change its name in the project's settings",
    authenticationFailed: (cause) => (anonymous ? notFound(cause) : authenticationFailed(input.provider, cause)),
  });
}

/** Overrides .gitattributes: files are written as stored, and no filter program runs. */
const ATTRIBUTES = "* -filter -text -ident -working-tree-encoding\n";

async function checkOut(
  runner: Runner,
  git: Git,
  paths: ClonePaths,
  { settings }: Source,
  commit: string,
): Promise<TreeSize> {
  const { limits } = settings;
  const tree = await countTree(
    git.local(["ls-tree", "-r", "-t", "--format=%(objectmode) %(objectsize)", commit], { maxOutput: 65_536 }),
    limits,
  );
  await checkDiskSpace(paths.folder, tree, limits);
  await fs.mkdir(path.join(paths.objects, "info"), { recursive: true });
  await fs.writeFile(path.join(paths.objects, "info", "attributes"), ATTRIBUTES);
  // Reads the commit into an empty index and writes its files, without a branch or a comparison.
  await git.local([`--work-tree=${paths.tree}`, "read-tree", "--reset", "-u", "--no-recurse-submodules", commit]);
  const directory = path.join(await runner.scratch(), SOURCE);
  await fs.rm(directory, { recursive: true, force: true });
  await fs.rename(paths.tree, directory);
  return tree;
}

function logSkipped(step: StepHandle, { submodules, links }: TreeSize): void {
  if (submodules > 0)
    step.log.info(
      `${submodules === 1 ? "A submodule is" : `${submodules} submodules are`} not fetched and not scanned`,
    );
  if (links > 0)
    step.log.info(
      `${links === 1 ? "A symbolic link is" : `${links} symbolic links are`} kept as text and not followed`,
    );
}

function isCommit(text: string): boolean {
  return /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/.test(text);
}

/** Git's rules for branch names. */
function isBranchName(name: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are refused.
  if (/^-|[\x00-\x20\x7f~^:?*[\\]|\.\.|@\{|\.$|^@$/.test(name)) return false;
  return name.split("/").every((part) => part !== "" && !part.startsWith(".") && !part.endsWith(".lock"));
}
