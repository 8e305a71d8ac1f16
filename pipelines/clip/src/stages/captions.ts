// The stage "asr": the speech of the clip as captions. Speech recognition is optional: without it, and without sound, the clip has
// no captions, and its warnings say why.
import path from "node:path";
import type { StepHandle } from "stillwake/worker";
import { SAFE_INPUT } from "../media/probe.ts";
import type { Programs } from "../media/programs.ts";
import type { Limits } from "../settings.ts";
import { runFfmpeg } from "./cut.ts";

interface Segment {
  start: number;
  end: number;
  text: string;
}

/** src/asr/index.ts */
interface Asr {
  /** Null, or the sentence what to install. */
  asrUnavailable(): string | null | Promise<string | null>;
  transcribe(
    file: string,
    options: { signal: AbortSignal; onProgress?: (fraction: number) => void },
  ): Promise<{ segments: Segment[] }>;
  toSrt(segments: Segment[]): string;
  toVtt(segments: Segment[]): string;
}

/** Checkpoint of the stage. */
export interface Transcript {
  /** Null: no captions, for the reason in `missing`. */
  texts: { srt: string; vtt: string } | null;
  missing: string | null;
}

const AUDIO = "speech.wav";
// Not a constant of the import: the module is optional.
const MODULE: string = "../asr/index.ts";

export async function transcribeClip(
  step: StepHandle,
  clip: { file: string; seconds: number; hasAudio: boolean },
  programs: Programs,
  limits: Limits,
): Promise<Transcript> {
  if (!clip.hasAudio) return without(step, "No captions: the clip has no sound");
  const asr = await loadAsr();
  const unavailable = asr ? await asr.asrUnavailable() : "speech recognition is not part of this installation";
  if (!asr || unavailable !== null) return without(step, `No captions: ${unavailable}`);
  const decode = [...SAFE_INPUT, "-i", `file:${clip.file}`, "-map", "0:a:0", "-ac", "1", "-ar", "16000", "-f", "wav"];
  const run = { seconds: clip.seconds, verb: "Reading the sound", stage: "asr" as const, limits };
  await runFfmpeg(step, programs, [...decode, `file:${AUDIO}`], run);
  const { segments } = await asr.transcribe(path.join(await step.scratch(), AUDIO), {
    signal: step.signal,
    onProgress: (fraction) => step.progress(fraction, "Recognizing the speech"),
  });
  if (segments.length === 0) return without(step, "No captions: no speech was found");
  return { texts: { srt: asr.toSrt(segments), vtt: asr.toVtt(segments) }, missing: null };
}

function without(step: StepHandle, missing: string): Transcript {
  step.log.warn(missing);
  return { texts: null, missing };
}

async function loadAsr(): Promise<Asr | undefined> {
  try {
    return (await import(MODULE)) as Asr;
  } catch (error) {
    if ((error as { code?: string }).code === "ERR_MODULE_NOT_FOUND") return undefined;
    throw error;
  }
}
