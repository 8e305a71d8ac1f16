// The HTTP API: uploads, clips and their files. The page uses this API like any other client. API.md describes it.
import { inTransaction } from "@stillwake/kit/database";
import { sendContent } from "@stillwake/kit/web/content";
import { type GuardedOptions, guardedApi, readToken } from "@stillwake/kit/web/guarded-api";
import { notFound, Refusal } from "@stillwake/kit/web/problems";
import {
  checkId,
  emptyBody,
  pageQuery,
  parseBody,
  parseQuery,
  parseWith,
  singleLine,
} from "@stillwake/kit/web/requests";
import type { Context, Hono } from "hono";
import type pg from "pg";
import type { Actor, Stillwake } from "stillwake";
import type { ArtifactStore } from "stillwake/worker";
import { z } from "zod";
import { cancelClip, fileOf, listClips, readClip, recordOutcomes, requestClip, retryClip } from "./clips.ts";
import { CAPTIONS, type Clip, FORMATS, type Me, type NewClip, newClip, type Sample, STATES } from "./model.ts";
import type { Limits } from "./settings.ts";
import { ARTIFACTS } from "./stages/finalize.ts";
import { uploadKey } from "./stages/sources.ts";
import { deleteExpired, readUpload, receiveUpload, unavailable } from "./uploads.ts";

export interface ApiOptions extends Omit<GuardedOptions, "name"> {
  /** A login with the roles clip_api and stillwake_app. */
  pool: pg.Pool;
  /** With the workers' store for the files, and the secret of the live view for read tokens. */
  stillwake: Stillwake;
  /** The store of uploads. */
  sources: ArtifactStore;
  limits: Pick<Limits, "sourceBytes" | "clipSeconds">;
  /** Attempts of a job. Default: those of the contract. */
  maxAttempts?: number | undefined;
  /** A video that the page offers. */
  sample?: Sample | undefined;
}

const ACTOR: Actor = { by: "the clip API" };
const clipsQuery = pageQuery.extend({ state: z.enum(STATES).optional(), q: z.string().max(200).optional() });
const uploadQuery = z.strictObject({ name: singleLine(255).default("upload") });
const fileQuery = z.strictObject({ download: z.enum(["1"]).optional() });
const sampleBody = z.strictObject({
  captions: z.enum(CAPTIONS).default("sidecar"),
  format: z.enum(FORMATS).default("mp4"),
});

export function createApi(options: ApiOptions): Hono {
  const { pool, stillwake, sources, limits, maxAttempts, sample, token, path, onError } = options;
  const api = guardedApi({ name: "clip", token, path, onError });
  const idOf = (c: Context) => checkId(c.req.param("id") ?? "", "clip");
  const places = { pool, sources, maxBytes: limits.sourceBytes };

  const request = async (c: Context, body: NewClip) => {
    await recordOutcomes(pool);
    const rules = { stillwake, maxSeconds: limits.clipSeconds, maxAttempts };
    const { id, existing } = await inTransaction(pool, (tx) => requestClip(tx, body, rules));
    if (!existing) await stillwake.poke();
    // A store that is down must not prevent a new clip.
    await deleteExpired(places).catch((error) => onError?.(error, { method: "POST", path: "/clips" }));
    return c.json({ ...(await readClip(pool, stillwake, id)), existing }, existing ? 200 : 201);
  };

  api.get("/me", (c) => {
    const { sourceBytes: uploadBytes, clipSeconds } = limits;
    const me: Me = { open: token === undefined, sample: sample ?? null, limits: { uploadBytes, clipSeconds } };
    return c.json(me);
  });

  api.post("/clips", async (c) => request(c, await parseBody(newClip, c.req.raw)));
  api.get("/clips", async (c) => {
    const query = parseQuery(clipsQuery, c.req.raw);
    await recordOutcomes(pool);
    return c.json(await listClips(pool, stillwake, query));
  });
  api.get("/clips/:id", async (c) => {
    await recordOutcomes(pool);
    return c.json(await readClip(pool, stillwake, idOf(c)));
  });
  api.post("/clips/:id/cancel", async (c) => {
    await parseBody(emptyBody, c.req.raw);
    return c.json(await cancelClip(pool, stillwake, idOf(c), ACTOR), 202);
  });
  api.post("/clips/:id/retry", async (c) => {
    await parseBody(emptyBody, c.req.raw);
    await recordOutcomes(pool);
    return c.json(await retryClip(pool, stillwake, idOf(c), ACTOR), 202);
  });
  api.get("/clips/:id/token", async (c) => {
    const { id } = await readClip(pool, stillwake, idOf(c));
    return c.json({ token: readToken(stillwake, id) });
  });

  /** `pick`: the artifact among those that are stored. */
  const sendArtifact = async (
    c: Context,
    pick: (clip: Clip, names: string[]) => string | undefined,
    download = false,
  ) => {
    const found = await readClip(pool, stillwake, idOf(c));
    const stored = found.job ? await stillwake.artifacts(found.id) : [];
    const name = pick(
      found,
      stored.map((one) => one.name),
    );
    const artifact = stored.find((one) => one.name === name);
    if (!artifact) {
      throw new Refusal(404, "NOT_READY", "This file of the clip does not exist", {
        remedy: found.job
          ? "Wait until the clip is ready: files tells what exists"
          : "It was deleted: request the clip again",
      });
    }
    const { size, sha256, contentType } = artifact;
    const open = () =>
      stillwake.download(found.id, artifact.name).catch((error) => {
        throw unavailable(error);
      });
    const title = `${found.title.replace(/\.\w{1,4}$/, "")}.${found.format}`;
    return sendContent(c.req.raw, { size, sha256, contentType, open, ...(download && { download: title }) });
  };
  const sendNamed = (name: string) => (c: Context) => sendArtifact(c, (_, names) => names.find((one) => one === name));
  api.get("/clips/:id/file", (c) => {
    const { download } = parseQuery(fileQuery, c.req.raw);
    return sendArtifact(c, fileOf, download !== undefined);
  });
  api.get("/clips/:id/captions.vtt", sendNamed(ARTIFACTS.vtt));
  api.get("/clips/:id/captions.srt", sendNamed(ARTIFACTS.srt));
  api.get("/clips/:id/thumbnail", sendNamed(ARTIFACTS.thumbnail));

  api.post("/uploads", async (c) => {
    const { name } = parseQuery(uploadQuery, c.req.raw);
    const upload = await receiveUpload(places, c.req.raw, name);
    await deleteExpired(places).catch((error) => onError?.(error, { method: "POST", path: "/uploads" }));
    return c.json(upload, 201);
  });
  const uploadId = (c: Context) => checkId(c.req.param("id") ?? "", "upload");
  api.get("/uploads/:id", async (c) => c.json(await readUpload(pool, uploadId(c))));
  api.get("/uploads/:id/file", async (c) => {
    const { id, size, sha256, name } = await readUpload(pool, uploadId(c));
    const open = async () => {
      const content = await sources.get(uploadKey(id)).catch((error) => {
        throw unavailable(error);
      });
      return content as AsyncIterable<Uint8Array>;
    };
    return sendContent(c.req.raw, { size, sha256, contentType: typeOf(name), open });
  });

  api.post("/sample", async (c) => {
    const { captions, format } = await parseBody(sampleBody, c.req.raw);
    if (!sample) throw notFound("sample");
    const { upload, start, end, name } = sample;
    return request(c, parseWith(newClip, { source: { upload }, start, end, captions, format, title: name }));
  });
  return api;
}

/** By the name that the client gave: only types that a browser plays, and never one that it would execute. */
function typeOf(name: string): string {
  const [, extension = ""] = /\.(\w+)$/.exec(name.toLowerCase()) ?? [];
  const types: Record<string, string> = {
    ...{ mp4: "video/mp4", m4v: "video/mp4", mov: "video/mp4", webm: "video/webm", mkv: "video/webm" },
    ...{ gif: "image/gif", ogv: "video/ogg" },
  };
  return types[extension] ?? "application/octet-stream";
}
