// Every failure of a clip, by code: its sentence for people, and whether another attempt may succeed. Codes that are not in RETRYABLE
// of the contract fail the job at once.
import { isDatabaseError } from "@stillwake/kit/database";
import { UserError, userError } from "@stillwake/kit/failures";
import { Fatal, StillwakeError } from "stillwake";
import { ExecError, Stopped } from "stillwake/worker";
import { RETRYABLE } from "./contract.ts";
import type { Stage } from "./model.ts";

const FAILURES = {
  SOURCE_NOT_FOUND: "The video was not found (404) - check the address",
  SOURCE_FORBIDDEN: "The server does not allow access to this video - use an address that needs no sign-in",
  SOURCE_BLOCKED: "Videos cannot be fetched from this address - use a public address, or upload the file",
  SOURCE_TOO_LARGE: "The video is larger than {limit} - use a smaller one",
  SOURCE_PLAYLIST: "This address is a playlist and not a video - use the address of one video file",
  SOURCE_GONE: "The uploaded file was deleted - upload it again",
  SOURCE_CHANGED: "The stored source does not have its size and hash - upload it again",
  SOURCE_TRUNCATED: "The video is incomplete: {reason} - upload or link the whole file",
  SOURCE_DAMAGED: "The video cannot be decoded - check that it plays, or convert it first",
  NOT_A_VIDEO: "The source is not a video that can be read - use a file such as mp4, webm, mkv or mov",
  PIXELS_TOO_MANY: "The picture has {size} pixels, which is too large - use a smaller one",
  RANGE_PAST_END: "The range begins at {start} s but the video ends at {end} s - choose an earlier range",
  PAGE_UNSUPPORTED: "No video was found on this page - use the address of a video file, or upload the file",
  YTDLP_MISSING: "This address is a page, and yt-dlp is not installed on the worker - use the address of a video file",
  YTDLP_OLD:
    "This address is a page, and yt-dlp {version} on the worker is not safe for pages - the operator must install {minimum} or later",
  YTDLP_FAILED: "yt-dlp could not read this page - a newer version of yt-dlp may, or upload the file",
  FFMPEG_MISSING:
    "ffmpeg is not installed on the worker - install ffmpeg, or the npm packages @ffmpeg-installer/ffmpeg and @ffprobe-installer/ffprobe",
  STORAGE_UPLOAD_FAILED: "The store of files is not available",
  STORAGE_DENIED: "The store refuses this worker - the operator must check its address and credentials",
  YTDLP_TIMEOUT: "yt-dlp did not finish in time",
  CLIP_TIMEOUT: "The clip was not cut in time",
  CLIP_EMPTY: "ffmpeg wrote an empty file",
  UPSTREAM_FAILURE: "The server of the video does not answer as it should ({reason})",
  INTERNAL_TRANSIENT: "The worker had a temporary problem ({reason})",
  INTERNAL: "The clip failed because of an internal error - see the log of the worker",
} as const;

export type FailureCode = keyof typeof FAILURES;

export function clipError(
  code: FailureCode,
  values: Record<string, string | number> = {},
  cause?: unknown,
): UserError | Fatal {
  const message = FAILURES[code].replaceAll(/\{(\w+)\}/g, (_, name) => String(values[name] ?? "unknown"));
  return userError(message, { code, fatal: !isRetryable(code), ...(cause !== undefined && { cause }) });
}

export function isRetryable(code: string): boolean {
  return (RETRYABLE as readonly string[]).includes(code);
}

/** Which code an overrun of a stage's time or silence has. */
const TIMEOUTS: Record<Stage, FailureCode> = {
  resolve: "UPSTREAM_FAILURE",
  clip: "CLIP_TIMEOUT",
  upload: "STORAGE_UPLOAD_FAILED",
  asr: "CLIP_TIMEOUT",
  finalize: "CLIP_TIMEOUT",
};

/** An error of any origin as one of the above. Errors of the runtime that stop the attempt are returned as they are. */
export function toClipError(error: unknown, stage: Stage): unknown {
  if (error instanceof UserError || error instanceof Fatal || error instanceof Stopped) return error;
  const { code = "", name = "" } = (error ?? {}) as { code?: unknown; name?: string };
  if (typeof code !== "string" || name === "Suspended") return error;
  if (code === "STEP_TIMEOUT" || code === "STEP_SILENT")
    return clipError(TIMEOUTS[stage], { reason: "too slow" }, error);
  if (code === "STORE_UNAVAILABLE" || code === "ARTIFACT_CHANGED") return clipError("STORAGE_UPLOAD_FAILED", {}, error);
  if (/^(STORE_(DENIED|MISSING|REFUSED)|NO_STORE|ARTIFACT_TOO_LARGE)$/.test(code))
    return clipError("STORAGE_DENIED", {}, error);
  if (code === "EMPTY_ARTIFACT") return clipError("CLIP_EMPTY", {}, error);
  if (/^(DISK_FULL|ENOSPC|EDQUOT)$/.test(code)) {
    return clipError("INTERNAL_TRANSIENT", { reason: "its disk is full" }, error);
  }
  if (error instanceof ExecError) return execError(error, stage);
  if (code === "DATABASE_UNAVAILABLE" || isDatabaseError(error)) {
    return clipError("INTERNAL_TRANSIENT", { reason: "the database is not available" }, error);
  }
  if (error instanceof StillwakeError && error.retryable) {
    return clipError("INTERNAL_TRANSIENT", { reason: error.code }, error);
  }
  return clipError("INTERNAL", {}, error);
}

/** A program that failed without a more specific reason. */
export function execError(error: ExecError, stage: Stage): UserError | Fatal {
  const text = error.stderr.slice(-20_000);
  if (error.kind === "missing") return clipError("FFMPEG_MISSING", {}, error);
  if (error.kind === "timeout" || error.kind === "silence")
    return clipError(TIMEOUTS[stage], { reason: "too slow" }, error);
  if (error.kind === "oom") return clipError("INTERNAL_TRANSIENT", { reason: "its memory ran out" }, error);
  if (error.kind === "signal") return clipError("INTERNAL_TRANSIENT", { reason: "a program was stopped" }, error);
  if (isDiskFull(text)) {
    return clipError("INTERNAL_TRANSIENT", { reason: "its disk is full" }, error);
  }
  if (/Cannot allocate memory/.test(text))
    return clipError("INTERNAL_TRANSIENT", { reason: "its memory ran out" }, error);
  return clipError("SOURCE_DAMAGED", {}, error);
}

export function isDiskFull(stderr: string): boolean {
  return /No space left on device|Disk quota exceeded/.test(stderr);
}
