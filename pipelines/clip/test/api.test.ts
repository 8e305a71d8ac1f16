// The API without a worker: requests, reuse, uploads, cancel and retry.
import fs from "node:fs";
import path from "node:path";
import { waitFor } from "stillwake/testing";
import { expect, it } from "vitest";
import { claimJob } from "../../kit/test/support/api-server.ts";
import { openSources, uploadKey } from "../src/stages/sources.ts";
import { setUpClips } from "./support/clips.ts";

const setup = await setUpClips({ env: { CLIP_SOURCE_MB: "1" } });
// Where this process spools uploads, apart from other tests.
process.env.TMPDIR = setup.folder;
const { api, pool, stillwake, upload, request } = setup;
const url = "https://media.example.com/films/talk%20one.mp4";
const MANUAL = { worker: "manual-worker", pool: "clip", pipeline: "clip", lease: "10 minutes" };

it("stores the record and its job in one transaction", async () => {
  const clip = await request({ source: { url }, start: 1, end: 3 });
  expect(clip).toMatchObject({
    title: "talk one.mp4",
    state: "queued",
    source: { kind: "url", url },
    files: { file: false, captions: false, thumbnail: false },
  });
  expect((await stillwake.get(clip.id)).input).toMatchObject({ source: { url }, start: 1, end: 3, format: "mp4" });
  const count = async () => (await pool.query("select count(*)::int as n from stillwake.live_jobs")).rows[0].n;
  const before = await count();
  await pool.query("alter table clip.clips add constraint no_more check (start_at <> 77) not valid");
  expect((await api.post("/clips", { source: { url }, start: 77, end: 78 })).status).toBe(500);
  await pool.query("alter table clip.clips drop constraint no_more");
  expect(await count()).toBe(before);
});

it("answers the clip that exists for the same request, also to many at once, unless fresh", async () => {
  const body = { source: { url }, start: 5, end: 8 };
  // None can store its clip before all of them have looked for it.
  await pool.query(
    `create function public.hold() returns trigger language plpgsql as 'begin perform pg_advisory_xact_lock(20); return new; end';
     create trigger hold before insert on clip.clips for each row execute function public.hold()`,
  );
  const blocker = await pool.connect();
  await blocker.query("select pg_advisory_lock(20)");
  const asked = Array.from({ length: 8 }, () => api.post("/clips", body));
  const waiting =
    "select count(*)::int as n from pg_locks l join pg_database d on d.oid = l.database where d.datname = current_database() and not l.granted";
  await waitFor(async () => (await blocker.query(waiting)).rows[0].n >= 8, { timeout: 20_000, what: "eight requests" });
  await blocker.query("select pg_advisory_unlock(20)");
  blocker.release();
  const answers = await Promise.all(asked);
  await pool.query("drop trigger hold on clip.clips");
  expect(new Set(answers.map((answer) => answer.body.id)).size).toBe(1);
  expect(answers.map(({ status }) => status).sort()).toEqual([...Array(7).fill(200), 201]);
  expect((await request({ ...body, format: "webm" })).existing).toBe(false);
  const fresh = await request({ ...body, fresh: true });
  expect(fresh.existing).toBe(false);
  expect(fresh.id).not.toBe(answers[0]!.body.id);
  // The newest one is reused from now on.
  expect(await request(body)).toMatchObject({ id: fresh.id, existing: true });
});

it("recognizes an upload by its content", async () => {
  const [one, two, other] = [
    await upload(Buffer.from("same")),
    await upload(Buffer.from("same")),
    await upload(Buffer.from("x")),
  ];
  const first = await request({ source: { upload: one.id }, start: 0, end: 1 });
  expect(await request({ source: { upload: two.id }, start: 0, end: 1 })).toMatchObject({
    id: first.id,
    existing: true,
  });
  expect((await request({ source: { upload: other.id }, start: 0, end: 1 })).existing).toBe(false);
});

it.each([
  [{}, "source"],
  [{ source: { url: "nonsense" }, start: 0, end: 1 }, "source"],
  [{ source: { url }, start: -1, end: 1 }, "start"],
  [{ source: { url }, start: 2, end: 2 }, "end"],
  [{ source: { url }, start: 0, end: 601 }, "end"],
  [{ source: { url }, start: 0, end: 1, format: "avi" }, "format"],
  [{ source: { url }, start: 0, end: 1, format: "gif", captions: "sidecar" }, "captions"],
  [{ source: { url }, start: 0, end: 1, title: "a\nb" }, "title"],
  [{ source: { url }, start: 0, end: 1, speed: 2 }, "speed"],
])("refuses %j with its field", async (body, field) => {
  const { status, body: problem } = await api.post("/clips", body);
  expect(status).toBe(400);
  expect(problem.code).toBe("INVALID_INPUT");
  expect(problem.field).toMatch(new RegExp(`^${field}`));
});

it("streams an upload to the store and plays it with ranges", async () => {
  const content = Buffer.alloc(900_000, "abc");
  const stored = await upload(content, "my film.webm");
  expect(stored).toMatchObject({ name: "my film.webm", size: content.length });
  const part = await api.get(`/uploads/${stored.id}/file`, { range: "bytes=3-8" });
  expect([part.status, part.text, part.headers.get("content-type")]).toEqual([206, "abcabc", "video/webm"]);
  const sources = openSources({ url: setup.env.CLIP_SOURCES!, credentials: undefined });
  expect(await sources.stat(uploadKey(stored.id))).toEqual({ size: content.length, sha256: stored.sha256 });
});

it("refuses an upload that is too large, empty, cut off or of another type, and keeps nothing", async () => {
  const send = (body: Uint8Array | ReadableStream, type = "video/mp4", more: object = {}) =>
    api.request("/uploads", { method: "POST", headers: { "content-type": type }, body, ...more } as RequestInit);
  const endless = () => {
    let sent = 0;
    return new ReadableStream({ pull: (to) => (sent++ < 40 ? to.enqueue(new Uint8Array(65_536)) : to.close()) });
  };
  const before = (await pool.query("select count(*)::int as n from clip.uploads")).rows[0].n;
  expect((await send(new Uint8Array(2 ** 20 + 1))).body).toMatchObject({ status: 413, code: "TOO_LARGE" });
  expect((await send(endless(), "video/mp4", { duplex: "half" })).body).toMatchObject({
    status: 413,
    code: "TOO_LARGE",
  });
  expect((await send(new Uint8Array(0))).body).toMatchObject({ status: 400, code: "INVALID_INPUT" });
  expect((await send(Buffer.from("<html>"), "text/html")).body).toMatchObject({ status: 415, code: "NOT_MEDIA" });
  expect((await pool.query("select count(*)::int as n from clip.uploads")).rows[0].n).toBe(before);
  expect(fs.readdirSync(setup.folder).filter((name) => name.startsWith("clip-upload-"))).toEqual([]);
});

it("cancels a clip, and runs it again on request", async () => {
  const { id } = await request({ source: { url }, start: 20, end: 21 });
  expect((await api.post(`/clips/${id}/retry`)).body).toMatchObject({ status: 409, code: "NOT_ENDED" });
  const cancelled = await api.post(`/clips/${id}/cancel`);
  expect([cancelled.status, cancelled.body.state]).toEqual([202, "cancelled"]);
  // A cancelled clip is not reused.
  expect((await request({ source: { url }, start: 20, end: 21 })).existing).toBe(false);
  const retried = await api.post(`/clips/${id}/retry`);
  expect([retried.status, retried.body.state]).toEqual([202, "queued"]);
  expect((await stillwake.get(id)).state).toBe("queued");
});

it("keeps a retried clip queued although outcomes are recorded at the same time", async () => {
  const { id } = await request({ source: { url }, start: 40, end: 41 });
  const failure = { code: "UPSTREAM_FAILURE", message: "x" };
  await claimJob(pool, id, MANUAL, { outcome: "failed", failure, fatal: true });
  expect((await api.get(`/clips/${id}`)).body.state).toBe("failed");
  await pool.query("update clip.clips set source_deleted = true where id = $1", [id]);
  // As a concurrent request does, just before the job is retried.
  await pool.query(
    `create function public.record() returns trigger language plpgsql as 'begin perform clip.record_outcomes(); return null; end';
     create trigger record after update on clip.clips for each row when (old.recorded_at is not null and new.recorded_at is null)
       execute function public.record()`,
  );
  expect((await api.post(`/clips/${id}/retry`)).status).toBe(202);
  await pool.query("drop trigger record on clip.clips");
  const { rows } = await pool.query("select state, failure, source_deleted from clip.clips where id = $1", [id]);
  expect(rows).toEqual([{ state: "queued", failure: null, source_deleted: false }]);
});

it("makes a clip again whose job was deleted", async () => {
  const body = { source: { url }, start: 50, end: 51 };
  const { id } = await request(body);
  await claimJob(pool, id, MANUAL, { outcome: "completed", output: {} });
  expect(await request(body)).toMatchObject({ id, existing: true });
  await pool.query("delete from stillwake.ended_jobs where id = $1", [id]);
  const again = await request(body);
  expect(again.existing).toBe(false);
  expect(again.id).not.toBe(id);
});

it("keeps no file of an upload that could not be recorded, and no temporary folder while it is received", async () => {
  const stored = () => fs.readdirSync(path.join(setup.folder, "sources/uploads")).length;
  const folders = () => fs.readdirSync(setup.folder).filter((name) => name.startsWith("clip-upload-"));
  await upload(Buffer.from("first"));
  const before = stored();
  await pool.query("alter table clip.uploads add constraint none check (name <> 'refused') not valid");
  let during: string[] | undefined;
  const slow = new ReadableStream({
    async pull(to) {
      if (during) return to.close();
      // The server has begun to receive it.
      to.enqueue(Buffer.from("part"));
      await waitFor(() => folders().length === 0 && hasUnnamedFile(), {
        timeout: 10_000,
        what: "a file without a name",
      });
      during = folders();
    },
  });
  const init = { method: "POST", headers: { "content-type": "video/mp4" }, body: slow, duplex: "half" };
  const { status } = await api.request("/uploads?name=refused", init as RequestInit);
  await pool.query("alter table clip.uploads drop constraint none");
  expect(status).toBe(500);
  expect(during).toEqual([]);
  expect(stored()).toBe(before);
  setup.internalErrors.pop();
});

/** Whether this process has a deleted upload open. */
function hasUnnamedFile(): boolean {
  const open = fs.readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      return fs.readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return [];
    }
  });
  return open.some((target) => /clip-upload-.*\(deleted\)$/.test(target));
}

it("records the outcome of a job that ended without pipeline code", async () => {
  const { id } = await request({ source: { url }, start: 30, end: 31 });
  const failure = { code: "SOURCE_NOT_FOUND", message: "x", sentence: "The clip failed: The video was not found" };
  await claimJob(pool, id, MANUAL, { outcome: "failed", failure, fatal: true });
  const { body } = await api.get(`/clips/${id}`);
  expect(body).toMatchObject({
    state: "failed",
    failure: { code: "SOURCE_NOT_FOUND", sentence: "The video was not found", retryable: false },
  });
  const { body: page } = await api.get("/clips?state=failed&q=talk");
  expect(page.rows.map((row: { id: string }) => row.id)).toEqual([id]);
});

it("deletes sources a day after their last use, but not those of active clips", async () => {
  const [idle, used] = [await upload(Buffer.from("idle")), await upload(Buffer.from("used"))];
  await request({ source: { upload: used.id }, start: 0, end: 1 });
  await pool.query("update clip.uploads set used_at = now() - interval '25 hours' where id = any ($1)", [
    [idle.id, used.id],
  ]);
  await upload(Buffer.from("another"));
  expect((await api.get(`/uploads/${idle.id}`)).status).toBe(404);
  expect((await api.get(`/uploads/${used.id}`)).status).toBe(200);
  expect(fs.existsSync(path.join(setup.folder, "sources/uploads", idle.id))).toBe(false);
});

it("answers 404 for what does not exist", async () => {
  const none = "00000000-0000-4000-8000-00000000dead";
  for (const path of [`/clips/${none}`, `/clips/${none}/file`, `/uploads/${none}`, `/clips/x`, "/nothing"]) {
    expect((await api.get(path)).status, path).toBe(404);
  }
  expect((await api.post("/sample")).status).toBe(404);
  expect((await api.post("/clips", { source: { upload: none }, start: 0, end: 1 })).status).toBe(404);
  expect(setup.internalErrors).toHaveLength(1);
});
