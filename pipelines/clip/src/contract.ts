// The contract of a clip: input, output and policies of its job. No Node and no database, because the page imports it.
import { pipeline } from "stillwake/contract";
import { z } from "zod";
import { CAPTIONS, CUTS, FORMATS } from "./model.ts";

const input = z.object({
  source: z
    .union([
      z.object({ url: z.url({ protocol: /^https?$/ }).max(2000) }),
      z.object({ upload: z.uuid(), size: z.int().min(1), sha256: z.string().regex(/^[0-9a-f]{64}$/) }),
    ])
    .meta({ title: "Source", description: "A URL, or an uploaded file with its size and hash." }),
  start: z.number().min(0).meta({ title: "Start", description: "In seconds." }),
  end: z.number().min(0).meta({ title: "End", description: "In seconds." }),
  captions: z.enum(CAPTIONS).meta({ title: "Captions" }),
  format: z.enum(FORMATS).meta({ title: "Format" }),
  cut: z.enum(CUTS).meta({ title: "Cut" }),
});

const output = z.object({
  file: z.string(),
  duration: z.number(),
  width: z.number(),
  height: z.number(),
  size: z.number(),
  sha256: z.string(),
  hasAudio: z.boolean(),
  encoded: z.boolean(),
  captions: z.enum(CAPTIONS),
});

export type Input = z.output<typeof input>;
export type Output = z.output<typeof output>;

/** Failures that another attempt may not have. All other codes fail the job at once, whatever attempts remain. */
export const RETRYABLE = [
  "STORAGE_UPLOAD_FAILED",
  "YTDLP_TIMEOUT",
  "CLIP_TIMEOUT",
  "CLIP_EMPTY",
  "UPSTREAM_FAILURE",
  "INTERNAL_TRANSIENT",
] as const;

const MAX_ATTEMPTS = 3;

export const clip = pipeline("clip", {
  input,
  output,
  pool: "clip",
  retry: {
    attempts: MAX_ATTEMPTS,
    // A crash is an attempt like any other: the last one fails as RETRIES_EXHAUSTED.
    crashes: 1000,
    initial: "2s",
    max: "2m",
    exhausted: "The clip failed after {attempts} attempts (machine crash or timeout)",
  },
  failures: { ...Object.fromEntries(RETRYABLE.map((code) => [code, "retry" as const])), "*": "fatal" },
  // More than the sum of the steps' limits, so that a slow step fails with its own message.
  timeout: "4h",
  silence: "5m",
  // How long the file can be played, and the log read.
  keep: { completed: "365d", failed: "30d", cancelled: "30d" },
});
