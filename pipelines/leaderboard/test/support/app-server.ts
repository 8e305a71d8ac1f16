// The application on a port, over a stage: somebody who asks its API by HTTP and keeps every answer, and hands that take a reading as slowly as a test wants.
import http from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import { createServer } from "stillwake/server";
import { afterAll } from "vitest";
import { type AppOptions, createApp } from "../../src/app.ts";
import { commits, users } from "../../src/contract.ts";
import type { Stage } from "./leaderboards.ts";

const SECRET = "a secret of more than thirty-two characters";

interface Answer {
  status: number;
  headers: Headers;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: Tests look into answers of every shape.
  body: any;
}

export interface Served {
  origin: string;
  get(path: string, headers?: Record<string, string>): Promise<Answer>;
  /** Text is sent as it is, everything else as JSON. */
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  /** What was answered so far, to look for what must be in none of it. */
  answers: string[];
  /** What the server has told the house alone, so far. */
  inside: unknown[];
}

/** At the top of a file, and closed at its end, or where it is said to be over. */
export async function serve(
  place: Pick<Stage, "url" | "pool">,
  options: Partial<AppOptions> & { secret?: string | null } = {},
  whenOver: (close: () => Promise<void>) => void = afterAll,
): Promise<Served> {
  const { secret = SECRET, ...given } = options;
  const live = createServer({ url: place.url, ...(secret !== null && { secret }) });
  const inside: unknown[] = [];
  const answers: string[] = [];
  await live.stillwake.register(commits, users);
  const app = createApp({
    pool: place.pool,
    stillwake: live.stillwake,
    live: live.fetch,
    onError: (error) => void inside.push(error),
    ...given,
  });
  const server = http.createServer(
    getRequestListener((request, env) => app.fetch(request, env), { overrideGlobalObjects: false }),
  );
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  whenOver(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await live.close();
  });
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const ask = async (path: string, init: RequestInit): Promise<Answer> => {
    const answer = await fetch(`${origin}${given.base ?? "/"}api${path}`, init);
    const text = await answer.text();
    answers.push(text);
    const isJson = text !== "" && /json/.test(answer.headers.get("content-type") ?? "");
    return { status: answer.status, headers: answer.headers, text, body: isJson ? JSON.parse(text) : undefined };
  };
  return {
    origin,
    get: (path, headers = {}) => ask(path, { headers }),
    post: (path, body, headers = {}) =>
      ask(path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
      }),
    answers,
    inside,
  };
}

/** Takes a reading as a worker does, and lets it end if it is said how. Answers the claim. */
export async function hand(
  { pool }: Pick<Stage, "pool">,
  job: string,
  end?: Record<string, unknown>,
): Promise<{ job: string; epoch: string; lease: string }> {
  await pool.query("update stillwake.live_jobs set priority = case id when $1 then 1000 else 0 end", [job]);
  const { rows } = await pool.query(
    "select job_id as job, epoch, lease_id as lease from stillwake.claim('a-hand', 'commits', array['leaderboard-commits'], 1, '10 minutes')",
  );
  const claimed = rows.find((one) => one.job === job);
  if (!claimed) throw new Error(`Job ${job} could not be taken`);
  if (end) await pool.query("select stillwake.settle($1)", [JSON.stringify([{ ...claimed, ...end }])]);
  return claimed;
}
