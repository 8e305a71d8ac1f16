// Builds the image "clip" from this tree and runs it: an unprivileged worker clips the sample with the ffmpeg of the image. It takes
// minutes and needs root: only with STILLWAKE_FULL=1.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { ROOT } from "../../../../test/support/processes/build.ts";
import { Buildah } from "../../../../test/support/processes/buildah.ts";
import { FULL, round } from "../../../../test/support/processes/fault-checks.ts";
import { commandOf, DOCKERFILE, stageOf } from "../../../kit/test/support/deploy.ts";
import { SAMPLE_FILE } from "../../src/demo/start.ts";
import { type ClipSetup, setUpClips } from "../support/clips.ts";
import { type MediaServer, serveMedia } from "../support/media-server.ts";

const MINUTES = 60_000;
const why = !FULL ? "only with STILLWAKE_FULL=1" : process.getuid?.() !== 0 ? "only as root" : undefined;

describe.skipIf(why)(`the image${why ? ` (${why})` : ""}`, { timeout: 5 * MINUTES }, async () => {
  const folder = why ? "" : fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-clip-image-")));
  const setup = why ? ({} as ClipSetup) : await setUpClips();
  const media = why ? ({} as MediaServer) : await serveMedia();
  let buildah: Buildah;
  let container = "";

  beforeAll(async () => {
    buildah = new Buildah(folder);
    const began = performance.now();
    await buildah.createBaseImage(DOCKERFILE);
    await buildah.build("clip", DOCKERFILE, ROOT, "clip");
    const seconds = round((performance.now() - began) / 1000);
    recordFigure("clip: building the image", seconds, "s", "with a stand-in base");
    container = (await buildah.call("from", "--pull-never", "clip")).trim();
  }, 25 * MINUTES);

  afterAll(async () => {
    await buildah?.call("rm", "--all").catch(() => {});
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });

  it("runs unprivileged, cannot change its code, and has ffmpeg and yt-dlp", async () => {
    const { OCIv1 } = JSON.parse(await buildah.call("inspect", container));
    expect(OCIv1.config).toMatchObject({ User: "1000:1000", StopSignal: "SIGTERM" });
    for (const file of ["/app/mine", "/app/pipelines/clip/dist/mine"]) {
      expect(await inside(["touch", file])).toMatchObject({ code: 1 });
    }
    expect((await inside(["ffmpeg", "-version"])).stdout).toMatch(/^ffmpeg version 5\.1/);
    expect((await inside(["yt-dlp", "--version"])).stdout).toMatch(/^2023\.03\.04/);
  });

  it("clips the sample and exits when the pool is empty", async () => {
    media.files.set("/sample.mp4", { body: fs.readFileSync(SAMPLE_FILE) });
    const { id } = await setup.request({ source: { url: `${media.url}/sample.mp4` }, start: 4.5, end: 9.5 });
    const command = commandOf(stageOf("clip"));
    const ended = await buildah.start(container, [...command.slice(command.indexOf("node")), "--drain"], {
      ...setup.env,
      STILLWAKE_DATABASE_URL: setup.url,
      STILLWAKE_STORE: "file:/var/lib/stillwake/artifacts",
      CLIP_SOURCES: "file:/var/lib/clip/sources",
      CLIP_TOOL_CACHE: "/var/lib/clip/tools",
    }).ended;
    expect(ended, ended.stdout + ended.stderr).toMatchObject({ code: 0 });
    const { clip } = await setup.waitForEnd(id);
    expect(clip).toMatchObject({ state: "ready", result: { encoded: true, width: 640, hasAudio: true } });
    expect(clip.result!.duration).toBeCloseTo(5, 0);
  });

  function inside(program: string[]) {
    return buildah.start(container, program).ended;
  }
});
