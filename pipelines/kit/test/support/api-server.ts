// Serves a system's application on a port, calls its API, and claims a job by hand like a worker.
import http from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import type pg from "pg";
import type { App } from "../../src/web/app.ts";

interface ApiResponse {
  status: number;
  headers: Headers;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: Tests read responses of every shape.
  body: any;
}

export interface Caller {
  get(path: string, headers?: Record<string, string>): Promise<ApiResponse>;
  /** A string is sent as it is, other values as JSON. */
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<ApiResponse>;
  put(path: string, body: unknown): Promise<ApiResponse>;
  patch(path: string, body: unknown): Promise<ApiResponse>;
  delete(path: string): Promise<ApiResponse>;
  request(path: string, init: RequestInit): Promise<ApiResponse>;
}

export async function listen(app: Pick<App, "fetch">): Promise<{ origin: string; close(): Promise<void> }> {
  const server = http.createServer(
    getRequestListener((request, env) => app.fetch(request, env), { overrideGlobalObjects: false }),
  );
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** `onText` receives the text of each response. */
export function createCaller(
  send: (path: string, init: RequestInit) => Promise<Response>,
  onText: (text: string) => void = () => {},
): Caller {
  const request = async (path: string, init: RequestInit): Promise<ApiResponse> => {
    const response = await send(path, init);
    const text = await response.text();
    onText(text);
    const isJson = text !== "" && /json/.test(response.headers.get("content-type") ?? "");
    return { status: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : undefined };
  };
  const sendJson = (method: string, path: string, body: unknown, headers: Record<string, string> = {}) =>
    request(path, {
      method,
      headers: { "content-type": "application/json", ...headers },
      ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
    });
  return {
    request,
    get: (path, headers = {}) => request(path, { headers }),
    post: (path, body, headers) => sendJson("POST", path, body, headers),
    put: (path, body) => sendJson("PUT", path, body),
    patch: (path, body) => sendJson("PATCH", path, body),
    delete: (path) => sendJson("DELETE", path, undefined),
  };
}

/** Calls the API over HTTP. */
export function callAt(baseUrl: string, onText?: (text: string) => void): Caller {
  return createCaller((path, init) => fetch(baseUrl + path, init), onText);
}

export interface ClaimedJob {
  job: string;
  epoch: string;
  lease: string;
}

/** Claims this job like a worker, and settles it if an outcome is given. */
export async function claimJob(
  pool: pg.Pool,
  job: string,
  from: { worker: string; pool: string; pipeline: string; lease: string },
  outcome?: Record<string, unknown>,
): Promise<ClaimedJob> {
  await pool.query("update stillwake.live_jobs set priority = case id when $1 then 1000 else 0 end", [job]);
  const { rows } = await pool.query<ClaimedJob>(
    "select job_id as job, epoch, lease_id as lease from stillwake.claim($1, $2, array[$3], 1, $4::interval)",
    [from.worker, from.pool, from.pipeline, from.lease],
  );
  const claimed = rows.find((row) => row.job === job);
  if (!claimed) throw new Error(`Job ${job} could not be claimed`);
  if (outcome) await pool.query("select stillwake.settle($1)", [JSON.stringify([{ ...claimed, ...outcome }])]);
  return claimed;
}
