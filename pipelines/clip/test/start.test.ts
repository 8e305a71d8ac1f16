// The clips under `npm start`: the sample is clipped with one request, without a network, also with the programs of the npm packages.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { createServer } from "stillwake/server";
import { waitFor } from "stillwake/testing";
import { createWorker, openStore } from "stillwake/worker";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { freshDatabase } from "../../../test/support/database/database.ts";
import { buildPackage } from "../../../test/support/processes/build.ts";
import { createCaller } from "../../kit/test/support/api-server.ts";
import { SAMPLE, SAMPLE_FILE, startClip } from "../src/demo/start.ts";
import { findPrograms } from "../src/media/programs.ts";
import { readSettings } from "../src/settings.ts";
import { PIPELINE } from "./support/clips.ts";
import { inspect, programsForTests } from "./support/programs.ts";

const found = await programsForTests();
const cache = path.join(os.tmpdir(), "stillwake-clip-tools");
const packaged = await findPrograms({ ...readSettings({}), toolPath: "/nowhere", toolCache: cache }).catch(String);

beforeAll(() => buildPackage(), 120_000);

async function clipSample(toolPath: string) {
  const { url } = await freshDatabase();
  const dir = fs.mkdtempSync(path.join(fs.realpathSync(os.tmpdir()), "stillwake-clip-start-"));
  const store = `file:${dir}/artifacts`;
  const server = createServer({ url, store: openStore(store) });
  const { stillwake, fetch: live } = server;
  const app = await startClip({ url, dir, stillwake, fetch: live, schema: "stillwake", embedded: true, base: "/clip" });
  const environment = { PATH: process.env.PATH ?? "", ...app.env, CLIP_TOOL_PATH: toolPath, CLIP_TOOL_CACHE: cache };
  const worker = createWorker({
    url,
    pool: "clip",
    pipelines: PIPELINE,
    slots: 1,
    store,
    scratch: `${dir}/scratch`,
    environment,
  });
  await worker.start();
  onTestFinished(async () => {
    await worker.stop();
    await app.close();
    await server.close();
    fs.rmSync(dir, { recursive: true, force: true });
  });
  const api = createCaller(async (route, init) => app.fetch(new Request(`http://127.0.0.1/clip/api${route}`, init)));
  const { body: me } = await api.get("/me");
  expect(me).toMatchObject({ open: true, sample: SAMPLE });
  const { status, body } = await api.post("/sample", {});
  expect(status).toBe(201);
  const read = async () => (await api.get(`/clips/${body.id}`)).body;
  await waitFor(async () => ["ready", "failed"].includes((await read()).state), { timeout: 60_000, what: "the clip" });
  const clip = await read();
  expect(clip.failure).toBeNull();
  expect(clip).toMatchObject({ state: "ready", title: SAMPLE.name, files: { file: true, thumbnail: true } });
  expect(clip.result.duration).toBeCloseTo(SAMPLE.end - SAMPLE.start, 0);
  expect((await api.post("/sample", {})).body).toMatchObject({ id: clip.id, existing: true });
  const played = await api.get(`/uploads/${SAMPLE.upload}/file`, { range: "bytes=4-7" });
  expect([played.status, played.text]).toEqual([206, "ftyp"]);
}

describe("the sample", () => {
  it("is a video of our own making of at most 600 KB", () => {
    expect(fs.statSync(SAMPLE_FILE).size).toBeLessThan(600_000);
    if (typeof found !== "string") expect(inspect(found, SAMPLE_FILE).duration).toBeCloseTo(SAMPLE.duration, 1);
  });

  it.skipIf(typeof found === "string")(
    `is clipped with one request (${typeof found === "string" ? found : "ffmpeg"})`,
    () => clipSample(process.env.PATH ?? ""),
  );

  it.skipIf(typeof packaged === "string")(
    `is clipped with the programs of the npm packages${typeof packaged === "string" ? ` (${packaged})` : ""}`,
    () => clipSample("/nowhere"),
  );
});
