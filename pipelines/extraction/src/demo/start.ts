// Starts the extraction for `npm start` without a network.
import path from "node:path";
import { type Application, startDemo } from "@stillwake/kit/demo/start";
import type { DevPlace } from "stillwake";
import { createApp, loginFor, migrate } from "../app.ts";
import { readSettings, settingsOfSample } from "../settings.ts";
import { makeSampleRepository, SAMPLE, SAMPLES } from "./sample.ts";

export async function startExtraction(dev: DevPlace & { base: string }): Promise<Application> {
  const { home, login, git, fetch, close } = await startDemo(dev, {
    name: "extraction",
    toolPath: readSettings().toolPath,
    migrate,
    loginFor,
    makeSampleRepository,
    createApp: ({ hasSample, ...options }) => createApp({ ...options, ...(hasSample && { sample: SAMPLE }) }),
  });
  return {
    env: {
      EXTRACTION_DATABASE_URL: login,
      ...settingsOfSample({
        EXTRACTION_CACHE: path.join(home, "cache"),
        EXTRACTION_SAMPLE: `${SAMPLE.provider}:${SAMPLE.repository.split("/")[0]}=${SAMPLES}`,
        ...(git && {
          EXTRACTION_MIRRORS: `${SAMPLE.provider}:${SAMPLE.repository.split("/")[0]}=${git.url}`,
          EXTRACTION_ALLOW_ADDRESSES: "127.0.0.1/32",
        }),
      }),
    },
    line: git
      ? "A repository can be extracted with one click, without a network:"
      : "Repositories can be extracted as soon as git is installed:",
    fetch,
    close,
  };
}
