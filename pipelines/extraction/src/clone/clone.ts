// The first step of an extraction: the files of one commit, in the scratch directory, under `source`. Nothing but files: the objects they came from are
// removed, links are texts with their target in them, submodules are empty directories. A later attempt on another machine fetches that very commit again.
import fs from "node:fs/promises";
import path from "node:path";
import { locate, type Whereabouts } from "@stillwake/kit/git/address";
import { basicOf, checkVersion, type Git, type GitPlaces, openGit, type Runner } from "@stillwake/kit/git/git";
import { branchMissing, emptyRepository } from "@stillwake/kit/git/refusals";
import type { JobContext, StepHandle } from "stillwake/worker";
import { type Input, PROVIDER_NAMES } from "../contract.ts";
import type { Checkout } from "../model.ts";
import type { Settings } from "../settings.ts";
import { credentialsOf } from "./credentials.ts";
import { checkRoom, countTree, PURPOSE, type Tree } from "./limits.ts";
import { refusalOf } from "./refusals.ts";

export const SOURCE = "source";

interface Places extends GitPlaces {
  /** Where the files are written, before they are moved to where they stay. */
  tree: string;
}

export interface Source {
  input: Input;
  settings: Settings;
  /** From here on this is in no log and no failure. */
  hide(value: unknown): void;
}

export async function cloneRepository(step: StepHandle, source: Source): Promise<Checkout> {
  const { branch } = source.input;
  // A name that no branch can have, such as one that begins with "-", is not for git to judge.
  if (branch !== undefined && !isBranchName(branch)) throw branchMissing(branch);
  return fetching(step, source, undefined, async (git, places, url) => {
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
    await git.fetch(["clone", ...options, "--", url, places.objects]);
    // A sign-in page in the place of a repository is cloned without an error, and has no commit.
    const [{ stdout: commit }, head] = await Promise.all([
      git.local(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], { okCodes: [0, 1, 128] }),
      git.local(["symbolic-ref", "--short", "--quiet", "HEAD"], { okCodes: [0, 1] }),
    ]);
    if (!isCommit(commit.trim())) throw emptyRepository();
    const tree = await checkOut(step, git, places, source, commit.trim());
    sayWhatIsMissing(step, tree);
    return {
      commit: commit.trim(),
      branch: head.stdout.trim() || (branch ?? "HEAD"),
      files: tree.files,
      bytes: tree.bytes,
    };
  });
}

export function whereabouts(
  { provider, repository }: Pick<Input, "provider" | "repository">,
  { hosts, mirrors, allowAddresses }: Pick<Settings, "hosts" | "mirrors" | "allowAddresses">,
): Whereabouts {
  return {
    repository,
    name: PROVIDER_NAMES[provider],
    base: hosts[provider],
    mirrors: mirrors.filter((one) => one.provider === provider),
    allowAddresses,
    prefix: "EXTRACTION",
  };
}

/** The directory with the files of the commit. */
export async function restoreCheckout(job: JobContext, source: Source, { commit }: Checkout): Promise<string> {
  const directory = path.join(await job.scratch(), SOURCE);
  // It appears whole, so it is there or it is not.
  if (await fs.stat(directory).catch(() => undefined)) return directory;
  job.log.info("Fetching the files again: those of the attempt before are gone");
  await fetching(job, source, commit, async (git, places, url) => {
    const format = commit.length === 64 ? ["--object-format=sha256"] : [];
    await git.local(["init", "--bare", "--template=", "--quiet", ...format]);
    const options = ["--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"];
    await git.fetch([`--git-dir=${places.objects}`, "fetch", ...options, "--", url, commit]);
    await checkOut(job, git, places, source, commit);
  });
  job.log.info("The files are there again");
  return directory;
}

/** Around everything that git does: its places, its token, and its failures in words. Nothing but the files is left of it. */
async function fetching<T>(
  runner: Runner,
  { input, settings, hide }: Source,
  commit: string | undefined,
  work: (git: Git, places: Places, url: string) => Promise<T>,
): Promise<T> {
  const { limits } = settings;
  const folder = path.join(await runner.scratch(), "clone");
  const places = {
    folder,
    home: path.join(folder, "home"),
    objects: path.join(folder, "objects"),
    tree: path.join(folder, "tree"),
  };
  let anonymous = false;
  try {
    await fs.rm(folder, { recursive: true, force: true });
    for (const place of [places.home, places.tree]) await fs.mkdir(place, { recursive: true, mode: 0o700 });
    checkVersion((await runner.exec("git", ["version"], { log: "none", timeout: "30s" })).stdout);
    const remote = await locate(whereabouts(input, settings));
    if (remote.mirror) runner.log.info(`From the mirror at ${remote.host}`);
    const credential = await credentialsOf(settings, hide).tokenFor(input, remote, runner.signal);
    if (credential) hide(basicOf(credential));
    anonymous = credential === undefined;
    return await work(openGit(runner, { places, limits, purpose: PURPOSE, remote, credential }), places, remote.url);
  } catch (error) {
    throw refusalOf(error, { input, limits, commit, anonymous });
  } finally {
    await fs.rm(folder, { recursive: true, force: true });
  }
}

/** Whatever .gitattributes says: the bytes of the files are the bytes that are stored, and no program has a part in it. */
const ATTRIBUTES = "* -filter -text -ident -working-tree-encoding\n";

async function checkOut(runner: Runner, git: Git, places: Places, { settings }: Source, commit: string): Promise<Tree> {
  const { limits } = settings;
  const tree = await countTree(
    git.local(["ls-tree", "-r", "-t", "--format=%(objectmode) %(objectsize)", commit], { maxOutput: 65_536 }),
    limits,
  );
  await checkRoom(places.folder, tree, limits);
  await fs.mkdir(path.join(places.objects, "info"), { recursive: true });
  await fs.writeFile(path.join(places.objects, "info", "attributes"), ATTRIBUTES);
  // Reads the commit into an empty index and writes its files. No branch is made of it, and nothing is compared.
  await git.local([`--work-tree=${places.tree}`, "read-tree", "--reset", "-u", "--no-recurse-submodules", commit]);
  const directory = path.join(await runner.scratch(), SOURCE);
  await fs.rm(directory, { recursive: true, force: true });
  await fs.rename(places.tree, directory);
  return tree;
}

function sayWhatIsMissing(step: StepHandle, { submodules, links }: Tree): void {
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

/** Git's own rules for the name of a branch. */
function isBranchName(name: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is refused.
  if (/^-|[\x00-\x20\x7f~^:?*[\\]|\.\.|@\{|\.$|^@$/.test(name)) return false;
  return name.split("/").every((part) => part !== "" && !part.startsWith(".") && !part.endsWith(".lock"));
}
