// The memory limit and use of this process: those of its cgroup, or of the machine. The worker warns before the kernel
// kills; runner pools and the local provider use `oomKills` to tell whether a SIGKILL was an out-of-memory kill.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

export interface MemoryUse {
  usedBytes: number;
  limitBytes: number;
  fraction: number;
  source: "cgroup2" | "cgroup1" | "machine";
}

/** `root` is the mount point of cgroups, `proc` that of procfs. Never throws. */
export function memoryUse(root = "/sys/fs/cgroup", proc = "/proc"): MemoryUse {
  const machine = machineMemory(proc);
  // A limit above the machine's memory, such as 9223372036854771712 of cgroup v1, has no effect.
  const limits = cgroups(root, proc)
    .map(readLimit)
    .filter((use) => use !== undefined)
    .filter((use) => use.limitBytes < machine.limitBytes);
  // The kernel kills first where the least memory is left, which may be an outer group shared with others.
  const [tightest] = limits.sort((a, b) => freeBytes(a) - freeBytes(b));
  return tightest ?? machine;
}

/**
 * The number of out-of-memory kills in this process's cgroup; undefined where the kernel does not count them. The kernel
 * does not name the victims: a process killed by SIGKILL while the count went up is assumed to be one.
 */
export function oomKills(root = "/sys/fs/cgroup", proc = "/proc"): number | undefined {
  for (const { directory, files } of cgroups(root, proc)) {
    const kills = readCounter("oom_kill", readText(path.join(directory, files.events)));
    if (kills !== undefined) return kills;
  }
  return undefined;
}

export interface MemoryWatch {
  everyMs: number;
  /** A fraction of the limit. Default 0.8. */
  above?: number;
  read?: () => MemoryUse;
  onHigh: (use: MemoryUse) => void;
}

/** Reads at once and then every `everyMs`. Calls onHigh once, and again only after use has fallen to 0.05 below `above`. */
export function watchMemory({ everyMs, above = 0.8, read = memoryUse, onHigh }: MemoryWatch): { stop(): void } {
  let high = false;
  const check = () => {
    const use = read();
    if (!high && use.fraction > above) {
      high = true;
      onHigh(use);
    } else if (use.fraction < above - 0.05) {
      high = false;
    }
  };
  const timer = setInterval(check, everyMs).unref();
  check();
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

/** The cgroup of this process and its ancestors, innermost first. In a container they may not be visible. */
function cgroups(root: string, proc: string): Cgroup[] {
  const own = readText(path.join(proc, "self/cgroup")) ?? "";
  return versions.flatMap((files) => {
    const found: Cgroup[] = [];
    // A cgroup outside the namespace is shown as /../…, which resolves to the mount itself.
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
  // The kernel drops the inactive page cache before it kills anything.
  const cache = readCounter(files.cache, readText(path.join(directory, "memory.stat"))) ?? 0;
  return memory(Math.max(0, current - cache), limitBytes, files.source);
}

function machineMemory(proc: string): MemoryUse {
  const text = readText(path.join(proc, "meminfo"));
  const total = readCounter("MemTotal:", text);
  const available = readCounter("MemAvailable:", text);
  if (total && available !== undefined) return memory((total - available) * 1024, total * 1024, "machine");
  return memory(os.totalmem() - os.freemem(), os.totalmem(), "machine");
}

function memory(usedBytes: number, limitBytes: number, source: MemoryUse["source"]): MemoryUse {
  return { usedBytes, limitBytes, fraction: usedBytes / limitBytes, source };
}

function freeBytes({ limitBytes, usedBytes }: MemoryUse): number {
  return limitBytes - usedBytes;
}

/** From a line such as "oom_kill 3". */
function readCounter(name: string, text: string | undefined): number | undefined {
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
