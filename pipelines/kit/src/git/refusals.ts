// What git says when it fails, as a sentence for the person who waits. Only git's own words count: what the other side has sent ("remote: …") and names that
// somebody has chosen (in quotes) could say anything. Fatal is what another attempt would meet again.
import { ExecError } from "stillwake/worker";
import { tell } from "../user-error.ts";
import { type GitLimits, type Size, tooLarge } from "./limits.ts";

export interface About extends Size {
  /** Whose host was asked, as people write it: "GitHub". */
  name: string;
  limits: GitLimits;
  branch?: string | undefined;
  /** This very commit is asked for; what helps where it is gone: "start a new extraction". */
  commit?: { id: string; remedy: string } | undefined;
  /** What helps where the repository has another name by now. */
  movedRemedy: string;
  /** The sentence for a host that does not let us in. */
  reconnect(cause: unknown): Error;
}

/** What to throw instead. What is no failure of git's passes through: a cancelled job, a sentence that was found already. */
export function refusalOf(error: unknown, about: About): unknown {
  if (error instanceof ExecError) return refusalOfGit(error, about);
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOSPC" || code === "EDQUOT" ? tooLarge(about, error) : error;
}

export function branchMissing(branch: string, cause?: unknown): Error {
  return tell(`Branch '${branch}' not found in repository`, { code: "CLONE_BRANCH", fatal: true, cause });
}

export function notFound(cause?: unknown): Error {
  return tell("Repository not found - it may have been deleted or made private", {
    code: "CLONE_NOT_FOUND",
    fatal: true,
    cause,
  });
}

export function emptyRepository(): Error {
  return tell("Repository is empty - push a commit to it, and see that its address does not lead to a sign-in page", {
    code: "CLONE_EMPTY",
    fatal: true,
  });
}

function refusalOfGit(cause: ExecError, about: About): Error {
  const { kind, signal, exitCode, stderr } = cause;
  const { limits, commit, branch, name } = about;
  if (kind === "missing") {
    return tell("Git is not installed on the worker - install git 2.39.4 or later", {
      code: "GIT_MISSING",
      fatal: true,
      cause,
    });
  }
  if (kind === "timeout") {
    return tell(`Cloning took longer than ${timeOf(limits.cloneMs)} and was stopped`, { code: "CLONE_TIMEOUT", cause });
  }
  if (kind === "oom") return tell("Cloning ran out of memory", { code: "CLONE_OOM", cause });
  // A limit of the system on the size of a file.
  if (signal === "SIGXFSZ" || exitCode === 153) return tooLarge(about, cause);

  const { own, remote } = wordsOf(stderr);
  const said = (pattern: RegExp) => pattern.test(own);
  const status = Number(/The requested URL returned error: (\d{3})/.exec(own)?.[1] ?? 0);

  if (said(/No space left on device|Disk quota exceeded|File too large|attempting to allocate \d+ over limit/))
    return tooLarge(about, cause);
  if (status === 401 || status === 403 || said(/could not read (Username|Password)|Authentication failed/))
    return about.reconnect(cause);
  if (status === 404 || status === 410 || said(/repository '' not found|access denied or repository not exported/))
    return notFound(cause);
  if (branch !== undefined && said(/^fatal: Remote branch .* not found in upstream|couldn't find remote ref/m))
    return branchMissing(branch, cause);
  if (commit && said(/not our ref|unadvertised object/)) {
    return tell(`Commit ${commit.id.slice(0, 12)} is no longer in the repository - ${commit.remedy}`, {
      code: "CLONE_COMMIT",
      fatal: true,
      cause,
    });
  }
  if (
    signal === "SIGSEGV" ||
    signal === "SIGBUS" ||
    said(/fsck error|^error: object [0-9a-f]+: \w+:|invalid path ''|File name too long|path too long|too deep/im)
  ) {
    return tell("Repository was refused - it holds names or objects that are not safe to write to disk", {
      code: "CLONE_UNSAFE",
      fatal: true,
      cause,
    });
  }
  if (status === 429)
    return tell(`${name} limits how often it may be asked - it is asked again later`, {
      code: "CLONE_RATE_LIMITED",
      cause,
    });
  if (status >= 500)
    return tell(`${name} is in trouble of its own (HTTP ${status})`, { code: "CLONE_UPSTREAM", cause });
  if (status >= 300 && status < 400) {
    return tell(`Repository has moved - ${about.movedRemedy}`, {
      code: "CLONE_MOVED",
      fatal: true,
      cause,
    });
  }
  if (/possible repository corruption/.test(remote)) {
    return tell(`Repository is damaged at ${name} - it could not be read there`, { code: "CLONE_DAMAGED", cause });
  }
  for (const [pattern, sentence, code] of network) {
    if (said(pattern)) return tell(sentence(name, limits), { code, cause });
  }
  return tell(`Cloning failed: ${lastLine(own) || cause.message}`, { code: "CLONE_FAILED", cause });
}

/** All of these may be over in a moment. */
const network: readonly [pattern: RegExp, sentence: (name: string, limits: GitLimits) => string, code: string][] = [
  [
    /Operation too slow/,
    (name, { slowSeconds }) => `${name} has sent next to nothing for ${timeOf(slowSeconds * 1000)}`,
    "CLONE_STALLED",
  ],
  [
    /Could not resolve host/,
    (name) => `${name} could not be found - check the worker's network and name servers`,
    "CLONE_DNS",
  ],
  [
    /certificate|\bSSL\b|\bTLS\b|gnutls/i,
    (name) => `No secure connection to ${name} - its certificate could not be verified`,
    "CLONE_TLS",
  ],
  [
    /Failed to connect|Couldn't connect|Connection refused|Connection timed out|unreachable|No route/,
    (name) => `${name} could not be reached - check the worker's network`,
    "CLONE_UNREACHABLE",
  ],
  [
    /info\/refs not valid|not valid: is this a git/,
    (name) => `${name} answered with a page instead of a repository`,
    "CLONE_PAGE",
  ],
  [
    /reset by peer|early EOF|unexpected disconnect|body are still expected|RPC failed|hung up|transfer closed|Empty reply|invalid index-pack output|expected flush|invalid pack|Recv failure|Send failure/,
    (name) => `The connection to ${name} was lost while cloning`,
    "CLONE_CUT",
  ],
];

/** Told apart by the beginning of the line; each is cut, because it came from outside. */
function wordsOf(stderr: string): { own: string; remote: string } {
  const lines = stderr.slice(-64 * 1024).split(/[\r\n]+/);
  const isRemote = (line: string) => line.startsWith("remote:");
  return {
    own: lines
      .filter((line) => !isRemote(line))
      .join("\n")
      .replace(/'[^'\n]*'/g, "''"),
    remote: lines.filter(isRemote).join("\n"),
  };
}

function lastLine(text: string): string {
  return (
    text
      .split("\n")
      .filter((line) => line.trim() !== "")
      .at(-1)
      ?.slice(0, 300) ?? ""
  );
}

function timeOf(ms: number): string {
  const seconds = Math.round(ms / 1000);
  if (seconds % 60 === 0 && seconds > 60) return `${seconds / 60} minutes`;
  return seconds === 1 ? "1 second" : `${seconds} seconds`;
}
