// stillwake/testing: helpers for tests, used by Stillwake's own tests and by users.
export { type ClockOwner, startClock, stopClock, travel } from "./clock.ts";
export { type TestDatabase, type TestDatabaseOptions, testDatabase } from "./database.ts";
export { type FaultProxy, type FaultProxyMode, faultProxy } from "./proxy.ts";
export { type RanJob, type RunJobOptions, runJob } from "./run-job.ts";
export { type WaitForOptions, waitFor } from "./wait.ts";
