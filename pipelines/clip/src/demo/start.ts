// Starts the clips for `npm start` without a network: the sample video is an upload that exists from the beginning.
import path from "node:path";
import { fileURLToPath } from "node:url";
import { type Application, startDemo } from "@stillwake/kit/demo/start";
import type { DevPlace } from "stillwake";
import { createApp, loginFor, migrate } from "../app.ts";
import { findPrograms } from "../media/programs.ts";
import type { Sample } from "../model.ts";
import { readSettings, settingsOfSample } from "../settings.ts";
import { openSources } from "../stages/sources.ts";
import { importFile } from "../uploads.ts";

/** Relative to the package, from src/ and from dist/. */
export const SAMPLE_FILE = fileURLToPath(new URL("../../sample/harbour.mp4", import.meta.url));
export const SAMPLE: Sample = {
  upload: "00000000-0000-4000-8000-000000000001",
  name: "A walk to the harbour",
  duration: 24,
  start: 4,
  end: 14,
};

export async function startClip(dev: DevPlace & { base: string }): Promise<Application> {
  const settings = readSettings();
  const store = settings.sources.url || `file:${path.resolve(dev.dir, "clip/sources")}`;
  const toolCache = path.resolve(dev.dir, "clip/tools");
  const hasPrograms = await findPrograms({ ...settings, toolCache }).then(
    () => true,
    () => false,
  );
  const { login, fetch, close } = await startDemo(dev, {
    name: "clip",
    toolPath: settings.toolPath,
    migrate,
    loginFor,
    async createApp({ hasSample: _, home: __, ...options }) {
      const sources = openSources({ ...settings.sources, url: store });
      await importFile({ pool: options.pool, sources }, SAMPLE_FILE, SAMPLE.upload);
      return createApp({ ...options, sources, limits: settings.limits, sample: SAMPLE });
    },
  });
  return {
    env: {
      CLIP_DATABASE_URL: login,
      ...settingsOfSample({ CLIP_SOURCES: store, CLIP_TOOL_CACHE: toolCache }),
    },
    line: hasPrograms
      ? "A video can be clipped with one click, without a network:"
      : "Videos can be clipped as soon as ffmpeg is installed:",
    fetch,
    close,
  };
}
