// stillwake: durable pipelines on Postgres. The client and the contracts; workers, servers and machines have entries of their own.
export { type Breaker, type BreakerOptions, type BreakerUser, breaker } from "./breaker.ts";
export { type Actor, createStillwake, type Enqueued, Stillwake, type StillwakeOptions } from "./client.ts";
export type { BudgetScope, CostGroup } from "./cost-verbs.ts";
export type { Budget, CostOptions, CostReport, CostSum, Costs, JobCost, JobCostPart } from "./costs.ts";
export type { DatabaseOptions } from "./database.ts";
export { type DevPart, type DevPlace, defineConfig, type StillwakeConfig } from "./define-config.ts";
export type { Erased, EraseOptions } from "./erasure.ts";
export {
  DatabaseUnavailable,
  InvalidInput,
  type Issue,
  JobFailed,
  JobNotFound,
  KeyTaken,
  LeaseLost,
  NotAllowed,
  SchemaMismatch,
  StillwakeError,
  UnknownBreaker,
  UnknownLimit,
  UnknownPipeline,
  UnknownPool,
} from "./errors.ts";
export type { BreakerState, Flow, LimitState } from "./flow.ts";
export type { FollowOptions } from "./follow.ts";
export type {
  EndEvent,
  FeedEvent,
  FollowEvent,
  GapEvent,
  LogEvent,
  ProgressEvent,
  StateEvent,
  StepEvent,
} from "./followed-job.ts";
export type { Job, ScheduledFor } from "./job.ts";
export { type Limit, type LimitOptions, type LimitUser, limit } from "./limit.ts";
export type { Machine, MachineLife, PoolInfo, PoolMachines, PoolTrouble } from "./machine.ts";
export { type MigrateOptions, type MigrateResult, migrate, printMigrations } from "./migrate.ts";
export type { EnqueueManyOptions, EnqueueOptions } from "./options.ts";
export {
  type InputOf,
  type OnConflict,
  type Pipeline,
  type PipelineOptions,
  type PipelineSettings,
  pipeline,
  type Schema,
} from "./pipeline.ts";
export type { PokeOptions, PokeTarget } from "./poke.ts";
export { type Learn, type Observation, rateLimitHeaders } from "./rate-limit-headers.ts";
export type { ReadTokenOptions } from "./read-token.ts";
export type {
  ArtifactInfo,
  ArtifactSource,
  Attempt,
  ListOptions,
  LogLine,
  PipelineInfo,
  Reading,
  Step,
} from "./reading.ts";
export {
  type CatchUp,
  type Overlap,
  type Schedule,
  type ScheduledOptions,
  type ScheduleOptions,
  schedule,
} from "./schedule.ts";
export type { ScheduleState, Schedules, Slot } from "./schedules.ts";
export { secret } from "./sealed.ts";
export { newSealKey, type SealKeys, seal } from "./sealing.ts";
export type { EndCounts, Stats, StatsOptions } from "./stats.ts";
export { Fatal, Pause, RateLimited, Retry } from "./thrown.ts";
export type { Duration } from "./time.ts";
export type { Act, Role, TokenInfo, TokenOptions, Tokens } from "./tokens.ts";
export type { Transaction } from "./transaction.ts";
export type { Failure, JobFilter, JobState, WaitingFor, WatchdogAct } from "./verbs.ts";
export type { WebhookFilter, WebhookState } from "./webhook-verbs.ts";
export type { Delivery, Endpoint, EndpointOptions, EndState, Webhook, Webhooks } from "./webhooks.ts";
