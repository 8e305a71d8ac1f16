// Package entry `stillwake/contract`: all that a file of contracts needs, without Node and pg, so that a web bundle can include it.
// `stillwake` exports the same names.

export { InvalidInput, type Issue, StillwakeError } from "../errors.ts";
export { type Duration, duration } from "../time.ts";
export { type Breaker, type BreakerOptions, type BreakerUser, breaker } from "./breaker.ts";
export { EventTimeout, Fatal, Pause, RateLimited, Retry } from "./job-errors.ts";
export type { LabelFunction, LabelPath } from "./labels.ts";
export { type Limit, type LimitOptions, type LimitUser, limit } from "./limit.ts";
export {
  type FailureKind,
  type InputOf,
  type OnConflict,
  type OutputOf,
  type Pipeline,
  type PipelineOptions,
  type PipelineSettings,
  pipeline,
  type Schema,
  validateInput,
} from "./pipeline.ts";
export { type Learn, type Observation, rateLimitHeaders } from "./rate-limit-headers.ts";
export {
  type CatchUp,
  type Overlap,
  type Schedule,
  type ScheduledOptions,
  type ScheduleOptions,
  schedule,
} from "./schedule.ts";
export { secret } from "./sealed-paths.ts";
