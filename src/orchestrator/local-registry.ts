// What is known of the machines of the local provider, in a directory, so that whoever starts next finds them: one record per machine, and beside it the
// process that it is while it lives. That process writes itself down before it becomes the worker; there is none that nobody knows of.
//
//   <dir>/<name>.json   the machine: whose it is, and how its last life ended
//   <dir>/<name>.pid    its process: number, boot and birth, so that another one with the same number is never taken for it
//   <dir>/<name>.log    what its process has said, in its present life or in its last
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { type Exit, ProviderError } from "./provider.ts";

export interface MachineRecord {
  fleet: string;
  pool: string;
  name: string;
  burst: boolean;
  /** Who has started it: the number and the birth of that process. */
  by?: string;
  startedAt?: string;
  endedAt?: string;
  exit?: Exit;
}

interface MachineProcess {
  pid: number;
  startedAt: Date;
}

/** How BECOME ends where somebody was quicker. */
export const TAKEN = 75;

/**
 * Becomes the command that follows, once it has written itself down. $1 is where; a file that is there already belongs to somebody who was quicker. $2 is
 * its log, which begins anew. What it says on 3 means that the name is its own.
 */
export const BECOME = `
set -C
{ read -r boot </proc/sys/kernel/random/boot_id; read -r stat </proc/$$/stat; } 2>/dev/null
{ echo "$$ $boot $stat" >"$1"; } 2>/dev/null || exit ${TAKEN}
: >|"$2"
shift 2
echo mine >&3
exec "$@" 3>&-
`;

export class Registry {
  readonly dir: string;

  constructor(dir: string) {
    this.dir = path.resolve(dir);
  }

  /** Throws where it cannot be read: that there are no machines is another thing. */
  records(): MachineRecord[] {
    return this.#answering(() =>
      fs
        .readdirSync(this.dir)
        .filter((file) => file.endsWith(".json"))
        .flatMap((file) => this.record(file.slice(0, -5)) ?? []),
    );
  }

  record(name: string): MachineRecord | undefined {
    try {
      const record = JSON.parse(fs.readFileSync(this.file(name, "json"), "utf8")) as MachineRecord;
      return record.name === name ? record : undefined;
    } catch {
      // It was removed this moment, or is no record of ours.
      return undefined;
    }
  }

  write(record: MachineRecord): void {
    this.#answering(() => {
      const file = this.file(record.name, "json");
      const beside = `${file}.${process.pid}`;
      fs.writeFileSync(beside, JSON.stringify(record), { mode: 0o600 });
      fs.renameSync(beside, file);
    });
  }

  /** Its process, if that is alive. */
  alive(name: string): MachineProcess | undefined {
    const written = this.#process(name);
    return written && isAlive(written) ? written : undefined;
  }

  /** When the process that is written down was started, be it alive or not. */
  startedAt(name: string): Date | undefined {
    return this.#process(name)?.startedAt;
  }

  /** Its process is over: the name is free for the next. Whoever is written down and alive stays. */
  forgetProcess(name: string): void {
    if (!this.alive(name)) fs.rmSync(this.file(name, "pid"), { force: true });
  }

  forget(name: string): void {
    for (const kind of ["pid", "json", "log"] as const) fs.rmSync(this.file(name, kind), { force: true });
  }

  /** The end of what it said, for people. */
  lastWords(name: string): string | undefined {
    try {
      const file = fs.openSync(this.file(name, "log"), "r");
      try {
        const { size } = fs.fstatSync(file);
        const end = Buffer.alloc(Math.min(size, 4000));
        fs.readSync(file, end, 0, end.length, size - end.length);
        return inWords(end.toString("utf8"));
      } finally {
        fs.closeSync(file);
      }
    } catch {
      return undefined;
    }
  }

  file(name: string, kind: "json" | "pid" | "log"): string {
    return path.join(this.dir, `${name}.${kind}`);
  }

  #process(name: string): (MachineProcess & { birth: string }) | undefined {
    try {
      const file = this.file(name, "pid");
      const { mtime } = fs.statSync(file);
      const [, pid, boot, stat = ""] = /^(\d+) (\S*) (.*)$/m.exec(fs.readFileSync(file, "latin1")) ?? [];
      if (!pid) return undefined;
      return { pid: Number(pid), startedAt: mtime, birth: boot ? `${boot} ${bornAt(stat)}` : "" };
    } catch {
      return undefined;
    }
  }

  /** Only for us: what stands there decides which processes are ended. */
  #answering<T>(read: () => T): T {
    try {
      fs.mkdirSync(this.dir, { recursive: true, mode: 0o700 });
      const { uid } = fs.lstatSync(this.dir);
      if (uid !== process.getuid?.()) throw new Error("it belongs to another user");
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

/** Tells this process from all others on this machine, those that come after the next boot included. */
export function ownBirth(): string {
  return `${process.pid} ${birthOf(process.pid) ?? ""}`;
}

/** Whether the process that ownBirth() was called in is there. */
export function isThere(birth: string | undefined): boolean {
  const [, pid, rest] = /^(\d+) (.*)$/.exec(birth ?? "") ?? [];
  return pid !== undefined && birthOf(Number(pid)) === rest;
}

function isAlive({ pid, birth, startedAt }: MachineProcess & { birth: string }): boolean {
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

const MOST_WORDS = 500;

/** The last lines; of those that are meant for machines, what they say. No credentials of a URL. */
function inWords(text: string): string | undefined {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .slice(-3)
    .map((line) => /^\{.*"msg":"((?:[^"\\]|\\.)*)"/.exec(line)?.[1] ?? line);
  return (
    lines
      .join(" | ")
      .replaceAll(/:\/\/[^@\s/]+@/g, "://***@")
      .slice(-MOST_WORDS) || undefined
  );
}
