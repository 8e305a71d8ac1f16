// What ffprobe reports about a file. Input is untrusted: only these containers are opened and only local files are read, so that a
// playlist or a concat script cannot name other files or addresses.
import type { StepHandle } from "stillwake/worker";
import { ExecError } from "stillwake/worker";
import { z } from "zod";
import { clipError, execError } from "../failures.ts";
import type { Stage } from "../model.ts";
import type { Limits } from "../settings.ts";
import type { Programs } from "./programs.ts";

/** Without playlists (hls, dash, concat), devices, image sequences and protocols such as rtp and sdp. */
const CONTAINERS =
  "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,flv,mpegts,mpeg,mpegvideo,asf,ogg,gif,wav,mp3,aac,flac,ivf,mxf,dv,m4v,h264,hevc,av1,obu";

/** Before each -i of ffmpeg, and for ffprobe. */
export const SAFE_INPUT = ["-protocol_whitelist", "file,pipe", "-format_whitelist", CONTAINERS];

export interface Media {
  /** Seconds. */
  duration: number;
  width: number;
  height: number;
  videoCodec: string;
  /** Null: no sound. */
  audioCodec: string | null;
  framesPerSecond: number;
}

const text = z.string().max(100).optional();
const report = z.object({
  format: z.object({ duration: text }).optional(),
  streams: z
    .array(
      z.object({
        codec_type: text,
        codec_name: text,
        width: z.number().optional(),
        height: z.number().optional(),
        duration: text,
        avg_frame_rate: text,
        disposition: z.object({ attached_pic: z.number().optional() }).optional(),
      }),
    )
    .max(1000)
    .default([]),
});

/** `file` is relative to the scratch directory. */
export async function probe(
  step: StepHandle,
  { ffprobe }: Programs,
  file: string,
  { pixels, silenceMs }: Pick<Limits, "pixels" | "silenceMs">,
  stage: Stage,
): Promise<Media> {
  const entries =
    "format=duration:stream=codec_type,codec_name,width,height,duration,avg_frame_rate:stream_disposition=attached_pic";
  const args = ["-v", "error", ...SAFE_INPUT, "-max_pixels", String(pixels), "-show_entries", entries, "-of", "json"];
  const { stdout } = await step
    .exec(ffprobe, [...args, `file:${file}`], { log: "none", timeout: `${silenceMs}ms` })
    .catch((error) => {
      throw error instanceof ExecError ? explainProbe(error, stage) : error;
    });
  const parsed = report.safeParse(parseJson(stdout));
  if (!parsed.success) throw clipError("NOT_A_VIDEO");
  const { format, streams } = parsed.data;
  const video = streams.find((one) => one.codec_type === "video" && one.disposition?.attached_pic !== 1);
  const audio = streams.find((one) => one.codec_type === "audio");
  if (!video?.width || !video.height) throw clipError("NOT_A_VIDEO");
  if (video.width * video.height > pixels)
    throw clipError("PIXELS_TOO_MANY", { size: `${video.width}x${video.height}` });
  const duration = Number(format?.duration ?? video.duration ?? Number.NaN);
  if (!Number.isFinite(duration) || duration < 0) throw clipError("NOT_A_VIDEO");
  const [frames = 0, seconds = 1] = (video.avg_frame_rate ?? "").split("/").map(Number);
  return {
    duration: Math.round(duration * 1000) / 1000,
    width: video.width,
    height: video.height,
    videoCodec: video.codec_name ?? "unknown",
    audioCodec: audio ? (audio.codec_name ?? "unknown") : null,
    framesPerSecond: frames > 0 && seconds > 0 ? frames / seconds : 25,
  };
}

/** Whether a cut at this time begins with a key frame; otherwise the time of the last one before it. */
export async function findKeyFrame(
  step: StepHandle,
  { ffprobe }: Programs,
  file: string,
  start: number,
  timeoutMs: number,
): Promise<{ at: number; exact: boolean }> {
  // Key frames are rarely more than ten seconds apart.
  const interval = `${Math.max(start - 30, 0)}%${start + 0.1}`;
  const args = ["-v", "error", ...SAFE_INPUT, "-select_streams", "v:0", "-show_entries", "packet=pts_time,flags"];
  const { stdout } = await step.exec(
    ffprobe,
    [...args, "-read_intervals", interval, "-of", "csv=p=0", `file:${file}`],
    { log: "none", timeout: `${timeoutMs}ms` },
  );
  const times = stdout
    .split("\n")
    .flatMap((line) => /^([\d.]+),K/.exec(line)?.[1] ?? [])
    .map(Number)
    .filter((time) => time <= start + 0.005);
  const at = Math.max(0, ...times);
  return { at, exact: Math.abs(at - start) <= 0.005 && times.length > 0 };
}

function explainProbe(error: ExecError, stage: Stage) {
  if (error.kind !== "exit") return execError(error, stage);
  const { stderr } = error;
  if (/moov atom not found|End of file|partial file/.test(stderr)) {
    return clipError("SOURCE_TRUNCATED", { reason: "its end is missing" }, error);
  }
  const picture = /Picture size (\d+x\d+)|image size \(?(\d+x\d+)/.exec(stderr);
  if (picture) return clipError("PIXELS_TOO_MANY", { size: picture[1] ?? picture[2] ?? "too many" }, error);
  return clipError("NOT_A_VIDEO", {}, error);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
