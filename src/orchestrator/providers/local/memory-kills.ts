// What the kernel tells of processes that it has killed for want of memory. It names none of them: a machine that was killed while the count went up is taken for one.
import fs from "node:fs";
import path from "node:path";

/** How often the kernel has killed for want of memory where this process is; undefined where it does not say. */
export function oomKills(): number | undefined {
  try {
    const [, group = "/"] = /^0::(.*)$/m.exec(fs.readFileSync("/proc/self/cgroup", "utf8")) ?? [];
    const events = fs.readFileSync(
      path.join("/sys/fs/cgroup", path.posix.resolve("/", group), "memory.events"),
      "utf8",
    );
    return Number(/^oom_kill (\d+)$/m.exec(events)?.[1]);
  } catch {
    return undefined;
  }
}
