// The options of a pool of machines: in the configuration file, and for the orchestrator, which checks them.
import type { Duration } from "./time.ts";

export interface PoolOptions<Provider = (context: never) => unknown> {
  /** Starts and stops its machines: local(…), fly(…), cloudRun(…), kubernetes(…). */
  provider: Provider;
  /** Concurrent jobs per machine. Default: 1, so that N jobs get N machines. */
  slots?: number;
  /** Machines that are created in advance and kept stopped, because they start faster. Default: 0. */
  warm?: number;
  /** Maximum number of machines. Default: 5. */
  max?: number;
  /** Maximum number of machines beyond the warm ones, removed when they exit. Default: max − warm. */
  burst?: number;
  /** A machine without a job exits after this time. Default: 60s. It stays up for the minimum billed time. */
  idleExit?: Duration;
  /** Time between the stop request and the kill, in which jobs are released. Default: 30s. */
  grace?: Duration;
  /** Longest time from the start of a machine until its worker registers. Default: 2m. */
  boot?: Duration;
  /** Dollars per second; overrides the price table. */
  price?: number;
  /** Root file system of a stopped machine in GB, for its price. Default: 1. */
  disk?: number;
  /** A job that ran out of memory in this pool is retried in that one. */
  largerPool?: string;
}
