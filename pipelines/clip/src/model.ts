// The HTTP API as types and schemas. No Node and no database, because the page imports it. API.md describes the routes.
import { z } from "zod";

export const STATES = ["queued", "running", "ready", "failed", "cancelled"] as const;
const STAGES = ["resolve", "clip", "upload", "asr", "finalize"] as const;
export const FORMATS = ["mp4", "webm", "gif"] as const;
export const CAPTIONS = ["none", "sidecar", "burned"] as const;
/** "exact": encoded again unless the cut falls on a key frame. "keyframe": may begin at the key frame before. */
export const CUTS = ["exact", "keyframe"] as const;

export type State = (typeof STATES)[number];
export type Stage = (typeof STAGES)[number];
export type Format = (typeof FORMATS)[number];
export type Captions = (typeof CAPTIONS)[number];
export type Cut = (typeof CUTS)[number];

/** Seconds with milliseconds; the upper bound is a week. */
const seconds = z
  .number({ error: "must be a number of seconds" })
  .min(0, "must not be negative")
  .max(604_800, "must be at most 604800")
  .transform((value) => Math.round(value * 1000) / 1000);

const url = z
  .string({ error: "must be a URL" })
  .trim()
  .max(2000, "is longer than 2000 characters")
  .refine(isWebUrl, "must be an http or https URL without a user and password")
  .refine((text) => !hasExtractorData(text), "must not contain __youtubedl_smuggle");

const source = z.union(
  [z.strictObject({ url }), z.strictObject({ upload: z.uuid({ error: "must be the id of an upload" }) })],
  { error: 'must be { "url": "https://…" } or { "upload": "<id>" }' },
);

/** The body of POST /clips. */
export const newClip = z
  .strictObject({
    source,
    start: seconds,
    end: seconds,
    captions: z.enum(CAPTIONS, { error: `must be one of ${CAPTIONS.join(", ")}` }).default("none"),
    format: z.enum(FORMATS, { error: `must be one of ${FORMATS.join(", ")}` }).default("mp4"),
    cut: z.enum(CUTS, { error: `must be one of ${CUTS.join(", ")}` }).default("exact"),
    /** Default: the name of the source. */
    title: z
      .string({ error: "must be a string" })
      .trim()
      .min(1, "is empty")
      .max(200, "is longer than 200 characters")
      .refine((text) => !/\p{Cc}/u.test(text), "contains control characters")
      .optional(),
    /** Makes a new clip although the same one exists. */
    fresh: z.boolean({ error: "must be true or false" }).default(false),
  })
  .refine(({ start, end }) => end - start >= 0.1, {
    path: ["end"],
    message: "must be at least 0.1 seconds after start",
  })
  .refine(({ format, captions }) => format !== "gif" || captions !== "sidecar", {
    path: ["captions"],
    message: "a gif has no captions file: use burned or none",
  });

/** What a client sends to POST /clips. */
export type NewClipBody = z.input<typeof newClip>;
export type NewClip = z.output<typeof newClip>;

/** An uploaded file: the response of POST /uploads. */
export interface Upload {
  id: string;
  name: string;
  size: number;
  sha256: string;
  createdAt: string;
}

type ClipSource = { kind: "url"; url: string; name: string } | { kind: "upload"; upload: string; name: string };

export interface ClipFailure {
  /** Such as SOURCE_NOT_FOUND; the README has the list. */
  code: string;
  /** What happened and what to do. */
  sentence: string;
  /** The stage it happened in; null if the job failed between stages. */
  stage: Stage | null;
  /** Another try may succeed without a change: its attempts are used up. */
  retryable: boolean;
}

/** The finished file. */
interface ClipResult {
  /** Seconds. */
  duration: number;
  width: number;
  height: number;
  size: number;
  sha256: string;
  hasAudio: boolean;
  /** False: copied without encoding. */
  encoded: boolean;
  /** What it really has: "none" if no speech was found or speech recognition is not installed. */
  captions: Captions;
}

export interface Clip {
  id: string;
  title: string;
  state: State;
  /** The stage of a running clip, and the one in which a failed clip stopped. */
  stage: Stage | null;
  /** Of a running clip: from 0 to 1 within its stage, with a sentence such as "31 frames per second, 4 s left". */
  progress: { fraction: number | null; sentence: string | null } | null;
  source: ClipSource;
  start: number;
  end: number;
  captions: Captions;
  format: Format;
  cut: Cut;
  failure: ClipFailure | null;
  /** What a ready clip lacks, in sentences: "No captions: …". */
  warnings: string[];
  result: ClipResult | null;
  /** What can be read now. The file exists as soon as it is uploaded, before the captions. */
  files: { file: boolean; captions: boolean; thumbnail: boolean };
  /** The job, for the live view; null when it was deleted. */
  job: string | null;
  attempts: number;
  createdAt: string;
  startedAt: string | null;
  endedAt: string | null;
}

/** The response of POST /clips and POST /sample: 201 for a new clip, 200 for one that existed. */
export interface RequestedClip extends Clip {
  existing: boolean;
}

/** The response of GET /clips. */
export interface ClipPage {
  rows: Clip[];
  /** Cursor of the next page; null on the last one. */
  cursor: string | null;
  total: number;
}

/** The response of GET /me. */
export interface Me {
  /** No token is needed. */
  open: boolean;
  sample: Sample | null;
  limits: { uploadBytes: number; clipSeconds: number };
}

/** A video of this server that can be clipped with one click: play it at uploads/<upload>/file. */
export interface Sample {
  upload: string;
  name: string;
  /** Seconds. */
  duration: number;
  /** The range of POST /sample. */
  start: number;
  end: number;
}

/** Data that yt-dlp reads from the fragment of a URL, such as headers and a proxy. */
export function hasExtractorData(url: string): boolean {
  return /__youtubedl_smuggle/i.test(
    url.replaceAll(/%([0-7][0-9a-f])/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16))),
  );
}

function isWebUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, username, password, hostname } = new URL(text);
  return /^https?:$/.test(protocol) && username === "" && password === "" && hostname !== "";
}
