// The folder of bare clones of this machine: so many bytes, those that were used last. What cannot be kept is simply cloned again.
import fs from "node:fs/promises";
import path from "node:path";
import type { Settings } from "../settings.ts";

interface Kept {
  place: string;
  bytes: number;
  usedAt: number;
}

/** Something that was begun and is so old belongs to an attempt that died. */
const ABANDONED_MS = 6 * 3600_000;

/** Removes what was not used for longest until this one fits in. What was used in the last `inUseMs` may still be: other workers of this machine have the same folder. */
export async function makeRoom(
  { folder, bytes }: NonNullable<Settings["cache"]>,
  fresh: string,
  inUseMs: number,
): Promise<void> {
  const kept: Kept[] = [];
  let all = await sizeOf(fresh);
  for (const name of await fs.readdir(folder).catch(() => [])) {
    const place = path.join(folder, name);
    const found = await fs.stat(place).catch(() => undefined);
    if (!found?.isDirectory() || place === fresh) continue;
    if (/\.new$/.test(name)) {
      if (Date.now() - found.mtimeMs > ABANDONED_MS) await fs.rm(place, { recursive: true, force: true });
      else all += await sizeOf(place);
      continue;
    }
    if (/\.git$/.test(name)) kept.push({ place, bytes: await sizeOf(place), usedAt: found.mtimeMs });
  }
  all += kept.reduce((sum, one) => sum + one.bytes, 0);
  for (const one of kept.sort((a, b) => a.usedAt - b.usedAt)) {
    if (all <= bytes || Date.now() - one.usedAt < inUseMs) break;
    await fs.rm(one.place, { recursive: true, force: true });
    all -= one.bytes;
  }
}

async function sizeOf(folder: string): Promise<number> {
  let bytes = 0;
  for (const entry of await fs.readdir(folder, { recursive: true, withFileTypes: true }).catch(() => [])) {
    if (!entry.isFile()) continue;
    bytes += (await fs.lstat(path.join(entry.parentPath ?? entry.path, entry.name)).catch(() => undefined))?.size ?? 0;
  }
  return bytes;
}
