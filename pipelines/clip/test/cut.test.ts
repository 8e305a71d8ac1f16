// Clips of uploaded files, end to end: the API, a worker with its runner, the real ffmpeg.
import { execFile } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { encoding } from "../src/stages/cut.ts";
import { setUpClips } from "./support/clips.ts";
import { inspect, makeVideo, programsForTests } from "./support/programs.ts";

const programs = await programsForTests();
const setup = await setUpClips();

describe.skipIf(typeof programs === "string")(
  `a clip (${typeof programs === "string" ? programs : "with ffmpeg"})`,
  () => {
    if (typeof programs === "string") return;
    const { upload, request, waitForEnd, api } = setup;
    const worker = setup.worker({ slots: 2 });
    const video = makeVideo(programs, path.join(setup.folder, "a.mp4"), { seconds: 8, gop: 50 });
    const silent = makeVideo(programs, path.join(setup.folder, "b.mp4"), { seconds: 4, audio: false });
    const webm = makeVideo(programs, path.join(setup.folder, "c.webm"), { seconds: 3, audio: false });
    beforeAll(() => worker.start());
    afterAll(() => worker.stop());

    it("is encoded if its start is between key frames, and passes all stages", async () => {
      const { id } = await upload(video, "holiday.mp4");
      const requested = await request({ source: { upload: id }, start: 1, end: 4.5 });
      expect(requested).toMatchObject({ title: "holiday.mp4", existing: false, failure: null });
      const { clip, lines, job } = await waitForEnd(requested.id);
      expect(clip).toMatchObject({
        state: "ready",
        stage: null,
        failure: null,
        warnings: [],
        files: { file: true, captions: false, thumbnail: true },
        result: { encoded: true, hasAudio: true, captions: "none", width: 320, height: 180 },
      });
      expect(job.attempt).toBe(1);
      expect(lines.filter((line) => !line.startsWith("warning"))).toEqual([
        "info Fetching the video...",
        "success Video ready - 8 s, 320x180",
        "info Cutting the clip...",
        "success Clip cut - 3.5 s, encoded",
        "info Checking the uploaded clip...",
        `success Clip uploaded - ${clip.result!.size} bytes`,
        "info Finishing the clip...",
        "success Clip finished",
        "success Clip ready",
      ]);
      const file = await setup.save(requested.id, "clip.mp4");
      const made = inspect(programs, file);
      expect(made.duration).toBeCloseTo(3.5, 1);
      expect(made.streams).toEqual(["audio aac", "video h264"]);
    });

    it("is copied without encoding if its start is a key frame", async () => {
      const { id } = await upload(video);
      const { clip } = await waitForEnd((await request({ source: { upload: id }, start: 2, end: 5 })).id);
      expect(clip.result).toMatchObject({ encoded: false });
      expect(inspect(programs, await setup.save(clip.id, "clip.mp4")).duration).toBeCloseTo(3, 0);
    });

    it("begins at the key frame before its start if the user accepts that", async () => {
      const { id } = await upload(video);
      const { clip, lines } = await waitForEnd(
        (await request({ source: { upload: id }, start: 3, end: 5, cut: "keyframe" })).id,
      );
      expect(clip.result).toMatchObject({ encoded: false });
      expect(lines).toContain("info Copying from the key frame at 2 s");
      expect(clip.result!.duration).toBeGreaterThan(2.7);
    });

    it("of any length is made into a gif in constant memory", async () => {
      const input = ["-f", "lavfi", "-i", "testsrc=size=480x270:rate=12:duration=40"];
      const args = ["-hide_banner", "-nostats", "-benchmark", "-y", ...input, ...encoding("gif", { captions: "none" })];
      const { stderr } = await promisify(execFile)(programs.ffmpeg, [...args, "/dev/null"]);
      // All frames together are 237 MB.
      expect(Number(/maxrss=\s*(\d+)k/i.exec(stderr)?.[1]) / 1024, stderr).toBeLessThan(180);
    });

    it("can be a webm or a gif", async () => {
      const { id } = await upload(video);
      const requests = (["webm", "gif"] as const).map((format) =>
        request({ source: { upload: id }, start: 1.2, end: 2.2, format }),
      );
      for (const { id: clipId, format } of await Promise.all(requests)) {
        const { clip } = await waitForEnd(clipId);
        expect(clip.failure, format).toBeNull();
        const { streams } = inspect(programs, await setup.save(clip.id, `clip.${format}`));
        expect(streams).toEqual(format === "gif" ? ["video gif"] : ["audio opus", "video vp9"]);
        const file = await api.get(`/clips/${clipId}/file`);
        expect(file.headers.get("content-type")).toBe(format === "gif" ? "image/gif" : "video/webm");
      }
    });

    it("without sound has no captions, and says so", async () => {
      const { id } = await upload(silent);
      const { clip } = await waitForEnd(
        (await request({ source: { upload: id }, start: 0, end: 2, captions: "burned" })).id,
      );
      expect(clip).toMatchObject({
        state: "ready",
        result: { hasAudio: false, captions: "none" },
        warnings: ["No captions: the clip has no sound"],
      });
    });

    it("that ends after the video ends with it, and says so", async () => {
      const { id } = await upload(webm, "c.webm");
      const { clip } = await waitForEnd(
        (await request({ source: { upload: id }, start: 1, end: 60, format: "webm" })).id,
      );
      expect(clip.warnings).toEqual(["The video ends at 3 s: the clip is shorter than requested"]);
      expect(clip.result!.duration).toBeCloseTo(2, 0);
    });

    it("is served with ranges, a thumbnail and a name for downloads", async () => {
      const { id } = await upload(video);
      const { clip } = await waitForEnd(
        (await request({ source: { upload: id }, start: 4, end: 5, title: "Käse / Brot" })).id,
      );
      const whole = new Uint8Array(await (await fetch(`${setup.origin}/api/clips/${clip.id}/file`)).arrayBuffer());
      expect(whole.length).toBe(clip.result!.size);
      for (const [range, first, last] of [
        ["bytes=0-99", 0, 99],
        [`bytes=${whole.length - 10}-`, whole.length - 10, whole.length - 1],
        ["bytes=-7", whole.length - 7, whole.length - 1],
        ["bytes=100-99999999", 100, whole.length - 1],
      ] as const) {
        const part = await fetch(`${setup.origin}/api/clips/${clip.id}/file`, { headers: { range } });
        expect(part.status, range).toBe(206);
        expect(part.headers.get("content-range")).toBe(`bytes ${first}-${last}/${whole.length}`);
        expect(Buffer.compare(new Uint8Array(await part.arrayBuffer()), whole.subarray(first, last + 1)), range).toBe(
          0,
        );
      }
      const beyond = await api.get(`/clips/${clip.id}/file`, { range: `bytes=${whole.length}-` });
      expect(beyond.status).toBe(416);
      const download = await api.get(`/clips/${clip.id}/file?download=1`);
      expect(download.headers.get("content-disposition")).toContain("filename*=UTF-8''K%C3%A4se%20%2F%20Brot.mp4");
      const thumbnail = new Uint8Array(
        await (await fetch(`${setup.origin}/api/clips/${clip.id}/thumbnail`)).arrayBuffer(),
      );
      expect([...thumbnail.subarray(0, 3)]).toEqual([0xff, 0xd8, 0xff]);
      expect((await api.get(`/clips/${clip.id}/captions.vtt`)).body).toMatchObject({ status: 404, code: "NOT_READY" });
    });

    it("leaves nothing in the scratch directory", async () => {
      expect(fs.readdirSync(path.join(setup.folder, "scratch/jobs"))).toEqual([]);
    });
  },
);
