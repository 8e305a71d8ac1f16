// Closes or removes what a test or a test file has opened, at the place where it is opened.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, onTestFinished, TestRunner } from "vitest";

/** Runs the step after the current test or, outside of a test, after all tests of the file. The last one registered runs first. Not for beforeAll: its steps would be lost. */
export function cleanUp(step: () => unknown): void {
  const run = async () => void (await step());
  if (TestRunner.getCurrentTest()) onTestFinished(run);
  else afterAll(run);
}

export function temporaryDirectory(name: string): string {
  const dir = fs.mkdtempSync(path.join(fs.realpathSync(os.tmpdir()), `stillwake-${name}-`));
  cleanUp(() => fs.rmSync(dir, { recursive: true, force: true, maxRetries: 5 }));
  return dir;
}
