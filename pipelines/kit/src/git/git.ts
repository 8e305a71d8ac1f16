// Runs git so that an untrusted repository can execute nothing and write nowhere else: only our configuration, one protocol, one address,
// no hooks, filters, submodules, links or helpers. The token is only in git's environment, never in arguments, URLs or files.
import type { ExecOptions, ExecResult, StepHandle } from "stillwake/worker";
import { userError } from "../failures.ts";
import type { Remote } from "./address.ts";
import { type GitLimits, watchSize } from "./limits.ts";

/** A step, or the job itself. */
export type Runner = Pick<StepHandle, "exec" | "scratch" | "signal" | "log">;

export interface GitPaths {
  /** All files of this clone; the size limit applies to it. */
  folder: string;
  /** An empty directory: no .gitconfig, no .netrc, no attributes. */
  home: string;
  /** The bare repository. Checked-out files are elsewhere, so that scanners never read the objects. */
  objects: string;
}

export interface Credential {
  user: string;
  token: string;
}

export interface GitOptions {
  paths: GitPaths;
  limits: GitLimits;
  /** Verb for the message about a repository that is too large: "scan". */
  purpose: string;
  remote: Remote;
  /** Undefined: anonymous. Not sent to mirrors, nor over a connection that is not confidential. */
  credential: Credential | undefined;
}

export interface Git {
  /** With network access. The arguments name the repository: the target of a clone, or --git-dir. */
  fetch(args: readonly string[]): Promise<ExecResult>;
  /** In the repository, without network access and token. */
  local(args: readonly string[], options?: ExecOptions): ReturnType<Runner["exec"]>;
}

export function openGit(runner: Runner, { paths, limits, purpose, remote, credential }: GitOptions): Git {
  const deadline = performance.now() + limits.cloneMs;
  const timeLeft = () => `${Math.max(1, Math.ceil(deadline - performance.now()))}ms` as const;
  const offline = environment(paths, HARDENED);
  const online = environment(paths, [...HARDENED, ...networkSettings(remote, credential, limits)], remote.protocol);
  return {
    async fetch(args) {
      const done = new AbortController();
      try {
        // Git reads nothing from stdin. The size watch is passed as stdin because an input that throws stops the command
        // and exec() rethrows its error.
        const stdin = watchSize(paths.folder, { limits, purpose }, done.signal);
        return await runner.exec("git", args, { env: online, stdin, log: "none", timeout: timeLeft() });
      } finally {
        done.abort();
      }
    },
    local: (args, options) =>
      runner.exec("git", args, {
        log: "none",
        timeout: timeLeft(),
        ...options,
        env: { ...offline, GIT_DIR: paths.objects },
      }),
  };
}

/**
 * The first safe patch release of each minor version: the 2024 fixes against code execution by a clone and, from 2.43 on,
 * the fix for carriage returns in paths (CVE-2025-48384). Older series never got the latter; it needs submodules and
 * links, which are both disabled here.
 */
const SAFE: Record<number, number> = {
  39: 4,
  40: 2,
  41: 1,
  42: 2,
  43: 7,
  44: 4,
  45: 4,
  46: 4,
  47: 3,
  48: 2,
  49: 1,
  50: 1,
};

/** `text`: the output of `git version`, to which distributions append a suffix. */
export function checkVersion(text: string): void {
  const [, major, minor, patch] = /^git version (\d+)\.(\d+)(?:\.(\d+))?/.exec(text)?.map(Number) ?? [];
  if (major === undefined || minor === undefined) {
    throw userError("The git version of the worker is unknown - install git 2.39.4 or later", {
      code: "GIT_TOO_OLD",
      fatal: true,
    });
  }
  const series = major === 2 ? SAFE[minor] : undefined;
  const safe = major > 2 || (major === 2 && (series === undefined ? minor > 50 : (patch || 0) >= series));
  if (safe) return;
  const needed = series === undefined ? "2.39.4" : `2.${minor}.${series}`;
  throw userError(
    `Git ${major}.${minor}.${patch || 0} on the worker is not safe to clone with - install git ${needed} or later`,
    {
      code: "GIT_TOO_OLD",
      fatal: true,
    },
  );
}

type Setting = readonly [name: string, value: string];

const HARDENED: readonly Setting[] = [
  ["core.hooksPath", "/dev/null"],
  ["core.symlinks", "false"],
  ["core.fsmonitor", "false"],
  ["core.protectHFS", "true"],
  ["core.protectNTFS", "true"],
  ["core.autocrlf", "false"],
  ["core.attributesFile", "/dev/null"],
  ["core.excludesFile", "/dev/null"],
  ["core.askPass", ""],
  ["core.sshCommand", "false"],
  ["core.gitProxy", ""],
  // A clone need not survive a crash of its machine.
  ["core.fsync", "none"],
  // One per core: 50,000 files take 4 s instead of 17 s on two cores.
  ["checkout.workers", "0"],
  // Git streams larger files instead of reading them into memory.
  ["core.bigFileThreshold", "32m"],
  ["init.templateDir", ""],
  ["credential.helper", ""],
  ["protocol.file.allow", "never"],
  ["protocol.ext.allow", "never"],
  ["submodule.recurse", "false"],
  ["fetch.recurseSubmodules", "false"],
  ["transfer.fsckObjects", "true"],
  ["fetch.fsckObjects", "true"],
  // Harmless errors of old tools, common in real histories.
  ["fetch.fsck.zeroPaddedFilemode", "ignore"],
  ["fetch.fsck.badTimezone", "ignore"],
  ["fetch.fsck.missingSpaceBeforeDate", "ignore"],
  // One pack, whose size can be watched, instead of thousands of files.
  ["transfer.unpackLimit", "1"],
  ["fetch.unpackLimit", "1"],
  // The server must not redirect parts of the transfer to other addresses.
  ["transfer.bundleURI", "false"],
  ["fetch.uriProtocols", ""],
  ["gc.auto", "0"],
  ["maintenance.auto", "false"],
  ["advice.detachedHead", "false"],
];

function networkSettings(remote: Remote, credential: Credential | undefined, limits: GitLimits): Setting[] {
  const { origin, pin, mirror, confidential } = remote;
  const sent = mirror || !confidential ? undefined : credential;
  return [
    ["http.followRedirects", "false"],
    ["http.proxy", ""],
    ["http.sslVerify", "true"],
    ["http.saveCookies", "false"],
    ["http.delegation", "none"],
    ["http.lowSpeedLimit", String(limits.slowBytes)],
    ["http.lowSpeedTime", String(limits.slowSeconds)],
    ...(pin ? [["http.curloptResolve", pin] as const] : []),
    ...(sent ? [[`http.${origin}/.extraHeader`, `Authorization: Basic ${basicOf(sent)}`] as const] : []),
  ];
}

/** The value in the Authorization header; it must be redacted like the token. */
export function basicOf({ user, token }: Credential): string {
  return Buffer.from(`${user}:${token}`).toString("base64");
}

function environment(
  { folder, home }: GitPaths,
  settings: readonly Setting[],
  protocol = "none",
): Record<string, string> {
  const env: Record<string, string> = {
    LANG: "C",
    LC_ALL: "C",
    HOME: home,
    XDG_CONFIG_HOME: home,
    TMPDIR: folder,
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_ATTR_NOSYSTEM: "1",
    GIT_CEILING_DIRECTORIES: folder,
    GIT_TERMINAL_PROMPT: "0",
    // Empty: git starts no program to ask for a password.
    GIT_ASKPASS: "",
    GIT_ALLOW_PROTOCOL: protocol,
    GIT_PROTOCOL_FROM_USER: "0",
    GIT_LFS_SKIP_SMUDGE: "1",
    GIT_NO_REPLACE_OBJECTS: "1",
    GIT_OPTIONAL_LOCKS: "0",
    GIT_PAGER: "",
    // Per allocation: a delta of a few bytes can request more memory than exists.
    GIT_ALLOC_LIMIT: "1g",
    GIT_CONFIG_COUNT: String(settings.length),
  };
  for (const [index, [name, value]] of settings.entries()) {
    env[`GIT_CONFIG_KEY_${index}`] = name;
    env[`GIT_CONFIG_VALUE_${index}`] = value;
  }
  return env;
}
