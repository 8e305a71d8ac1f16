// A separate database per test file: `const database = await freshDatabase();` at the top of the file.
import path from "node:path";
import { afterAll, expect, inject, onTestFinished, type RunnerTask, TestRunner } from "vitest";
import { type TestDatabase, testDatabase } from "../../../src/testing/index.ts";

/**
 * Clones the migrated template. The clone is dropped when the file, or the test that called this, has passed, and kept
 * for inspection when it has failed.
 */
export async function freshDatabase(): Promise<TestDatabase> {
  const file = path.basename(expect.getState().testPath ?? "test", ".test.ts");
  const database = await testDatabase({ server: inject("server"), template: inject("template"), prefix: file });
  const close = async (tasks: RunnerTask[]) => {
    if (tasks.some(hasFailed)) console.error(`The database of ${file} is kept: ${database.url}`);
    else await database.drop();
  };
  if (TestRunner.getCurrentTest()) onTestFinished(({ task }) => close([task]));
  // biome-ignore lint/correctness/noEmptyPattern: Vitest reads the names of the fixtures a hook wants from the pattern.
  else afterAll(({}, suite) => close(suite.tasks));
  return database;
}

function hasFailed(task: RunnerTask): boolean {
  return task.result?.state === "fail" || ("tasks" in task && task.tasks.some(hasFailed));
}
