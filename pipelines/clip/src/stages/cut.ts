// The stage "clip": cuts the range out of the source with ffmpeg. By stream copy if the cut falls on a key frame, or may be moved to
// one, and the codecs suit the format; else the range is encoded. The result is checked before it gets its final name.
import fs from "node:fs/promises";
import path from "node:path";
import { ExecError, type StepHandle } from "stillwake/worker";
import type { Input } from "../contract.ts";
import { clipError, execError, isDiskFull } from "../failures.ts";
import { findKeyFrame, type Media, probe, SAFE_INPUT } from "../media/probe.ts";
import type { Programs } from "../media/programs.ts";
import { progressReader } from "../media/progress.ts";
import type { Format, Stage } from "../model.ts";
import type { Limits } from "../settings.ts";

export interface CutOptions {
  /** Names the work file and the final file. */
  id: string;
  input: Pick<Input, "start" | "end" | "format" | "captions" | "cut">;
  source: string;
  media: Media;
  programs: Programs;
  limits: Limits;
}

export interface Cut {
  /** In the scratch directory. */
  file: string;
  media: Media;
  encoded: boolean;
  /** Shorter than requested, because the source ends before. */
  shortened: boolean;
}

/** Codecs that a format takes without encoding. */
const COPYABLE: Partial<Record<Format, { video: RegExp; audio: RegExp }>> = {
  mp4: { video: /^(h264|hevc|av1|mpeg4)$/, audio: /^(aac|mp3|ac3|eac3|alac)$/ },
  webm: { video: /^(vp8|vp9|av1)$/, audio: /^(opus|vorbis)$/ },
};

/** Burned captions are drawn later, on a picture that is encoded once more: in mp4, with little loss. */
export function cutFormat({ format, captions }: Pick<Input, "format" | "captions">): Format {
  return format === "gif" && captions === "burned" ? "mp4" : format;
}

export async function cutClip(step: StepHandle, options: CutOptions): Promise<Cut> {
  const { id, input, source, media, programs, limits } = options;
  const { start } = input;
  if (start >= media.duration - 0.05) {
    throw clipError("RANGE_PAST_END", { start: formatSeconds(start), end: formatSeconds(media.duration) });
  }
  const end = Math.min(input.end, media.duration);
  const shortened = input.end - end > 0.5;
  if (shortened)
    step.log.warning(`The video ends at ${formatSeconds(media.duration)} s - the clip is shorter than requested`);
  const format = cutFormat(input);
  const work = `${id}-work.${format}`;
  const cut = async (from: number, args: readonly string[]) => {
    const seconds = end - from;
    // Half a millisecond, so that rounding does not select the key frame before.
    const range = ["-ss", String(from + 0.0005), ...SAFE_INPUT, "-i", `file:${source}`, "-t", String(seconds)];
    await runFfmpeg(step, programs, [...range, ...args, `file:${work}`], {
      seconds,
      verb: "Cutting",
      stage: "clip",
      limits,
    });
    const made = await checkResult(step, {
      programs,
      limits,
      file: work,
      seconds,
      stage: "clip",
      fps: media.framesPerSecond,
    });
    return { made, begins: made.duration > seconds + 0.5 ? "too early" : "in time" };
  };
  const from = await copyFrom(step, options, format);
  let copied = from === undefined ? undefined : await cut(from, copying(format));
  if (copied?.begins === "too early") {
    // Old versions of ffmpeg seek to an earlier key frame in files with B-frames.
    step.log.info("The copy does not begin at the key frame - encoding instead");
    copied = undefined;
  }
  const { made } = copied ?? (await cut(start, encoding(format, input)));
  const file = `${id}-final.${format}`;
  const scratch = await step.scratch();
  await fs.rename(path.join(scratch, work), path.join(scratch, file));
  return { file, media: made, encoded: copied === undefined, shortened };
}

/** Where a copy begins; undefined: it must be encoded. */
async function copyFrom(step: StepHandle, options: CutOptions, format: Format): Promise<number | undefined> {
  const { input, media, source, programs, limits } = options;
  const codecs = COPYABLE[format];
  const suits =
    codecs?.video.test(media.videoCodec) && (media.audioCodec === null || codecs.audio.test(media.audioCodec));
  if (!suits || input.captions === "burned") return undefined;
  const { at, exact } = await findKeyFrame(step, programs, source, input.start, limits.silenceMs);
  if (!exact && input.cut === "exact") return undefined;
  step.log.info(exact ? "The cut is on a key frame - copying" : `Copying from the key frame at ${formatSeconds(at)} s`);
  return at;
}

const STREAMS = ["-map", "0:v:0", "-map", "0:a:0?", "-sn", "-dn", "-map_metadata", "-1", "-map_chapters", "-1"];

function copying(format: Format): string[] {
  const flags = format === "mp4" ? ["-movflags", "+faststart"] : [];
  return [...STREAMS, "-c", "copy", "-avoid_negative_ts", "make_zero", ...flags, "-f", format];
}

/** Even width and height, which the codecs need. */
const EVEN = "scale=trunc(iw/2)*2:trunc(ih/2)*2";

export function encoding(format: Format, { captions }: { captions: string }, filter?: string): string[] {
  const picture = filter ? `${filter},${EVEN}` : EVEN;
  if (format === "gif") {
    const scaled = `${filter ? `${filter},` : ""}fps=12,scale='min(480,iw)':-2:flags=lanczos`;
    // A palette per frame: one for all frames would keep all of them in memory until the last.
    const palette = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1";
    return ["-an", "-filter_complex", `[0:v:0]${scaled},${palette}`, "-f", "gif"];
  }
  if (format === "webm") {
    const video = [
      "-c:v",
      "libvpx-vp9",
      "-deadline",
      "realtime",
      "-cpu-used",
      "5",
      "-row-mt",
      "1",
      "-crf",
      "33",
      "-b:v",
      "0",
    ];
    return [
      ...STREAMS,
      "-vf",
      picture,
      ...video,
      "-pix_fmt",
      "yuv420p",
      "-c:a",
      "libopus",
      "-b:a",
      "96k",
      "-f",
      "webm",
    ];
  }
  const quality = captions === "burned" && !filter ? "16" : "21";
  const video = ["-c:v", "libx264", "-preset", "veryfast", "-crf", quality, "-pix_fmt", "yuv420p"];
  return [...STREAMS, "-vf", picture, ...video, "-c:a", "aac", "-b:a", "128k", "-movflags", "+faststart", "-f", "mp4"];
}

export interface FfmpegRun {
  /** Expected length of the output, for the progress. */
  seconds: number;
  verb: string;
  stage: Stage;
  limits: Limits;
}

export async function runFfmpeg(
  step: StepHandle,
  { ffmpeg }: Programs,
  args: readonly string[],
  { seconds, verb, stage, limits }: FfmpegRun,
): Promise<void> {
  const quiet = ["-hide_banner", "-nostdin", "-v", "error", "-progress", "pipe:1", "-nostats", "-y"];
  try {
    const { stderr } = await step.exec(ffmpeg, [...quiet, "-max_pixels", String(limits.pixels), ...args], {
      log: "stderr",
      level: "warning",
      timeout: `${stage === "clip" ? limits.clipMs : limits.finalizeMs}ms`,
      silence: `${limits.silenceMs}ms`,
      progress: progressReader(seconds, verb),
    });
    // It exits with 0 if only the end of the file could not be written.
    if (isDiskFull(stderr)) throw clipError("INTERNAL_TRANSIENT", { reason: "its disk is full" });
  } catch (error) {
    throw error instanceof ExecError ? execError(error, stage) : error;
  }
}

export interface Expected {
  programs: Programs;
  limits: Limits;
  file: string;
  seconds: number;
  stage: Stage;
  fps: number;
}

/** ffmpeg exits with 0 for a truncated source and for an empty range: only the file tells. */
export async function checkResult(step: StepHandle, expected: Expected): Promise<Media> {
  const { programs, limits, file, seconds, stage, fps } = expected;
  const found = await fs.stat(path.join(await step.scratch(), file)).catch(() => undefined);
  if (!found || found.size === 0) throw clipError("CLIP_EMPTY");
  const made = await probe(step, programs, file, limits, stage).catch((error) => {
    throw error?.code === "NOT_A_VIDEO" || error?.code === "SOURCE_TRUNCATED"
      ? clipError("CLIP_EMPTY", {}, error)
      : error;
  });
  if (made.duration < seconds - Math.max(0.5, 3 / fps)) {
    const reason = `only ${formatSeconds(made.duration)} of ${formatSeconds(seconds)} s could be read`;
    throw clipError("SOURCE_TRUNCATED", { reason });
  }
  return made;
}

export function formatSeconds(seconds: number): string {
  return String(Math.round(seconds * 10) / 10);
}
