// What the tests of speech recognition need: ffmpeg, the packages of pipelines/clip/speech, and a recording.
import { execFile, spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { asrUnavailable } from "../../src/asr/index.ts";

const ROOT = path.resolve(import.meta.dirname, "../../../..");
const SPEECH = path.resolve(import.meta.dirname, "../../speech");
const MANIFEST = ["package.json", "package-lock.json", ".npmrc"];

/** 9.5 seconds of synthetic speech (espeak-ng), with a pause after the first sentence. */
export const RECORDING = path.resolve(import.meta.dirname, "../asr/speech.ogg");
export const RECORDED_TEXT = [
  "Good morning, and welcome to the show.",
  "Today we will learn how a computer can write down every word that people say in a video.",
];

/** The program on the PATH, else the one in an npm package. */
export const FFMPEG = findFfmpeg();

function findFfmpeg(): string | undefined {
  const packaged = path.join(ROOT, "node_modules/@ffmpeg-installer", `${process.platform}-${process.arch}`);
  const folders = [...(process.env.PATH ?? "").split(path.delimiter), packaged];
  return folders.map((folder) => path.join(folder, "ffmpeg")).find((file) => fs.existsSync(file));
}

export async function ffmpeg(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(FFMPEG!, ["-v", "error", "-nostdin", "-y", ...args]);
  return stdout;
}

/** Installs the packages where they are missing. Returns why speech cannot be recognized here, or undefined. */
export function missingForSpeech(): string | undefined {
  if (!FFMPEG) return "ffmpeg is not installed";
  if (asrUnavailable()) installPackages();
  return asrUnavailable() ?? undefined;
}

/** Beside its place first, because test files run in parallel: the first rename wins. */
function installPackages(): void {
  const folder = path.join(ROOT, `.stillwake/speech-${process.pid}`);
  fs.mkdirSync(folder, { recursive: true });
  try {
    for (const name of MANIFEST) fs.copyFileSync(path.join(SPEECH, name), path.join(folder, name));
    const args = ["ci", "--prefix", folder, "--ignore-scripts", "--prefer-offline", "--loglevel=error"];
    const { status } = spawnSync("npm", args, { cwd: folder, stdio: "ignore", timeout: 5 * 60_000 });
    if (status === 0) fs.renameSync(path.join(folder, "node_modules"), path.join(SPEECH, "node_modules"));
  } catch (error) {
    if (!["ENOTEMPTY", "EEXIST", "EPERM"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

/** Words that were replaced, omitted or added, in proportion to those that were said. */
export function wordErrors(said: string, recognized: string): { words: number; errors: number } {
  const wanted = words(said);
  const found = words(recognized);
  let distances = found.map((_, index) => index + 1);
  for (const [row, word] of wanted.entries()) {
    let [diagonal, left] = [row, row + 1];
    distances = distances.map((above, column) => {
      left = Math.min(above + 1, left + 1, diagonal + (word === found[column] ? 0 : 1));
      diagonal = above;
      return left;
    });
  }
  return { words: wanted.length, errors: distances.at(-1) ?? wanted.length };
}

function words(text: string): string[] {
  const spelled = text.toLowerCase().replaceAll(/\bmr\b/g, "mister");
  return spelled.match(/[a-z0-9']+/g) ?? [];
}
