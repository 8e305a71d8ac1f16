import { defineConfig } from "vitest/config";

// Two files at a time: the tests start real servers and processes, and on two cores a third file makes timing tests fail.
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
