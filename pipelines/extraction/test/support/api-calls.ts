// A client of the API for tests, and a manual worker that claims and settles a job step by step.
import type { Hono } from "hono";
import type pg from "pg";

export const SEAL_KEYS = `k1:${Buffer.alloc(32, 7).toString("base64")}`;

interface ApiResponse {
  status: number;
  headers: Headers;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: Tests read responses of every shape.
  body: any;
}

export interface Caller {
  get(path: string, headers?: Record<string, string>): Promise<ApiResponse>;
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<ApiResponse>;
  put(path: string, body: unknown): Promise<ApiResponse>;
  patch(path: string, body: unknown): Promise<ApiResponse>;
  delete(path: string): Promise<ApiResponse>;
  request(path: string, init: RequestInit): Promise<ApiResponse>;
}

/** Calls the API without a network. */
export function apiOn(api: Pick<Hono, "fetch">, defaultHeaders: Record<string, string> = {}): Caller {
  const host = "127.0.0.1:4800";
  return caller(async (path, init) =>
    api.fetch(
      new Request(`http://${host}${path}`, {
        ...init,
        headers: { host, ...defaultHeaders, ...(init.headers as object) },
      }),
    ),
  );
}

/** Calls the API over HTTP. */
export function callAt(baseUrl: string): Caller {
  return caller((path, init) => fetch(baseUrl + path, init));
}

function caller(send: (path: string, init: RequestInit) => Promise<Response>): Caller {
  const request = async (path: string, init: RequestInit): Promise<ApiResponse> => {
    const response = await send(path, init);
    const text = await response.text();
    const isJson = text !== "" && /json/.test(response.headers.get("content-type") ?? "");
    return { status: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : undefined };
  };
  const sendJson = (method: string, path: string, body: unknown, headers: Record<string, string> = {}) =>
    request(path, {
      method,
      headers: { "content-type": "application/json", ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
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

/** Claims this job like a worker, and settles it if an outcome is given. Returns the claim. */
export async function claimJob(
  pool: pg.Pool,
  job: string,
  outcome?: Record<string, unknown>,
  { machine = "machine-1", lease = "1 minute" } = {},
): Promise<{ job: string; epoch: string; lease: string }> {
  await pool.query("update stillwake.live_jobs set priority = 1000 where id = $1", [job]);
  const { rows } = await pool.query(
    "select job_id as job, epoch, lease_id as lease from stillwake.claim($1, 'scan', array['extraction'], 1, $2::interval)",
    [machine, lease],
  );
  const claimed = rows.find((row) => row.job === job);
  if (!claimed) throw new Error(`Job ${job} could not be claimed`);
  if (outcome) await pool.query("select stillwake.settle($1)", [JSON.stringify([{ ...claimed, ...outcome }])]);
  return claimed;
}
