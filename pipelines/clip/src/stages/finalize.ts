// The stage "finalize": burns the captions, converts to the requested format where the cut could not, and makes the thumbnail.
import fs from "node:fs/promises";
import path from "node:path";
import type { JobContext, StepHandle } from "stillwake/worker";
import type { Input } from "../contract.ts";
import { type Media, SAFE_INPUT } from "../media/probe.ts";
import type { Programs } from "../media/programs.ts";
import type { Captions, Format } from "../model.ts";
import type { Limits } from "../settings.ts";
import type { Transcript } from "./captions.ts";
import { checkResult, cutFormat, encoding, runFfmpeg } from "./cut.ts";

/** Names of the artifacts; the API serves them. */
export const ARTIFACTS = {
  cut: (format: Format) => `clip.${format}`,
  /** What is known about the cut. */
  info: "clip.json",
  final: (format: Format) => `captioned.${format}`,
  vtt: "captions.vtt",
  srt: "captions.srt",
  thumbnail: "thumbnail.jpg",
} as const;

export interface Finished {
  /** Name of the artifact. */
  file: string;
  size: number;
  sha256: string;
  media: Media;
  captions: Captions;
}

export interface FinalizeOptions {
  id: string;
  input: Pick<Input, "format" | "captions">;
  cut: { size: number; sha256: string; media: Media };
  transcript: Transcript | undefined;
  programs: Programs;
  limits: Limits;
}

export async function finalize(job: JobContext, step: StepHandle, options: FinalizeOptions): Promise<Finished> {
  const { input, cut, transcript } = options;
  const texts = transcript?.texts ?? undefined;
  const cutName = ARTIFACTS.cut(cutFormat(input));
  if (texts) {
    await job.artifact(ARTIFACTS.vtt, () => texts.vtt);
    await job.artifact(ARTIFACTS.srt, () => texts.srt);
  }
  await job.artifact(ARTIFACTS.thumbnail, () => makeThumbnail(job, step, options, cutName));
  const burns = input.captions === "burned" && texts !== undefined;
  if (!burns && cutFormat(input) === input.format) {
    return { file: cutName, ...cut, captions: texts && input.captions === "sidecar" ? "sidecar" : "none" };
  }
  const name = ARTIFACTS.final(input.format);
  let media: Media | undefined;
  const stored = await job.artifact(name, async () => {
    const made = await burn(job, step, options, cutName, burns ? texts.srt : undefined);
    media = made.media;
    return { file: made.file };
  });
  // Stored by an earlier attempt: it has the length and the picture of the cut.
  return {
    file: name,
    size: stored.size,
    sha256: stored.sha256,
    media: media ?? cut.media,
    captions: burns ? "burned" : "none",
  };
}

const CAPTIONS_FILE = "captions.srt";

async function burn(
  job: JobContext,
  step: StepHandle,
  options: FinalizeOptions,
  cutName: string,
  srt: string | undefined,
) {
  const { id, input, cut, programs, limits } = options;
  const scratch = await step.scratch();
  const source = path.relative(scratch, await job.artifactFile(cutName));
  const work = `${id}-captioned-work.${input.format}`;
  if (srt !== undefined) await fs.writeFile(path.join(scratch, CAPTIONS_FILE), srt);
  const filter = srt === undefined ? undefined : `subtitles=${CAPTIONS_FILE}`;
  const args = [...SAFE_INPUT, "-i", `file:${source}`, ...encoding(input.format, input, filter)];
  const seconds = cut.media.duration;
  await runFfmpeg(step, programs, [...args, `file:${work}`], {
    seconds,
    verb: "Drawing the captions",
    stage: "finalize",
    limits,
  });
  const expected = {
    programs,
    limits,
    file: work,
    seconds,
    stage: "finalize" as const,
    fps: cut.media.framesPerSecond,
  };
  const media = await checkResult(step, expected);
  const file = `${id}-captioned-final.${input.format}`;
  await fs.rename(path.join(scratch, work), path.join(scratch, file));
  return { file, media };
}

async function makeThumbnail(job: JobContext, step: StepHandle, options: FinalizeOptions, cutName: string) {
  const { cut, programs, limits } = options;
  const source = path.relative(await step.scratch(), await job.artifactFile(cutName));
  const at = Math.min(1, cut.media.duration / 3);
  const args = ["-ss", String(at), ...SAFE_INPUT, "-i", `file:${source}`, "-frames:v", "1"];
  const picture = [
    "-vf",
    "scale='min(480,iw)':-2",
    "-q:v",
    "4",
    "-f",
    "image2",
    "-update",
    "1",
    "file:thumbnail-work.jpg",
  ];
  await runFfmpeg(step, programs, [...args, ...picture], {
    seconds: 1,
    verb: "Taking the thumbnail",
    stage: "finalize",
    limits,
  });
  return { file: "thumbnail-work.jpg" };
}
