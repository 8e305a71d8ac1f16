// Speech recognition with the real model and the real ffmpeg.
import { execFile } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, describe, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { ROOT } from "../../../../test/support/processes/build.ts";
import { isAlive } from "../../../../test/support/processes/fault-checks.ts";
import { shared } from "../../../kit/test/support/shared-data.ts";
import { extractAudio } from "../../src/asr/audio.ts";
import { asrUnavailable, type TranscribeOptions, transcribe } from "../../src/asr/index.ts";
import { loadModel } from "../../src/asr/model.ts";
import { FFMPEG, ffmpeg, missingForSpeech, RECORDED_TEXT, RECORDING, wordErrors } from "../support/speech.ts";

const MINUTES = 60_000;
const SPEECH = path.resolve(import.meta.dirname, "../../speech");
const missing = missingForSpeech();
const media = shared("data/media");
const folder = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-asr-")));
const inFolder = (name: string) => path.join(folder, name);
const scratch = inFolder("scratch");
fs.mkdirSync(scratch);
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

const read = (file: string, options: Partial<TranscribeOptions> = {}) =>
  transcribe(file, { ffmpeg: FFMPEG!, scratch, ...options });
/** Code and message of the failure. Its message is shown to people, so it names no path. */
async function failureOf(work: Promise<unknown>): Promise<{ code: string; message: string }> {
  const error = await work.then(
    () => undefined,
    (reason) => reason,
  );
  expect(error?.message).not.toContain(folder);
  return { code: error?.code, message: error?.message };
}
/** Instead of ffmpeg: begins its output, writes its pid into a file, and stays until it is killed. */
function endlessProgram(pidFile: string): string {
  const lines = [
    "#!/bin/sh",
    `for output; do :; done; echo begun > "\${output#file:}"`,
    `echo $$ > ${pidFile}.new; mv ${pidFile}.new ${pidFile}`,
    "exec sleep 600",
  ];
  fs.writeFileSync(inFolder("endless"), `${lines.join("\n")}\n`, { mode: 0o755 });
  return inFolder("endless");
}

it("starts ffmpeg without the credentials of the pipeline, and for local files of known containers only", async () => {
  const seen = inFolder("seen");
  const program = inFolder("report");
  const lines = ["#!/bin/sh", `(env; echo "args $*") > ${seen}`, `for output; do :; done; : > "\${output#file:}"`];
  fs.writeFileSync(program, `${lines.join("\n")}\n`, { mode: 0o755 });
  process.env.CLIP_DATABASE_URL = "postgres://secret";
  process.env.STILLWAKE_PROCESS_TAG = "tag-of-the-attempt";
  try {
    await (await extractAudio("a.mp4", { ffmpeg: program, pcm: inFolder("pcm") })).close();
  } finally {
    delete process.env.CLIP_DATABASE_URL;
    delete process.env.STILLWAKE_PROCESS_TAG;
  }
  const text = fs.readFileSync(seen, "utf8");
  expect(text).not.toContain("secret");
  expect(text).toContain("STILLWAKE_PROCESS_TAG=tag-of-the-attempt");
  expect(text).toMatch(/-protocol_whitelist file,pipe -format_whitelist \S+ -i file:a\.mp4/);
});

describe.skipIf(missing)(
  `speech recognition${missing ? ` (skipped: ${missing})` : ""}`,
  { timeout: 5 * MINUTES },
  () => {
    it("recognizes the project's recording, in order, with the times of its two sentences", async () => {
      const progress: [number, number][] = [];
      const { segments, seconds } = await read(RECORDING, {
        onProgress: (done, total) => progress.push([done, total]),
      });
      const { words, errors } = wordErrors(RECORDED_TEXT.join(" "), segments.map(({ text }) => text).join(" "));
      expect(errors / words).toBeLessThanOrEqual(0.1);
      expect(segments).toHaveLength(2);
      expect(segments[0]).toMatchObject({ start: 0, end: expect.closeTo(2.9, 0) });
      expect(segments[1]).toMatchObject({ start: expect.closeTo(3.1, 0), end: expect.closeTo(9.4, 0) });
      expect(seconds).toBeCloseTo(9.46, 1);
      expect(progress).toEqual([...segments.map(({ end }) => [end, seconds]), [seconds, seconds]]);
      expect(fs.readdirSync(scratch)).toEqual([]);
    });

    it.skipIf(!media)(
      `recognizes LibriVox recordings with at most 10 % wrong words${media ? "" : " (skipped: ../shared is missing)"}`,
      async () => {
        const lines = fs.readFileSync(path.join(media!, "librivox-transcription.txt"), "utf8").matchAll(LIBRIVOX_LINE);
        // The video contains five lines of the book, which are not all in the transcription, and a synthetic one.
        const files = [...lines].map(([, text, id]) => ({ name: `${id}.wav`, text: text! }));
        files.push({ name: "captioned-40s.mp4", text: VIDEO_TEXT.join(" ") });
        expect(files).toHaveLength(3);
        for (const model of ["base", "tiny"] as const) {
          let [words, errors] = [0, 0];
          for (const { name, text } of files) {
            const { segments } = await read(path.join(media!, name), { model });
            const result = wordErrors(text, segments.map((segment) => segment.text).join(" "));
            words += result.words;
            errors += result.errors;
          }
          const rate = errors / words;
          recordFigure(
            `clip: word error rate, ${model} model`,
            Math.round(rate * 1000) / 10,
            "%",
            `${words} words: two LibriVox lines, and a video with five and a synthetic one`,
          );
          expect(rate, model).toBeLessThanOrEqual(model === "base" ? 0.1 : 0.2);
        }
      },
    );

    it("gives the times of the file also where its audio starts late", async () => {
      const file = inFolder("late.mp4");
      const video = ["-f", "lavfi", "-i", "testsrc=d=16:s=160x120:r=10"];
      await ffmpeg(...video, "-itsoffset", "5", "-i", RECORDING, "-map", "0:v", "-map", "1:a", "-c:a", "aac", file);
      const { segments } = await read(file, { model: "tiny" });
      expect(segments[0]!.start).toBeGreaterThan(4.7);
      expect(segments[0]!.start).toBeLessThan(5.3);
    });

    it("takes no times from the metadata of a file", async () => {
      const file = inFolder("titled.mp4");
      const line = "[silencedetect @ 0x1] silence_start: 0";
      await ffmpeg(
        "-i",
        RECORDING,
        "-c:a",
        "aac",
        "-metadata",
        `title=${line}`,
        "-metadata",
        `comment=a\n${line}`,
        file,
      );
      expect((await read(file, { model: "tiny" })).segments).toHaveLength(2);
    });

    it("finds nothing in a silent file", async () => {
      const file = inFolder("silent.wav");
      await ffmpeg("-f", "lavfi", "-i", "anullsrc=r=44100:cl=stereo", "-t", "3", file);
      expect(await read(file)).toEqual({ segments: [], seconds: 3 });
    });

    it("fails with a code for a file without audio, one that is not media, one that is missing, and without ffmpeg", async () => {
      const mute = inFolder("mute.mp4");
      await ffmpeg("-f", "lavfi", "-i", "testsrc=d=1:s=160x120:r=10", mute);
      expect(await failureOf(read(mute))).toEqual({
        code: "ASR_NO_AUDIO",
        message: "The video has no audio track, so there is nothing to caption",
      });
      fs.writeFileSync(inFolder("text.mp4"), "This is not a video.");
      for (const file of [inFolder("text.mp4"), inFolder("missing.mp4")]) {
        expect(await failureOf(read(file))).toEqual({
          code: "ASR_AUDIO_FAILED",
          message: "The audio track could not be read",
        });
      }
      expect(await failureOf(read(RECORDING, { ffmpeg: inFolder("no-ffmpeg") }))).toEqual({
        code: "ASR_AUDIO_FAILED",
        message: "ffmpeg could not be started",
      });
      expect(fs.readdirSync(scratch)).toEqual([]);
    });

    it("stops in the middle of a segment when it is aborted", async () => {
      const stop = new AbortController();
      let abortedAt = 0;
      let calls = 0;
      const onProgress = () => {
        calls += 1;
        // The second segment takes some hundred milliseconds.
        setTimeout(() => {
          abortedAt = performance.now();
          stop.abort(new Error("cancelled"));
        }, 30);
      };
      await expect(read(RECORDING, { signal: stop.signal, onProgress })).rejects.toThrow("cancelled");
      recordFigure("clip: speech recognition stops after an abort", Math.round(performance.now() - abortedAt), "ms");
      expect(calls).toBe(1);
      expect(fs.readdirSync(scratch)).toEqual([]);
    });

    it("kills ffmpeg when it is aborted, and starts none after an abort", async () => {
      const pidFile = inFolder("pid");
      const program = endlessProgram(pidFile);
      const stop = new AbortController();
      const reading = read(RECORDING, { ffmpeg: program, signal: stop.signal });
      await expect.poll(() => fs.existsSync(pidFile), { timeout: 30_000 }).toBe(true);
      expect(fs.readdirSync(scratch)).toEqual(["speech.pcm"]);
      stop.abort(new Error("cancelled"));
      await expect(reading).rejects.toThrow("cancelled");
      await expect.poll(() => isAlive(Number(fs.readFileSync(pidFile, "utf8")))).toBe(false);
      expect(fs.readdirSync(scratch)).toEqual([]);
      fs.rmSync(pidFile);
      await expect(read(RECORDING, { ffmpeg: program, signal: stop.signal })).rejects.toThrow("cancelled");
      expect(fs.existsSync(pidFile)).toBe(false);
    });

    it("loads a model once per process", () => {
      expect(loadModel("base")).toBe(loadModel("base"));
    });

    it("needs no more memory for an hour than for six minutes", async () => {
      const [short, long] = [inFolder("short.wav"), inFolder("long.flac")];
      await ffmpeg("-i", RECORDING, "-af", "apad", "-t", "360", "-ar", "16000", short);
      await ffmpeg("-stream_loop", "9", "-i", short, long);
      const program = path.join(import.meta.dirname, "transcribe.ts");
      const measure = async (file: string) => {
        const args = ["--import", "tsx", program, file, FFMPEG!, scratch];
        const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: ROOT });
        return JSON.parse(stdout) as { peakMb: number; seconds: number; segments: number };
      };
      const [small, large] = [await measure(short), await measure(long)];
      expect(small).toMatchObject({ seconds: 360, segments: 2 });
      expect(large).toMatchObject({ seconds: 3600, segments: 20 });
      recordFigure("clip: peak memory of speech recognition, one hour", Math.round(large.peakMb), "MB", "tiny model");
      // The audio of the hour is 115 MB.
      expect(large.peakMb - small.peakMb).toBeLessThan(60);
    });
  },
);

const LIBRIVOX_LINE = /^<s> (.*) <\/s> \((.*)\)$/gm;
const VIDEO_TEXT = [
  "and mister john dashwood had then leisure to consider how much there might be prudently in his power to do for them",
  "he was not an ill disposed young man",
  "unless to be rather cold hearted and rather selfish is to be ill disposed",
  "had he married a more amiable woman he might have been made still more respectable than he was",
  "he might even have been made amiable himself",
  "welcome to the weekly engineering meeting today we will talk about the new database",
  "the release plan for next month and the results of the customer survey",
];

describe("the packages of speech recognition", () => {
  it("are named with the command that installs them where they are missing", async () => {
    // The same code in a folder without the packages.
    fs.mkdirSync(inFolder("elsewhere/src/asr"), { recursive: true });
    const copy = inFolder("elsewhere/src/asr/packages.mts");
    fs.copyFileSync(path.join(SPEECH, "../src/asr/packages.ts"), copy);
    const program = `import { asrUnavailable } from ${JSON.stringify(copy)}; console.log(asrUnavailable());`;
    const args = ["--import", "tsx", "--input-type=module", "-e", program];
    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: ROOT });
    expect(stdout.trim()).toBe(
      "Speech recognition is not installed (missing: onnxruntime-node, @usefulsensors/moonshine-js, llama-tokenizer-js): " +
        'run "npm ci --prefix pipelines/clip/speech" in the project folder (300 MB)',
    );
    if (!missing) expect(asrUnavailable()).toBeNull();
  });

  it("have each a reason in docs/decisions.md", () => {
    const { dependencies } = JSON.parse(fs.readFileSync(path.join(SPEECH, "package.json"), "utf8"));
    const reasons = fs.readFileSync(path.join(ROOT, "docs/decisions.md"), "utf8");
    expect(Object.keys(dependencies)).toHaveLength(3);
    expect(Object.keys(dependencies).filter((name) => !reasons.includes(`\`${name}\``))).toEqual([]);
  });
});
