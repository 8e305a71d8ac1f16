// A bare clone with commits only, without trees and files (--filter=tree:0): about a twentieth of a large repository. If the
// machine has a cache, the clone is kept there and the next reading fetches only new commits.
import { createHash, randomUUID } from "node:crypto";
import fs from "node:fs/promises";
import path from "node:path";
import { userError } from "@stillwake/kit/failures";
import { resolveRemote } from "@stillwake/kit/git/address";
import { emptyRepository, explainGitFailure } from "@stillwake/kit/git/failures";
import { checkVersion, type Git, openGit } from "@stillwake/kit/git/git";
import { ExecError, type StepHandle } from "stillwake/worker";
import type { Settings } from "../settings.ts";
import { evictClones } from "./cache.ts";

export interface Clone {
  git: Git;
  /** Commit of the default branch. */
  head: string;
  /** Blob id of the .mailmap at that commit; null without one. */
  mailmap: string | null;
  /** Number of objects if all of them are commits: an estimate of the number of commits. */
  objects: number | undefined;
}

/** Filters in order of preference. A server may ignore a filter and send everything, or refuse it. */
const FILTERS = ["tree:0", "blob:none", undefined] as const;
const HEAD = "refs/leaderboard/head";
/** Git's time grows with the square of its lines: 1 MB takes a second, 20 MB take hours. */
const MAX_MAILMAP_BYTES = 2 ** 20;
const COMMIT = /^[0-9a-f]{40}(?:[0-9a-f]{24})?$/;

/** Runs `work` on an up-to-date clone, and explains git's failures. */
export async function withClone<T>(
  step: StepHandle,
  repository: string,
  settings: Settings,
  work: (clone: Clone) => Promise<T>,
): Promise<T> {
  const { limits, cache } = settings;
  const context = {
    name: "GitHub",
    limits,
    purpose: "read",
    movedRemedy: "enter its new URL",
    // Access is anonymous: a private repository looks like a missing one.
    authenticationFailed: (cause: unknown) =>
      userError("Repository cannot be read - it is private or does not exist", {
        code: "CLONE_PRIVATE",
        fatal: true,
        cause,
      }),
  };
  const scratch = await step.scratch();
  const home = path.join(scratch, "home");
  await fs.mkdir(home, { recursive: true, mode: 0o700 });
  const cached =
    cache && path.join(cache.folder, `${createHash("sha256").update(repository).digest("hex").slice(0, 40)}.git`);
  try {
    checkVersion((await step.exec("git", ["version"], { log: "none", timeout: "30s" })).stdout);
    const remote = await resolveRemote({
      repository,
      name: context.name,
      base: settings.githubUrl,
      mirrors: settings.mirrors,
      allowAddresses: settings.allowAddresses,
      prefix: "LEADERBOARD",
    });
    if (remote.mirror) step.log.info(`Using the mirror at ${remote.host}`);
    const open = (folder: string) =>
      openGit(step, {
        paths: { folder, home, objects: folder },
        limits,
        purpose: context.purpose,
        remote,
        credential: undefined,
      });

    if (cached && (await fs.stat(cached).catch(() => undefined))) {
      const updated = await updateClone(step, open(cached), cached, remote.url);
      if (updated) return await work(updated).catch((error) => discardBroken(error, cached));
    }
    const fresh = path.join(cached ? path.dirname(cached) : scratch, `${randomUUID()}.new`);
    try {
      await fs.mkdir(fresh, { recursive: true, mode: 0o700 });
      const clone = await cloneAnew(step, open(fresh), fresh, remote.url);
      if (!cached || !cache) return await work(clone);
      await evictClones(cache, fresh, limits.cloneMs);
      await fs.rm(cached, { recursive: true, force: true });
      await fs.rename(fresh, cached);
      return await work({ ...clone, git: open(cached) });
    } finally {
      await fs.rm(fresh, { recursive: true, force: true });
    }
  } catch (error) {
    throw explainGitFailure(error, context);
  }
}

/** If git failed on the cached clone, the next attempt clones again. */
async function discardBroken(error: unknown, cached: string): Promise<never> {
  if (error instanceof ExecError && error.kind === "exit") await fs.rm(cached, { recursive: true, force: true });
  throw error;
}

/** Fetches new commits into the cached clone. Undefined if the clone is broken and must be created again. */
async function updateClone(step: StepHandle, git: Git, folder: string, url: string): Promise<Clone | undefined> {
  const now = new Date();
  try {
    await git.local(["config", "remote.origin.url", url]);
    await git.fetch(fetchArgs(folder, undefined));
    // The cache removes the least recently used clones.
    await fs.utimes(folder, now, now);
    return await inspectClone(step, git, folder, undefined);
  } catch (error) {
    // The new clone will fail in the same way if the cause is not the cached one. A cached clone may be too large only because
    // of accumulated packs.
    const tooLarge = (error as { code?: unknown }).code === "CLONE_TOO_LARGE";
    if (step.signal.aborted || !(error instanceof ExecError || tooLarge)) throw error;
    step.log.info("The cached clone cannot be used - cloning again");
    return undefined;
  }
}

async function cloneAnew(step: StepHandle, git: Git, folder: string, url: string): Promise<Clone> {
  for (const filter of FILTERS) {
    await fs.rm(folder, { recursive: true, force: true });
    await fs.mkdir(folder, { recursive: true, mode: 0o700 });
    await git.local(["init", "--bare", "--template=", "--quiet"]);
    await git.local(["config", "remote.origin.url", url]);
    try {
      const { stderr } = await git.fetch(fetchArgs(folder, filter));
      const ignored = /filtering not recognized by server/.test(stderr);
      if (ignored) step.log.info("The server does not support filters and has sent the whole repository");
      return await inspectClone(step, git, folder, ignored ? undefined : filter);
    } catch (error) {
      if (error instanceof ExecError && /couldn't find remote ref HEAD/.test(error.stderr)) throw emptyRepository();
      if (filter === undefined || !isFilterRefused(error)) throw error;
      step.log.info(`The server rejected the filter ${filter} - trying another one`);
    }
  }
  throw new Error("unreachable: the last filter is undefined");
}

/** No object is ever checked out as a file, so fsck is off: old histories contain many harmless errors. */
function cloneOptions(folder: string): string[] {
  return ["-c", "fetch.fsckObjects=false", "-c", "transfer.fsckObjects=false", `--git-dir=${folder}`];
}

/** For single objects: the existing commits must not be negotiated. */
const NO_NEGOTIATION = ["-c", "fetch.negotiationAlgorithm=noop"];

/** By default it fetches the default branch, whatever its name. */
function fetchArgs(folder: string, filter: string | undefined, refspec = `+HEAD:${HEAD}`): string[] {
  return [
    ...cloneOptions(folder),
    ...["fetch", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-progress"],
    ...(filter === undefined ? [] : [`--filter=${filter}`]),
    ...["origin", refspec],
  ];
}

async function inspectClone(step: StepHandle, git: Git, folder: string, filter: string | undefined): Promise<Clone> {
  const { stdout } = await git.local(["rev-parse", "--verify", "--quiet", `${HEAD}^{commit}`], {
    okCodes: [0, 1, 128],
  });
  const head = stdout.trim();
  if (!COMMIT.test(head)) throw emptyRepository();
  return {
    git,
    head,
    mailmap: await fetchMailmap(step, git, folder, head),
    objects: filter === "tree:0" ? await countObjects(git) : undefined,
  };
}

/** Fetches the root tree of the newest commit and the .mailmap in it, which a filtered clone does not have. */
async function fetchMailmap(step: StepHandle, git: Git, folder: string, head: string): Promise<string | null> {
  const config = await git.local(["config", "--get", "remote.origin.partialclonefilter"], { okCodes: [0, 1] });
  const filter = config.stdout.trim();
  // Explicitly by id: git's own lazy fetch would download all trees below, each time.
  const fetchObject = (object: string, objectFilter: string) =>
    git.fetch([...NO_NEGOTIATION, ...fetchArgs(folder, objectFilter, object)]);

  const tree = (await git.local(["log", "-1", "--format=%T", head, "--"])).stdout.trim();
  if (filter === "tree:0") await fetchObject(tree, filter);
  const listed = await git.local(["ls-tree", tree, "--", ".mailmap"]);
  // A regular file: no link, folder or submodule.
  const [, blob] = /^100(?:644|755) blob ([0-9a-f]+)\t/.exec(listed.stdout) ?? [];
  if (blob === undefined) return null;
  if (filter !== "") await fetchObject(blob, "blob:none");
  const size = Number((await git.local(["cat-file", "-s", blob])).stdout);
  if (size <= MAX_MAILMAP_BYTES) return blob;
  step.log.warning("The .mailmap is larger than 1 MB and is ignored");
  return null;
}

async function countObjects(git: Git): Promise<number | undefined> {
  const { stdout } = await git.local(["count-objects", "-v"]);
  const packed = Number(/^in-pack: (\d+)$/m.exec(stdout)?.[1]);
  return packed > 0 ? packed : undefined;
}

/** Servers say "filter 'tree' not supported" or "filter-spec … not supported". */
function isFilterRefused(error: unknown): boolean {
  return (
    error instanceof ExecError &&
    error.kind === "exit" &&
    /filter\b.*\bnot (?:supported|allowed|recognized)/i.test(error.stderr)
  );
}
