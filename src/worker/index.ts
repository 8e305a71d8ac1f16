// stillwake/worker: implement pipelines, and run them in a worker.
import type { WorkerOptions } from "./options.ts";
import { Worker } from "./worker.ts";

export { type ArtifactStore, type Credentials, openStore } from "../artifacts/open-store.ts";
export { EventTimeout, Fatal, Pause, RateLimited, Retry } from "../contract/job-errors.ts";
export {
  type AddressGuard,
  addressGuard,
  BlockedAddress,
  type GuardOptions,
  type Resolve,
} from "../webhooks/address-guard.ts";
export type { SendMoment, WebhookSenderOptions } from "../webhooks/options.ts";
export { type CreateSenderOptions, createSender, type SentWebhook, type StandaloneSender } from "../webhooks/sender.ts";
export { type UnpackLimits, unpack } from "./archive/unpack.ts";
export { type ChildEnd, ChildFailed, type Children, type Results, type SpawnOptions } from "./attempt/children.ts";
export type { JobContext, StepFunction } from "./attempt/context.ts";
export type { Each, EachOptions, From, Items, ReducedEach, Reducer } from "./attempt/each.ts";
export type { Classification } from "./attempt/failure.ts";
export { type AnyImplementation, type Implementation, type ImplementOptions, implement } from "./attempt/implement.ts";
export { Stopped, type StopReason } from "./attempt/outcome.ts";
export type { Artifact, ArtifactContent, ArtifactProducer } from "./attempt/produce-artifact.ts";
export type { BatchHandle, Log, StepHandle } from "./attempt/step-handle.ts";
export type { StepOptions } from "./attempt/steps.ts";
export type { Begin, TransactionOf } from "./attempt/tx-step.ts";
export type { WaitOptions } from "./attempt/wait-for.ts";
export { type Exec, ExecError, type ExecOptions, type ExecResult } from "./exec/exec.ts";
export type { FindSecret, SecretUse } from "./keeper/unseal.ts";
export type { WorkerEvent } from "./observe/events.ts";
export type { WorkerOptions } from "./options.ts";
export { Worker } from "./worker.ts";

export function createWorker(options: WorkerOptions): Worker {
  return new Worker(options);
}
