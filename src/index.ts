// stillwake: durable pipelines on Postgres. The client and the contracts; workers, servers and machines have entries of their own.
export {
  type Actor,
  type ArtifactInfo,
  type ArtifactSource,
  createStillwake,
  type Enqueued,
  type ListOptions,
  type LogLine,
  Stillwake,
  type StillwakeOptions,
} from "./client.ts";
export type { DatabaseOptions } from "./database.ts";
export { defineConfig, type StillwakeConfig } from "./define-config.ts";
export {
  DatabaseUnavailable,
  InvalidInput,
  type Issue,
  JobFailed,
  JobNotFound,
  LeaseLost,
  NotAllowed,
  SchemaMismatch,
  StillwakeError,
  UnknownPipeline,
  UnknownPool,
} from "./errors.ts";
export type { Job } from "./job.ts";
export { type MigrateOptions, type MigrateResult, migrate, printMigrations } from "./migrate.ts";
export type { EnqueueManyOptions, EnqueueOptions } from "./options.ts";
export { type InputOf, type Pipeline, type PipelineOptions, pipeline, type Schema } from "./pipeline.ts";
export { Fatal, Pause, RateLimited, Retry } from "./thrown.ts";
export type { Duration } from "./time.ts";
export type { Transaction } from "./transaction.ts";
export type { Failure, JobFilter, JobState, WaitingFor } from "./verbs.ts";
