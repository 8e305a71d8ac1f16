// Programs that stand before ffmpeg, ffprobe and yt-dlp on the PATH: they count their calls, and fail as a test asks.
import fs from "node:fs";
import path from "node:path";
import type { Programs } from "../../src/media/programs.ts";

/** What the next calls of a program do: "kill" dies by SIGKILL, "empty" writes an empty file, "hang" does nothing forever, "stop" dies by SIGTERM. */
export type Fault = "kill" | "empty" | "hang" | "stop";

export interface Wrappers {
  /** For CLIP_TOOL_PATH. */
  folder: string;
  /** Calls of ffmpeg and yt-dlp so far, by their purpose: "clip", "thumbnail", "audio", "captions", "page". */
  calls(): string[];
  fail(program: "ffmpeg" | "yt-dlp", ...faults: Fault[]): void;
  /** Process ids of all calls so far. */
  pids(): number[];
}

export function makeWrappers(folder: string, programs: Programs, ytDlp?: string): Wrappers {
  fs.mkdirSync(folder, { recursive: true });
  const log = path.join(folder, "calls");
  fs.writeFileSync(log, "");
  const faults = (program: string) => path.join(folder, `faults-${program}`);
  const wrap = (name: string, real: string) => {
    const script = `#!/bin/sh
case " $* " in *" --version "*) exec '${real}' "$@" ;; esac
echo "$$ ${name} $*" >> '${log}'
fault=$(head -n 1 '${faults(name)}' 2>/dev/null)
if [ -n "$fault" ]; then
  sed -i 1d '${faults(name)}'
  for last; do :; done
  case $fault in
    kill) kill -9 $$ ;;
    stop) kill -15 $$ ;;
    empty) : > "\${last#file:}"; exit 0 ;;
    hang) while :; do sleep 1; done ;;
  esac
fi
exec '${real}' "$@"
`;
    fs.writeFileSync(path.join(folder, name), script, { mode: 0o755 });
  };
  wrap("ffmpeg", programs.ffmpeg);
  wrap("ffprobe", programs.ffprobe);
  if (ytDlp) wrap("yt-dlp", ytDlp);
  // yt-dlp is a Python program, whose interpreter is found on the PATH.
  const lines = () => fs.readFileSync(log, "utf8").split("\n").filter(Boolean);
  return {
    folder,
    calls: () => lines().flatMap((line) => purposeOf(line) ?? []),
    fail: (program, ...list) => fs.writeFileSync(faults(program), list.map((fault) => `${fault}\n`).join("")),
    pids: () => lines().map((line) => Number.parseInt(line, 10)),
  };
}

function purposeOf(line: string): string | undefined {
  if (/^\d+ yt-dlp /.test(line)) return "page";
  if (!/^\d+ ffmpeg /.test(line)) return undefined;
  if (line.includes("thumbnail-work")) return "thumbnail";
  if (line.includes("captioned-work")) return "captions";
  return line.includes("speech.pcm") ? "audio" : "clip";
}
