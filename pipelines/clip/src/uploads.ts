// Uploaded files: streamed to a temporary file and from there to the store of sources, in constant memory. The row is written last.
import { createHash, randomUUID } from "node:crypto";
import fs from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { notFound, Refusal } from "@stillwake/kit/web/problems";
import type pg from "pg";
import { StillwakeError } from "stillwake";
import type { ArtifactStore } from "stillwake/worker";
import type { Upload } from "./model.ts";
import { uploadKey } from "./stages/sources.ts";

const COLUMNS = `id, name, size::float8 as size, sha256, created_at as "createdAt"`;
const TYPES = /^(video\/[\w.+-]+|audio\/[\w.+-]+|image\/gif|application\/octet-stream)\s*(;|$)/i;

export interface UploadPlaces {
  pool: pg.Pool;
  sources: ArtifactStore;
  maxBytes: number;
}

/** `name`: of the file at the client, for display only. */
export async function receiveUpload(places: UploadPlaces, request: Request, name: string): Promise<Upload> {
  const { pool, sources, maxBytes } = places;
  if (!TYPES.test(request.headers.get("content-type") ?? "")) {
    throw new Refusal(415, "NOT_MEDIA", "The content type is not that of a video", {
      remedy: "Send content-type: application/octet-stream, or the type of the video",
    });
  }
  if (Number(request.headers.get("content-length") ?? 0) > maxBytes) throw tooLarge(maxBytes);
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), "clip-upload-"));
  // The file has no name from here on, so that nothing is left if this process dies.
  const handle = await fs
    .open(path.join(folder, "upload"), "wx+", 0o600)
    .finally(() => fs.rm(folder, { recursive: true, force: true }));
  try {
    const { size, sha256 } = await spool(request, handle, maxBytes);
    const id = randomUUID();
    const file = { name, handle, size, sha256, contentType: "application/octet-stream" };
    await sources.put(uploadKey(id), file, request.signal).catch((error) => {
      throw unavailable(error);
    });
    const { rows } = await pool
      .query(`insert into clip.uploads (id, name, size, sha256) values ($1, $2, $3, $4) returning ${COLUMNS}`, [
        id,
        name,
        size,
        sha256,
      ])
      .catch(async (error) => {
        // Without its row it would never be deleted.
        await sources.remove(uploadKey(id)).catch(() => {});
        throw error;
      });
    return rows[0];
  } finally {
    await handle.close();
  }
}

async function spool(request: Request, handle: fs.FileHandle, maxBytes: number) {
  const hash = createHash("sha256");
  let size = 0;
  try {
    for await (const chunk of (request.body ?? []) as AsyncIterable<Uint8Array>) {
      if (size + chunk.length > maxBytes) throw tooLarge(maxBytes);
      hash.update(chunk);
      await handle.write(chunk, 0, chunk.length, size);
      size += chunk.length;
    }
  } catch (error) {
    if (error instanceof Refusal) throw error;
    if ((error as { code?: string }).code === "ENOSPC") throw unavailable(error);
    throw new Refusal(400, "INVALID_INPUT", "The upload is incomplete", {
      field: "body",
      remedy: "Send the whole file",
    });
  }
  if (size === 0) {
    throw new Refusal(400, "INVALID_INPUT", "The upload is empty", {
      field: "body",
      remedy: "Send the file as the body",
    });
  }
  return { size, sha256: hash.digest("hex") };
}

export async function readUpload(queries: pg.Pool | pg.PoolClient, id: string): Promise<Upload> {
  const { rows } = await queries.query(`select ${COLUMNS} from clip.uploads where id = $1`, [id]);
  if (rows.length === 0) throw notFound("upload");
  return rows[0];
}

/** Deletes sources that are no longer needed. Called with each upload and each clip, so that nothing polls. */
export async function deleteExpired({ pool, sources }: Pick<UploadPlaces, "pool" | "sources">): Promise<void> {
  const { rows } = await pool.query("select key from clip.expire_sources(20)");
  for (const { key } of rows) await sources.remove(key);
}

/** A file of this server as an upload, once: the sample. */
export async function importFile(
  { pool, sources }: Pick<UploadPlaces, "pool" | "sources">,
  file: string,
  id: string,
): Promise<void> {
  const content = await fs.readFile(file);
  const sha256 = createHash("sha256").update(content).digest("hex");
  const handle = await fs.open(file, "r");
  try {
    const known = await pool.query("select sha256 from clip.uploads where id = $1", [id]);
    if (known.rows[0] && known.rows[0].sha256 !== sha256) await sources.remove(uploadKey(id));
    const name = path.basename(file);
    const source = { name, handle, size: content.length, sha256, contentType: "application/octet-stream" };
    await sources.put(uploadKey(id), source);
    await pool.query(
      `insert into clip.uploads (id, name, size, sha256, permanent) values ($1, $2, $3, $4, true)
       on conflict (id) do update set size = excluded.size, sha256 = excluded.sha256, name = excluded.name`,
      [id, name, content.length, sha256],
    );
  } finally {
    await handle.close();
  }
}

export function unavailable(error: unknown): unknown {
  const { code = "" } = error as { code?: string };
  if (error instanceof StillwakeError && code === "ARTIFACT_MISSING") return notFound("file");
  if (!(error instanceof StillwakeError) && !/^E[A-Z]+$/.test(code)) return error;
  return new Refusal(503, "STORE_UNAVAILABLE", "The store of files is not available", {
    remedy: "Try again in a moment. If it stays so, the operator must check the store",
  });
}

function tooLarge(bytes: number): Refusal {
  return new Refusal(413, "TOO_LARGE", `The file is larger than ${Math.round(bytes / 2 ** 20)} MB`, {
    field: "body",
    remedy: "Upload a smaller file, or cut it first",
  });
}
