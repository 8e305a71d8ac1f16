// What tests of the API stand on: somebody who asks it, and hands that do a job as slowly as a test wants.
import type { Hono } from "hono";
import type pg from "pg";

export const SEAL_KEYS = `k1:${Buffer.alloc(32, 7).toString("base64")}`;

interface Answer {
  status: number;
  headers: Headers;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: Tests look into answers of every shape.
  body: any;
}

export interface Caller {
  get(path: string, headers?: Record<string, string>): Promise<Answer>;
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  put(path: string, body: unknown): Promise<Answer>;
  patch(path: string, body: unknown): Promise<Answer>;
  delete(path: string): Promise<Answer>;
  ask(path: string, init: RequestInit): Promise<Answer>;
}

/** One who asks it without a network between. */
export function apiOn(api: Pick<Hono, "fetch">, always: Record<string, string> = {}): Caller {
  const host = "127.0.0.1:4800";
  return caller(async (path, init) =>
    api.fetch(
      new Request(`http://${host}${path}`, { ...init, headers: { host, ...always, ...(init.headers as object) } }),
    ),
  );
}

/** One who asks it where it is served. */
export function callAt(address: string): Caller {
  return caller((path, init) => fetch(address + path, init));
}

function caller(send: (path: string, init: RequestInit) => Promise<Response>): Caller {
  const ask = async (path: string, init: RequestInit): Promise<Answer> => {
    const answer = await send(path, init);
    const text = await answer.text();
    const isJson = text !== "" && /json/.test(answer.headers.get("content-type") ?? "");
    return { status: answer.status, headers: answer.headers, text, body: isJson ? JSON.parse(text) : undefined };
  };
  const say = (method: string, path: string, body: unknown, headers: Record<string, string> = {}) =>
    ask(path, {
      method,
      headers: { "content-type": "application/json", ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  return {
    ask,
    get: (path, headers = {}) => ask(path, { headers }),
    post: (path, body, headers) => say("POST", path, body, headers),
    put: (path, body) => say("PUT", path, body),
    patch: (path, body) => say("PATCH", path, body),
    delete: (path) => say("DELETE", path, undefined),
  };
}

/** Takes this job as a worker does, and lets it end if it is said how. Answers the claim. */
export async function hand(
  pool: pg.Pool,
  job: string,
  end?: Record<string, unknown>,
  { machine = "machine-1", lease = "1 minute" } = {},
): Promise<{ job: string; epoch: string; lease: string }> {
  await pool.query("update stillwake.live_jobs set priority = 1000 where id = $1", [job]);
  const { rows } = await pool.query(
    "select job_id as job, epoch, lease_id as lease from stillwake.claim($1, 'scan', array['extraction'], 1, $2::interval)",
    [machine, lease],
  );
  const claimed = rows.find((one) => one.job === job);
  if (!claimed) throw new Error(`Job ${job} could not be taken`);
  if (end) await pool.query("select stillwake.settle($1)", [JSON.stringify([{ ...claimed, ...end }])]);
  return claimed;
}
