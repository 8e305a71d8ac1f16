// Fly's machine sizes, and the memory each one allows.
import { InvalidInput } from "../../../errors.ts";

export interface Guest {
  cpu_kind: "shared" | "performance";
  cpus: number;
  memory_mb: number;
}

const SIZES = {
  shared: { counts: [1, 2, 4, 6, 8], minMb: 256, maxMb: 2048 },
  performance: { counts: [1, 2, 4, 6, 8, 10, 12, 14, 16], minMb: 2048, maxMb: 8192 },
};
const STEP_MB = 256;

/** `size`: "performance-8x" or "shared-cpu-2x". Memory defaults to the minimum of the size. */
export function readGuest(size: string, memoryMb?: number): Guest {
  const [, prefix, count] = /^(shared-cpu|performance)-(\d+)x$/.exec(size) ?? [];
  const kind = prefix === "performance" ? "performance" : "shared";
  const { counts, minMb, maxMb } = SIZES[kind];
  const cpus = Number(count);
  if (!prefix || !counts.includes(cpus)) {
    throw new InvalidInput(`Fly has no machines of size ${JSON.stringify(size)}`, {
      field: "size",
      remedy: `Use one of ${names("shared-cpu", SIZES.shared.counts)}, ${names("performance", SIZES.performance.counts)}`,
    });
  }
  const memory = memoryMb ?? minMb * cpus;
  if (memory % STEP_MB !== 0 || memory < minMb * cpus || memory > maxMb * cpus) {
    throw new InvalidInput(`Fly has no ${size} with ${memoryMb} MB of memory`, {
      field: "memoryMb",
      remedy: `Use ${minMb * cpus} to ${maxMb * cpus}, in steps of ${STEP_MB}`,
    });
  }
  return { cpu_kind: kind, cpus, memory_mb: memory };
}

/** "64 GB", "256 MB". */
export function formatMemory(mb: number): string {
  return mb % 1024 === 0 ? `${mb / 1024} GB` : `${mb} MB`;
}

function names(prefix: string, counts: number[]): string {
  return counts.map((count) => `${prefix}-${count}x`).join(", ");
}
