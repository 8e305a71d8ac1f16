// Git, held so that a stranger's repository can make it run nothing and write nowhere else: no configuration but ours, one protocol, one address, no hooks,
// filters, submodules, links or helpers. The token is in the environment of git alone; arguments, addresses and files never carry it.
import type { ExecOptions, ExecResult, StepHandle } from "stillwake/worker";
import { tell } from "../user-error.ts";
import type { Remote } from "./address.ts";
import { type GitLimits, watchSize } from "./limits.ts";

/** A step, or the job itself. */
export type Runner = Pick<StepHandle, "exec" | "scratch" | "signal" | "log">;

export interface GitPlaces {
  /** Everything of this clone, and what the size limit is held against. */
  folder: string;
  /** An empty directory: no .gitconfig, no .netrc, no attributes. */
  home: string;
  /** The repository itself, bare. Files of it lie elsewhere: no scanner meets the objects, and git finds no repository among the files. */
  objects: string;
}

/** What a remote is asked with. */
export interface Credential {
  user: string;
  token: string;
}

export interface GitOptions {
  places: GitPlaces;
  limits: GitLimits;
  /** What is done with the repository, for the sentence of one that is too large for it: "scan". */
  purpose: string;
  remote: Remote;
  /** Undefined: the repository is asked for as anybody may. So are a mirror, and a host by a line that others can read. */
  credential: Credential | undefined;
}

export interface Git {
  /** With the network. Which repository it is for stands in the arguments: as the target of a clone, or as --git-dir. */
  fetch(args: readonly string[]): Promise<ExecResult>;
  /** In the repository, without the network and without the token. */
  local(args: readonly string[], options?: ExecOptions): ReturnType<Runner["exec"]>;
}

export function openGit(runner: Runner, { places, limits, purpose, remote, credential }: GitOptions): Git {
  const until = performance.now() + limits.cloneMs;
  const timeLeft = () => `${Math.max(1, Math.ceil(until - performance.now()))}ms`;
  const offline = environment(places, hardened);
  const online = environment(places, [...hardened, ...network(remote, credential, limits)], remote.protocol);
  return {
    async fetch(args) {
      const ended = new AbortController();
      try {
        // Git reads nothing from its input. The watch stands there because a source that fails ends the command, and its error is the one that is thrown.
        const stdin = watchSize(places.folder, { limits, purpose }, ended.signal);
        return await runner.exec("git", args, { env: online, stdin, log: "none", timeout: timeLeft() });
      } finally {
        ended.abort();
      }
    },
    local: (args, options) =>
      runner.exec("git", args, {
        log: "none",
        timeout: timeLeft(),
        ...options,
        env: { ...offline, GIT_DIR: places.objects },
      }),
  };
}

/**
 * The first safe release of each series that has one: those of 2024 against code run by a clone, and, from 2.43 on, the one against carriage returns in paths
 * (CVE-2025-48384). Older series never got the latter from upstream; it needs submodules and links, which are both off here.
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

/** `text` as `git version` prints it. Distributions append words of their own. */
export function checkVersion(text: string): void {
  const [, major, minor, patch] = /^git version (\d+)\.(\d+)(?:\.(\d+))?/.exec(text)?.map(Number) ?? [];
  if (major === undefined || minor === undefined) {
    throw tell("The version of git on the worker cannot be told - install git 2.39.4 or later", {
      code: "GIT_TOO_OLD",
      fatal: true,
    });
  }
  const series = major === 2 ? SAFE[minor] : undefined;
  const safe = major > 2 || (major === 2 && (series === undefined ? minor > 50 : (patch || 0) >= series));
  if (safe) return;
  const needed = series === undefined ? "2.39.4" : `2.${minor}.${series}`;
  throw tell(
    `Git ${major}.${minor}.${patch || 0} on the worker is not safe to clone with - install git ${needed} or later`,
    {
      code: "GIT_TOO_OLD",
      fatal: true,
    },
  );
}

type Setting = readonly [name: string, value: string];

const hardened: readonly Setting[] = [
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
  // What a lost machine takes along need not be on its disk.
  ["core.fsync", "none"],
  // One for each core: 50,000 files in 4 s instead of 17 s on two.
  ["checkout.workers", "0"],
  // Large files go through git in pieces rather than through memory.
  ["core.bigFileThreshold", "32m"],
  ["init.templateDir", ""],
  ["credential.helper", ""],
  ["protocol.file.allow", "never"],
  ["protocol.ext.allow", "never"],
  ["submodule.recurse", "false"],
  ["fetch.recurseSubmodules", "false"],
  ["transfer.fsckObjects", "true"],
  ["fetch.fsckObjects", "true"],
  // Slips of old tools, in commits of honest people.
  ["fetch.fsck.zeroPaddedFilemode", "ignore"],
  ["fetch.fsck.badTimezone", "ignore"],
  ["fetch.fsck.missingSpaceBeforeDate", "ignore"],
  // One pack, whose size can be watched, and not thousands of files.
  ["transfer.unpackLimit", "1"],
  ["fetch.unpackLimit", "1"],
  // Neither may the other side send us elsewhere for a part of it.
  ["transfer.bundleURI", "false"],
  ["fetch.uriProtocols", ""],
  ["gc.auto", "0"],
  ["maintenance.auto", "false"],
  ["advice.detachedHead", "false"],
];

function network(remote: Remote, credential: Credential | undefined, limits: GitLimits): Setting[] {
  const { origin, pin, mirror, confidential } = remote;
  const told = mirror || !confidential ? undefined : credential;
  return [
    ["http.followRedirects", "false"],
    ["http.proxy", ""],
    ["http.sslVerify", "true"],
    ["http.saveCookies", "false"],
    ["http.delegation", "none"],
    ["http.lowSpeedLimit", String(limits.slowBytes)],
    ["http.lowSpeedTime", String(limits.slowSeconds)],
    ...(pin ? [["http.curloptResolve", pin] as const] : []),
    ...(told ? [[`http.${origin}/.extraHeader`, `Authorization: Basic ${basicOf(told)}`] as const] : []),
  ];
}

/** What stands in the header, to be hidden as the token itself is. */
export function basicOf({ user, token }: Credential): string {
  return Buffer.from(`${user}:${token}`).toString("base64");
}

function environment(
  { folder, home }: GitPlaces,
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
    // Empty rather than a program that fails: nothing at all is started to ask.
    GIT_ASKPASS: "",
    GIT_ALLOW_PROTOCOL: protocol,
    GIT_PROTOCOL_FROM_USER: "0",
    GIT_LFS_SKIP_SMUDGE: "1",
    GIT_NO_REPLACE_OBJECTS: "1",
    GIT_OPTIONAL_LOCKS: "0",
    GIT_PAGER: "",
    // Of one allocation. A delta of some bytes can ask for more memory than there is.
    GIT_ALLOC_LIMIT: "1g",
    GIT_CONFIG_COUNT: String(settings.length),
  };
  for (const [index, [name, value]] of settings.entries()) {
    env[`GIT_CONFIG_KEY_${index}`] = name;
    env[`GIT_CONFIG_VALUE_${index}`] = value;
  }
  return env;
}
