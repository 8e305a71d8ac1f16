// Reads `-progress pipe:1` of ffmpeg: blocks of key=value lines, each ended by the key "progress".

export interface EncodeProgress {
  fraction: number;
  sentence: string;
}

const MIN_STEP = 0.01;
const MIN_MS = 500;

/** Returns a function for each line: the progress if it moved by at least 1 % or 500 ms have passed. */
export function progressReader(seconds: number, verb: string, now: () => number = performance.now.bind(performance)) {
  let frames = 0;
  let done = 0;
  let speed = 0;
  let reported = { fraction: -1, at: Number.NEGATIVE_INFINITY };
  return (line: string): EncodeProgress | undefined => {
    const [, key = "", value = ""] = /^(\w+)=\s*(\S+)\s*$/.exec(line) ?? [];
    if (key === "fps") frames = Number(value) || 0;
    // "N/A" before the first frame. out_time_ms is in microseconds too, whatever its name says.
    if (key === "out_time_us" || key === "out_time_ms") done = Math.max(Number(value) / 1e6 || 0, 0);
    if (key === "speed") speed = Number.parseFloat(value) || 0;
    if (key !== "progress") return undefined;
    const fraction = value === "end" ? 1 : Math.min(done / Math.max(seconds, 0.001), 1);
    const at = now();
    if (fraction - reported.fraction < MIN_STEP && at - reported.at < MIN_MS) return undefined;
    reported = { fraction, at };
    const left = speed > 0 ? Math.ceil(Math.max(seconds - done, 0) / speed) : undefined;
    const parts = [frames > 0 && `${Math.round(frames)} frames per second`, left !== undefined && `${left} s left`];
    return { fraction, sentence: [verb, parts.filter(Boolean).join(", ")].filter(Boolean).join(": ") };
  };
}

export function formatMb(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(1);
}
