// The registry of the local provider: a directory that lets the next orchestrator find the machines. Each life of a machine has a number.
// Its process registers under that number before it becomes the worker, so no machine is unregistered.
//
//   <dir>/<name>.json           the machine: its owner, and which process is about to start which life
//   <dir>/<name>.<number>.pid   a life: pid, boot id and start time of its process, so that a reused pid is not mistaken
//                               for it; and its owner
//   <dir>/<name>.<number>.end   how that life ended
//   <dir>/<name>.log            output of its process, of the current or the last life
//
// At most one process per name is alive, even if several start concurrently: the file of a life is created atomically by a link, which
// succeeds once. A process requests life n + 1 only after it saw that life n, the highest, is over, and an ended life never resumes. The
// highest file is kept while others may read it, even when the machine is removed: so no number is used twice.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Exit, ProviderError } from "../../provider.ts";

/** The owner of a machine, and the identity (pid, boot id, start time) of the process that started it. */
export interface MachineOwner {
  fleet: string;
  pool: string;
  name: string;
  burst: boolean;
  by?: string;
}

export interface MachineRecord extends MachineOwner {
  /** Earlier lives belong to a removed machine of the same name. */
  first: number;
  /** The life that `by` is about to start; startedAt is the time of that. */
  next?: number;
  startedAt?: string;
}

export interface ProcessLife extends Partial<MachineOwner> {
  number: number;
  pid: number;
  startedAt: Date;
  alive: boolean;
}

export interface LifeEnd {
  endedAt: string;
  exit: Exit;
}

/** Exit code of START_SCRIPT if another process took the life. */
export const EXIT_TAKEN = 75;

/**
 * Registers itself as life $2 of the machine whose files begin with $1, with owner $3, truncates the log, and execs the
 * remaining arguments. If the life, or a higher one, exists already, another process was faster. Output on file
 * descriptor 3 means that it has registered.
 */
export const START_SCRIPT = `
{ read -r boot </proc/sys/kernel/random/boot_id; read -r stat </proc/$$/stat; } 2>/dev/null
new="$1.$$.new"
rm -f "$new"
(umask 077; printf '%s\\n%s\\n' "$$ $boot $stat" "$3" >"$new") || exit 1
ln "$new" "$1.$2.pid" 2>/dev/null
made=$?
rm -f "$new"
[ $made = 0 ] || { [ -e "$1.$2.pid" ] && exit ${EXIT_TAKEN}; exit 1; }
for last in "$1".????????.pid; do :; done
[ "$last" = "$1.$2.pid" ] || exit ${EXIT_TAKEN}
: >|"$1.log"
shift 3
echo mine >&3
exec "$@" 3>&-
`;

/** Lives kept per machine, so that a slow starter still finds its number or a higher one taken. */
const KEPT_LIVES = 8;

export class Registry {
  readonly dir: string;
  readonly #levels: readonly string[];

  /** `root`: the parent directory, if it has to pass the same ownership checks. */
  constructor(dir: string, root?: string) {
    this.dir = path.resolve(dir);
    this.#levels = [...(root === undefined ? [] : [path.resolve(root)]), this.dir];
  }

  /** All registered names, including removed machines. Throws if the directory cannot be read. */
  names(): string[] {
    const files = this.#checked(() => fs.readdirSync(this.dir));
    return [...new Set(files.flatMap((file) => /^([^.]+)\.(?:json|\d{8}\.pid)$/.exec(file)?.[1] ?? []))];
  }

  record(name: string): MachineRecord | undefined {
    const record = readJson<MachineRecord>(this.file(name, "json"));
    return record?.name === name ? { ...record, first: record.first ?? 1 } : undefined;
  }

  write(record: MachineRecord): void {
    const file = this.file(record.name, "json");
    this.#checked(() => writeAtomically(file, JSON.stringify(record), (temporary) => fs.renameSync(temporary, file)));
  }

  /** Does nothing if there is a record. */
  writeIfMissing(record: MachineRecord): void {
    const file = this.file(record.name, "json");
    this.#checked(() => writeAtomically(file, JSON.stringify(record), (temporary) => linkOnce(temporary, file)));
  }

  /** The life with the highest number, alive or ended. */
  lastLife(name: string): ProcessLife | undefined {
    const number = this.#numbers(name).at(-1);
    if (number === undefined) return undefined;
    const file = this.#lifeFile(name, number, "pid");
    try {
      const { mtime: startedAt } = fs.statSync(file);
      const [, pid = "", boot, stat = "", owner = ""] =
        /^(\d+) (\S*) (.*)\n?(.*)/.exec(fs.readFileSync(file, "utf8")) ?? [];
      const registered = { number, pid: Number(pid), startedAt };
      const alive = pid !== "" && isAlive({ ...registered, identity: boot ? `${boot} ${startTicks(stat)}` : "" });
      return { ...(owner !== "" && (JSON.parse(owner) as MachineOwner)), ...registered, alive };
    } catch {
      // Not our format; the number is taken all the same.
      return { number, pid: 0, startedAt: new Date(0), alive: false };
    }
  }

  end(name: string, number: number): LifeEnd | undefined {
    return readJson(this.#lifeFile(name, number, "end"));
  }

  /** Returns the recorded end: the first writer wins. */
  writeEnd(name: string, number: number, end: LifeEnd): LifeEnd {
    const file = this.#lifeFile(name, number, "end");
    this.#checked(() => writeAtomically(file, JSON.stringify(end), (temporary) => linkOnce(temporary, file)));
    for (const old of this.#numbers(name).slice(0, -KEPT_LIVES))
      for (const kind of ["pid", "end"] as const) fs.rmSync(this.#lifeFile(name, old, kind), { force: true });
    return this.end(name, number) ?? end;
  }

  /** Removes the machine. Its life files stay, to reserve their numbers; their ctime is the time of the removal. */
  forget(name: string): void {
    for (const kind of ["json", "log"] as const) fs.rmSync(this.file(name, kind), { force: true });
    for (const number of this.#numbers(name)) {
      fs.rmSync(this.#lifeFile(name, number, "end"), { force: true });
      try {
        fs.chmodSync(this.#lifeFile(name, number, "pid"), 0o400);
      } catch {
        // It has just been deleted.
      }
    }
  }

  /** Deletes the life files of a name that is never reused, once the machine was removed that long ago. */
  forgetLives(name: string, minAgeMs: number): void {
    for (const number of this.#numbers(name)) {
      const file = this.#lifeFile(name, number, "pid");
      const changed = fs.statSync(file, { throwIfNoEntry: false })?.ctimeMs ?? 0;
      if (Date.now() - changed > minAgeMs) fs.rmSync(file, { force: true });
    }
  }

  /** The last 4000 bytes of its log. */
  readLogTail(name: string): string {
    try {
      const file = fs.openSync(this.file(name, "log"), "r");
      try {
        const { size } = fs.fstatSync(file);
        const end = Buffer.alloc(Math.min(size, 4000));
        fs.readSync(file, end, 0, end.length, size - end.length);
        return end.toString("utf8");
      } finally {
        fs.closeSync(file);
      }
    } catch {
      return "";
    }
  }

  file(name: string, kind: "json" | "log"): string {
    return path.join(this.dir, `${name}.${kind}`);
  }

  #lifeFile(name: string, number: number, kind: "pid" | "end"): string {
    return path.join(this.dir, `${name}.${formatNumber(number)}.${kind}`);
  }

  #numbers(name: string): number[] {
    try {
      const ours = fs.readdirSync(this.dir).filter((file) => file.startsWith(`${name}.`) && file.endsWith(".pid"));
      return ours
        .map((file) => Number(file.slice(name.length + 1, -4)))
        .filter((number) => number > 0)
        .toSorted((a, b) => a - b);
    } catch {
      return [];
    }
  }

  /** Checks owner and mode of the directory first, because its files decide which processes are killed. */
  #checked<T>(read: () => T): T {
    try {
      for (const level of this.#levels) {
        fs.mkdirSync(level, { recursive: true, mode: 0o700 });
        const stat = fs.lstatSync(level);
        if (!stat.isDirectory()) throw new Error(`${level} is not a directory`);
        if (stat.uid !== process.getuid?.()) throw new Error(`${level} belongs to another user`);
        if (stat.mode & 0o022) throw new Error(`other users can write to ${level}`);
      }
      return read();
    } catch (error) {
      throw new ProviderError("unreachable", `Cannot use the directory ${this.dir}: ${(error as Error).message}`, {
        certain: true,
        cause: error,
        remedy: "Fix it, or set another directory with dir",
      });
    }
  }
}

/** Zero-padded, so that file names sort by number. */
export function formatNumber(number: number): string {
  return String(number).padStart(8, "0");
}

/** Identifies this process on this host across reboots. */
export function ownIdentity(): string {
  return `${process.pid} ${identityOf(process.pid) ?? ""}`;
}

/** `identity`: from ownIdentity(). */
export function isRunning(identity: string | undefined): boolean {
  const [, pid, rest] = /^(\d+) (.*)$/.exec(identity ?? "") ?? [];
  return pid !== undefined && identityOf(Number(pid)) === rest;
}

/**
 * Stops the machines of a directory whose starter is dead, of any fleet: for the sole user of that directory. SIGTERM, and SIGKILL after
 * the grace. Records the exits, so that the next round closes their lives. Returns the number of machines.
 */
export async function endOrphans(dir: string, graceMs: number): Promise<number> {
  const registry = new Registry(dir);
  const orphans = registry.names().flatMap((name) => {
    const life = registry.lastLife(name);
    return life?.alive && !isRunning(life.by) ? [{ name, life }] : [];
  });
  const end = async ({ name, life: { number, pid } }: (typeof orphans)[number]) => {
    const lives = () => {
      const now = registry.lastLife(name);
      return now?.alive && now.number === number;
    };
    for (const [signal, limitMs] of [["SIGTERM", graceMs] as const, ["SIGKILL", 5000] as const]) {
      try {
        if (lives()) process.kill(-pid, signal);
      } catch {
        // It has just exited.
      }
      for (const until = Date.now() + limitMs; lives() && Date.now() < until; ) await delay(20);
    }
    const exit = { requested: true, reason: "the process that started it is gone" };
    if (!lives() && registry.record(name)) registry.writeEnd(name, number, { endedAt: new Date().toISOString(), exit });
  };
  await Promise.all(orphans.map(end));
  return orphans.length;
}

function isAlive({ pid, identity, startedAt }: { pid: number; identity: string; startedAt: Date }): boolean {
  const now = identityOf(pid);
  if (now === undefined || identity !== "") return now === identity;
  // Without /proc it registered no identity; compare the file time instead, as ps reports whole seconds.
  return Math.abs(Date.parse(now) - startedAt.getTime()) < 2500;
}

/** Undefined for a process that does not exist or is a zombie. */
function identityOf(pid: number): string | undefined {
  if (!fs.existsSync("/proc/self/stat")) return identityFromPs(pid);
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, "latin1");
    if (/^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2))) return undefined;
    return `${fs.readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()} ${startTicks(stat)}`;
  } catch {
    return undefined;
  }
}

/** The 22nd field of /proc/<pid>/stat; the second one, the name, may contain anything. */
function startTicks(stat: string): string {
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "";
}

function identityFromPs(pid: number): string | undefined {
  const { stdout } = spawnSync("ps", ["-o", "stat=,lstart=", "-p", String(pid)], { encoding: "utf8" });
  const [, state, startTime] = /^\s*(\S+)\s+(.*\S)/.exec(stdout ?? "") ?? [];
  return state === undefined || state.startsWith("Z") ? undefined : startTime;
}

function readJson<T>(file: string): T | undefined {
  try {
    return JSON.parse(fs.readFileSync(file, "utf8")) as T;
  } catch {
    // It has just been removed, or has another format.
    return undefined;
  }
}

/** Readers never see a partial file. */
function writeAtomically(file: string, text: string, publish: (temporary: string) => void): void {
  const temporary = `${file}.${process.pid}`;
  fs.rmSync(temporary, { force: true });
  fs.writeFileSync(temporary, text, { mode: 0o600 });
  try {
    publish(temporary);
  } finally {
    fs.rmSync(temporary, { force: true });
  }
}

function linkOnce(from: string, to: string): void {
  try {
    fs.linkSync(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}
