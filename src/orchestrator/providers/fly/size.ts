// What Fly's machines can be: sizes by their names, and how much memory goes with them.
import { InvalidInput } from "../../../errors.ts";

export interface Guest {
  cpu_kind: "shared" | "performance";
  cpus: number;
  memory_mb: number;
}

const SIZES = {
  shared: { counts: [1, 2, 4, 6, 8], leastMb: 256, mostMb: 2048 },
  performance: { counts: [1, 2, 4, 6, 8, 10, 12, 14, 16], leastMb: 2048, mostMb: 8192 },
};
const STEP_MB = 256;

/** "performance-8x" or "shared-cpu-2x", and what memory is wanted: without a wish the least that there is. */
export function guestOf(size: string, memoryMb?: number): Guest {
  const [, word, count] = /^(shared-cpu|performance)-(\d+)x$/.exec(size) ?? [];
  const kind = word === "performance" ? "performance" : "shared";
  const { counts, leastMb, mostMb } = SIZES[kind];
  const cpus = Number(count);
  if (!word || !counts.includes(cpus)) {
    throw new InvalidInput(`Fly has no machines of size ${JSON.stringify(size)}`, {
      field: "size",
      remedy: `Use one of ${names("shared-cpu", SIZES.shared.counts)}, ${names("performance", SIZES.performance.counts)}`,
    });
  }
  const memory = memoryMb ?? leastMb * cpus;
  if (memory % STEP_MB !== 0 || memory < leastMb * cpus || memory > mostMb * cpus) {
    throw new InvalidInput(`Fly has no ${size} with ${memoryMb} MB of memory`, {
      field: "memoryMb",
      remedy: `Use from ${leastMb * cpus} to ${mostMb * cpus}, in steps of ${STEP_MB}`,
    });
  }
  return { cpu_kind: kind, cpus, memory_mb: memory };
}

/** For people: "64 GB", "256 MB". */
export function memoryWords(mb: number): string {
  return mb % 1024 === 0 ? `${mb / 1024} GB` : `${mb} MB`;
}

function names(word: string, counts: number[]): string {
  return counts.map((count) => `${word}-${count}x`).join(", ");
}
