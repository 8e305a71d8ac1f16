// The example systems under `npm start`: pipelines, pools and web pages, configured like any Stillwake project.
import { defineConfig } from "stillwake";
import { local } from "stillwake/orchestrator";

const idleExit = process.env.STILLWAKE_EXAMPLES_IDLE ?? "60s";

export default defineConfig({
  pipelines: [
    "./extraction/dist/pipeline.js",
    "./leaderboard/dist/commits/pipeline.js",
    "./leaderboard/dist/users/pipeline.js",
    "./clip/dist/pipeline.js",
  ],
  // The systems have separate logins, in EXTRACTION_DATABASE_URL, LEADERBOARD_DATABASE_URL and CLIP_DATABASE_URL.
  env: { withhold: ["DATABASE_URL", "PG*"] },
  // Local processes instead of cloud machines; for those see deploy/ of each system.
  pools: {
    scan: { provider: local(), max: 3, idleExit },
    commits: { provider: local(), max: 2, idleExit },
    users: { provider: local(), max: 2, slots: 2, idleExit },
    clip: { provider: local(), max: 1, slots: 2, idleExit },
  },
  // Imported on demand, because workers read this file too.
  dev: async (dev) => (await import("./dev.mjs")).startApplications(dev),
});
