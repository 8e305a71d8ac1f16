// stillwake/worker: code for pipelines, and the process that runs it.
import type { WorkerOptions } from "./options.ts";
import { Worker } from "./worker.ts";

export { Fatal, Pause, RateLimited, Retry } from "../thrown.ts";
export {
  type AddressGuard,
  addressGuard,
  BlockedAddress,
  type GuardOptions,
  type Resolve,
} from "../webhooks/address-guard.ts";
export type { SendMoment, WebhookSenderOptions } from "../webhooks/options.ts";
export { type CreateSenderOptions, createSender, type SentWebhook, type StandaloneSender } from "../webhooks/sender.ts";
export type { WorkerEvent } from "./announce.ts";
export type { Artifact, ArtifactContent, ArtifactProducer } from "./artifacts.ts";
export { type ChildEnd, ChildFailed, type Children, type Results, type SpawnOptions } from "./children.ts";
export type { JobContext, StepFunction } from "./context.ts";
export type { Each, EachOptions, From, Items } from "./each.ts";
export { Stopped, type StopReason } from "./ends.ts";
export { type Exec, ExecError, type ExecOptions, type ExecResult } from "./exec.ts";
export type { Classification } from "./failure.ts";
export { type AnyImplementation, type Implementation, type ImplementOptions, implement } from "./implement.ts";
export type { FindSecret, SecretUse } from "./opening.ts";
export type { WorkerOptions } from "./options.ts";
export type { Begin } from "./own-transaction.ts";
export type { BatchHandle, Log, StepHandle } from "./step-handle.ts";
export type { StepOptions } from "./steps.ts";
export { type ArtifactStore, type Credentials, openStore } from "./stores.ts";
export { type UnpackLimits, unpack } from "./unpack.ts";
export { EventTimeout, type WaitOptions } from "./wait-for.ts";
export { Worker } from "./worker.ts";

export function createWorker(options: WorkerOptions): Worker {
  return new Worker(options);
}
