// How the values of the API are named on the page, and what follows from them.
import type { State as BadgeState } from "@stillwake/ui/parts/state-badge.tsx";
import type { Captions, Clip, Format, Stage, State } from "../../src/model.ts";

export const CAPTIONS: Record<Captions, string> = { none: "None", sidecar: "Text track", burned: "In the picture" };
export const FORMATS: Record<Format, string> = { mp4: "MP4", webm: "WebM", gif: "GIF" };

/** In the order in which a clip passes them. `during` completes "Failed while …". */
export const STAGES: Record<Stage, { name: string; during: string }> = {
  resolve: { name: "Get the video", during: "getting the video" },
  clip: { name: "Cut", during: "cutting" },
  upload: { name: "Store", during: "storing the clip" },
  asr: { name: "Recognize speech", during: "recognizing speech" },
  finalize: { name: "Finish", during: "finishing the clip" },
};

const BADGES: Record<State, BadgeState> = {
  queued: "queued",
  running: "running",
  ready: "completed",
  failed: "failed",
  cancelled: "cancelled",
};

export const badgeOf = ({ state }: Pick<Clip, "state">): BadgeState => BADGES[state] ?? "queued";

export function isEnded({ state }: Pick<Clip, "state">): boolean {
  return state !== "queued" && state !== "running";
}
