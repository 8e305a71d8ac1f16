// Turns git's error output into a message for people. Only git's own text is matched: text of the server ("remote: …") and
// quoted names are untrusted and could contain anything. Failures that another attempt would repeat are fatal.
import { ExecError } from "stillwake/worker";
import { userError } from "../failures.ts";
import { type GitLimits, type SizeLimit, tooLarge } from "./limits.ts";

export interface GitFailureContext extends SizeLimit {
  /** Display name of the host: "GitHub". */
  name: string;
  limits: GitLimits;
  branch?: string | undefined;
  /** Set if exactly this commit is fetched. `remedy`: what to do if it is gone, such as "start a new extraction". */
  commit?: { id: string; remedy: string } | undefined;
  /** What to do if the repository was renamed. */
  movedRemedy: string;
  /** The error for rejected or missing credentials. */
  authenticationFailed(cause: unknown): Error;
}

/** Returns the error to throw instead. Other errors, such as a cancelled job, are returned as they are. */
export function explainGitFailure(error: unknown, context: GitFailureContext): unknown {
  if (error instanceof ExecError) return explainExecError(error, context);
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOSPC" || code === "EDQUOT" ? tooLarge(context, error) : error;
}

export function branchMissing(branch: string, cause?: unknown): Error {
  return userError(`Branch '${branch}' not found in repository`, { code: "CLONE_BRANCH", fatal: true, cause });
}

export function notFound(cause?: unknown): Error {
  return userError("Repository not found - it may have been deleted or made private", {
    code: "CLONE_NOT_FOUND",
    fatal: true,
    cause,
  });
}

export function emptyRepository(): Error {
  return userError("Repository is empty - push a commit to it, and check that its URL is not a sign-in page", {
    code: "CLONE_EMPTY",
    fatal: true,
  });
}

function explainExecError(cause: ExecError, context: GitFailureContext): Error {
  const { kind, signal, exitCode, stderr } = cause;
  const { limits, commit, branch, name } = context;
  if (kind === "missing") {
    return userError("Git is not installed on the worker - install git 2.39.4 or later", {
      code: "GIT_MISSING",
      fatal: true,
      cause,
    });
  }
  if (kind === "timeout") {
    return userError(`Cloning took longer than ${formatTime(limits.cloneMs)} and was stopped`, {
      code: "CLONE_TIMEOUT",
      cause,
    });
  }
  if (kind === "oom") return userError("Cloning ran out of memory", { code: "CLONE_OOM", cause });
  // The system's limit on the size of a file.
  if (signal === "SIGXFSZ" || exitCode === 153) return tooLarge(context, cause);

  const { own, remote } = splitStderr(stderr);
  const matches = (pattern: RegExp) => pattern.test(own);
  const status = Number(/The requested URL returned error: (\d{3})/.exec(own)?.[1] ?? 0);

  if (matches(/No space left on device|Disk quota exceeded|File too large|attempting to allocate \d+ over limit/))
    return tooLarge(context, cause);
  if (status === 401 || status === 403 || matches(/could not read (Username|Password)|Authentication failed/))
    return context.authenticationFailed(cause);
  if (status === 404 || status === 410 || matches(/repository '' not found|access denied or repository not exported/))
    return notFound(cause);
  if (branch !== undefined && matches(/^fatal: Remote branch .* not found in upstream|couldn't find remote ref/m))
    return branchMissing(branch, cause);
  if (commit && matches(/not our ref|unadvertised object/)) {
    return userError(`Commit ${commit.id.slice(0, 12)} is no longer in the repository - ${commit.remedy}`, {
      code: "CLONE_COMMIT",
      fatal: true,
      cause,
    });
  }
  if (
    signal === "SIGSEGV" ||
    signal === "SIGBUS" ||
    matches(/fsck error|^error: object [0-9a-f]+: \w+:|invalid path ''|File name too long|path too long|too deep/im)
  ) {
    return userError("Repository was rejected - it contains names or objects that are not safe to write to disk", {
      code: "CLONE_UNSAFE",
      fatal: true,
      cause,
    });
  }
  if (status === 429)
    return userError(`${name} rate limit reached - it will be retried later`, {
      code: "CLONE_RATE_LIMITED",
      cause,
    });
  if (status >= 500) return userError(`${name} is not available (HTTP ${status})`, { code: "CLONE_UPSTREAM", cause });
  if (status >= 300 && status < 400) {
    return userError(`Repository has moved - ${context.movedRemedy}`, {
      code: "CLONE_MOVED",
      fatal: true,
      cause,
    });
  }
  if (/possible repository corruption/.test(remote)) {
    return userError(`Repository is damaged at ${name} - the server could not read it`, {
      code: "CLONE_DAMAGED",
      cause,
    });
  }
  for (const [pattern, sentence, code] of NETWORK_FAILURES) {
    if (matches(pattern)) return userError(sentence(name, limits), { code, cause });
  }
  return userError(`Cloning failed: ${lastLine(own) || cause.message}`, { code: "CLONE_FAILED", cause });
}

/** Transient failures, which are retried. */
const NETWORK_FAILURES: readonly [
  pattern: RegExp,
  sentence: (name: string, limits: GitLimits) => string,
  code: string,
][] = [
  [
    /Operation too slow/,
    (name, { slowSeconds }) => `${name} has sent almost no data for ${formatTime(slowSeconds * 1000)}`,
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
    (name) => `${name} returned a web page instead of a repository`,
    "CLONE_PAGE",
  ],
  [
    /reset by peer|early EOF|unexpected disconnect|body are still expected|RPC failed|hung up|transfer closed|Empty reply|invalid index-pack output|expected flush|invalid pack|Recv failure|Send failure/,
    (name) => `The connection to ${name} was lost while cloning`,
    "CLONE_CUT",
  ],
];

/** Separates git's own lines from those of the server, and removes quoted names from the former. */
function splitStderr(stderr: string): { own: string; remote: string } {
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

function formatTime(ms: number): string {
  const seconds = Math.round(ms / 1000);
  if (seconds % 60 === 0 && seconds > 60) return `${seconds / 60} minutes`;
  return seconds === 1 ? "1 second" : `${seconds} seconds`;
}
