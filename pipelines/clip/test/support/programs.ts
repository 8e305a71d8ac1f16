// The programs of the tests: ffmpeg and ffprobe of Debian, or of the npm packages; yt-dlp of Debian only.
import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import { findTool } from "@stillwake/kit/tools";
import { install } from "../../../../test/support/processes/debian.ts";
import { findPrograms, type Programs } from "../../src/media/programs.ts";
import { readSettings } from "../../src/settings.ts";

/** The programs, or the reason why they are not available. */
export async function programsForTests(): Promise<Programs | string> {
  try {
    return await findPrograms(readSettings({ PATH: process.env.PATH }));
  } catch (error) {
    return (error as Error).message;
  }
}

/** Its path, or the reason why it is not available. */
export async function ytDlpForTests(): Promise<{ program: string } | string> {
  const known = await findTool("yt-dlp", process.env.PATH ?? "");
  if (known) return { program: known };
  if (process.getuid?.() !== 0) return "yt-dlp is not installed, and only root may install packages";
  try {
    install("yt-dlp");
  } catch (error) {
    return `yt-dlp is not installed, and apt-get could not: ${(error as Error).message}`;
  }
  const found = await findTool("yt-dlp", process.env.PATH ?? "");
  return found ? { program: found } : "yt-dlp was installed but is not on the PATH";
}

export interface VideoOptions {
  seconds?: number;
  audio?: boolean;
  /** Key frames every n frames, at 25 per second. Default 25. */
  gop?: number;
  size?: string;
  extra?: string[];
}

/** Makes a test picture with a tone. The format follows the extension of the file. */
export function makeVideo({ ffmpeg }: Programs, file: string, options: VideoOptions = {}): Buffer {
  const { seconds = 6, audio = true, gop = 25, size = "320x180", extra = [] } = options;
  const sound = audio ? ["-f", "lavfi", "-i", `sine=frequency=440:duration=${seconds}`, "-c:a", "aac"] : [];
  const codec = /\.(mp4|mkv|mov)$/.test(file) ? ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"] : [];
  const faststart = /\.(mp4|mov)$/.test(file) ? ["-movflags", "+faststart"] : [];
  const picture = ["-f", "lavfi", "-i", `testsrc=size=${size}:rate=25:duration=${seconds}`];
  const args = ["-v", "error", "-y", ...picture, ...sound, ...codec, "-g", String(gop), ...faststart, ...extra, file];
  execFileSync(ffmpeg, args, { stdio: ["ignore", "ignore", "inherit"] });
  return fs.readFileSync(file);
}

/** Duration, streams and picture of a file. */
export function inspect({ ffprobe }: Programs, file: string): { duration: number; streams: string[]; width: number } {
  const entries = "format=duration:stream=codec_type,codec_name,width";
  const { stdout } = spawnSync(ffprobe, ["-v", "error", "-show_entries", entries, "-of", "json", file], {
    encoding: "utf8",
  });
  const { format, streams } = JSON.parse(stdout) as {
    format: { duration: string };
    streams: { codec_type: string; codec_name: string; width?: number }[];
  };
  return {
    duration: Number(format.duration),
    streams: streams.map((one) => `${one.codec_type} ${one.codec_name}`).sort(),
    width: streams.find((one) => one.width)?.width ?? 0,
  };
}
