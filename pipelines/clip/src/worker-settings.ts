// Settings of the worker process under the names of the requirements, for deploy/worker.config.mjs.
import type { Environment } from "@stillwake/kit/settings";

interface WorkerOptions {
  slots?: number;
  lease?: `${number}s`;
  pollWithHints?: `${number}s`;
  scratch?: string;
}

/** What is not set has the default of the worker. */
export function readWorkerOptions(env: Environment = process.env): WorkerOptions {
  const slots = numberOf(env, "MAX_CONCURRENCY", true);
  const heartbeat = numberOf(env, "HEARTBEAT_INTERVAL_SEC");
  // A worker beats every third of its lease.
  const lease = numberOf(env, "LEASE_TIMEOUT_SEC") ?? (heartbeat === undefined ? undefined : heartbeat * 3);
  if (lease !== undefined && heartbeat !== undefined && heartbeat > lease / 2) {
    throw new Error(
      `HEARTBEAT_INTERVAL_SEC is ${heartbeat} but must be at most half of LEASE_TIMEOUT_SEC, which is ${lease}: one lost heartbeat would lose the job`,
    );
  }
  const scan = numberOf(env, "RECOVERY_SCAN_INTERVAL_SEC");
  return {
    ...(slots !== undefined && { slots }),
    ...(lease !== undefined && { lease: `${lease}s` as const }),
    ...(scan !== undefined && { pollWithHints: `${scan}s` as const }),
    ...(env.SCRATCH_DIR && { scratch: env.SCRATCH_DIR }),
  };
}

function numberOf(env: Environment, name: string, whole = false): number | undefined {
  const text = env[name];
  if (!text) return undefined;
  const value = Number(text);
  if (Number.isFinite(value) && value > 0 && (!whole || Number.isInteger(value))) return value;
  throw new Error(`${name} is "${text}" but must be ${whole ? "a whole number" : "a number"} above 0`);
}
