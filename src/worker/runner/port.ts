// The interface between an attempt and its keeper. In one process these are method calls; between a runner process and
// its keeper the same calls are messages (ipc.ts). An attempt can only refer to its own job: the keeper adds the lease.

import type { PipelineSettings } from "../../contract/pipeline.ts";
import type { BreakerVerdict, Dependency, LimitCall, LimitGrant } from "../../db/calls/flow.ts";
import type { JobOrigin } from "../../db/calls/job.ts";
import type {
  ChildRow,
  findSignal,
  loadChildren,
  OnError,
  PositionCall,
  SignalResult,
  SpawnState,
  takeSignal,
} from "../../db/calls/long-work.ts";
import type { ArtifactRow } from "../../db/calls/reads.ts";
import type { ClaimedJob, DueRequest, SavedStep } from "../../db/calls/worker.ts";
import type { Outcome, StopReason } from "../attempt/outcome.ts";
import type { ProducedArtifact } from "../attempt/produce-artifact.ts";

/** The data of one attempt. */
export interface Assignment {
  job: string;
  epoch: string;
  lease: string;
  pipeline: string;
  /** The pool it was claimed from. */
  pool: string;
  input: unknown;
  attempt: number;
  maxAttempts: number;
  crashes: number;
  key: string | null;
  tenant: string | null;
  /** The version of the code that started the job. */
  version: number | null;
  trace: Record<string, string> | null;
  /** The occurrence of the schedule that created the job. */
  origin: JobOrigin | null;
  /** Unsealed values of the input, which the runner redacts. */
  secrets?: unknown[];
  /** The SQL schema, for checkpoints inside the user's own transaction. */
  schema: string;
}

export function toAssignment(job: ClaimedJob, pool: string, schema: string): Assignment {
  return {
    job: job.job_id,
    epoch: job.epoch,
    lease: job.lease_id,
    pipeline: job.pipeline,
    pool,
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
  /** A line that an earlier attempt may have logged: its number among the equal ones of this attempt. See new_lines() in SQL. */
  replayed?: number;
  /** performance.now() of the keeper's process when the line was written or received. */
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
  /** Undefined while the lease is known to be valid; otherwise resolves when it is proven again. Awaited before side effects. */
  confirmLease(): Promise<void> | undefined;
  checkpoints(): Promise<SavedStep[]>;
  /** Resolves when the checkpoint and every earlier log line are durable. Throws Stopped when the attempt was replaced. */
  saveCheckpoint(step: string, output: string, tookMs: number): Promise<"saved" | "kept">;
  adopt(version: number, restart: boolean): Promise<void>;
  log(lines: LogLine[], progress?: Progress): void;
  /** Resolves when every log line so far is durable. */
  flush(): Promise<void>;
  stepStarted(step: string): void;
  /** The keeper enforces the timeout of a step if the runner cannot because its event loop is blocked. Null: the step has ended. */
  setStepTimeout(step: string, timeoutMs: number | null): void;
  stepEnded(report: StepReport): void;
  /** The directory of this attempt, created on first use and removed when the attempt has ended. */
  scratch(): Promise<string>;
  artifacts(): Promise<ArtifactRow[]>;
  /** Whether the store has the object with this size and hash. */
  artifactExists(artifact: { key: string; size: number; sha256: string }): Promise<boolean>;
  /** Stores a file of the scratch directory, then its row. */
  storeArtifact(artifact: ProducedArtifact & { name: string }): Promise<ArtifactRow>;
  /** Copies an artifact of this job into a new file of the scratch directory, verifies its hash, and returns the path. */
  fetchArtifact(name: string): Promise<string>;
  reportAlive(): void;
  /** Takes from a shared limit, and reports what responses said about it. */
  useLimit(limit: Dependency, call: LimitCall): Promise<LimitGrant>;
  /** Null when the call may proceed; otherwise the breaker is open. */
  checkBreaker(breaker: Dependency): Promise<BreakerVerdict | null>;
  reportBreakerResult(breaker: Dependency, succeeded: boolean, reason: string | null): Promise<BreakerVerdict | null>;
  /** Returns the number of children of the spawn that are stored. */
  spawn(call: SpawnCall): Promise<number>;
  spawnState(spawn: string): Promise<SpawnState | undefined>;
  children(page: Parameters<typeof loadChildren>[2]): Promise<ChildRow[]>;
  findSignal(request: Parameters<typeof findSignal>[2]): Promise<SignalResult>;
  takeSignal(request: Parameters<typeof takeSignal>[2]): Promise<"taken" | "refused" | "gone" | "kept">;
  /** Resolves when the position and every earlier log line are durable. */
  savePosition(call: PositionCall): Promise<"saved" | "kept">;
}

/** Children to store; the keeper assigns their ids. */
export interface SpawnCall {
  spawn: string;
  pipeline: { name: string; settings: PipelineSettings; dependencies: Dependency[] };
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

/** A running attempt. */
export interface Run {
  outcome: Promise<Outcome>;
  /** Requests a stop. Resolves when the runner has acknowledged it, which a runner with a blocked event loop never does. */
  stop(reason: StopReason): Promise<void>;
  /** Kills it with all its child processes. False if that is impossible: code in this process cannot be killed. */
  kill(): Promise<boolean>;
}

/** A pipeline that the runners can run. */
export interface LoadedPipeline {
  name: string;
  settings: PipelineSettings;
  /** The limits and breakers of its jobs. */
  dependencies: Dependency[];
  version: number;
  onOlder: "continue" | "restart" | "wait";
  timeoutMs: number;
  silenceMs: number;
}

/** Which jobs of these pools a worker with these pipelines can claim. */
export function claimableBy(pools: readonly string[], pipelines: readonly LoadedPipeline[]): DueRequest {
  return {
    pools,
    pipelines: pipelines.map(({ name }) => name),
    versions: pipelines.map(({ version }) => version),
    oldest: pipelines.map(({ version, onOlder }) => (onOlder === "wait" ? version : 1)),
  };
}

/** Runs attempts: in this process (in-process.ts) or in runner processes (runner-pool.ts). */
export interface Runners {
  /** Resolves with the pipelines it can run. */
  start(): Promise<LoadedPipeline[]>;
  run(assignment: Assignment, port: Port): Run;
  stop(): Promise<void>;
}
