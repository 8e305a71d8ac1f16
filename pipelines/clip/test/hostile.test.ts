// Hostile sources: nothing local is read, nothing is run, nothing is left behind.
import fs from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { processesIn } from "../../../test/support/processes/fault-checks.ts";
import { clip as clipContract } from "../src/contract.ts";
import { setUpClips } from "./support/clips.ts";
import { serveMedia } from "./support/media-server.ts";
import { makeVideo, programsForTests, ytDlpForTests } from "./support/programs.ts";

const found = await programsForTests();
const ytDlp = await ytDlpForTests();
const setup = await setUpClips({ maxAttempts: 1 });
const media = await serveMedia();
const SECRET = "the content of a local file";

describe.skipIf(typeof found === "string")(
  `a hostile source (${typeof found === "string" ? found : "with ffmpeg"})`,
  () => {
    if (typeof found === "string") return;
    const worker = setup.worker({ slots: 2 });
    const secret = path.join(setup.folder, "secret.txt");
    fs.writeFileSync(secret, SECRET);
    const localVideo = path.join(setup.folder, "local.mp4");
    makeVideo(found, localVideo, { seconds: 2 });
    /** Whatever connects here was led by a source. */
    const reached: string[] = [];
    const internal = http.createServer((request, response) => {
      reached.push(request.url ?? "");
      response.end(SECRET);
    });
    let internalUrl = "";
    beforeAll(async () => {
      await new Promise<void>((resolve) => void internal.listen(0, "127.0.0.2", resolve));
      internalUrl = `http://127.0.0.2:${(internal.address() as AddressInfo).port}`;
      await worker.start();
    });
    afterAll(async () => {
      await worker.stop();
      internal.close();
    });

    const segment = (name: string) => `#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n${name}\n#EXT-X-ENDLIST\n`;
    const dash = (name: string) =>
      `<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period><AdaptationSet><Representation id="1"><BaseURL>${name}</BaseURL></Representation></AdaptationSet></Period></MPD>`;
    const bodies: [string, () => string | Buffer][] = [
      ["HLS with a local file", () => segment(`file://${localVideo}`)],
      ["HLS with a local text", () => segment(secret)],
      ["HLS with concat:", () => segment(`concat:${localVideo}|${secret}`)],
      ["HLS with an internal address", () => segment(`${internalUrl}/a.ts`)],
      ["HLS inside a subtitle codec", () => segment(`subfile,,start,0,end,0,,:${localVideo}`)],
      ["a concat script with a local file", () => `ffconcat version 1.0\nfile '${localVideo}'\n`],
      ["a concat script without its first line", () => `file '${localVideo}'\n`],
      ["a DASH manifest with an internal address", () => dash(`${internalUrl}/b.mp4`)],
      ["a playlist bomb", () => `#EXTM3U\n${"#EXTINF:1,\nbomb.m3u8\n".repeat(50_000)}`],
      [
        "an SDP session",
        () => `v=0\no=- 0 0 IN IP4 127.0.0.2\ns=x\nc=IN IP4 127.0.0.2\nt=0 0\nm=video 4000 RTP/AVP 96\n`,
      ],
      [
        "an SVG with a reference",
        () => `<svg xmlns="http://www.w3.org/2000/svg"><image href="file://${secret}"/></svg>`,
      ],
    ];

    it.each(bodies)("that is %s is refused, as an upload and as a URL", async (name, body) => {
      const content = Buffer.from(body());
      const { id } = await setup.upload(content, `../../x\u202e.mp4`);
      media.files.set(`/${encodeURIComponent(name)}.mp4`, { body: content });
      const requests = [{ upload: id }, { url: `${media.url}/${encodeURIComponent(name)}.mp4` }];
      for (const source of requests) {
        const { clip, job } = await setup.waitForEnd((await setup.request({ source, start: 0, end: 1 })).id);
        expect(["NOT_A_VIDEO", "SOURCE_PLAYLIST"], clip.failure?.sentence).toContain(clip.failure?.code);
        expect(JSON.stringify(job.failure)).not.toContain(SECRET);
      }
      expect(reached).toEqual([]);
    });

    it.each([
      ["http://169.254.169.254/latest/meta-data"],
      ["http://[::ffff:10.0.0.1]/a.mp4"],
      ["http://0x0a000001/a.mp4"],
    ])("at %s is refused, directly and by redirect", async (address) => {
      media.files.set("/moved.mp4", { location: address });
      for (const url of [address, `${media.url}/moved.mp4?to=${encodeURIComponent(address)}`]) {
        const { clip } = await setup.waitForEnd((await setup.request({ source: { url }, start: 0, end: 1 })).id);
        expect(clip.failure?.code, url).toBe("SOURCE_BLOCKED");
      }
    });

    it.each([
      ["file:///etc/passwd"],
      ["concat:a|b"],
      ["ftp://example.com/a.mp4"],
      ["http://user:password@example.com/a.mp4"],
      ["-o/tmp/x"],
      ['https://example.com/a#__youtubedl_smuggle={"http_headers":{"Ytdl-request-proxy":"http://127.0.0.2"}}'],
      ["https://example.com/a?to=%23%5F_youtubedl_smuggle%3D%7B%7D"],
    ])("named %s is refused by the API", async (url) => {
      const { status, body } = await setup.api.post("/clips", { source: { url }, start: 0, end: 1 });
      expect(status).toBe(400);
      expect(body).toMatchObject({ code: "INVALID_INPUT" });
    });

    it("whose redirects never end is given up", async () => {
      media.files.set("/loop.mp4", { location: `${media.url}/loop.mp4` });
      const { job } = await setup.waitForEnd(
        (await setup.request({ source: { url: `${media.url}/loop.mp4` }, start: 0, end: 1 })).id,
      );
      expect(job.failure?.cause).toMatchObject({ code: "UPSTREAM_FAILURE" });
    });

    it.skipIf(typeof ytDlp === "string")(
      "that is a page leads yt-dlp to no local file and no other address",
      async () => {
        media.files.set("/list.m3u8", { body: segment(`${internalUrl}/c.ts`), type: "application/vnd.apple.mpegurl" });
        media.files.set("/local.m3u8", {
          body: segment(`file://${localVideo}`),
          type: "application/vnd.apple.mpegurl",
        });
        const inside = [
          `${media.url}/list.m3u8`,
          `${media.url}/local.m3u8`,
          `file://${localVideo}`,
          `${internalUrl}/d.mp4`,
        ];
        for (const [index, inner] of inside.entries()) {
          const name = `/page-${index}`;
          media.files.set(name, { body: `<html><video src="${inner}"></video></html>`, type: "text/html" });
          const { clip } = await setup.waitForEnd(
            (await setup.request({ source: { url: media.url + name }, start: 0, end: 1 })).id,
          );
          expect(clip.state, inner).toBe("failed");
        }
        expect(reached).toEqual([]);
      },
    );

    it.skipIf(typeof ytDlp === "string")("whose fragment names a proxy does not lead yt-dlp to it", async () => {
      media.files.set("/plain", { body: "<html>Nothing</html>", type: "text/html" });
      const data = encodeURIComponent(JSON.stringify({ http_headers: { "Ytdl-request-proxy": internalUrl } }));
      const source = { url: `${media.url}/plain#__youtubedl_smuggle=${data}` };
      // Not by the API, which refuses it.
      const input = { source, start: 0, end: 1, captions: "none", format: "mp4", cut: "exact" } as const;
      const { job } = await setup.waitForEnd((await setup.stillwake.enqueue(clipContract, input)).id);
      expect(job.failure).toMatchObject({ code: "PAGE_UNSUPPORTED" });
      expect(reached).toEqual([]);
    });

    it.skipIf(typeof ytDlp === "string")("with separate sound leads yt-dlp to merge no local file", async () => {
      const type = "application/vnd.apple.mpegurl";
      const master = [
        "#EXTM3U",
        '#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="a",NAME="a",DEFAULT=YES,URI="sound.m3u8"',
        '#EXT-X-STREAM-INF:BANDWIDTH=100000,CODECS="avc1.4d001e,mp4a.40.2",RESOLUTION=320x180,AUDIO="a"',
        "picture.m3u8",
      ];
      media.files.set("/master.m3u8", { body: master.join("\n"), type });
      media.files.set("/picture.m3u8", { body: segment("picture.ts"), type });
      media.files.set("/sound.m3u8", { body: segment("sound.ts"), type });
      media.files.set("/picture.ts", {
        body: makeVideo(found, path.join(setup.folder, "p.mp4"), { seconds: 2, audio: false }),
      });
      // The "sound" is a playlist of a local file.
      media.files.set("/sound.ts", { body: segment(`file://${localVideo}`) });
      media.files.set("/separate", {
        body: `<html><video src="${media.url}/master.m3u8"></video></html>`,
        type: "text/html",
      });
      const { clip, lines } = await setup.waitForEnd(
        (await setup.request({ source: { url: `${media.url}/separate` }, start: 0, end: 1 })).id,
      );
      expect(clip.failure, lines.join("\n")).toMatchObject({ code: "PAGE_UNSUPPORTED" });
    });

    it("leaves no file and no process", () => {
      expect(fs.readdirSync(path.join(setup.folder, "scratch/jobs"))).toEqual([]);
      expect(processesIn(path.join(setup.folder, "scratch"))).toEqual([]);
      const texts = setup.responses.join("\n");
      expect(texts.includes(SECRET)).toBe(false);
      expect(texts.includes(setup.folder)).toBe(false);
    });
  },
);
