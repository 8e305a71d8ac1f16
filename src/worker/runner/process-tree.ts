// Kills every process that an attempt or a worker has started, daemons included. Each process has a tag such as "worker.runner.attempt." in
// its environment variable STILLWAKE_PROCESS_TAG, which children inherit, so a prefix of the tag names a whole subtree. exec.ts kills after an
// abort, the worker after an attempt, the guardian after the worker died. On Linux only: other systems hide the environment, and only
// groups and descendants of known processes are found there.
import { execFile, spawn } from "node:child_process";
import fs from "node:fs";
import type { Socket } from "node:net";
import { setTimeout as delay, setImmediate as immediate } from "node:timers/promises";
import { promisify } from "node:util";
import { InvalidInput } from "../../errors.ts";

export const PROCESS_TAG = "STILLWAKE_PROCESS_TAG";
const GUARDIAN = "STILLWAKE_GUARDIAN";

export interface KillTreeOptions {
  /** Processes that are not killed. Their tagged children are. */
  except?: readonly number[];
  /** Processes that were started as session leaders: all processes of their sessions belong to the tree. */
  roots?: readonly number[];
}

// A round takes a few milliseconds. Only processes that cannot be killed, such as those in an uninterruptible wait, use up all rounds.
const MAX_ROUNDS = 100;
/** A process shows no environment for a moment during exec, so one round that finds nothing is not enough. */
const QUIET_ROUNDS = 3;

/**
 * Kills all processes whose tag starts with `tag`, those in a session or group that one of them leads, and the descendants of all these.
 * All are stopped before any is killed: a stopped process cannot fork, its parent stays readable, and it still counts towards the process
 * limit, so a fork bomb reaches that limit. A process that has cleared its environment, left its session and lost its parent escapes; only
 * a container or a cgroup catches that one. Returns the number of killed processes after they have exited.
 */
export async function killTree(tag: string, { except = [], roots = [] }: KillTreeOptions = {}): Promise<number> {
  checkTag(tag);
  // Never pid 1: kill(-1) would signal every process.
  const excluded = new Set([0, 1, process.pid, ...except]);
  const found = new Map<string, number>();
  const killed = new Set<string>();
  for (let round = 0, quietRounds = 0; round < MAX_ROUNDS; round++) {
    const tree = findTree(await snapshot({ tag, excluded }), tag, excluded, roots);
    const fresh = tree.filter(({ key }) => !found.has(key));
    for (const { key, pid, group } of fresh) {
      found.set(key, pid);
      // The kernel stops a group atomically: no fork of a member escapes.
      if (group === pid) signal(-pid, "SIGSTOP");
      signal(pid, "SIGSTOP");
    }
    quietRounds = fresh.length > 0 ? 0 : quietRounds + 1;
    if (quietRounds >= QUIET_ROUNDS) {
      if (tree.length === 0) break;
      for (const { key, pid } of tree) if (signal(pid, "SIGKILL")) killed.add(key);
      await delay(Math.min(round, 20));
    }
  }
  return killed.size;
}

export interface Guard {
  /** Undefined where there is no shell: then nothing is killed after this process dies. */
  readonly pid: number | undefined;
  /** Ends the guardian. It kills tagged processes once more before it exits, except this process. */
  close(): Promise<void>;
}

/** Starts a shell that waits for the death of this process, SIGKILL included, and then kills all processes with the tag. */
export function startGuard(tag: string, { shell = "/bin/sh" }: { shell?: string } = {}): Guard {
  checkTag(tag);
  const child = spawn(shell, ["-c", GUARDIAN_SCRIPT], {
    cwd: "/",
    // In a separate session it outlives the group of this process. It has no tag, so it does not kill itself.
    detached: true,
    env: { PATH: GUARDIAN_PATH, LC_ALL: "C", [GUARDIAN]: tag },
    stdio: ["pipe", "ignore", "ignore"],
  });
  const ended = new Promise<void>((resolve) => {
    child.once("exit", () => resolve());
    child.once("error", () => resolve());
  });
  child.stdin.on("error", () => {});
  (child.stdin as unknown as Partial<Socket>).unref?.();
  child.unref();
  return {
    pid: child.pid,
    close() {
      child.ref();
      child.stdin.end();
      return ended;
    },
  };
}

const GUARDIAN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin";

// For dash, bash and busybox. Stdin ends when the owner dies, because no other process holds the pipe. grep only narrows the search, and
// the grep of busybox stops at the first NUL, hence the test; then each variable is compared. Newlines inside a variable become spaces, so
// that it cannot imitate another one. Stops before it kills, for the reasons at killTree.
const GUARDIAN_SCRIPT = `
trap '' INT TERM HUP QUIT
exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
while read -r line; do :; done
[ -r /proc/$$/environ ] || exit 0
newline='
'
variables() {
  printf '%s' "$newline"
  tr '\\0\\n' '\\n ' <"/proc/$1/environ"
}
candidates() {
  if [ "$(printf 'a\\0b' | grep -acF b)" = 1 ]; then
    grep -alsF -e "${PROCESS_TAG}=$${GUARDIAN}" /proc/[0-9]*/environ
  else
    echo /proc/[0-9]*/environ
  fi
}
stop() {
  case "$1" in 1 | "$$" | "$owner") return ;; esac
  case " $found " in *" $1 "*) return ;; esac
  found="$found $1"
  kill -STOP "-$1"
  kill -STOP "$1"
  for child in $(cat /proc/"$1"/task/*/children); do
    case "$(variables "$child")" in
      *"\${newline}${GUARDIAN}="*) ;;
      *) stop "$child" ;;
    esac
  done
}
round=0
quiet=0
while [ "$quiet" -lt ${QUIET_ROUNDS} ] && [ "$round" -lt 50 ]; do
  round=$((round + 1))
  quiet=$((quiet + 1))
  found=
  read -r self name state owner rest </proc/$$/stat
  [ "$owner" = "$PPID" ] || owner=
  for file in $(candidates); do
    pid=\${file#/proc/}
    pid=\${pid%/environ}
    case "$(variables "$pid")" in *"\${newline}${PROCESS_TAG}=$${GUARDIAN}"*) stop "$pid" ;; esac
  done
  for pid in $found; do
    quiet=0
    kill -KILL "-$pid"
    kill -KILL "$pid"
  done
done
`;

/** Changes when this process has started another one, running or not. Cheap enough to call around every job. */
export function childrenFingerprint(): string {
  // The page faults of exited children, and the current children.
  const stat = readProc("/proc/self/stat");
  return `${stat.slice(stat.lastIndexOf(")") + 2).split(" ")[8]} ${childrenOfSelf().join(" ")}`;
}

/** The running children of this process and all other processes with its tag. Empty where there is no /proc. */
export function listOwnProcesses(tag: string): number[] {
  if (!fs.existsSync("/proc/self/environ")) return [];
  const children = childrenOfSelf();
  const pids = fs.readdirSync("/proc").map(Number).filter(Number.isInteger);
  return pids.filter((pid) => {
    if (pid === process.pid) return false;
    if (!children.includes(pid) && !`\0${readProc(`/proc/${pid}/environ`)}`.includes(`\0${PROCESS_TAG}=${tag}`))
      return false;
    return !/\) [ZX] [^)]*$/.test(readProc(`/proc/${pid}/stat`));
  });
}

/** Of all its threads. */
function childrenOfSelf(): number[] {
  if (!fs.existsSync("/proc/self/task")) return [];
  const lists = fs.readdirSync("/proc/self/task").map((thread) => readProc(`/proc/self/task/${thread}/children`));
  return lists.flatMap((list) => list.split(" ").filter(Boolean).map(Number)).sort((a, b) => a - b);
}

function checkTag(tag: string): void {
  if (/^([\w-]+\.)+$/.test(tag)) return;
  throw new InvalidInput(`${JSON.stringify(tag)} is not a valid process tag`, {
    field: "tag",
    remedy: 'Use names that each end with a dot, such as "worker.runner."',
  });
}

interface Process {
  pid: number;
  parent: number;
  group: number;
  session: number;
  /** Distinguishes a process from a later one with the same pid. */
  key: string;
  /** The searched tags that it has. */
  tags: string[];
  guardian: boolean;
}

interface Search {
  tag: string;
  excluded: ReadonlySet<number>;
}

let next: { searches: Search[]; seen: Promise<Process[]> } | undefined;

/** Lists all processes, starting after the call. Concurrent calls share one listing: twenty trees may be killed at once. */
function snapshot(search: Search): Promise<Process[]> {
  if (!next) {
    const searches: Search[] = [];
    const seen = immediate().then(() => {
      next = undefined;
      return listProcesses(searches);
    });
    next = { searches, seen };
  }
  next.searches.push(search);
  return next.seen;
}

/** The processes of the tree, by tag, session, group or descent. A guardian is not killed: it still has to kill its own tree. */
function findTree(all: Process[], tag: string, excluded: ReadonlySet<number>, roots: readonly number[]): Process[] {
  const leaders = new Set(roots.filter((pid) => !excluded.has(pid)));
  const tree = new Set<Process>();
  for (let before = -1; before < tree.size; ) {
    before = tree.size;
    for (const process of all) {
      const tagged = process.tags.includes(tag);
      if (tree.has(process) || excluded.has(process.pid) || (process.guardian && !tagged)) continue;
      const led = leaders.has(process.session) || leaders.has(process.group);
      if (!tagged && !led && !leaders.has(process.parent)) continue;
      tree.add(process);
      leaders.add(process.pid);
    }
  }
  return [...tree];
}

// A process may exit between the listing and its reading while its child is not in the listing. Listing again until
// nothing is new finds the child; the bound is for machines on which other processes fork without end.
const MAX_LISTINGS = 10;

/** All running processes. Synchronous on Linux, because a fork in between would be missed; newest first, because those fork. */
async function listProcesses(searches: Search[]): Promise<Process[]> {
  if (!fs.existsSync("/proc/self/environ")) return listWithPs();
  const seen = new Map<number, Process | undefined>();
  for (let listing = 0, complete = false; listing < MAX_LISTINGS && !complete; listing++) {
    const pids = fs.readdirSync("/proc").map(Number).filter(Number.isInteger);
    const unread = pids.filter((pid) => !seen.has(pid)).sort((a, b) => b - a);
    for (const pid of unread) seen.set(pid, readProcess(pid, searches));
    complete = unread.length === 0;
  }
  return [...seen.values()].filter((process) => process !== undefined);
}

function readProcess(pid: number, searches: Search[]): Process | undefined {
  const stat = readProc(`/proc/${pid}/stat`);
  // After the name, which may contain anything: state, parent, group, session, …, and the start time as the 20th.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  if (fields.length < 20 || fields[0] === "Z" || fields[0] === "X") return undefined;
  const variables = `\0${readProc(`/proc/${pid}/environ`)}`;
  const found = searches.filter(({ tag }) => variables.includes(`\0${PROCESS_TAG}=${tag}`));
  if (found.some(({ excluded }) => !excluded.has(pid))) signal(pid, "SIGSTOP");
  return {
    pid,
    parent: Number(fields[1]),
    group: Number(fields[2]),
    session: Number(fields[3]),
    key: `${pid} ${fields[19]}`,
    tags: found.map(({ tag }) => tag),
    guardian: variables.includes(`\0${GUARDIAN}=`),
  };
}

/** Without /proc: parents and groups, but no tags and no sessions. */
async function listWithPs(): Promise<Process[]> {
  const { stdout } = await promisify(execFile)("ps", ["-A", "-o", "pid=,ppid=,pgid=,stat="]);
  return stdout.split("\n").flatMap((line) => {
    const [pid, parent, group, state] = line.trim().split(/\s+/);
    if (!state || state.startsWith("Z")) return [];
    const numbers = { pid: Number(pid), parent: Number(parent), group: Number(group), session: Number(group) };
    return [{ ...numbers, key: pid!, tags: [], guardian: false }];
  });
}

function readProc(file: string): string {
  try {
    return fs.readFileSync(file, "latin1");
  } catch {
    // It has exited, or belongs to another user.
    return "";
  }
}

function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch {
    return false;
  }
}
