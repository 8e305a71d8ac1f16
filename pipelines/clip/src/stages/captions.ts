// The stage "asr": the speech of the clip as captions. Speech recognition is optional: without its packages, and without sound, the clip
// has no captions, and its warnings say why.
import path from "node:path";
import type { StepHandle } from "stillwake/worker";
import { asrUnavailable, toSrt, toVtt, transcribe } from "../asr/index.ts";
import type { Programs } from "../media/programs.ts";

/** Checkpoint of the stage. */
export interface Transcript {
  /** Null: no captions, for the reason in `missing`. */
  texts: { srt: string; vtt: string } | null;
  missing: string | null;
}

export async function transcribeClip(
  step: StepHandle,
  clip: { file: string; hasAudio: boolean },
  programs: Programs,
): Promise<Transcript> {
  if (!clip.hasAudio) return without(step, "No captions: the clip has no sound");
  const unavailable = asrUnavailable();
  if (unavailable !== null) return without(step, `No captions: ${unavailable}`);
  const scratch = await step.scratch();
  const { segments } = await transcribe(path.join(scratch, clip.file), {
    ffmpeg: programs.ffmpeg,
    scratch,
    signal: step.signal,
    onProgress: (done, total) => step.progress(done / total, "Recognizing the speech"),
  });
  if (segments.length === 0) return without(step, "No captions: no speech was found");
  return { texts: { srt: toSrt(segments), vtt: toVtt(segments) }, missing: null };
}

function without(step: StepHandle, missing: string): Transcript {
  step.log.warning(missing);
  return { texts: null, missing };
}
