// Writes the sound of a media file as 16 kHz mono PCM into a file, and notes where it is silent. A file and not a stream:
// segments are read from it one at a time, so memory does not depend on the length (one hour is 115 MB on disk).
import { spawn } from "node:child_process";
import fs from "node:fs/promises";
import readline from "node:readline";
import { userError } from "@stillwake/kit/failures";
import { SAFE_INPUT } from "../media/probe.ts";
import { environmentOfPrograms } from "../settings.ts";

export const SAMPLE_RATE = 16_000;
const BYTES_PER_SAMPLE = 2;
/** The gap before a late audio track is filled, so that a position in the PCM file is a time of the media file. */
const FILTERS = [
  `aresample=${SAMPLE_RATE}:async=1:first_pts=0`,
  "aformat=channel_layouts=mono",
  "silencedetect=noise=-35dB:d=0.5",
];
/** At the start of a line: metadata of the file is printed indented. Times may have an exponent. */
const SILENCE = /^\[silencedetect @ \w+\] silence_(start|end): (-?\d[\d.]*(?:e[-+]\d+)?)/;
const NO_AUDIO = /does not contain any stream|matches no streams/;

/** In seconds. */
export interface Span {
  start: number;
  end: number;
}

export interface Audio {
  seconds: number;
  silences: Span[];
  /** Samples from -1 to 1. */
  read(span: Span): Promise<Float32Array>;
  /** Removes the file. */
  close(): Promise<void>;
}

/** `pcm`: the file to write. It is removed by close(), and on failure. */
export async function extractAudio(
  source: string,
  { ffmpeg, pcm, signal }: { ffmpeg: string; pcm: string; signal?: AbortSignal | undefined },
): Promise<Audio> {
  const remove = () => fs.rm(pcm, { force: true });
  try {
    const bounds = await runFfmpeg(ffmpeg, source, pcm, signal);
    const file = await fs.open(pcm);
    const seconds = (await file.stat()).size / BYTES_PER_SAMPLE / SAMPLE_RATE;
    return {
      seconds,
      silences: bounds.map(({ start, end }) => ({ start: Math.max(start, 0), end: Math.min(end, seconds) })),
      async read({ start, end }) {
        const first = Math.round(start * SAMPLE_RATE);
        const integers = new Int16Array(Math.max(Math.round(end * SAMPLE_RATE) - first, 0));
        const { bytesRead } = await file.read(integers, 0, integers.byteLength, first * BYTES_PER_SAMPLE);
        return Float32Array.from(integers.subarray(0, bytesRead / BYTES_PER_SAMPLE), (value) => value / 32_768);
      },
      async close() {
        await file.close();
        await remove();
      },
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** Returns the silences. One that lasts to the end of the file ends at Infinity: older versions do not report its end. */
async function runFfmpeg(ffmpeg: string, source: string, pcm: string, signal?: AbortSignal): Promise<Span[]> {
  const args = ["-nostdin", "-hide_banner", "-nostats", "-y", ...SAFE_INPUT, "-i", `file:${source}`];
  args.push("-map", "0:a:0?", "-af", FILTERS.join(","), "-c:a", "pcm_s16le", "-f", "s16le", `file:${pcm}`);
  signal?.throwIfAborted();
  const child = spawn(ffmpeg, args, {
    stdio: ["ignore", "ignore", "pipe"],
    killSignal: "SIGKILL",
    env: environmentOfPrograms(),
    ...(signal && { signal }),
  });
  const ended = new Promise<number | null>((resolve, reject) => child.once("error", reject).once("close", resolve));
  // It is awaited below, after the output.
  ended.catch(() => {});
  const silences: Span[] = [];
  const lastLines: string[] = [];
  for await (const line of readline.createInterface({ input: child.stderr })) {
    const [, edge, time] = SILENCE.exec(line) ?? [];
    if (edge === "start") silences.push({ start: Number(time), end: Number.POSITIVE_INFINITY });
    else if (edge === "end" && silences.length > 0) silences.at(-1)!.end = Number(time);
    else if (lastLines.push(line.slice(0, 500)) > 10) lastLines.shift();
  }
  const code = await ended.catch((cause) => {
    throw signal?.aborted ? signal.reason : audioError("ffmpeg could not be started", cause);
  });
  const output = lastLines.join("\n");
  if (code === 0) return silences;
  if (NO_AUDIO.test(output)) {
    throw userError("The video has no audio track, so there is nothing to caption", {
      code: "ASR_NO_AUDIO",
      fatal: true,
    });
  }
  throw audioError("The audio track could not be read", new Error(`ffmpeg ended with code ${code}: ${output}`));
}

function audioError(sentence: string, cause: unknown): Error {
  return userError(sentence, { code: "ASR_AUDIO_FAILED", cause });
}
