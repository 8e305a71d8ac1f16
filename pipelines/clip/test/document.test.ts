// The five tests that the requirements name, and the rows of their failure table about workers and stores. Programs are counted by
// wrappers; the store is an S3 server that checks hashes.
import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { waitFor } from "stillwake/testing";
import { afterAll, describe, expect, it } from "vitest";
import { startS3 } from "../../../test/support/fakes/s3-server.ts";
import { isAlive, processesIn } from "../../../test/support/processes/fault-checks.ts";
import { checkMetrics, findPromtool } from "../../../test/support/processes/promtool.ts";
import { startWorker } from "../../../test/support/processes/workers.ts";
import { PIPELINE, setUpClips, withoutBackoff } from "./support/clips.ts";
import { makeVideo, programsForTests } from "./support/programs.ts";
import { makeWrappers } from "./support/wrappers.ts";

const found = await programsForTests();
const s3 = await startS3();
const sources = await startS3("sources");
// Pipeline code does not get those of the worker's store.
Object.assign(sources.credentials, { accessKeyId: "OF-THE-SOURCES", secretAccessKey: "secret/of/the/sources" });
afterAll(() => Promise.all([s3.close(), sources.close()]));
const store = `s3://${s3.bucket}/clips?endpoint=${encodeURIComponent(s3.endpoint)}&region=eu-west-7&style=path`;
const setup = await setUpClips({
  store: { url: store, credentials: s3.credentials },
  env: {
    CLIP_SOURCES: `s3://${sources.bucket}?endpoint=${encodeURIComponent(sources.endpoint)}&region=eu-west-7&style=path`,
    CLIP_SOURCES_ACCESS_KEY_ID: sources.credentials.accessKeyId,
    CLIP_SOURCES_SECRET_ACCESS_KEY: sources.credentials.secretAccessKey,
  },
});
const promtool = findPromtool();

describe.skipIf(typeof found === "string")(
  `the document (${typeof found === "string" ? found : "with ffmpeg"})`,
  () => {
    if (typeof found === "string") return;
    const { pool, stillwake, waitForEnd, request } = setup;
    const wrappers = makeWrappers(path.join(setup.folder, "bin"), found);
    const video = makeVideo(found, path.join(setup.folder, "a.mp4"), { seconds: 6, size: "640x360" });
    let requests = 0;
    /** Another range each time, so that every clip is new. */
    const next = async (seconds = 2) => {
      const { id } = await setup.upload(video);
      requests += 1;
      return (
        await request({ source: { upload: id }, start: 0.3 + requests / 100, end: 0.3 + requests / 100 + seconds })
      ).id;
    };
    const env = {
      ...setup.env,
      CLIP_TOOL_PATH: wrappers.folder,
      STILLWAKE_STORE_ACCESS_KEY_ID: s3.credentials.accessKeyId,
      STILLWAKE_STORE_SECRET_ACCESS_KEY: s3.credentials.secretAccessKey,
    };
    const start = (args: string[] = []) =>
      startWorker({
        url: setup.url,
        pipelines: PIPELINE,
        env,
        args: ["--pool", "clip", "--slots", "1", "--lease", "2s", "--store", store, ...args],
      });
    const inStage = (id: string, stage: string) =>
      waitFor(
        async () =>
          (await pool.query("select from clip.clips where id = $1 and stage = $2", [id, stage])).rowCount === 1,
        {
          timeout: 30_000,
          interval: 5,
          what: `clip ${id} to be in ${stage}`,
        },
      );
    const calls = () => wrappers.calls().length;

    it("process killed mid-job, restarted, recovered", async () => {
      await withoutBackoff(pool);
      const first = await start();
      wrappers.fail("ffmpeg", "hang");
      const id = await next();
      await inStage(id, "clip");
      await waitFor(() => wrappers.calls().length === 1, { timeout: 20_000, what: "ffmpeg to run" });
      first.signal("SIGKILL");
      await first.exited;
      const second = await start();
      const { clip, job } = await waitForEnd(id);
      expect(clip.state).toBe("ready");
      expect(job.attempt).toBe(2);
      const { rows } = await pool.query("select outcome from stillwake.ended_attempts where job_id = $1", [id]);
      expect(rows[0]).toEqual({ outcome: "lost" });
      expect(wrappers.calls()).toEqual(["clip", "clip", "thumbnail"]);
      await waitFor(() => wrappers.pids().every((pid) => !isAlive(pid)), { timeout: 10_000, what: "no stray process" });
      second.signal("SIGTERM");
      await second.exited;
    });

    it("more requests than the cap", async () => {
      const worker = await start(["--slots", "2", "--metrics-port", "0"]);
      const ids = await Promise.all(Array.from({ length: 5 }, () => next(1)));
      let most = 0;
      let ended = 0;
      while (ended < ids.length) {
        // In one statement: a worker settles a job and claims the next one in one commit.
        const { rows } = await pool.query("select state from stillwake.jobs where id = any ($1)", [ids]);
        most = Math.max(most, rows.filter(({ state }) => state === "running").length);
        ended = rows.filter(({ state }) => ["completed", "failed", "cancelled"].includes(state)).length;
      }
      expect(most).toBe(2);
      for (const id of ids) expect((await waitForEnd(id)).clip.state).toBe("ready");
      const { address } = await worker.waitForLine("http");
      const metrics = await (await fetch(`${address}/metrics`)).text();
      for (const name of [
        "worker_heartbeats_total",
        "worker_heartbeat_failures_total",
        'worker_recovered_jobs_total{reason="stale"',
        "worker_retry_attempts_total",
        "worker_concurrent_jobs",
        "worker_acquire_conflicts_total",
      ]) {
        expect(metrics, name).toContain(name);
      }
      if (typeof promtool !== "string")
        expect(checkMetrics(promtool.program, metrics)).toEqual({ code: 0, output: "" });
      worker.signal("SIGTERM");
      expect(await worker.exited).toBe(0);
    });

    it("re-run with the artifact present", async () => {
      const first = await startWorker({
        url: setup.url,
        pipelines: PIPELINE,
        env: { ...env, STILLWAKE_CRASH: "before:clip" },
        args: ["--pool", "clip", "--slots", "1", "--lease", "2s", "--store", store],
      });
      const before = calls();
      const id = await next();
      // The clip was stored, and the checkpoint of its stage was not.
      await first.waitForLine("runner.died", { timeout: 30_000 });
      first.signal("SIGKILL");
      await first.exited;
      const second = await start();
      const { clip, lines } = await waitForEnd(id);
      expect(clip.state).toBe("ready");
      expect(lines).toContain("info The clip is uploaded already - it is not cut again");
      expect(wrappers.calls().slice(before)).toEqual(["clip", "thumbnail"]);
      const object = [...s3.objects].find(([key]) => key.includes(id) && key.endsWith(clip.result!.sha256));
      expect(createHash("sha256").update(object![1].body).digest("hex")).toBe(clip.result!.sha256);
      second.signal("SIGTERM");
      await second.exited;
    });

    it("SIGTERM while active", async () => {
      const first = await start(["--drain-timeout", "1s", "--grace", "500ms"]);
      wrappers.fail("ffmpeg", "hang");
      const before = calls();
      const id = await next();
      await waitFor(() => calls() > before, { timeout: 20_000, what: "ffmpeg to run" });
      first.signal("SIGTERM");
      expect(await first.exited).toBe(0);
      const job = await stillwake.get(id);
      expect(job).toMatchObject({ state: "queued", attempt: 0 });
      const { rows } = await pool.query(
        "select kind from stillwake.feed where job_id = $1 and kind <> 'log' order by seq desc limit 1",
        [id],
      );
      expect(rows).toHaveLength(1);
      expect((await stillwake.attempts(id)).map(({ outcome }) => outcome)).toEqual(["released"]);
      expect(processesIn(first.scratch)).toEqual([]);
      const second = await start();
      expect((await waitForEnd(id)).clip).toMatchObject({ state: "ready", attempts: 1 });
      second.signal("SIGTERM");
      await second.exited;
    });

    it("upload error that passes: the clip is not cut again", async () => {
      const worker = await start();
      const before = calls();
      for (let n = 0; n < 6; n++) s3.failures.push({ method: "PUT", status: 503, code: "SlowDown" });
      const { clip, lines } = await waitForEnd(await next());
      expect(clip.state, lines.join("\n")).toBe("ready");
      expect(wrappers.calls().slice(before)).toEqual(["clip", "thumbnail"]);
      expect(lines.join()).not.toContain("Clip failed");
      s3.failures.length = 0;
      worker.signal("SIGTERM");
      await worker.exited;
    });

    it("upload error that stays: STORAGE_UPLOAD_FAILED, retried until the attempts are used up", async () => {
      const worker = await start();
      for (let n = 0; n < 1000; n++) s3.failures.push({ method: "PUT", status: 503, code: "SlowDown" });
      const { clip, job } = await waitForEnd(await next());
      expect(clip.failure).toMatchObject({
        code: "RETRIES_EXHAUSTED",
        sentence: "The store of files is not available",
        retryable: true,
        stage: "clip",
      });
      expect(job.failure?.cause).toMatchObject({ code: "STORAGE_UPLOAD_FAILED" });
      expect(job.attempt).toBe(3);
      s3.failures.length = 0;
      const retried = await setup.api.post(`/clips/${clip.id}/retry`);
      expect(retried.status).toBe(202);
      expect((await waitForEnd(clip.id)).clip).toMatchObject({ state: "ready", failure: null });
      worker.signal("SIGTERM");
      await worker.exited;
    });

    it("duplicate delivery: a second claim of the same clip is refused by the fence, and one file exists", async () => {
      const id = await next();
      // A claim that expires at once, as of a worker that is frozen: the job is delivered again.
      const { rows } = await pool.query(
        "select job_id as job, epoch, lease_id as lease from stillwake.claim('frozen', 'clip', array['clip'], 1, interval '1 second')",
      );
      expect(rows[0].job).toBe(id);
      const worker = await start();
      const { clip } = await waitForEnd(id);
      expect(clip.state).toBe("ready");
      const late = { ...rows[0], outcome: "failed", failure: { message: "late" }, fatal: true };
      await pool.query("select stillwake.settle($1)", [JSON.stringify([late])]).catch(() => {});
      expect((await waitForEnd(id)).clip.state).toBe("ready");
      const clips = (await stillwake.artifacts(id)).filter(({ name }) => name === "clip.mp4");
      expect(clips).toHaveLength(1);
      worker.signal("SIGTERM");
      await worker.exited;
    });

    it("a source whose transfer breaks: STORAGE_UPLOAD_FAILED, and the attempt is retried", async () => {
      const worker = await start();
      const id = await next();
      sources.failures.push({ method: "GET", status: 200, half: true });
      const { clip, job, lines } = await waitForEnd(id);
      expect(clip.state, lines.join("\n")).toBe("ready");
      expect(sources.failures).toEqual([]);
      expect(job.attempt).toBe(2);
      expect(lines).toContain("error The store of files is not available");
      worker.signal("SIGTERM");
      await worker.exited;
    });

    it("a database connection that is lost at the end: the attempt is retried", async () => {
      // More often than the last step is tried in one attempt.
      await pool.query(
        `create sequence public.losses;
         create function public.lose() returns trigger language plpgsql security definer as $$
           begin
             if nextval('public.losses') <= 3 then perform pg_terminate_backend(pg_backend_pid()); end if;
             return new;
           end $$;
         create trigger lose before update on clip.clips for each row when (new.state = 'ready' and old.state <> 'ready')
           execute function public.lose()`,
      );
      const worker = await start();
      const before = calls();
      const { clip, job, lines } = await waitForEnd(await next());
      await pool.query("drop trigger lose on clip.clips");
      expect(clip.state, lines.join("\n")).toBe("ready");
      expect(job.attempt).toBe(2);
      expect(lines).toContain("error The worker had a temporary problem (the database is not available)");
      expect(wrappers.calls().slice(before)).toEqual(["clip", "thumbnail"]);
      worker.signal("SIGTERM");
      await worker.exited;
    });

    it("a full disk: INTERNAL_TRANSIENT with its reason", { timeout: 60_000 }, async ({ skip }) => {
      const disk = path.join(setup.folder, "small");
      fs.mkdirSync(disk);
      const { execFileSync } = await import("node:child_process");
      try {
        execFileSync(
          "mount",
          ["-t", "tmpfs", "-o", `size=${Math.ceil((video.length + 60_000) / 1024)}k`, "tmpfs", disk],
          {
            stdio: "pipe",
          },
        );
      } catch {
        return skip("only root may mount a small disk");
      }
      try {
        const worker = await start(["--scratch", disk]);
        const { clip, job, lines } = await waitForEnd(await next(5));
        expect(clip.failure, lines.join("\n")).toMatchObject({
          code: "RETRIES_EXHAUSTED",
          sentence: "The worker had a temporary problem (its disk is full)",
          retryable: true,
        });
        expect(job.failure?.cause).toMatchObject({ code: "INTERNAL_TRANSIENT" });
        worker.signal("SIGTERM");
        await worker.exited;
      } finally {
        execFileSync("umount", [disk]);
      }
    });
  },
);
