// A reporter for scripts/test.mjs: which files have failed, and whether anything went wrong outside of all tests.
import fs from "node:fs";
import path from "node:path";

export default class FailedFiles {
  onTestRunEnd(modules, unhandled) {
    const files = modules
      .filter((one) => one.state() === "failed")
      .map((one) => path.relative(process.cwd(), one.moduleId));
    fs.writeFileSync(process.env.STILLWAKE_FAILED_FILES, JSON.stringify({ files, unhandled: unhandled.length }));
  }
}
