import os from "node:os";
import { defineConfig } from "vitest/config";

// One file more than there are processors: most files wait for processes, leases and periods most of the time.
export default defineConfig({
  test: {
    include: ["test/**/*.test.ts", "pipelines/*/test/**/*.test.ts"],
    globalSetup: "test/support/global.ts",
    setupFiles: "test/support/register-process.ts",
    pool: "forks",
    // At most six: all share one Postgres with 200 connections.
    maxWorkers: Math.min(os.availableParallelism() + 1, 6),
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
