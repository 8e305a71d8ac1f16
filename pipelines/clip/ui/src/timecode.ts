// Times in a video as text: "1:05.5" is 65.5 seconds.

const TIMECODE = /^(?:(?:(\d{1,3}):)?(\d{1,3}):)?(\d{1,6}(?:[.,]\d*)?)$/;

/** Seconds with milliseconds. Accepts "65.5", "1:05.5" and "1:02:03"; undefined if it is no timecode. */
export function parseTimecode(text: string): number | undefined {
  const [found, hours, minutes, rest = ""] = TIMECODE.exec(text.trim()) ?? [];
  if (found === undefined) return undefined;
  const seconds = Number(rest.replace(",", "."));
  if ((minutes !== undefined && seconds >= 60) || (hours !== undefined && Number(minutes) >= 60)) return undefined;
  return roundMs(Number(hours ?? 0) * 3600 + Number(minutes ?? 0) * 60 + seconds);
}

/** "0:07", "1:05.5", "1:02:03". */
export function formatTimecode(time: number): string {
  const ms = Math.max(0, Math.round(time * 1000));
  const pad = (part: number) => String(part).padStart(2, "0");
  const hours = Math.floor(ms / 3_600_000);
  const minutes = Math.floor(ms / 60_000) % 60;
  const seconds = pad(Math.floor(ms / 1000) % 60);
  const fraction =
    ms % 1000 === 0
      ? ""
      : `.${String(ms % 1000)
          .padStart(3, "0")
          .replace(/0+$/, "")}`;
  return `${hours > 0 ? `${hours}:${pad(minutes)}` : minutes}:${seconds}${fraction}`;
}

export function roundMs(seconds: number): number {
  return Math.round(seconds * 1000) / 1000;
}

/** A length, to a tenth of a second. */
export function formatLength(seconds: number): string {
  return formatTimecode(Math.round(seconds * 10) / 10);
}
