// The source file of a job: fetched once, kept in the store of sources, and fetched from there by later attempts on any machine.
import { createHash } from "node:crypto";
import fs from "node:fs/promises";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import { DownloadError, download } from "@stillwake/kit/http/download";
import { type ArtifactStore, addressGuard, openStore, type StepHandle } from "stillwake/worker";
import type { Input } from "../contract.ts";
import { clipError } from "../failures.ts";
import { type Media, probe } from "../media/probe.ts";
import type { Programs } from "../media/programs.ts";
import { formatMb } from "../media/progress.ts";
import type { Limits, Settings, SourcesSettings } from "../settings.ts";
import { fetchPage } from "./ytdlp.ts";

/** Checkpoint of the stage "resolve". */
export interface Resolved {
  key: string;
  size: number;
  sha256: string;
  media: Media;
}

/** In the scratch directory. No part of it comes from a user. */
const FILE = "source.media";

export const uploadKey = (id: string) => `uploads/${id}`;
const downloadPrefix = (job: string) => `downloads/${job}`;

export function openSources({ url, credentials }: SourcesSettings): ArtifactStore {
  if (url === "") throw new Error("CLIP_SOURCES is not set: the store of uploads, such as s3://… or file:./sources");
  return openStore(url, credentials);
}

export class Source {
  readonly #job: string;
  readonly #source: Input["source"];
  readonly #settings: Settings;
  readonly #programs: Programs;
  readonly #store: ArtifactStore;
  /** The file is in the scratch directory of this attempt. */
  #isLocal = false;
  /** Of a source that was fetched again. */
  #media: Media | undefined;

  constructor(job: string, source: Input["source"], settings: Settings, programs: Programs) {
    this.#job = job;
    this.#source = source;
    this.#settings = settings;
    this.#programs = programs;
    this.#store = openSources(settings.sources);
  }

  /** The stage "resolve": finds out what the source is, and stores it. */
  async resolve(step: StepHandle): Promise<Resolved> {
    const source = this.#source;
    const { limits } = this.#settings;
    if ("upload" in source) {
      const resolved = { key: uploadKey(source.upload), size: source.size, sha256: source.sha256 };
      await this.#restore(step, resolved);
      return { ...resolved, media: await probe(step, this.#programs, FILE, limits, "resolve") };
    }
    const size = await this.#fetch(step, source.url);
    const media = await probe(step, this.#programs, FILE, limits, "resolve");
    const sha256 = await hashOf(path.join(await step.scratch(), FILE));
    const key = `${downloadPrefix(this.#job)}/${sha256}`;
    await this.#keep(step, key, size, sha256);
    this.#isLocal = true;
    return { key, size, sha256, media };
  }

  /** Its name in the scratch directory. A download that is no longer stored is fetched again, and may be another file. */
  async open(step: StepHandle, resolved: Resolved): Promise<{ file: string; media: Media }> {
    if (this.#isLocal) return { file: FILE, media: this.#media ?? resolved.media };
    try {
      await this.#restore(step, resolved);
    } catch (error) {
      if (!("url" in this.#source) || (error as { code?: string }).code !== "SOURCE_GONE") throw error;
      step.log.info("The downloaded source was deleted - fetching it again");
      this.#media = (await this.resolve(step)).media;
    }
    return { file: FILE, media: this.#media ?? resolved.media };
  }

  /** A downloaded source is not needed after the clip. */
  async release(): Promise<void> {
    if ("url" in this.#source) await this.#store.remove(downloadPrefix(this.#job));
  }

  async #fetch(step: StepHandle, url: string): Promise<number> {
    const { allowAddresses, limits } = this.#settings;
    const guard = addressGuard({ allowHttp: true, allow: allowAddresses });
    const direct = await download(url, path.join(await step.scratch(), FILE), {
      guard,
      signal: step.signal,
      maxBytes: limits.sourceBytes,
      silenceMs: limits.silenceMs,
      userAgent: "stillwake-clip",
      onProgress(done, total) {
        const of = total === undefined ? "" : ` of ${formatMb(total)}`;
        step.progress(total ? { done, total } : 0, `Downloading: ${formatMb(done)}${of} MB`);
      },
      onResume: (done, reason) =>
        step.log.warning(`Connection lost after ${formatMb(done)} MB - resuming there`, { reason }),
    }).catch((error) => {
      throw error instanceof DownloadError ? explainDownload(error, limits) : error;
    });
    if (direct) {
      if (await isPlaylist(path.join(await step.scratch(), FILE))) throw clipError("SOURCE_PLAYLIST");
      step.log.info(`Downloaded ${formatMb(direct.size)} MB`, { bytes: direct.size, resumed: direct.resumed });
      return direct.size;
    }
    step.log.info("The address is a page - looking for its video with yt-dlp");
    return fetchPage(step, url, FILE, guard, this.#settings);
  }

  async #keep(step: StepHandle, key: string, size: number, sha256: string): Promise<void> {
    const handle = await fs.open(path.join(await step.scratch(), FILE), "r");
    try {
      const file = { name: "the source", handle, size, sha256, contentType: "application/octet-stream" };
      await this.#store.put(key, file, step.signal);
    } finally {
      await handle.close();
    }
  }

  async #restore(step: StepHandle, { key, size, sha256 }: Omit<Resolved, "media">): Promise<void> {
    const content = await this.#store.get(key, step.signal).catch((error) => {
      throw error.code === "ARTIFACT_MISSING" ? clipError("SOURCE_GONE", {}, error) : error;
    });
    const file = path.join(await step.scratch(), FILE);
    const hash = createHash("sha256");
    let done = 0;
    const target = await fs.open(file, "w", 0o600);
    try {
      await pipeline(
        readStore(content as AsyncIterable<Uint8Array>, step.signal),
        async function* (chunks: AsyncIterable<Uint8Array>) {
          for await (const chunk of chunks) {
            hash.update(chunk);
            done += chunk.length;
            step.progress({ done, total: Math.max(size, done) }, `Fetching: ${formatMb(done)} of ${formatMb(size)} MB`);
            yield chunk;
          }
        },
        target.createWriteStream(),
        { signal: step.signal },
      );
    } finally {
      await target.close().catch(() => {});
    }
    if (done !== size || hash.digest("hex") !== sha256) throw clipError("SOURCE_CHANGED");
    this.#isLocal = true;
  }
}

/** A transfer that breaks is a failure of the store, unlike one of the disk that it is written to. */
async function* readStore(content: AsyncIterable<Uint8Array>, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  try {
    yield* content;
  } catch (error) {
    throw signal.aborted ? error : clipError("STORAGE_UPLOAD_FAILED", {}, error);
  }
}

async function hashOf(file: string): Promise<string> {
  const hash = createHash("sha256");
  const handle = await fs.open(file, "r");
  for await (const chunk of handle.createReadStream()) hash.update(chunk as Buffer);
  return hash.digest("hex");
}

/** HLS, DASH and concat scripts, for their sentence: ffprobe would not open them either. */
async function isPlaylist(file: string): Promise<boolean> {
  const handle = await fs.open(file, "r");
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(512), 0, 512, 0);
    return /^\s*(#EXTM3U|ffconcat version|<\?xml[\s\S]*<MPD|<MPD)/.test(
      buffer.subarray(0, bytesRead).toString("latin1"),
    );
  } finally {
    await handle.close();
  }
}

function explainDownload(error: DownloadError, { sourceBytes }: Pick<Limits, "sourceBytes">) {
  const { kind, reason } = error;
  if (kind === "too large") return clipError("SOURCE_TOO_LARGE", { limit: `${formatMb(sourceBytes)} MB` }, error);
  const codes = { "not found": "SOURCE_NOT_FOUND", forbidden: "SOURCE_FORBIDDEN", blocked: "SOURCE_BLOCKED" } as const;
  return kind === "upstream" ? clipError("UPSTREAM_FAILURE", { reason }, error) : clipError(codes[kind], {}, error);
}
