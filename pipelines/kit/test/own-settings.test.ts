// Settings given to `npm start`: the sample adds its own, and overrides none.
import { afterEach, expect, it, onTestFinished, vi } from "vitest";
import { createStillwake } from "../../../src/index.ts";
import { temporaryDirectory } from "../../../test/support/cleanup.ts";
import { freshDatabase } from "../../../test/support/database/database.ts";
import { startExtraction } from "../../extraction/src/demo/start.ts";
import { startLeaderboard } from "../../leaderboard/src/demo/start.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

it.each([
  {
    prefix: "EXTRACTION",
    start: startExtraction,
    mirror: "github:acme=https://git.acme.example",
    sample: /^github:[\w-]+=http/,
  },
  { prefix: "LEADERBOARD", start: startLeaderboard, mirror: "acme=https://git.acme.example", sample: /^[\w-]+=http/ },
])("$prefix: mirrors and addresses are used beside the sample's, other settings instead of them", async (system) => {
  const { prefix, start, mirror, sample } = system;
  vi.stubEnv(`${prefix}_MIRRORS`, mirror);
  vi.stubEnv(`${prefix}_ALLOW_ADDRESSES`, "10.0.0.0/8");
  vi.stubEnv(`${prefix}_CACHE`, "/own/cache");
  const { url } = await freshDatabase();
  const stillwake = createStillwake({ url });
  onTestFinished(() => stillwake.close());
  const place = { url, schema: "stillwake", embedded: true, dir: temporaryDirectory("own-settings"), base: "/x" };
  const { env, close } = await start({ ...place, stillwake: stillwake as never, fetch: () => new Response() });
  onTestFinished(close);
  const [own, ofSample] = env[`${prefix}_MIRRORS`]!.split(",");
  expect(own).toBe(mirror);
  expect(ofSample).toMatch(sample);
  expect(env).toMatchObject({
    [`${prefix}_ALLOW_ADDRESSES`]: "10.0.0.0/8,127.0.0.1/32",
    [`${prefix}_CACHE`]: "/own/cache",
  });
});
