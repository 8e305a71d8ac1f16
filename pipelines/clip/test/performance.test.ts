// What a clip costs beyond ffmpeg: time, and memory of the runner for a large source. Times are asserted in the full form only,
// because other tests run at the same time otherwise.
import { execFile } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { Readable } from "node:stream";
import { promisify } from "node:util";
import { afterAll, describe, expect, it } from "vitest";
import { recordFigure } from "../../../test/support/figures.ts";
import { FULL, round } from "../../../test/support/processes/fault-checks.ts";
import { startWorker } from "../../../test/support/processes/workers.ts";
import { encoding } from "../src/stages/cut.ts";
import { PIPELINE, setUpClips } from "./support/clips.ts";
import { makeVideo, programsForTests } from "./support/programs.ts";

const found = await programsForTests();
const SOURCE_MB = FULL ? 2000 : 300;
const setup = await setUpClips();

describe.skipIf(typeof found === "string")(`a clip (${typeof found === "string" ? found : "with ffmpeg"})`, () => {
  if (typeof found === "string") return;
  const start = () =>
    startWorker({
      url: setup.url,
      pipelines: PIPELINE,
      env: setup.env,
      args: ["--pool", "clip", "--slots", "1", "--store", setup.store],
    });

  it("takes little more time than ffmpeg by hand", { timeout: 600_000 }, async () => {
    const file = path.join(setup.folder, "long.mp4");
    const video = makeVideo(found, file, { seconds: 13, size: FULL ? "1280x720" : "640x360", gop: 250 });
    const worker = await start();
    const { id } = await setup.upload(video);
    const byHand = async () => {
      const began = performance.now();
      const args = [
        "-v",
        "error",
        "-y",
        "-ss",
        "1.5",
        "-i",
        file,
        "-t",
        "10",
        ...encoding("mp4", { captions: "none" }),
      ];
      await promisify(execFile)(found.ffmpeg, [...args, path.join(setup.folder, "by-hand.mp4")]);
      return performance.now() - began;
    };
    const asClip = async () => {
      const { id: clip } = await setup.request({ source: { upload: id }, start: 1.5, end: 11.5, fresh: true });
      await setup.waitForEnd(clip);
      return (await setup.stillwake.steps(clip)).find(({ name }) => name === "clip")!.tookMs!;
    };
    // In turns, and the best of each: other processes use the same machine.
    let [hand, cut] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
    for (let n = 0; n < (FULL ? 4 : 1); n++) {
      hand = Math.min(hand, await byHand());
      cut = Math.min(cut, await asClip());
    }
    recordFigure(
      "clip: 10 s encoded, the stage relative to ffmpeg by hand",
      round((cut / hand) * 100) / 100,
      "×",
      `${Math.round(hand)} ms`,
    );
    if (FULL) expect(cut / hand).toBeLessThanOrEqual(1.15);
    worker.signal("SIGTERM");
    await worker.exited;
  });

  it("keeps the memory of the runner flat for a large source", { timeout: 600_000 }, async () => {
    const small = makeVideo(found, path.join(setup.folder, "small.mp4"), { seconds: 3 });
    // A valid mp4 with a box of free space behind it.
    const free = Buffer.alloc(8);
    free.writeUInt32BE(SOURCE_MB * 2 ** 20);
    free.write("free", 4);
    const zeros = Buffer.alloc(2 ** 20);
    const parts = function* () {
      yield small;
      yield free;
      yield zeros.subarray(8);
      for (let n = 1; n < SOURCE_MB; n++) yield zeros;
    };
    const server = http.createServer((_, response) => {
      response.writeHead(200, { "content-type": "video/mp4", "content-length": small.length + SOURCE_MB * 2 ** 20 });
      Readable.from(parts()).pipe(response);
    });
    await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
    afterAll(() => server.close());
    const worker = await start();
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/large.mp4`;
    const { id } = await setup.request({ source: { url }, start: 0.5, end: 2 });
    const { clip } = await setup.waitForEnd(id);
    expect(clip.failure).toBeNull();
    const peaks = worker.runners().map((pid) => {
      const [, kilobytes = "0"] = /^VmHWM:\s+(\d+)/m.exec(fs.readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
      return Number(kilobytes) / 1024;
    });
    const most = Math.max(...peaks);
    recordFigure(
      `clip: memory of the runner for a source of ${SOURCE_MB} MB`,
      Math.round(most),
      "MB",
      "most at any time",
    );
    expect(most).toBeGreaterThan(20);
    expect(most).toBeLessThanOrEqual(150);
    worker.signal("SIGTERM");
    await worker.exited;
  });
});
