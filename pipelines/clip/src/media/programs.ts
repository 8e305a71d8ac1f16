// Finds ffmpeg and ffprobe: on the PATH, else in the npm packages @ffmpeg-installer and @ffprobe-installer.
import { randomUUID } from "node:crypto";
import fs from "node:fs/promises";
import path from "node:path";
import { findTool, isProgram, packageDirectory } from "@stillwake/kit/tools";
import { clipError } from "../failures.ts";
import type { Settings } from "../settings.ts";

export interface Programs {
  ffmpeg: string;
  ffprobe: string;
}

type Places = Pick<Settings, "toolPath" | "toolCache">;

export async function findPrograms(places: Places): Promise<Programs> {
  const [ffmpeg, ffprobe] = await Promise.all([findProgram("ffmpeg", places), findProgram("ffprobe", places)]);
  if (!ffmpeg || !ffprobe) throw clipError("FFMPEG_MISSING");
  return { ffmpeg, ffprobe };
}

async function findProgram(name: keyof Programs, { toolPath, toolCache }: Places): Promise<string | undefined> {
  const onPath = await findTool(name, toolPath);
  if (onPath) return onPath;
  const home = await packageDirectory(`@${name}-installer/${process.platform}-${process.arch}`, import.meta.url);
  if (!home) return undefined;
  const packaged = path.join(home, process.platform === "win32" ? `${name}.exe` : name);
  if (await isProgram(packaged)) return packaged;
  return (await fs.stat(packaged).catch(() => undefined)) && copyExecutable(packaged, toolCache);
}

/** npm without install scripts leaves ffprobe without the right to run it. The package itself is not changed. */
async function copyExecutable(file: string, cache: string): Promise<string> {
  const { size } = await fs.stat(file);
  const copy = path.join(cache, `${path.basename(file)}-${size}`);
  if (await isProgram(copy)) return copy;
  await fs.mkdir(cache, { recursive: true, mode: 0o700 });
  const part = `${copy}.${randomUUID()}`;
  try {
    await fs.copyFile(file, part, fs.constants.COPYFILE_FICLONE);
    await fs.chmod(part, 0o755);
    await fs.rename(part, copy);
  } finally {
    await fs.rm(part, { force: true });
  }
  return copy;
}
