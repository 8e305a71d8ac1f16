// A bare clone with commits and nothing else: no files, no folders (--filter=tree:0), which of a large repository is a twentieth. Kept in a folder of this machine where
// there is one, so that the next reading fetches what is new; that folder may be lost at any time.
import { createHash, randomUUID } from "node:crypto";
import fs from "node:fs/promises";
import path from "node:path";
import { locate } from "@stillwake/kit/git/address";
import { checkVersion, type Git, openGit } from "@stillwake/kit/git/git";
import { emptyRepository, refusalOf } from "@stillwake/kit/git/refusals";
import { tell } from "@stillwake/kit/user-error";
import { ExecError, type StepHandle } from "stillwake/worker";
import type { Settings } from "../settings.ts";
import { makeRoom } from "./cache.ts";

export interface Clone {
  git: Git;
  /** The commit that the default branch is at. */
  head: string;
  /** The id of the .mailmap that stands at that commit; null without one. */
  mailmap: string | null;
  /** How many objects came, where they are commits alone: nearly the number of commits. */
  objects: number | undefined;
}

/** What is asked for, from the least on. Servers that do not know filters send everything; a server may also refuse one. */
const FILTERS = ["tree:0", "blob:none", undefined] as const;
const HEAD = "refs/leaderboard/head";
/** Git takes the square of its lines: 1 MB is a second, 20 MB are hours. */
const LARGEST_MAILMAP = 2 ** 20;
const COMMIT = /^[0-9a-f]{40}(?:[0-9a-f]{24})?$/;

/** Runs `work` on an up-to-date clone. What git says when it fails becomes a sentence. */
export async function withClone<T>(
  step: StepHandle,
  repository: string,
  settings: Settings,
  work: (clone: Clone) => Promise<T>,
): Promise<T> {
  const { limits, cache } = settings;
  const about = {
    name: "GitHub",
    limits,
    purpose: "read",
    movedRemedy: "enter its new address",
    // Nobody signs in here: a private repository looks like none.
    reconnect: (cause: unknown) =>
      tell("Repository cannot be read - it is private, or there is none of that name", {
        code: "CLONE_PRIVATE",
        fatal: true,
        cause,
      }),
  };
  const scratch = await step.scratch();
  const home = path.join(scratch, "home");
  await fs.mkdir(home, { recursive: true, mode: 0o700 });
  const kept =
    cache && path.join(cache.folder, `${createHash("sha256").update(repository).digest("hex").slice(0, 40)}.git`);
  try {
    checkVersion((await step.exec("git", ["version"], { log: "none", timeout: "30s" })).stdout);
    const remote = await locate({
      repository,
      name: about.name,
      base: settings.githubUrl,
      mirrors: settings.mirrors,
      allowAddresses: settings.allowAddresses,
      prefix: "LEADERBOARD",
    });
    if (remote.mirror) step.log.info(`From the mirror at ${remote.host}`);
    const open = (folder: string) =>
      openGit(step, {
        places: { folder, home, objects: folder },
        limits,
        purpose: about.purpose,
        remote,
        credential: undefined,
      });

    if (kept && (await fs.stat(kept).catch(() => undefined))) {
      const known = await refresh(step, open(kept), kept, remote.url);
      if (known) return await work(known).catch((error) => given(error, kept));
    }
    const fresh = path.join(kept ? path.dirname(kept) : scratch, `${randomUUID()}.new`);
    try {
      await fs.mkdir(fresh, { recursive: true, mode: 0o700 });
      const made = await fetchAnew(step, open(fresh), fresh, remote.url);
      if (!kept || !cache) return await work(made);
      await makeRoom(cache, fresh, limits.cloneMs);
      await fs.rm(kept, { recursive: true, force: true });
      await fs.rename(fresh, kept);
      return await work({ ...made, git: open(kept) });
    } finally {
      await fs.rm(fresh, { recursive: true, force: true });
    }
  } catch (error) {
    throw refusalOf(error, about);
  }
}

/** Git has failed on it: the next attempt makes it anew. */
async function given(error: unknown, kept: string): Promise<never> {
  if (error instanceof ExecError && error.kind === "exit") await fs.rm(kept, { recursive: true, force: true });
  throw error;
}

/** What is new since the last reading. Undefined when the clone is of no use any more: it is made anew then. */
async function refresh(step: StepHandle, git: Git, folder: string, url: string): Promise<Clone | undefined> {
  const now = new Date();
  try {
    await git.local(["config", "remote.origin.url", url]);
    await git.fetch(fetchArgs(folder, undefined));
    // The one that was used last is the last to go.
    await fs.utimes(folder, now, now);
    return await lookAt(step, git, folder, undefined);
  } catch (error) {
    // What another attempt would meet again is met again below, by the clone. One that has become too large may only have gathered too much.
    const tooLarge = (error as { code?: unknown }).code === "CLONE_TOO_LARGE";
    if (step.signal.aborted || !(error instanceof ExecError || tooLarge)) throw error;
    step.log.info("The clone of the last reading cannot be used - it is made anew");
    return undefined;
  }
}

async function fetchAnew(step: StepHandle, git: Git, folder: string, url: string): Promise<Clone> {
  for (const filter of FILTERS) {
    await fs.rm(folder, { recursive: true, force: true });
    await fs.mkdir(folder, { recursive: true, mode: 0o700 });
    await git.local(["init", "--bare", "--template=", "--quiet"]);
    await git.local(["config", "remote.origin.url", url]);
    try {
      const { stderr } = await git.fetch(fetchArgs(folder, filter));
      const ignored = /filtering not recognized by server/.test(stderr);
      if (ignored) step.log.info("The server knows no filters and has sent the whole repository");
      return await lookAt(step, git, folder, ignored ? undefined : filter);
    } catch (error) {
      if (error instanceof ExecError && /couldn't find remote ref HEAD/.test(error.stderr)) throw emptyRepository();
      if (filter === undefined || !isRefused(error)) throw error;
      step.log.info(`The server refuses the filter ${filter} - trying another way`);
    }
  }
  throw new Error("unreachable: the last filter is none");
}

/** Nothing of it is ever written to a disk as a file, so objects are not judged: old histories are full of slips. */
function inClone(folder: string): string[] {
  return ["-c", "fetch.fsckObjects=false", "-c", "transfer.fsckObjects=false", `--git-dir=${folder}`];
}

/** What is there already says nothing about this one. */
const OBJECT = ["-c", "fetch.negotiationAlgorithm=noop"];

/** Whatever the default branch is called. */
function fetchArgs(folder: string, filter: string | undefined, what = `+HEAD:${HEAD}`): string[] {
  return [
    ...inClone(folder),
    ...["fetch", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-progress"],
    ...(filter === undefined ? [] : [`--filter=${filter}`]),
    ...["origin", what],
  ];
}

async function lookAt(step: StepHandle, git: Git, folder: string, filter: string | undefined): Promise<Clone> {
  const { stdout } = await git.local(["rev-parse", "--verify", "--quiet", `${HEAD}^{commit}`], {
    okCodes: [0, 1, 128],
  });
  const head = stdout.trim();
  if (!COMMIT.test(head)) throw emptyRepository();
  return {
    git,
    head,
    mailmap: await mailmapAt(step, git, folder, head),
    objects: filter === "tree:0" ? await countObjects(git) : undefined,
  };
}

/** The folder of the newest commit, that one alone, and the file in it: in a clone without folders neither is there yet. */
async function mailmapAt(step: StepHandle, git: Git, folder: string, head: string): Promise<string | null> {
  const left = await git.local(["config", "--get", "remote.origin.partialclonefilter"], { okCodes: [0, 1] });
  const filter = left.stdout.trim();
  // Asked for by name: a git that finds out by itself that something is missing fetches all the folders below, each time.
  const fetchObject = (object: string, but: string) => git.fetch([...OBJECT, ...fetchArgs(folder, but, object)]);

  const tree = (await git.local(["log", "-1", "--format=%T", head, "--"])).stdout.trim();
  if (filter === "tree:0") await fetchObject(tree, filter);
  const listed = await git.local(["ls-tree", tree, "--", ".mailmap"]);
  // No link, no folder, no submodule.
  const [, blob] = /^100(?:644|755) blob ([0-9a-f]+)\t/.exec(listed.stdout) ?? [];
  if (blob === undefined) return null;
  if (filter !== "") await fetchObject(blob, "blob:none");
  const size = Number((await git.local(["cat-file", "-s", blob])).stdout);
  if (size <= LARGEST_MAILMAP) return blob;
  step.log.warn("The .mailmap is larger than 1 MB and is not respected");
  return null;
}

async function countObjects(git: Git): Promise<number | undefined> {
  const { stdout } = await git.local(["count-objects", "-v"]);
  const packed = Number(/^in-pack: (\d+)$/m.exec(stdout)?.[1]);
  return packed > 0 ? packed : undefined;
}

/** The words are the server's own: "filter 'tree' not supported", "filter-spec … not supported". */
function isRefused(error: unknown): boolean {
  return (
    error instanceof ExecError &&
    error.kind === "exit" &&
    /filter\b.*\bnot (?:supported|allowed|recognized)/i.test(error.stderr)
  );
}
