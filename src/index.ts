// stillwake: durable pipelines on Postgres. The client and the contracts; workers, servers and machines have entries of their own.
export {
  type Actor,
  createStillwake,
  type Enqueued,
  type Job,
  type ListOptions,
  Stillwake,
} from "./client.ts";
export type { DatabaseOptions } from "./database.ts";
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
export { type MigrateOptions, type MigrateResult, migrate, printMigrations } from "./migrate.ts";
export type { EnqueueManyOptions, EnqueueOptions } from "./options.ts";
export { type InputOf, type Pipeline, type PipelineOptions, pipeline, type Schema } from "./pipeline.ts";
export type { Duration } from "./time.ts";
export type { Transaction } from "./transaction.ts";
export type { Failure, JobFilter, JobState, WaitingFor } from "./verbs.ts";
