// The sizes of machines that each platform has, and what memory goes with them. A size that does not exist is refused here and not hours later by an API.
import { InvalidInput } from "../../errors.ts";
import { guestOf } from "../../orchestrator/providers/fly/size.ts";

export const platforms = ["fly", "cloud-run", "kubernetes"] as const;
export type Platform = (typeof platforms)[number];

/** What stillwake.config tells of a pool. */
export interface KnownPool {
  name: string;
  slots?: number;
  warm?: number;
  max?: number;
  grace?: unknown;
  /** Of its provider: which, and what its machines are. */
  kind?: string;
  /** It has a provider that could not be made here. */
  unread?: boolean;
  size?: string;
  memoryMb?: number;
  region?: string;
}

/** vCPUs of Cloud Run, and the GiB that go with them, from and to. */
const cloudRunSizes: Record<string, readonly [least: number, most: number]> = {
  "1": [0.5, 4],
  "2": [0.5, 8],
  "4": [2, 16],
  "6": [4, 24],
  "8": [4, 32],
};

export function sizesOf(
  platform: Platform,
  given: { size: string | undefined; memory: string | number | undefined },
): { size: string; memoryMb: number } {
  const memoryMb = given.memory === undefined ? undefined : megabytes(given.memory);
  if (platform === "fly") {
    const size = given.size ?? "performance-1x";
    return { size, memoryMb: guestOf(size, memoryMb).memory_mb };
  }
  if (platform === "cloud-run") return cloudRunSize(cpusOf(given.size ?? "1"), memoryMb);
  const size = cpusOf(given.size ?? "1");
  if (!(Number(size) > 0 && Number(size) <= 256)) refuse("size", size, "Use processors, such as 2 or 0.5");
  return { size, memoryMb: memoryMb ?? 2048 };
}

function cloudRunSize(size: string, memoryMb: number | undefined): { size: string; memoryMb: number } {
  const range = cloudRunSizes[size];
  if (!range) return refuse("size", size, `Use ${Object.keys(cloudRunSizes).join(", ")} vCPUs`);
  const memory = memoryMb ?? Math.max(2048, range[0] * 1024);
  if (memory < range[0] * 1024 || memory > range[1] * 1024)
    refuse("memory", `${memory}mb`, `With ${size} vCPU it is from ${range[0]}gb to ${range[1]}gb`);
  return { size, memoryMb: memory };
}

/** "2 vCPU" or "2 CPU", as facts have it, or "2". */
function cpusOf(size: string): string {
  return size.replace(/ ?v?CPUs?$/i, "");
}

/** "64gb", "512mb", "2048". */
function megabytes(given: string | number): number {
  const [, count, unit = "mb"] = /^(\d+(?:\.\d+)?) ?(mb|gb|mi|gi)?$/i.exec(String(given)) ?? [];
  const memory = Number(count) * (/^g/i.test(unit) ? 1024 : 1);
  return Number.isInteger(memory) && memory > 0
    ? memory
    : refuse("memory", String(given), 'Use megabytes or gigabytes, such as "512mb" or "64gb"');
}

/** As Fly and people write it. */
export function memoryWords(memoryMb: number): string {
  return memoryMb % 1024 === 0 ? `${memoryMb / 1024}gb` : `${memoryMb}mb`;
}

/** As Kubernetes and Cloud Run write it. */
export function memoryQuantity(memoryMb: number): string {
  return memoryMb % 1024 === 0 ? `${memoryMb / 1024}Gi` : `${memoryMb}Mi`;
}

function refuse(flag: string, value: string, remedy: string): never {
  throw new InvalidInput(`--${flag} ${JSON.stringify(value)} cannot be used`, { field: flag, remedy });
}
