// CPU time of processes, and the share of the machine that other processes use. Without /proc every value is NaN.
import fs from "node:fs";
import os from "node:os";
import { setTimeout as delay } from "node:timers/promises";

export const CORES = os.availableParallelism();
// Unit of /proc/<pid>/stat.
const TICKS_PER_SECOND = 100;

/** A clock that all processes of this machine share, in milliseconds. */
export function nowMs() {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** CPU seconds of a process and its children, including exited ones. */
export function treeCpu(pid) {
  try {
    const root = readStat(pid);
    const children = fs.readdirSync("/proc").filter((entry) => /^\d+$/.test(entry) && readStat(entry)?.parent === pid);
    return [root, ...children.map(readStat)].reduce((sum, stat) => sum + (stat?.ticks ?? 0), 0) / TICKS_PER_SECOND;
  } catch {
    return Number.NaN;
  }
}

function readStat(pid) {
  try {
    const text = fs.readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    return { parent: Number(fields[1]), ticks };
  } catch {
    return undefined;
  }
}

export function ownCpu() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** CPU seconds that all cores together were not idle; stolen time counts. */
function busySeconds() {
  try {
    const fields = fs.readFileSync("/proc/stat", "utf8").split("\n")[0].trim().split(/\s+/).slice(1).map(Number);
    const [user, nice, system, , , interrupts, softInterrupts, stolen] = fields;
    return (user + nice + system + interrupts + softInterrupts + stolen) / TICKS_PER_SECOND;
  } catch {
    return Number.NaN;
  }
}

/** Starts to measure. The returned function takes our own CPU seconds and returns the share of the machine that others used. */
export function watchOthers() {
  const busy = busySeconds();
  const began = nowMs();
  return (ours) => {
    const share = (busySeconds() - busy - ours) / (((nowMs() - began) / 1000) * CORES);
    return Math.max(0, share);
  };
}

/** Waits until the machine has been 85 % idle for half a second, at most `maxWaitMs`. */
export async function waitUntilIdle(maxWaitMs) {
  const deadline = nowMs() + maxWaitMs;
  for (;;) {
    const busy = busySeconds();
    const began = nowMs();
    await delay(500);
    const share = (busySeconds() - busy) / (((nowMs() - began) / 1000) * CORES);
    if (!(share > 0.15) || nowMs() > deadline) return;
  }
}

export function quantile(values, share) {
  const sorted = Float64Array.from(values).sort();
  return sorted.length === 0 ? Number.NaN : sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

export function median(values) {
  const sorted = Float64Array.from(values.filter(Number.isFinite)).sort();
  const middle = sorted.length >> 1;
  if (sorted.length === 0) return Number.NaN;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
