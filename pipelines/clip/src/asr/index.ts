// Speech recognition: the captions of a media file, on this machine, without the network.
import path from "node:path";
import { userError } from "@stillwake/kit/failures";
import { extractAudio } from "./audio.ts";
import { loadModel, type ModelName } from "./model.ts";
import { asrUnavailable } from "./packages.ts";
import { speechSegments } from "./segments.ts";

export { toSrt, toVtt } from "./captions.ts";
export { asrUnavailable };

/** Times are in seconds from the start of the file. Segments are in order and do not overlap. */
export interface Segment {
  start: number;
  end: number;
  text: string;
}

export interface TranscribeOptions {
  /** Path of the program. */
  ffmpeg: string;
  /** An existing directory. The audio is written there (32 kB per second) and removed at the end. */
  scratch: string;
  /** "base" (default) makes fewer errors; "tiny" takes two thirds of the time and of the memory. */
  model?: ModelName;
  signal?: AbortSignal;
  /** In seconds of audio. Called after every segment, and at the end with `done` equal to `total`. */
  onProgress?(done: number, total: number): void;
}

export interface Transcript {
  /** Empty if the file is silent. */
  segments: Segment[];
  /** Length of the audio. */
  seconds: number;
}

/**
 * `file`: a finished clip. A file from outside could be a playlist that names other files of this machine.
 * Fails with the code ASR_UNAVAILABLE if packages are missing, ASR_NO_AUDIO if the file has no audio track, and
 * ASR_AUDIO_FAILED if ffmpeg cannot read it; after an abort with the signal's reason.
 */
export async function transcribe(file: string, options: TranscribeOptions): Promise<Transcript> {
  const unavailable = asrUnavailable();
  if (unavailable) throw userError(unavailable, { code: "ASR_UNAVAILABLE", fatal: true });
  const { ffmpeg, scratch, signal, onProgress } = options;
  const audio = await extractAudio(file, { ffmpeg, pcm: path.join(scratch, "speech.pcm"), signal });
  try {
    const { seconds } = audio;
    const segments: Segment[] = [];
    for await (const span of speechSegments(audio)) {
      signal?.throwIfAborted();
      const model = await loadModel(options.model ?? "base");
      const text = await model.recognize(await audio.read(span), signal);
      if (text !== "") segments.push({ ...span, text });
      onProgress?.(span.end, seconds);
    }
    onProgress?.(seconds, seconds);
    return { segments, seconds };
  } finally {
    await audio.close();
  }
}
