// What the APIs of providers tell, in our own terms: times, signals and sizes of memory.
import os from "node:os";

export function dateOf(text: string | undefined): Date | undefined {
  const date = text === undefined ? undefined : new Date(text);
  return date && !Number.isNaN(date.getTime()) ? date : undefined;
}

/** 9 is "SIGKILL". */
export function signalOf(number: number): string | undefined {
  return Object.entries(os.constants.signals).find(([, value]) => value === number)?.[0];
}

/** "4096Mi" or "4Gi", as limits are written, is "4 GB". */
export function memoryOf(limit: string): string {
  const [, amount, unit] = /^(\d+(?:\.\d+)?)(Mi|Gi|M|G)$/.exec(limit) ?? [];
  if (amount === undefined) return limit;
  const mb = Number(amount) * (unit!.startsWith("G") ? 1024 : 1);
  return mb < 1024 ? `${mb} MB` : `${Number((mb / 1024).toFixed(1))} GB`;
}
