// Callers of a server, with a token of every kind. Each call comes from a different address, so that the rate limit for
// invalid tokens does not apply.
import { createHmac } from "node:crypto";
import type pg from "pg";
import type { StillwakeServer } from "../../../src/server/index.ts";
import { SECRET } from "./sample-data.ts";

/** By name: the roles, "acme reader", "globex operator" …, and garbage, expired, revoked. */
export async function makeTokens(server: StillwakeServer, client: pg.Client): Promise<Record<string, string>> {
  const { tokens } = server.stillwake;
  const created: Record<string, string> = { garbage: `swt_${"A".repeat(43)}` };
  created.admin = (await tokens.create({ name: "admin", role: "admin" })).token;
  created.worker = (await tokens.create({ name: "worker", role: "worker" })).token;
  for (const role of ["reader", "operator"] as const) {
    created[role] = (await tokens.create({ name: role, role })).token;
    for (const tenant of ["acme", "globex"]) {
      created[`${tenant} ${role}`] = (await tokens.create({ name: `${tenant} ${role}`, role, tenant })).token;
    }
  }
  const late = await tokens.create({ name: "late", role: "admin", expiresIn: "1h" });
  await client.query("update stillwake.tokens set expires_at = stillwake.now() - interval '1 second' where id = $1", [
    late.id,
  ]);
  const gone = await tokens.create({ name: "gone", role: "admin" });
  await tokens.revoke(gone.id);
  return Object.assign(created, { expired: late.token, revoked: gone.token });
}

interface Answer {
  status: number;
  headers: Headers;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: any response.
  json: any;
}

export type Call = (method: string, path: string, options?: CallOptions) => Promise<Answer>;

interface CallOptions {
  token?: string | null | undefined;
  body?: unknown;
  headers?: Record<string, string>;
}

/** A request with a token, if any, and a JSON body, if any. */
export function requestOf(url: string, method: string, { token, body, headers }: CallOptions): Request {
  return new Request(url, {
    method,
    headers: {
      ...(token && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { "content-type": "application/json" }),
      ...headers,
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
}

export async function readAnswer(response: Response): Promise<Answer> {
  const { status, headers } = response;
  const text = await response.text();
  return { status, headers, text, json: /json/.test(headers.get("content-type") ?? "") ? JSON.parse(text) : undefined };
}

/** Calls as `admin` unless another token is passed; undefined for none. Does not read streams. */
export function callerOf(server: StillwakeServer, admin: string): Call {
  let address = 0;
  return async (method, path, options = {}) => {
    const request = requestOf(`http://jobs.example${path}`, method, { token: admin, ...options });
    const response = await server.fetch(request, { incoming: { socket: { remoteAddress: `10.0.0.${++address}` } } });
    const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
    if (!isStream) return readAnswer(response);
    await response.body!.cancel();
    return { status: response.status, headers: response.headers, text: "", json: undefined };
  };
}

/** A read token signed with the secret; `j` is the job. */
export function signed(scope: object, expiresInSeconds: number, secret = SECRET): string {
  const payload = Buffer.from(
    JSON.stringify({ ...scope, e: Math.floor(Date.now() / 1000) + expiresInSeconds }),
  ).toString("base64url");
  return `swr_${payload}.${createHmac("sha256", secret).update(`stillwake read token.${payload}`).digest("base64url")}`;
}
