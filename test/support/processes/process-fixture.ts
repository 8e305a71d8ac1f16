// What tests with workers as real processes need: the built package, a database, and a server that their steps report to.
import type { StillwakeOptions } from "../../../src/index.ts";
import { type ConnectedDatabase, connectedDatabase } from "../database/connections.ts";
import { buildPackage } from "./build.ts";
import { type StepObserver, startStepObserver } from "./step-observer.ts";

interface ProcessFixture extends ConnectedDatabase {
  observer: StepObserver;
}

/** Call it once, at the top of a test file. */
export async function processFixture(options?: Omit<StillwakeOptions, "url">): Promise<ProcessFixture> {
  buildPackage();
  return { ...(await connectedDatabase(options)), observer: await startStepObserver() };
}
