// How much memory there is for this worker and how much of it is used: what its cgroup allows, or else what the machine has. The keeper
// warns before the kernel kills, and asks `oomKills` afterwards whether a SIGKILL came from the kernel for want of memory.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

export interface MemoryUse {
  usedBytes: number;
  limitBytes: number;
  fraction: number;
  source: "cgroup2" | "cgroup1" | "machine";
}

/** `root` is where cgroups are mounted, `proc` where the kernel describes processes. Never throws. */
export function memoryUse(root = "/sys/fs/cgroup", proc = "/proc"): MemoryUse {
  const machine = machineMemory(proc);
  // A limit above what the machine has, such as version 1's 9223372036854771712, limits nothing.
  const limits = cgroups(root, proc)
    .map(readLimit)
    .filter((use) => use !== undefined)
    .filter((use) => use.limitBytes < machine.limitBytes);
  // The kernel kills first where the least room is left, which may be an outer group shared with others.
  const [tightest] = limits.sort((a, b) => room(a) - room(b));
  return tightest ?? machine;
}

/** How often the kernel has killed in this process's cgroup for want of memory; undefined where it does not count. */
export function oomKills(root = "/sys/fs/cgroup", proc = "/proc"): number | undefined {
  for (const { directory, files } of cgroups(root, proc)) {
    const kills = numberNamed("oom_kill", readText(path.join(directory, files.events)));
    if (kills !== undefined) return kills;
  }
  return undefined;
}

export interface MemoryWatch {
  everyMs: number;
  /** A fraction of the limit; 0.8 unless told. */
  above?: number;
  read?: () => MemoryUse;
  onHigh: (use: MemoryUse) => void;
}

/** Looks at once and then every `everyMs`. Says high once, and again only after use has fallen 0.05 below the mark. */
export function watchMemory({ everyMs, above = 0.8, read = memoryUse, onHigh }: MemoryWatch): { stop(): void } {
  let high = false;
  const look = () => {
    const use = read();
    if (!high && use.fraction > above) {
      high = true;
      onHigh(use);
    } else if (use.fraction < above - 0.05) {
      high = false;
    }
  };
  const timer = setInterval(look, everyMs).unref();
  look();
  return { stop: () => clearInterval(timer) };
}

// Both versions may be mounted at once; the memory controller belongs to one of them.
const versions = [
  {
    source: "cgroup2",
    mount: "",
    own: /^0::(.*)$/m,
    limit: "memory.max",
    used: "memory.current",
    cache: "inactive_file",
    events: "memory.events",
  },
  {
    source: "cgroup1",
    mount: "memory",
    own: /^\d+:(?:[^:]*,)?memory(?:,[^:]*)?:(.*)$/m,
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: "total_inactive_file",
    events: "memory.oom_control",
  },
] as const;

interface Cgroup {
  directory: string;
  files: (typeof versions)[number];
}

/** The process's own cgroup and those around it, inside out. In a container the outer ones, or its own name, may not be visible. */
function cgroups(root: string, proc: string): Cgroup[] {
  const own = readText(path.join(proc, "self/cgroup")) ?? "";
  return versions.flatMap((files) => {
    const found: Cgroup[] = [];
    // A cgroup outside the namespace is told as /../…, which resolves to the mount itself.
    let group = path.posix.resolve("/", files.own.exec(own)?.[1] ?? "/");
    for (;;) {
      found.push({ directory: path.join(root, files.mount, group), files });
      if (group === "/") return found;
      group = path.posix.dirname(group);
    }
  });
}

function readLimit({ directory, files }: Cgroup): MemoryUse | undefined {
  const limitBytes = Number(readText(path.join(directory, files.limit))?.trim() || Number.NaN);
  const current = Number(readText(path.join(directory, files.used))?.trim() || Number.NaN);
  if (!(limitBytes > 0) || Number.isNaN(current)) return undefined;
  // Files that nobody has touched for a while are given up before anything is killed.
  const cache = numberNamed(files.cache, readText(path.join(directory, "memory.stat"))) ?? 0;
  return memory(Math.max(0, current - cache), limitBytes, files.source);
}

function machineMemory(proc: string): MemoryUse {
  const text = readText(path.join(proc, "meminfo"));
  const total = numberNamed("MemTotal:", text);
  const available = numberNamed("MemAvailable:", text);
  if (total && available !== undefined) return memory((total - available) * 1024, total * 1024, "machine");
  return memory(os.totalmem() - os.freemem(), os.totalmem(), "machine");
}

function memory(usedBytes: number, limitBytes: number, source: MemoryUse["source"]): MemoryUse {
  return { usedBytes, limitBytes, fraction: usedBytes / limitBytes, source };
}

function room({ limitBytes, usedBytes }: MemoryUse): number {
  return limitBytes - usedBytes;
}

/** From lines such as "oom_kill 3". */
function numberNamed(name: string, text: string | undefined): number | undefined {
  const line = text?.split("\n").find((candidate) => candidate.startsWith(`${name} `));
  return line === undefined ? undefined : Number.parseInt(line.slice(name.length), 10);
}

function readText(file: string): string | undefined {
  try {
    return fs.readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}
