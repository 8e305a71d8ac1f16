// What is known of the machines of the local provider, in a directory, so that whoever starts next finds them. Each life of a machine has a number; the process
// that it is writes itself down under that number before it becomes the worker, and there is none that nobody knows of.
//
//   <dir>/<name>.json           the machine: whose it is, and who is about to start which life of it
//   <dir>/<name>.<number>.pid   a life: number, boot and birth of its process, so that another one with the same number is never taken for it; and whose it is
//   <dir>/<name>.<number>.end   how that life ended
//   <dir>/<name>.log            what its process has said, in its present life or in its last
//
// At most one process of a name is alive, whoever starts at the same time: a life's file comes into being whole, by a link, which succeeds once. Life n + 1 is
// asked for only by those who saw that life n, the highest, is over, and a life that is over stays so. The highest file is never taken away while others may
// look, not even with its machine: so no number is given twice.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Exit, ProviderError } from "../../provider.ts";

/** Whose a machine is, and who has started it: the number and the birth of that process. */
export interface Owned {
  fleet: string;
  pool: string;
  name: string;
  burst: boolean;
  by?: string;
}

export interface MachineRecord extends Owned {
  /** Lives before this one were those of a machine of the same name that was removed. */
  first: number;
  /** The life that `by` is about to start, and since when. */
  next?: number;
  startedAt?: string;
}

export interface MachineLife extends Partial<Owned> {
  number: number;
  pid: number;
  startedAt: Date;
  alive: boolean;
}

export interface LifeEnd {
  endedAt: string;
  exit: Exit;
}

/** How BECOME ends where somebody was quicker. */
export const TAKEN = 75;

/**
 * Becomes the command that follows, once it has written itself down as life $2 of the machine whose files begin with $1; $3 is whose it is. A life that is there
 * already belongs to somebody who was quicker, as does the name when there is a higher one. Its log begins anew. What it says on 3 means that the name is its own.
 */
export const BECOME = `
{ read -r boot </proc/sys/kernel/random/boot_id; read -r stat </proc/$$/stat; } 2>/dev/null
new="$1.$$.new"
rm -f "$new"
(umask 077; printf '%s\\n%s\\n' "$$ $boot $stat" "$3" >"$new") || exit 1
ln "$new" "$1.$2.pid" 2>/dev/null
made=$?
rm -f "$new"
[ $made = 0 ] || { [ -e "$1.$2.pid" ] && exit ${TAKEN}; exit 1; }
for last in "$1".????????.pid; do :; done
[ "$last" = "$1.$2.pid" ] || exit ${TAKEN}
: >|"$1.log"
shift 3
echo mine >&3
exec "$@" 3>&-
`;

/** So many lives of a machine stay written down: whoever has looked and is slow to start still finds the number taken, or a higher one. */
const KEPT_LIVES = 8;

export class Registry {
  readonly dir: string;
  readonly #levels: readonly string[];

  /** With `root`, where the directory stands is as much ours as itself. */
  constructor(dir: string, root?: string) {
    this.dir = path.resolve(dir);
    this.#levels = [...(root === undefined ? [] : [path.resolve(root)]), this.dir];
  }

  /** Of everything that is written down, machines that were removed included. Throws where it cannot be read: that there are no machines is another thing. */
  names(): string[] {
    const files = this.#answering(() => fs.readdirSync(this.dir));
    return [...new Set(files.flatMap((file) => /^([^.]+)\.(?:json|\d{8}\.pid)$/.exec(file)?.[1] ?? []))];
  }

  record(name: string): MachineRecord | undefined {
    const record = readJson<MachineRecord>(this.file(name, "json"));
    return record?.name === name ? { ...record, first: record.first ?? 1 } : undefined;
  }

  write(record: MachineRecord): void {
    const file = this.file(record.name, "json");
    this.#answering(() => whole(file, JSON.stringify(record), (beside) => fs.renameSync(beside, file)));
  }

  /** Unless there is one. */
  writeFirst(record: MachineRecord): void {
    const file = this.file(record.name, "json");
    this.#answering(() => whole(file, JSON.stringify(record), (beside) => linkOnce(beside, file)));
  }

  /** The last one, be it over or not. */
  life(name: string): MachineLife | undefined {
    const number = this.#numbers(name).at(-1);
    if (number === undefined) return undefined;
    const file = this.#lifeFile(name, number, "pid");
    try {
      const { mtime: startedAt } = fs.statSync(file);
      const [, pid = "", boot, stat = "", whose = ""] =
        /^(\d+) (\S*) (.*)\n?(.*)/.exec(fs.readFileSync(file, "utf8")) ?? [];
      const written = { number, pid: Number(pid), startedAt };
      const alive = pid !== "" && isAlive({ ...written, birth: boot ? `${boot} ${bornAt(stat)}` : "" });
      return { ...(whose !== "" && (JSON.parse(whose) as Owned)), ...written, alive };
    } catch {
      // Not as we write them: somebody else's, and the number is taken all the same.
      return { number, pid: 0, startedAt: new Date(0), alive: false };
    }
  }

  end(name: string, number: number): LifeEnd | undefined {
    return readJson(this.#lifeFile(name, number, "end"));
  }

  /** Answers what is written down in the end: it is, by whoever was first. */
  writeEnd(name: string, number: number, end: LifeEnd): LifeEnd {
    const file = this.#lifeFile(name, number, "end");
    this.#answering(() => whole(file, JSON.stringify(end), (beside) => linkOnce(beside, file)));
    for (const old of this.#numbers(name).slice(0, -KEPT_LIVES))
      for (const kind of ["pid", "end"] as const) fs.rmSync(this.#lifeFile(name, old, kind), { force: true });
    return this.end(name, number) ?? end;
  }

  /** The machine is removed. Its lives stay, for their numbers; since when tells the time of their last change. */
  forget(name: string): void {
    for (const kind of ["json", "log"] as const) fs.rmSync(this.file(name, kind), { force: true });
    for (const number of this.#numbers(name)) {
      fs.rmSync(this.#lifeFile(name, number, "end"), { force: true });
      try {
        fs.chmodSync(this.#lifeFile(name, number, "pid"), 0o400);
      } catch {
        // It was taken away this moment.
      }
    }
  }

  /** Nothing of a name that is never used again, once it was removed that long ago. */
  forgetLives(name: string, agoMs: number): void {
    for (const number of this.#numbers(name)) {
      const file = this.#lifeFile(name, number, "pid");
      const changed = fs.statSync(file, { throwIfNoEntry: false })?.ctimeMs ?? 0;
      if (Date.now() - changed > agoMs) fs.rmSync(file, { force: true });
    }
  }

  /** The end of what it said. */
  said(name: string): string {
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
    return path.join(this.dir, `${name}.${digits(number)}.${kind}`);
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

  /** Only for us: what stands there decides which processes are ended. */
  #answering<T>(read: () => T): T {
    try {
      for (const level of this.#levels) {
        fs.mkdirSync(level, { recursive: true, mode: 0o700 });
        const stat = fs.lstatSync(level);
        if (!stat.isDirectory()) throw new Error(`${level} is no directory`);
        if (stat.uid !== process.getuid?.()) throw new Error(`${level} belongs to another user`);
        if (stat.mode & 0o022) throw new Error(`others may write to ${level}`);
      }
      return read();
    } catch (error) {
      throw new ProviderError("unreachable", `${this.dir} cannot be used: ${(error as Error).message}`, {
        certain: true,
        cause: error,
        remedy: "Check that directory, or name another one with dir",
      });
    }
  }
}

/** As it stands in the names of files, where the order of letters has to be that of numbers. */
export function digits(number: number): string {
  return String(number).padStart(8, "0");
}

/** Tells this process from all others on this machine, those that come after the next boot included. */
export function ownBirth(): string {
  return `${process.pid} ${birthOf(process.pid) ?? ""}`;
}

/** Whether the process that ownBirth() was called in is there. */
export function isThere(birth: string | undefined): boolean {
  const [, pid, rest] = /^(\d+) (.*)$/.exec(birth ?? "") ?? [];
  return pid !== undefined && birthOf(Number(pid)) === rest;
}

/**
 * Ends the machines in a directory whose starter is dead, whatever their fleet: for whoever alone uses that directory and knows that they are of no use. Told to end,
 * and killed after the grace. How they ended is written down, so that the next look closes their lives. Answers how many there were.
 */
export async function endOrphans(dir: string, graceMs: number): Promise<number> {
  const registry = new Registry(dir);
  const orphans = registry.names().flatMap((name) => {
    const life = registry.life(name);
    return life?.alive && !isThere(life.by) ? [{ name, life }] : [];
  });
  const end = async ({ name, life: { number, pid } }: (typeof orphans)[number]) => {
    const lives = () => {
      const now = registry.life(name);
      return now?.alive && now.number === number;
    };
    for (const [signal, limitMs] of [["SIGTERM", graceMs] as const, ["SIGKILL", 5000] as const]) {
      try {
        if (lives()) process.kill(-pid, signal);
      } catch {
        // It has ended this moment.
      }
      for (const until = Date.now() + limitMs; lives() && Date.now() < until; ) await delay(20);
    }
    const exit = { requested: true, reason: "whoever had started it was gone" };
    if (!lives() && registry.record(name)) registry.writeEnd(name, number, { endedAt: new Date().toISOString(), exit });
  };
  await Promise.all(orphans.map(end));
  return orphans.length;
}

function isAlive({ pid, birth, startedAt }: { pid: number; birth: string; startedAt: Date }): boolean {
  const now = birthOf(pid);
  if (now === undefined || birth !== "") return now === birth;
  // Without /proc it could not write down its birth, but when it did so tells it: ps counts in whole seconds.
  return Math.abs(Date.parse(now) - startedAt.getTime()) < 2500;
}

/** Undefined for one that is not there, or dead and not yet buried. */
function birthOf(pid: number): string | undefined {
  if (!fs.existsSync("/proc/self/stat")) return askPs(pid);
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, "latin1");
    if (/^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2))) return undefined;
    return `${fs.readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()} ${bornAt(stat)}`;
  } catch {
    return undefined;
  }
}

/** The 22nd field; the second, the name, may contain anything. */
function bornAt(stat: string): string {
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "";
}

function askPs(pid: number): string | undefined {
  const { stdout } = spawnSync("ps", ["-o", "stat=,lstart=", "-p", String(pid)], { encoding: "utf8" });
  const [, state, birth] = /^\s*(\S+)\s+(.*\S)/.exec(stdout ?? "") ?? [];
  return state === undefined || state.startsWith("Z") ? undefined : birth;
}

function readJson<T>(file: string): T | undefined {
  try {
    return JSON.parse(fs.readFileSync(file, "utf8")) as T;
  } catch {
    // It was removed this moment, or is none of ours.
    return undefined;
  }
}

/** Nobody sees half of it. */
function whole(file: string, text: string, place: (beside: string) => void): void {
  const beside = `${file}.${process.pid}`;
  fs.rmSync(beside, { force: true });
  fs.writeFileSync(beside, text, { mode: 0o600 });
  try {
    place(beside);
  } finally {
    fs.rmSync(beside, { force: true });
  }
}

function linkOnce(from: string, to: string): void {
  try {
    fs.linkSync(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}
