// The port between an attempt and its keeper. In one process it is a few method calls; between a runner and its keeper the same calls
// travel as messages over a pipe (pipe.ts). An attempt can only speak of its own job: the keeper adds the lease.

import type { PipelineSettings } from "../../contract/pipeline.ts";
import type { BreakerVerdict, LimitAnswer, LimitCall, Need } from "../../db/calls/flow.ts";
import type { JobOrigin } from "../../db/calls/jobs.ts";
import type {
  ChildRow,
  loadChildren,
  lookForSignal,
  OnError,
  PlaceCall,
  SignalAnswer,
  SpawnState,
  takeSignal,
} from "../../db/calls/long-work.ts";
import type { ArtifactRow } from "../../db/calls/reads.ts";
import type { ClaimedJob, KeptStep } from "../../db/calls/worker.ts";
import type { Outcome, StopReason } from "../attempt/outcome.ts";
import type { ProducedArtifact } from "../attempt/produce-artifact.ts";

/** What an attempt is given to do. */
export interface Assignment {
  job: string;
  epoch: string;
  lease: string;
  pipeline: string;
  input: unknown;
  attempt: number;
  maxAttempts: number;
  crashes: number;
  key: string | null;
  tenant: string | null;
  /** The version of the code that began the job. */
  version: number | null;
  trace: Record<string, string> | null;
  /** The slot of a schedule that it is for. */
  origin: JobOrigin | null;
  /** Values of its input that it must not show; there once what is sealed is open. */
  secrets?: unknown[];
  /** Of this Stillwake, for checkpoints inside the user's own transaction. */
  schema: string;
}

export function assignmentOf(job: ClaimedJob, schema: string): Assignment {
  return {
    job: job.job_id,
    epoch: job.epoch,
    lease: job.lease_id,
    pipeline: job.pipeline,
    input: job.input,
    attempt: job.attempt,
    maxAttempts: job.max_attempts,
    crashes: job.crashes,
    key: job.key,
    tenant: job.tenant,
    version: job.version,
    trace: job.trace,
    origin: job.origin,
    schema,
  };
}

export interface LogLine {
  level: "info" | "success" | "warning" | "error";
  message: string;
  step?: string;
  data?: unknown;
  /** performance.now() of the keeper's process when it was written, or received. */
  at: number;
}

export interface Progress {
  fraction?: number;
  done?: number;
  total?: number;
  sentence?: string;
}

export interface StepReport {
  step: string;
  tookMs: number;
  outcome: "completed" | "failed" | "kept" | "skipped";
  code?: string;
}

export interface Port {
  /** Undefined while the lease is known to hold; otherwise resolves when it is proven again. Nothing with effects begins before. */
  leased(): Promise<void> | undefined;
  checkpoints(): Promise<KeptStep[]>;
  /** Resolves when the checkpoint and every line before it are durable. Throws Stopped when the attempt was replaced. */
  saveCheckpoint(step: string, output: string, tookMs: number): Promise<"saved" | "kept">;
  adopt(version: number, restart: boolean): Promise<void>;
  log(lines: LogLine[], progress?: Progress): void;
  /** Resolves when every line so far is durable. */
  flush(): Promise<void>;
  stepStarted(step: string): void;
  /** A try of a step begins that may take so long: the keeper sees to it when the runner cannot, its event loop may be blocked. Null: it is over. */
  limit(step: string, timeoutMs: number | null): void;
  stepEnded(report: StepReport): void;
  /** The attempt's own directory, made on first use and removed when the attempt is over, however it ended. */
  scratch(): Promise<string>;
  artifacts(): Promise<ArtifactRow[]>;
  /** True when the store has it, whole. */
  artifactIsThere(artifact: { key: string; size: number; sha256: string }): Promise<boolean>;
  /** Stores what the attempt has made in its scratch directory, and writes the row last. */
  storeArtifact(artifact: ProducedArtifact & { name: string }): Promise<ArtifactRow>;
  /** Copies an artifact of this job from the store into the scratch directory, compared with its hash, and answers where it is: a new file each time. */
  fetchArtifact(name: string): Promise<string>;
  /** Evidence that the work lives. */
  alive(): void;
  /** Takes from a shared budget and says what was learned of it. */
  useLimit(limit: Need, call: LimitCall): Promise<LimitAnswer>;
  /** Null: go on. Otherwise the breaker is open. */
  askBreaker(breaker: Need): Promise<BreakerVerdict | null>;
  tellBreaker(breaker: Need, succeeded: boolean, reason: string | null): Promise<BreakerVerdict | null>;
  /** Answers how many children of the spawn are stored. */
  spawn(call: SpawnCall): Promise<number>;
  spawnState(spawn: string): Promise<SpawnState | undefined>;
  children(page: Parameters<typeof loadChildren>[2]): Promise<ChildRow[]>;
  lookForSignal(question: Parameters<typeof lookForSignal>[2]): Promise<SignalAnswer>;
  takeSignal(taking: Parameters<typeof takeSignal>[2]): Promise<"taken" | "refused" | "gone" | "kept">;
  /** Resolves when the place and every line before it are durable. */
  savePlace(call: PlaceCall): Promise<"saved" | "kept">;
}

/** Children to be stored: the keeper gives them their ids. */
export interface SpawnCall {
  spawn: string;
  pipeline: { name: string; settings: PipelineSettings; needs: Need[] };
  /** The JSON of each input. */
  inputs: string[];
  keys: (string | null)[];
  tenants: (string | null)[];
  trace?: Record<string, string>;
  options: Record<string, unknown>;
  from: number;
  total: number;
  onError: OnError;
}

/** One attempt under way. */
export interface Run {
  outcome: Promise<Outcome>;
  /** Asks it to stop. Resolves once it has heard that, which code that blocks its event loop cannot. */
  stop(reason: StopReason): Promise<void>;
  /** Ends it for good, with everything it started. False where that is not possible: code in this process cannot be killed. */
  kill(): Promise<boolean>;
}

export interface PipelineFacts {
  name: string;
  settings: PipelineSettings;
  /** Limits and breakers its jobs need. */
  needs: Need[];
  version: number;
  onOlder: "continue" | "restart" | "wait";
  timeoutMs: number;
  silenceMs: number;
}

/** Those who run attempts: this very process, or runner processes. */
export interface Crew {
  /** Resolves with the pipelines it can run. */
  start(): Promise<PipelineFacts[]>;
  run(assignment: Assignment, port: Port): Run;
  stop(): Promise<void>;
}
