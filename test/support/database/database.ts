// A separate database per test file: `const database = await freshDatabase();` at the top of the file.
import path from "node:path";
import { afterAll, expect, inject, type RunnerTask } from "vitest";
import { type TestDatabase, testDatabase } from "../../../src/testing/index.ts";

/** Clones the migrated template. The clone is dropped when the file has passed, and kept for inspection when it has failed. */
export async function freshDatabase(): Promise<TestDatabase> {
  const file = path.basename(expect.getState().testPath ?? "test", ".test.ts");
  const database = await testDatabase({ server: inject("server"), template: inject("template"), prefix: file });
  // biome-ignore lint/correctness/noEmptyPattern: Vitest reads the names of the fixtures a hook wants from the pattern.
  afterAll(async ({}, suite) => {
    if (suite.tasks.some(hasFailed)) console.error(`The database of ${file} is kept: ${database.url}`);
    else await database.drop();
  });
  return database;
}

function hasFailed(task: RunnerTask): boolean {
  return task.result?.state === "fail" || ("tasks" in task && task.tasks.some(hasFailed));
}
