// A client of the API without a network, and a manual worker that claims and settles an extraction step by step.
import type { Hono } from "hono";
import type pg from "pg";
import * as kit from "../../../kit/test/support/api-server.ts";

export const SEAL_KEYS = `k1:${Buffer.alloc(32, 7).toString("base64")}`;

/** Calls the API without a network. */
export function apiOn(api: Pick<Hono, "fetch">, defaultHeaders: Record<string, string> = {}): kit.Caller {
  const host = "127.0.0.1:4800";
  return kit.createCaller(async (path, init) =>
    api.fetch(
      new Request(`http://${host}${path}`, {
        ...init,
        headers: { host, ...defaultHeaders, ...(init.headers as object) },
      }),
    ),
  );
}

/** Claims this job like a worker, and settles it if an outcome is given. */
export function claimJob(
  pool: pg.Pool,
  job: string,
  outcome?: Record<string, unknown>,
  { machine = "machine-1", lease = "1 minute" } = {},
): Promise<kit.ClaimedJob> {
  return kit.claimJob(pool, job, { worker: machine, pool: "scan", pipeline: "extraction", lease }, outcome);
}
