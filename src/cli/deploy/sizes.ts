// The machine sizes of each platform and their memory, so that an invalid size is rejected here and not later by an API.
import { InvalidInput } from "../../errors.ts";
import { readGuest } from "../../orchestrator/providers/fly/size.ts";

export const platforms = ["fly", "cloud-run", "kubernetes"] as const;
export type Platform = (typeof platforms)[number];

/** A pool of stillwake.config. */
export interface KnownPool {
  name: string;
  slots?: number;
  warm?: number;
  max?: number;
  grace?: unknown;
  /** The kind of its provider. */
  kind?: string;
  /** Its provider could not be created here. */
  unread?: boolean;
  size?: string;
  memoryMb?: number;
  region?: string;
}

/** Allowed memory in GiB by vCPUs. */
const cloudRunSizes: Record<string, readonly [min: number, max: number]> = {
  "1": [0.5, 4],
  "2": [0.5, 8],
  "4": [2, 16],
  "6": [4, 24],
  "8": [4, 32],
};

export function readSize(
  platform: Platform,
  options: { size: string | undefined; memory: string | number | undefined },
): { size: string; memoryMb: number } {
  const memoryMb = options.memory === undefined ? undefined : parseMemory(options.memory);
  if (platform === "fly") {
    const size = options.size ?? "performance-1x";
    return { size, memoryMb: readGuest(size, memoryMb).memory_mb };
  }
  if (platform === "cloud-run") return cloudRunSize(parseCpus(options.size ?? "1"), memoryMb);
  const size = parseCpus(options.size ?? "1");
  if (!(Number(size) > 0 && Number(size) <= 256)) reject("size", size, "Use a number of CPUs, such as 2 or 0.5");
  return { size, memoryMb: memoryMb ?? 2048 };
}

function cloudRunSize(size: string, memoryMb: number | undefined): { size: string; memoryMb: number } {
  const range = cloudRunSizes[size];
  if (!range) return reject("size", size, `Use ${Object.keys(cloudRunSizes).join(", ")} vCPUs`);
  const memory = memoryMb ?? Math.max(2048, range[0] * 1024);
  if (memory < range[0] * 1024 || memory > range[1] * 1024)
    reject("memory", `${memory}mb`, `With ${size} vCPU use ${range[0]}gb to ${range[1]}gb`);
  return { size, memoryMb: memory };
}

/** Accepts "2", "2 vCPU" and "2 CPU". */
function parseCpus(size: string): string {
  return size.replace(/ ?v?CPUs?$/i, "");
}

/** "64gb", "512mb", "2048". */
function parseMemory(value: string | number): number {
  const [, count, unit = "mb"] = /^(\d+(?:\.\d+)?) ?(mb|gb|mi|gi)?$/i.exec(String(value)) ?? [];
  const memory = Number(count) * (/^g/i.test(unit) ? 1024 : 1);
  return Number.isInteger(memory) && memory > 0
    ? memory
    : reject("memory", String(value), 'Use megabytes or gigabytes, such as "512mb" or "64gb"');
}

/** "64gb", as in fly.toml. */
export function formatMemory(memoryMb: number): string {
  return memoryMb % 1024 === 0 ? `${memoryMb / 1024}gb` : `${memoryMb}mb`;
}

/** "64Gi", as in Kubernetes and Cloud Run. */
export function memoryQuantity(memoryMb: number): string {
  return memoryMb % 1024 === 0 ? `${memoryMb / 1024}Gi` : `${memoryMb}Mi`;
}

function reject(flag: string, value: string, remedy: string): never {
  throw new InvalidInput(`Invalid --${flag} ${JSON.stringify(value)}`, { field: flag, remedy });
}
