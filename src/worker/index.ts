// stillwake/worker: code for pipelines, and the process that runs it.
import type { WorkerOptions } from "./options.ts";
import { Worker } from "./worker.ts";

export { Fatal, Pause, RateLimited, Retry } from "../thrown.ts";
export type { WorkerEvent } from "./announce.ts";
export type { ArtifactContent, ArtifactProducer } from "./artifacts.ts";
export type { Artifact, JobContext, StepFunction } from "./context.ts";
export { Stopped, type StopReason } from "./ends.ts";
export { type Exec, ExecError, type ExecOptions, type ExecResult } from "./exec.ts";
export type { Classification } from "./failure.ts";
export { type AnyImplementation, type Implementation, type ImplementOptions, implement } from "./implement.ts";
export type { WorkerOptions } from "./options.ts";
export type { Begin } from "./own-transaction.ts";
export type { Log, StepHandle } from "./step-handle.ts";
export type { StepOptions } from "./steps.ts";
export { type ArtifactStore, type Credentials, openStore } from "./stores.ts";
export { type UnpackLimits, unpack } from "./unpack.ts";
export { Worker } from "./worker.ts";

export function createWorker(options: WorkerOptions): Worker {
  return new Worker(options);
}
