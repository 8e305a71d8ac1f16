// Ending every process that a piece of work has started, the daemonised ones too. Each process of a worker carries STILLWAKE_GUARD, a mark
// such as "worker.runner.attempt.", which children inherit wherever they go; so a prefix of the mark names a whole subtree. exec.ts sweeps
// after an abort, the worker after an attempt, and the guardian when the worker itself was killed.
// Linux only: other systems hide the environment, and only the groups and descendants of known processes are found there.
import { execFile, spawn } from "node:child_process";
import fs from "node:fs";
import type { Socket } from "node:net";
import { setTimeout as delay, setImmediate as immediate } from "node:timers/promises";
import { promisify } from "node:util";
import { InvalidInput } from "../../errors.ts";

export const GUARD = "STILLWAKE_GUARD";
const GUARDIAN = "STILLWAKE_GUARDIAN";

export interface KillTreeOptions {
  /** Processes that are left alone. Their marked children are not. */
  except?: readonly number[];
  /** Processes that were started as leaders of their own session: whoever is left in it belongs to the tree. */
  roots?: readonly number[];
}

// A look costs a few milliseconds. Only processes that cannot be killed, such as those in an uninterruptible wait, use up all rounds.
const MAX_ROUNDS = 100;
/** A process that is just being replaced by exec shows no environment for a moment, so one look that finds nobody is not enough. */
const QUIET_ROUNDS = 3;

/**
 * Kills all whose mark begins with `mark`, those in a session or group that one of them leads, and the descendants of all these. Everyone is
 * stopped before anyone is killed: a stopped process cannot fork, its parentage stays readable, and it goes on taking its place in the
 * process limit, so a fork bomb runs out of room. What escapes is a process that has cleared its environment, left its session and lost its
 * parent; only a container or a cgroup holds that one. Answers how many were killed, after they are gone.
 */
export async function killTree(mark: string, { except = [], roots = [] }: KillTreeOptions = {}): Promise<number> {
  requireMark(mark);
  // Never pid 1: to signal group 1 would mean everyone.
  const spared = new Set([0, 1, process.pid, ...except]);
  const found = new Map<string, number>();
  const killed = new Set<string>();
  for (let round = 0, quiet = 0; round < MAX_ROUNDS; round++) {
    const family = relatives(await look({ mark, spared }), mark, spared, roots);
    const fresh = family.filter(({ key }) => !found.has(key));
    for (const { key, pid, group } of fresh) {
      found.set(key, pid);
      // To stop a group is one act for the kernel: no fork of a member slips through it.
      if (group === pid) signal(-pid, "SIGSTOP");
      signal(pid, "SIGSTOP");
    }
    quiet = fresh.length > 0 ? 0 : quiet + 1;
    if (quiet >= QUIET_ROUNDS) {
      if (family.length === 0) break;
      for (const { key, pid } of family) if (signal(pid, "SIGKILL")) killed.add(key);
      await delay(Math.min(round, 20));
    }
  }
  return killed.size;
}

export interface Guard {
  /** Undefined where there is no shell: then nobody sweeps after this process was killed. */
  readonly pid: number | undefined;
  /** Ends the guardian. It sweeps once more before it goes, sparing this process. */
  close(): Promise<void>;
}

/** A shell that does nothing but wait for the death of this process, kill -9 included, and then kills everyone who has the mark. */
export function startGuard(mark: string, { shell = "/bin/sh" }: { shell?: string } = {}): Guard {
  requireMark(mark);
  const child = spawn(shell, ["-c", GUARDIAN_SCRIPT], {
    cwd: "/",
    // In a session of its own it outlives the group of this process. It has no mark, so it does not find itself.
    detached: true,
    env: { PATH: GUARDIAN_PATH, LC_ALL: "C", [GUARDIAN]: mark },
    stdio: ["pipe", "ignore", "ignore"],
  });
  const ended = new Promise<void>((resolve) => {
    child.once("exit", () => resolve());
    child.once("error", () => resolve());
  });
  child.stdin.on("error", () => {});
  (child.stdin as unknown as Socket).unref();
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

// For dash, bash and busybox. The end of stdin is the death of the owner, because nobody else holds the pipe. grep only narrows the search,
// and that of busybox stops at the first NUL, hence the trial; the variables are then compared one by one. Newlines inside of a variable
// become spaces, so that none can pass for another. Stop, then kill, for the reasons given at killTree.
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
    grep -alsF -e "${GUARD}=$${GUARDIAN}" /proc/[0-9]*/environ
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
    case "$(variables "$pid")" in *"\${newline}${GUARD}=$${GUARDIAN}"*) stop "$pid" ;; esac
  done
  for pid in $found; do
    quiet=0
    kill -KILL "-$pid"
    kill -KILL "$pid"
  done
done
`;

/** Changes when this process has started another one, whether that still runs or not. Cheap enough to be asked around every job. */
export function offspring(): string {
  // The page faults of children that have ended, and who is a child now.
  const stat = readProc("/proc/self/stat");
  return `${stat.slice(stat.lastIndexOf(")") + 2).split(" ")[8]} ${childrenOfSelf().join(" ")}`;
}

/** Who is alive of those this process has started: its children, and everyone else with its mark. Nobody where there is no /proc. */
export function startedBySelf(mark: string): number[] {
  if (!fs.existsSync("/proc/self/environ")) return [];
  const children = childrenOfSelf();
  const pids = fs.readdirSync("/proc").map(Number).filter(Number.isInteger);
  return pids.filter((pid) => {
    if (pid === process.pid) return false;
    if (!children.includes(pid) && !`\0${readProc(`/proc/${pid}/environ`)}`.includes(`\0${GUARD}=${mark}`))
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

function requireMark(mark: string): void {
  if (/^([\w-]+\.)+$/.test(mark)) return;
  throw new InvalidInput(`The mark ${JSON.stringify(mark)} cannot be used to find processes`, {
    field: "mark",
    remedy: 'Use names that each end with a dot, such as "worker.runner."',
  });
}

interface Process {
  pid: number;
  parent: number;
  group: number;
  session: number;
  /** Tells a process from a later one with the same number. */
  key: string;
  /** Those of the marks looked for that it carries. */
  marks: string[];
  guardian: boolean;
}

interface Search {
  mark: string;
  spared: ReadonlySet<number>;
}

let next: { searches: Search[]; seen: Promise<Process[]> } | undefined;

/** A look at everyone that begins after the call. Those who want one at the same time share it: twenty trees may have to go at once. */
function look(search: Search): Promise<Process[]> {
  if (!next) {
    const searches: Search[] = [];
    const seen = immediate().then(() => {
      next = undefined;
      return processes(searches);
    });
    next = { searches, seen };
  }
  next.searches.push(search);
  return next.seen;
}

/** Those that belong to the tree by mark, by session or group, or by descent. A guardian is spared: it has a sweep of its own to do. */
function relatives(all: Process[], mark: string, spared: ReadonlySet<number>, roots: readonly number[]): Process[] {
  const leaders = new Set(roots.filter((pid) => !spared.has(pid)));
  const family = new Set<Process>();
  for (let before = -1; before < family.size; ) {
    before = family.size;
    for (const one of all) {
      const marked = one.marks.includes(mark);
      if (family.has(one) || spared.has(one.pid) || (one.guardian && !marked)) continue;
      const led = leaders.has(one.session) || leaders.has(one.group);
      if (!marked && !led && !leaders.has(one.parent)) continue;
      family.add(one);
      leaders.add(one.pid);
    }
  }
  return [...family];
}

// A process that hops to a new number may be gone from the list before it is read, with a successor that is not in the list. Whoever looks
// once more at what has changed since finds it; the bound is for machines on which others fork without end.
const MAX_LISTINGS = 10;

/** Everyone alive. Synchronous on Linux, because what forks meanwhile is missed, and newest first, because those are the ones that fork. */
async function processes(searches: Search[]): Promise<Process[]> {
  if (!fs.existsSync("/proc/self/environ")) return listed();
  const seen = new Map<number, Process | undefined>();
  for (let listing = 0, settled = false; listing < MAX_LISTINGS && !settled; listing++) {
    const pids = fs.readdirSync("/proc").map(Number).filter(Number.isInteger);
    const unread = pids.filter((pid) => !seen.has(pid)).sort((a, b) => b - a);
    for (const pid of unread) seen.set(pid, read(pid, searches));
    settled = unread.length === 0;
  }
  return [...seen.values()].filter((one) => one !== undefined);
}

function read(pid: number, searches: Search[]): Process | undefined {
  const stat = readProc(`/proc/${pid}/stat`);
  // After the name, which may contain anything: state, parent, group, session, …, and the moment of birth as the 20th.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  if (fields.length < 20 || fields[0] === "Z" || fields[0] === "X") return undefined;
  const variables = `\0${readProc(`/proc/${pid}/environ`)}`;
  const found = searches.filter(({ mark }) => variables.includes(`\0${GUARD}=${mark}`));
  if (found.some(({ spared }) => !spared.has(pid))) signal(pid, "SIGSTOP");
  return {
    pid,
    parent: Number(fields[1]),
    group: Number(fields[2]),
    session: Number(fields[3]),
    key: `${pid} ${fields[19]}`,
    marks: found.map(({ mark }) => mark),
    guardian: variables.includes(`\0${GUARDIAN}=`),
  };
}

/** Without /proc: who descends from whom and who is in which group, but no marks and no sessions. */
async function listed(): Promise<Process[]> {
  const { stdout } = await promisify(execFile)("ps", ["-A", "-o", "pid=,ppid=,pgid=,stat="]);
  return stdout.split("\n").flatMap((line) => {
    const [pid, parent, group, state] = line.trim().split(/\s+/);
    if (!state || state.startsWith("Z")) return [];
    const numbers = { pid: Number(pid), parent: Number(parent), group: Number(group), session: Number(group) };
    return [{ ...numbers, key: pid!, marks: [], guardian: false }];
  });
}

function readProc(file: string): string {
  try {
    return fs.readFileSync(file, "latin1");
  } catch {
    // It is gone already, or belongs to somebody else.
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
