// Serves the application on a port, with an HTTP client that records all responses, and a manual worker for readings.
import http from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import { createServer } from "stillwake/server";
import { afterAll } from "vitest";
import { type AppOptions, createApp } from "../../src/app.ts";
import { commits, users } from "../../src/contract.ts";
import type { LeaderboardSetup } from "./leaderboards.ts";

const SECRET = "a secret of more than thirty-two characters";

interface ApiResponse {
  status: number;
  headers: Headers;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: Tests read responses of every shape.
  body: any;
}

export interface ServedApi {
  origin: string;
  get(path: string, headers?: Record<string, string>): Promise<ApiResponse>;
  /** A string is sent as it is, other values as JSON. */
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<ApiResponse>;
  /** Texts of all responses so far. */
  responses: string[];
  /** Errors that were passed to onError so far. */
  internalErrors: unknown[];
}

/** Call it at the top of a file. It closes in afterAll, or when `onClose` calls it. */
export async function serveApi(
  setup: Pick<LeaderboardSetup, "url" | "pool">,
  options: Partial<AppOptions> & { secret?: string | null } = {},
  onClose: (close: () => Promise<void>) => void = afterAll,
): Promise<ServedApi> {
  const { secret = SECRET, ...appOptions } = options;
  const live = createServer({ url: setup.url, ...(secret !== null && { secret }) });
  const internalErrors: unknown[] = [];
  const responses: string[] = [];
  await live.stillwake.register(commits, users);
  const app = createApp({
    pool: setup.pool,
    stillwake: live.stillwake,
    live: live.fetch,
    onError: (error) => void internalErrors.push(error),
    ...appOptions,
  });
  const server = http.createServer(
    getRequestListener((request, env) => app.fetch(request, env), { overrideGlobalObjects: false }),
  );
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  onClose(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await live.close();
  });
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const request = async (path: string, init: RequestInit): Promise<ApiResponse> => {
    const response = await fetch(`${origin}${appOptions.base ?? "/"}api${path}`, init);
    const text = await response.text();
    responses.push(text);
    const isJson = text !== "" && /json/.test(response.headers.get("content-type") ?? "");
    return { status: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : undefined };
  };
  return {
    origin,
    get: (path, headers = {}) => request(path, { headers }),
    post: (path, body, headers = {}) =>
      request(path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
      }),
    responses,
    internalErrors,
  };
}

/** Claims a reading like a worker, and settles it if an outcome is given. Returns the claim. */
export async function claimReading(
  { pool }: Pick<LeaderboardSetup, "pool">,
  job: string,
  outcome?: Record<string, unknown>,
): Promise<{ job: string; epoch: string; lease: string }> {
  await pool.query("update stillwake.live_jobs set priority = case id when $1 then 1000 else 0 end", [job]);
  const { rows } = await pool.query(
    "select job_id as job, epoch, lease_id as lease from stillwake.claim('manual-worker', 'commits', array['leaderboard-commits'], 1, '10 minutes')",
  );
  const claimed = rows.find((row) => row.job === job);
  if (!claimed) throw new Error(`Job ${job} could not be claimed`);
  if (outcome) await pool.query("select stillwake.settle($1)", [JSON.stringify([{ ...claimed, ...outcome }])]);
  return claimed;
}
