import { defineConfig } from "vitest/config";

// The tests start real servers and real processes, so they need room more than they need parallel files.
export default defineConfig({
  test: {
    include: ["test/**/*.test.ts", "pipelines/*/test/**/*.test.ts"],
    globalSetup: "test/support/global.ts",
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
