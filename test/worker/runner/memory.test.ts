// Memory limits and use, read from directories that imitate those of cgroups and procfs.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type MemoryUse, memoryUse, oomKills, watchMemory } from "../../../src/memory.ts";
import { temporaryDirectory } from "../../support/cleanup.ts";

const MB = 2 ** 20;
let root: string;
let proc: string;
let base: string;

beforeEach(() => {
  base = temporaryDirectory("memory");
  root = path.join(base, "cgroup");
  proc = path.join(base, "proc");
  write("proc/meminfo", "MemTotal:       4194304 kB\nMemFree:         100000 kB\nMemAvailable:   1048576 kB\n");
});

describe("cgroup version 2", () => {
  it("in a container uses the limit of the mount, and does not count reclaimable file cache", () => {
    write("proc/self/cgroup", "0::/\n");
    version2("", "1073741824", 700 * MB, 200 * MB);
    expect(use()).toEqual({ usedBytes: 500 * MB, limitBytes: 1024 * MB, fraction: 500 / 1024, source: "cgroup2" });
  });

  it("uses the group with the least free memory, of the process's group and its ancestors", () => {
    write("proc/self/cgroup", "0::/system.slice/worker.service\n");
    version2("system.slice/worker.service", String(1000 * MB), 100 * MB);
    version2("system.slice", String(2000 * MB), 1990 * MB);
    expect(use()).toMatchObject({ limitBytes: 2000 * MB, usedBytes: 1990 * MB });
    version2("system.slice", String(2000 * MB), 1000 * MB);
    expect(use()).toMatchObject({ limitBytes: 1000 * MB, usedBytes: 100 * MB });
  });

  it("uses the parent of a group without a limit", () => {
    write("proc/self/cgroup", "0::/a/b\n");
    version2("a/b", "max", 100 * MB);
    version2("a", String(500 * MB), 400 * MB);
    expect(use()).toMatchObject({ limitBytes: 500 * MB, fraction: 0.8 });
  });

  it("uses the mount itself if the group's directory is not visible", () => {
    write("proc/self/cgroup", "0::/docker/4f2a/../../../other\n");
    version2("", String(512 * MB), 256 * MB);
    expect(use()).toMatchObject({ source: "cgroup2", fraction: 0.5 });
  });

  it("reports zero if the file cache is larger than the use", () => {
    write("proc/self/cgroup", "0::/\n");
    version2("", String(512 * MB), 10 * MB, 11 * MB);
    expect(use().usedBytes).toBe(0);
  });
});

describe("cgroup version 1", () => {
  it("reads the memory controller, also when it shares a mount", () => {
    write("proc/self/cgroup", "9:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/4f2a\n0::/\n");
    version1("docker/4f2a", String(300 * MB), 250 * MB, 100 * MB);
    version1("", "9223372036854771712", 3000 * MB);
    expect(use()).toEqual({ usedBytes: 150 * MB, limitBytes: 300 * MB, fraction: 0.5, source: "cgroup1" });
  });

  it("treats its maximum number as no limit", () => {
    write("proc/self/cgroup", "4:memory:/\n");
    version1("", "9223372036854771712", 300 * MB);
    expect(use().source).toBe("machine");
  });
});

describe("the machine", () => {
  const machine = { usedBytes: 3072 * MB, limitBytes: 4096 * MB, fraction: 0.75, source: "machine" };

  it("is used where no cgroup has a limit", () => {
    expect(use()).toEqual(machine);
  });

  it("is used where the limit exceeds its memory", () => {
    write("proc/self/cgroup", "0::/\n");
    version2("", String(8192 * MB), 100 * MB);
    expect(use()).toEqual(machine);
  });

  it("is read through Node where procfs is missing", () => {
    const { usedBytes, limitBytes, source } = memoryUse(root, path.join(base, "nothing"));
    expect({ limitBytes, source }).toEqual({ limitBytes: os.totalmem(), source: "machine" });
    expect(usedBytes).toBeGreaterThan(0);
    expect(usedBytes).toBeLessThan(limitBytes);
  });

  it("this machine has plausible values", () => {
    const { fraction, usedBytes } = memoryUse();
    expect(fraction).toBeGreaterThan(0);
    expect(fraction).toBeLessThan(1);
    expect(usedBytes).toBeGreaterThan(10 * MB);
  });
});

describe("out-of-memory kills", () => {
  it("are counted in the group of the process", () => {
    write("proc/self/cgroup", "0::/a/b\n");
    write("cgroup/a/b/memory.events", "low 0\nhigh 0\nmax 12\noom 4\noom_kill 3\noom_group_kill 0\n");
    write("cgroup/a/memory.events", "oom 9\noom_kill 9\n");
    expect(oomKills(root, proc)).toBe(3);
  });

  it("are counted by version 1 too", () => {
    write("proc/self/cgroup", "4:memory:/x\n");
    write("cgroup/memory/x/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
    expect(oomKills(root, proc)).toBe(2);
  });

  it("are unknown where the kernel does not count them", () => {
    expect(oomKills(root, proc)).toBeUndefined();
    write("proc/self/cgroup", "0::/\n");
    write("cgroup/memory.events", "oom 1\n");
    expect(oomKills(root, proc)).toBeUndefined();
  });
});

describe("watchMemory", () => {
  afterEach(() => vi.useRealTimers());

  it("reports high use once, and again only after use has fallen clearly below the threshold", () => {
    vi.useFakeTimers();
    const readings = [0.5, 0.8, 0.81, 0.95, 0.76, 0.82, 0.74, 0.83, 0.9];
    const reported: number[] = [];
    const watch = watchMemory({
      everyMs: 1000,
      read: () => reading(readings.shift()!),
      onHigh: ({ fraction }) => reported.push(fraction),
    });
    vi.advanceTimersByTime(8000);
    expect(readings).toEqual([]);
    expect(reported).toEqual([0.81, 0.83]);
    watch.stop();
  });

  it("checks at once, with the given threshold", () => {
    const reported: MemoryUse[] = [];
    watchMemory({ everyMs: 60_000, above: 0.3, read: () => reading(0.4), onHigh: (use) => reported.push(use) }).stop();
    expect(reported).toEqual([reading(0.4)]);
  });

  it("does not check after it was stopped", () => {
    vi.useFakeTimers();
    const read = vi.fn(() => reading(0.1));
    const watch = watchMemory({ everyMs: 1000, read, onHigh: () => {} });
    vi.advanceTimersByTime(1000);
    watch.stop();
    vi.advanceTimersByTime(10_000);
    expect(read).toHaveBeenCalledTimes(2);
  });

  it("does not keep the process alive", () => {
    // This list contains only resources that keep the process alive.
    const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
    const before = timers();
    const watch = watchMemory({ everyMs: 60_000, read: () => reading(0.1), onHigh: () => {} });
    expect(timers()).toBe(before);
    watch.stop();
  });
});

function use(): MemoryUse {
  return memoryUse(root, proc);
}

function reading(fraction: number): MemoryUse {
  return { usedBytes: fraction * 100, limitBytes: 100, fraction, source: "cgroup2" };
}

function version2(group: string, max: string, current: number, inactiveFile = 0): void {
  write(`cgroup/${group}/memory.max`, `${max}\n`);
  write(`cgroup/${group}/memory.current`, `${current}\n`);
  write(`cgroup/${group}/memory.stat`, `anon 1\nfile 2\nworkingset_inactive_file 5\ninactive_file ${inactiveFile}\n`);
}

function version1(group: string, limit: string, usage: number, inactiveFile = 0): void {
  write(`cgroup/memory/${group}/memory.limit_in_bytes`, `${limit}\n`);
  write(`cgroup/memory/${group}/memory.usage_in_bytes`, `${usage}\n`);
  write(`cgroup/memory/${group}/memory.stat`, `cache 7\ninactive_file 9\ntotal_inactive_file ${inactiveFile}\n`);
}

function write(file: string, text: string): void {
  const whole = path.join(base, file);
  fs.mkdirSync(path.dirname(whole), { recursive: true });
  fs.writeFileSync(whole, text);
}
