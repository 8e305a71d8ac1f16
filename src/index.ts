// Package entry `stillwake`: the client and the contracts. Workers, server and orchestrator have separate entries. It needs Node and pg;
// `stillwake/contract` has the contracts alone.

export { type Actor, createStillwake, Stillwake, type StillwakeOptions } from "./client/client.ts";
export type { Budget, CostOptions, CostReport, CostSum, Costs, JobCost, JobCostPart } from "./client/costs.ts";
export { type DevPart, type DevPlace, defineConfig, type StillwakeConfig } from "./client/define-config.ts";
export type { Enqueued } from "./client/enqueue.ts";
export type { EnqueueManyOptions, EnqueueOptions } from "./client/enqueue-options.ts";
export type { BreakerState, Flow, LimitState } from "./client/flow.ts";
export type { PokeOptions, PokeTarget } from "./client/poke.ts";
export type { ReadTokenOptions } from "./client/read-token.ts";
export type {
  ArtifactInfo,
  ArtifactSource,
  Attempt,
  ListOptions,
  LogLine,
  PipelineInfo,
  Reader,
  Step,
} from "./client/reader.ts";
export type { Occurrence, ScheduleState, Schedules } from "./client/schedules.ts";
export type { OutcomeCounts, Stats, StatsOptions } from "./client/stats.ts";
export type { AuditEntry, Role, TokenInfo, TokenOptions, Tokens } from "./client/tokens.ts";
export type {
  Delivery,
  Endpoint,
  EndpointOptions,
  FinalState,
  Webhook,
  Webhooks,
} from "./client/webhooks.ts";
export * from "./contract/index.ts";
export type { BudgetScope, CostGroup } from "./db/calls/costs.ts";
export type { WatchdogAction } from "./db/calls/housekeeping.ts";
export type { CompletedJob, Failure, Job, JobId, JobState, ScheduledFor, WaitingFor } from "./db/calls/job.ts";
export type { JobFilter } from "./db/calls/jobs.ts";
export type { Signalled } from "./db/calls/long-work.ts";
export type { Machine, MachineLife, PoolInfo, PoolMachines, PoolProviderError } from "./db/calls/pools.ts";
export type { WebhookFilter, WebhookState } from "./db/calls/webhooks.ts";
export type { DatabaseOptions } from "./db/database.ts";
export type { Erased, EraseOptions } from "./db/erase.ts";
export { type MigrateOptions, type MigrateResult, migrate, printMigrations } from "./db/migrate.ts";
export type { Transaction } from "./db/transaction.ts";
export {
  DatabaseUnavailable,
  JobFailed,
  JobNotFound,
  KeyTaken,
  LeaseLost,
  NotAllowed,
  SchemaMismatch,
  UnknownBreaker,
  UnknownLimit,
  UnknownPipeline,
  UnknownPool,
} from "./errors.ts";
export type { FollowOptions } from "./live/follower.ts";
export type {
  EndEvent,
  FeedEvent,
  FollowEvent,
  GapEvent,
  LogEvent,
  ProgressEvent,
  StateEvent,
  StepEvent,
} from "./live/job-buffer.ts";
export { newSealKey, type SealKeys, seal } from "./secrets/seal.ts";
