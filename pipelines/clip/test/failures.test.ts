// The failure table: each failure with the real tools, its code, its sentence, and whether it is retried. Jobs have two attempts,
// so a retried failure that stays ends as RETRIES_EXHAUSTED in the second one.
import fs from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { RETRYABLE } from "../src/contract.ts";
import { clipError, type FailureCode } from "../src/failures.ts";
import type { NewClipBody } from "../src/model.ts";
import { readSettings } from "../src/settings.ts";
import { setUpClips, withoutBackoff } from "./support/clips.ts";
import { type Served, serveMedia } from "./support/media-server.ts";
import { makeVideo, programsForTests, ytDlpForTests } from "./support/programs.ts";
import { makeWrappers } from "./support/wrappers.ts";

const found = await programsForTests();
const ytDlp = await ytDlpForTests();
const setup = await setUpClips({
  maxAttempts: 2,
  env: { CLIP_SILENCE_SEC: "3", CLIP_SOURCE_MB: "4", CLIP_PIXELS: "500000" },
});
const media = await serveMedia();

interface Row {
  when: string;
  /** Served at /<row>.mp4. */
  serve?: Served;
  source?: NewClipBody["source"];
  body?: Partial<NewClipBody>;
  code: FailureCode;
  sentence: string;
}

describe("the classification table", () => {
  it("retries the codes of the document and an empty output, and nothing else", () => {
    expect([...RETRYABLE].sort()).toEqual([
      "CLIP_EMPTY",
      "CLIP_TIMEOUT",
      "INTERNAL_TRANSIENT",
      "STORAGE_UPLOAD_FAILED",
      "UPSTREAM_FAILURE",
      "YTDLP_TIMEOUT",
    ]);
    expect(clipError("SOURCE_DAMAGED").constructor.name).toBe("Fatal");
    expect(clipError("CLIP_EMPTY").constructor.name).toBe("UserError");
  });
});

describe.skipIf(typeof found === "string")(
  `a clip fails (${typeof found === "string" ? found : "with ffmpeg"})`,
  () => {
    if (typeof found === "string") return;
    const wrappers = makeWrappers(
      path.join(setup.folder, "bin"),
      found,
      typeof ytDlp === "string" ? undefined : ytDlp.program,
    );
    const worker = setup.worker({ slots: 3, environment: { CLIP_TOOL_PATH: wrappers.folder } });
    const file = (name: string) => path.join(setup.folder, name);
    const video = makeVideo(found, file("a.mp4"), { seconds: 6 });
    const sound = makeVideo(found, file("s.mp4"), { seconds: 1 });
    beforeAll(async () => {
      await withoutBackoff(setup.pool);
      await worker.start();
    });
    afterAll(() => worker.stop());

    const run = async (name: string, { serve, source, body }: Pick<Row, "serve" | "source" | "body">) => {
      const address = `/${encodeURIComponent(name)}.mp4`;
      if (serve) media.files.set(address, serve);
      const request = { source: source ?? { url: media.url + address }, start: 1, end: 2.5, ...body };
      return setup.waitForEnd((await setup.request(request as NewClipBody)).id);
    };

    /** The decoder of its video stream does not exist. */
    const undecodable = Buffer.from(video.toString("latin1").replaceAll("avc1", "xvc1"), "latin1");
    const audioOnly = () => {
      makeVideo(found, file("audio.m4a"), { seconds: 2, extra: ["-vn"] });
      return fs.readFileSync(file("audio.m4a"));
    };
    const endless: Served = { body: video, stallAfter: 1000 };

    const fatal: Row[] = [
      {
        when: "the source is missing (404)",
        serve: { status: 404 },
        code: "SOURCE_NOT_FOUND",
        sentence: "The video was not found (404) - check the address",
      },
      {
        when: "the source is forbidden (403)",
        serve: { status: 403 },
        code: "SOURCE_FORBIDDEN",
        sentence: "The server does not allow access to this video - use an address that needs no sign-in",
      },
      {
        when: "the source is not a video",
        serve: { body: "just text" },
        code: "NOT_A_VIDEO",
        sentence: "The source is not a video that can be read - use a file such as mp4, webm, mkv or mov",
      },
      {
        when: "the source has sound only",
        serve: { body: audioOnly() },
        code: "NOT_A_VIDEO",
        sentence: "The source is not a video that can be read - use a file such as mp4, webm, mkv or mov",
      },
      {
        when: "the source is larger than the limit",
        serve: { body: Buffer.alloc(5 * 2 ** 20) },
        code: "SOURCE_TOO_LARGE",
        sentence: "The video is larger than 4.0 MB - use a smaller one",
      },
      {
        when: "the range begins after the end",
        serve: { body: video },
        body: { start: 7, end: 9 },
        code: "RANGE_PAST_END",
        sentence: "The range begins at 7 s but the video ends at 6 s - choose an earlier range",
      },
      {
        when: "the source is truncated",
        serve: { body: video.subarray(0, video.length / 2) },
        body: { start: 2.5, end: 6 },
        code: "SOURCE_TRUNCATED",
        sentence: "The video is incomplete: only",
      },
      {
        when: "ffmpeg fails hard",
        serve: { body: undecodable },
        code: "SOURCE_DAMAGED",
        sentence: "The video cannot be decoded - check that it plays, or convert it first",
      },
      {
        when: "the address is private",
        source: { url: "http://10.0.0.1/a.mp4" },
        code: "SOURCE_BLOCKED",
        sentence: "Videos cannot be fetched from this address - use a public address, or upload the file",
      },
      {
        when: "the source redirects to the metadata service",
        serve: { location: "http://169.254.169.254/latest/meta-data" },
        code: "SOURCE_BLOCKED",
        sentence: "Videos cannot be fetched from this address - use a public address, or upload the file",
      },
      {
        when: "the picture is too large",
        serve: { body: makeVideo(found, file("large.mp4"), { seconds: 1, size: "1280x720" }) },
        body: { start: 0, end: 0.5 },
        code: "PIXELS_TOO_MANY",
        sentence: "The picture has 1280x720 pixels, which is too large - use a smaller one",
      },
    ];
    const retried: Row[] = [
      {
        when: "the server refuses for now (429)",
        serve: { status: 429 },
        code: "UPSTREAM_FAILURE",
        sentence: "The server of the video does not answer as it should (429, too many requests)",
      },
      {
        when: "the server fails (503)",
        serve: { status: 503 },
        code: "UPSTREAM_FAILURE",
        sentence: "The server of the video does not answer as it should (status 503)",
      },
      {
        when: "nothing listens there",
        source: { url: "http://127.0.0.1:1/a.mp4" },
        code: "UPSTREAM_FAILURE",
        sentence: "The server of the video does not answer as it should (no connection)",
      },
      {
        when: "the server stays silent",
        serve: { ...endless, stallAfter: 0 },
        code: "UPSTREAM_FAILURE",
        sentence: "The server of the video does not answer as it should (no data for a while)",
      },
    ];

    it.concurrent.each(fatal)("at once if $when", async ({ when, code, sentence, ...row }) => {
      const { clip, job } = await run(when, row);
      expect(clip.state).toBe("failed");
      expect(clip.failure).toMatchObject({ code, retryable: false });
      expect(clip.failure?.sentence).toContain(sentence);
      expect(job.attempt).toBe(1);
    });

    it.concurrent.each(retried)("after its attempts if $when", async ({ when, code, sentence, ...row }) => {
      const { clip, job } = await run(when, row);
      expect(clip.failure).toMatchObject({ code: "RETRIES_EXHAUSTED", sentence, retryable: true });
      expect(job.failure?.cause).toMatchObject({ code });
      expect(job.attempt).toBe(2);
    });

    it.skipIf(typeof ytDlp === "string")("not if the page has a video that yt-dlp finds", async () => {
      media.files.set("/inside.mp4", { body: video });
      const page = `<html><title>../../etc\n</title><video src="${media.url}/inside.mp4"></video></html>`;
      const { clip } = await run("page", { serve: { body: page, type: "text/html" } });
      expect(clip.failure).toBeNull();
      expect(clip.state).toBe("ready");
      expect(wrappers.calls()).toContain("page");
    });

    it.skipIf(typeof ytDlp === "string")("at once if yt-dlp does not know the page", async () => {
      const { clip, job } = await run("unknown page", { serve: { body: "<html>Nothing</html>", type: "text/html" } });
      const sentence = "No video was found on this page - use the address of a video file, or upload the file";
      expect(clip.failure).toMatchObject({ code: "PAGE_UNSUPPORTED", sentence, retryable: false });
      expect(job.attempt).toBe(1);
    });

    it.skipIf(typeof ytDlp === "string")("after its attempts if yt-dlp hangs", async () => {
      wrappers.fail("yt-dlp", "hang", "hang");
      const { clip, job } = await run("slow page", { serve: { body: "<html></html>", type: "text/html" } });
      expect(clip.failure).toMatchObject({ code: "RETRIES_EXHAUSTED", sentence: "yt-dlp did not finish in time" });
      expect(job.failure?.cause).toMatchObject({ code: "YTDLP_TIMEOUT" });
    });

    it("not if its download was deleted before a retry: it is fetched again", async () => {
      wrappers.fail("ffmpeg", "hang", "hang");
      const { clip } = await run("deleted", { serve: { body: sound }, body: { start: 0.1, end: 0.6 } });
      expect(clip.failure).toMatchObject({ stage: "clip" });
      const download = path.join(setup.folder, "sources/downloads", clip.id);
      expect(fs.existsSync(download)).toBe(true);
      fs.rmSync(download, { recursive: true });
      expect((await setup.api.post(`/clips/${clip.id}/retry`)).status).toBe(202);
      const { clip: again, lines } = await setup.waitForEnd(clip.id);
      expect(again.failure, lines.join("\n")).toBeNull();
      expect(lines).toContain("info The downloaded source was deleted - fetching it again");
    });

    it("at once if the address is a page and yt-dlp is not installed", async () => {
      const hidden = `${wrappers.folder}/yt-dlp`;
      if (fs.existsSync(hidden)) fs.renameSync(hidden, `${hidden}-away`);
      const { clip } = await run("page without yt-dlp", { serve: { body: "<html></html>", type: "text/html" } });
      if (fs.existsSync(`${hidden}-away`)) fs.renameSync(`${hidden}-away`, hidden);
      expect(clip.failure).toMatchObject({
        code: "YTDLP_MISSING",
        sentence: "This address is a page, and yt-dlp is not installed on the worker - use the address of a video file",
        retryable: false,
      });
    });

    it.skipIf(typeof ytDlp === "string")("at once if the page leads yt-dlp to a private address", async () => {
      const page = `<html><video src="http://10.0.0.1/inside.mp4"></video></html>`;
      const { clip } = await run("private page", { serve: { body: page, type: "text/html" } });
      expect(clip.failure).toMatchObject({ code: "SOURCE_BLOCKED" });
    });

    it.skipIf(typeof ytDlp === "string")("at once if the video of a page does not end", async () => {
      media.files.set("/endless.mp4", { body: Buffer.alloc(2 ** 20), endless: true });
      const page = `<html><video src="${media.url}/endless.mp4"></video></html>`;
      const { clip, lines } = await run("endless page", { serve: { body: page, type: "text/html" } });
      const sentence = "The video is larger than 4.0 MB - use a smaller one";
      expect(clip.failure, lines.join("\n")).toMatchObject({ code: "SOURCE_TOO_LARGE", sentence });
    });

    it.skipIf(typeof ytDlp === "string")("at once if the video of a page names a size over the limit", async () => {
      media.files.set("/large-inside.mp4", { body: Buffer.alloc(5 * 2 ** 20) });
      const page = `<html><video src="${media.url}/large-inside.mp4"></video></html>`;
      const { clip } = await run("large page", { serve: { body: page, type: "text/html" } });
      expect(clip.failure).toMatchObject({ code: "SOURCE_TOO_LARGE" });
    });

    it.skipIf(typeof ytDlp === "string")("not if the video of a page has an address without a type", async () => {
      media.files.set("/odd", { body: video });
      const page = `<html><video src="${media.url}/odd"></video></html>`;
      const { clip, lines } = await run("odd page", { serve: { body: page, type: "text/html" } });
      expect(clip.failure, lines.join("\n")).toBeNull();
    });

    it.skipIf(typeof ytDlp === "string")("not if yt-dlp is stopped once", async () => {
      media.files.set("/stopped.mp4", { body: video });
      wrappers.fail("yt-dlp", "stop");
      const page = `<html><video src="${media.url}/stopped.mp4"></video></html>`;
      const { clip, job, lines } = await run("stopped page", { serve: { body: page, type: "text/html" } });
      expect(clip.failure, lines.join("\n")).toBeNull();
      expect(job.attempt).toBe(2);
      expect(lines).toContain("error The worker had a temporary problem (a program was stopped)");
    });

    it("at once if the address is a page and yt-dlp is too old", async () => {
      const program = `${wrappers.folder}/yt-dlp`;
      const before = fs.existsSync(program) ? fs.readFileSync(program) : undefined;
      fs.writeFileSync(program, "#!/bin/sh\necho 2023.03.03\n", { mode: 0o755 });
      const { clip } = await run("page with an old yt-dlp", { serve: { body: "<html></html>", type: "text/html" } });
      if (before) fs.writeFileSync(program, before);
      else fs.rmSync(program);
      expect(clip.failure).toMatchObject({
        code: "YTDLP_OLD",
        sentence:
          "This address is a page, and yt-dlp 2023.03.03 on the worker is not safe for pages - the operator must install 2023.03.04 or later",
        retryable: false,
      });
      expect(readSettings({}).ytDlpMinVersion).toBe("2023.11.14");
    });

    it("not if the connection is cut midway: Range resumes, counted", async () => {
      const cut = { body: video, cutAfter: 20_000, cuts: 3 };
      const before = media.requests.length;
      const { clip, logs } = await run("cut", { serve: cut });
      expect(clip.state).toBe("ready");
      const ranges = media.requests.slice(before).map((line) => line.split(" ")[1]);
      expect(ranges).toEqual([undefined, "bytes=20000-", "bytes=40000-", "bytes=60000-"]);
      expect(logs.find(({ message }) => message.startsWith("Downloaded"))?.data).toMatchObject({ resumed: 3 });
    });

    it("not if the server ignores Range: the download begins again", async () => {
      const { clip } = await run("whole", { serve: { body: video, cutAfter: 20_000, cuts: 2, whole: true } });
      expect(clip.state).toBe("ready");
    });

    it("not if the output is empty once", async () => {
      wrappers.fail("ffmpeg", "empty");
      const { clip, job, lines } = await run("empty", { serve: { body: sound }, body: { start: 0.2, end: 0.9 } });
      expect(clip.state).toBe("ready");
      expect(job.attempt).toBe(2);
      expect(lines).toContain("error ffmpeg wrote an empty file");
    });

    it("not if ffmpeg runs out of memory once", async () => {
      wrappers.fail("ffmpeg", "kill");
      const { clip, job, lines } = await run("memory", { serve: { body: sound }, body: { start: 0.2, end: 0.8 } });
      expect(clip.state).toBe("ready");
      expect(job.attempt).toBe(2);
      expect(lines).toContain("error The worker had a temporary problem (its memory ran out)");
    });

    it("after its attempts if ffmpeg hangs", async () => {
      wrappers.fail("ffmpeg", "hang", "hang");
      const { clip, job } = await run("hang", { serve: { body: sound }, body: { start: 0.2, end: 0.7 } });
      expect(clip.failure).toMatchObject({
        code: "RETRIES_EXHAUSTED",
        sentence: "The clip was not cut in time",
        stage: "clip",
      });
      expect(job.failure?.cause).toMatchObject({ code: "CLIP_TIMEOUT" });
    });

    it("with a sentence that names no path of this machine", () => {
      const texts = setup.responses.join("\n");
      expect(texts.includes(setup.folder)).toBe(false);
      expect(setup.internalErrors).toEqual([]);
    });
  },
);
