// Runs in the process of each test file: records which file it runs, for scripts/stalled-files.mjs.
import fs from "node:fs";
import path from "node:path";
import { expect } from "vitest";

const { STILLWAKE_TEST_PROCESSES: dir } = process.env;
if (dir) fs.writeFileSync(path.join(dir, String(process.pid)), expect.getState().testPath ?? "");
