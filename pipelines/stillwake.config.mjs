// The example systems under `npm start`: their pipelines, their machines, and the web pages of each. Made as a project of one's own would be.
import { defineConfig } from "stillwake";
import { local } from "stillwake/orchestrator";

const idleExit = process.env.STILLWAKE_EXAMPLES_IDLE ?? "60s";

export default defineConfig({
  pipelines: [
    "./extraction/dist/pipeline.js",
    "./leaderboard/dist/commits/pipeline.js",
    "./leaderboard/dist/users/pipeline.js",
  ],
  // Elsewhere a pool has machines of a cloud: see the deploy/ of each. Here they are processes.
  pools: {
    scan: { provider: local(), max: 3, idleExit },
    commits: { provider: local(), max: 2, idleExit },
    users: { provider: local(), max: 2, slots: 2, idleExit },
  },
  // Loaded when it is needed: workers read this file too.
  dev: async (place) => (await import("./dev.mjs")).startApplications(place),
});
