// The machine's cache of bare clones, limited in bytes; the least recently used clones are removed.
import fs from "node:fs/promises";
import path from "node:path";
import type { Settings } from "../settings.ts";

interface CachedClone {
  folder: string;
  bytes: number;
  usedAt: number;
}

/** An unfinished clone older than this belongs to an attempt that died. */
const ABANDONED_MS = 6 * 3600_000;

/** Removes the least recently used clones until `fresh` fits. Clones used in the last `inUseMs` may be in use by other workers. */
export async function evictClones(
  { folder: cache, bytes: maxBytes }: NonNullable<Settings["cache"]>,
  fresh: string,
  inUseMs: number,
): Promise<void> {
  const clones: CachedClone[] = [];
  let total = await sizeOf(fresh);
  for (const name of await fs.readdir(cache).catch(() => [])) {
    const folder = path.join(cache, name);
    const found = await fs.stat(folder).catch(() => undefined);
    if (!found?.isDirectory() || folder === fresh) continue;
    if (/\.new$/.test(name)) {
      if (Date.now() - found.mtimeMs > ABANDONED_MS) await fs.rm(folder, { recursive: true, force: true });
      else total += await sizeOf(folder);
      continue;
    }
    if (/\.git$/.test(name)) clones.push({ folder, bytes: await sizeOf(folder), usedAt: found.mtimeMs });
  }
  total += clones.reduce((sum, clone) => sum + clone.bytes, 0);
  for (const clone of clones.sort((a, b) => a.usedAt - b.usedAt)) {
    if (total <= maxBytes || Date.now() - clone.usedAt < inUseMs) break;
    await fs.rm(clone.folder, { recursive: true, force: true });
    total -= clone.bytes;
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
