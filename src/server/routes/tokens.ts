// Tokens, read tokens, sessions, and the audit log.
import { z } from "zod";
import { type ReadTokenOptions, signReadToken } from "../../client/read-token.ts";
import type { TokenOptions } from "../../client/tokens.ts";
import { InvalidInput } from "../../errors.ts";
import type { Duration } from "../../time.ts";
import { withoutUndefined } from "../../validate.ts";
import { COOKIE, readToken } from "../http/identify.ts";
import { httpError } from "../http/problem.ts";
import { type Call, operation } from "../operation.ts";
import * as schemas from "../schemas.ts";
import { findJob } from "./jobs.ts";

const label = z.string().min(1).max(200);

export const list = operation({
  summary: "All tokens, without their values",
  response: z.object({ tokens: z.array(schemas.Token) }),
  handle: async ({ stillwake }) => ({ tokens: await stillwake.tokens.list() }),
});

export const create = operation({
  summary: "Creates a token; its value is returned only here",
  description:
    "`pipelines`, `pools` and `maxPriority` limit what an operator may enqueue. Default: any pipeline; with a tenant only the pool of the pipeline and priorities up to 0, without a tenant any pool and priority.",
  body: z.strictObject({
    name: label,
    role: z.enum(["reader", "operator", "admin", "worker"]),
    tenant: label.optional(),
    expiresIn: z.string().max(50).optional(),
    pipelines: z.array(label).max(1000).optional(),
    pools: z.array(label).max(1000).optional(),
    maxPriority: z.int().min(-1000).max(1000).optional(),
  }),
  response: z.object({ id: z.uuid(), token: z.string() }),
  status: 201,
  audit: (response, body) => ({ ...(body as object), id: (response as { id: string }).id }),
  async handle({ stillwake, body, caller }) {
    const { expiresIn, ...options } = withoutUndefined(body);
    return stillwake.tokens.create(
      { ...options, ...(expiresIn && { expiresIn: expiresIn as Duration }) } as TokenOptions,
      { by: caller.name },
    );
  },
});

export const revoke = operation({
  summary: "Revokes a token",
  response: z.object({ id: z.uuid() }),
  async handle({ stillwake, params, caller, context, recordBefore }) {
    const id = params.id!.toLowerCase();
    await recordBefore((await stillwake.tokens.list()).find((token) => token.id === id) ?? null);
    await stillwake.tokens.revoke(id, { by: caller.name });
    context.authenticator.clearCache();
    context.streams.abortAll(id);
    return { id };
  },
});

export const createReadToken = operation({
  summary: "Creates a short-lived token with read access to one job, or to all jobs of one key",
  description:
    "For the browser of a customer who follows a job. It is not stored and cannot be revoked, so keep its lifetime short.",
  body: z.strictObject({
    job: z.uuid().optional(),
    pipeline: label.optional(),
    key: z.string().min(1).max(500).optional(),
    tenant: label.optional(),
    expiresIn: z.string().max(50).optional(),
  }),
  response: z.object({ token: z.string() }),
  status: 201,
  audit: (_, body) => body,
  async handle(call) {
    const { context, body, caller } = call;
    if (context.secrets.length === 0) {
      throw httpError("NOT_ALLOWED", "This server has no secret for signing read tokens", {
        remedy: "Start it with STILLWAKE_SECRET of at least 32 characters",
      });
    }
    if (body.job !== undefined) await findJob({ ...call, params: { id: body.job } });
    if (caller.tenant !== null && body.tenant !== undefined && body.tenant !== caller.tenant) {
      throw new InvalidInput("The token belongs to another tenant", { field: "tenant", remedy: "Leave tenant out" });
    }
    const tenant = body.job === undefined ? (caller.tenant ?? body.tenant) : undefined;
    const options = withoutUndefined({ ...body, tenant }) as ReadTokenOptions;
    return { token: signReadToken(context.secrets, options) };
  },
});

export const audit = operation({
  summary: "The audit log: operations performed through the server, newest first",
  query: z.strictObject({
    target: z.string().min(1).max(500).optional(),
    limit: z.coerce.number().int().min(1).max(200).optional(),
    cursor: z.string().max(100).optional(),
  }),
  response: z.object({ entries: z.array(schemas.AuditEntry), cursor: z.string().nullable() }),
  async handle({ stillwake, query }) {
    const { entries, cursor } = await stillwake.tokens.audit(withoutUndefined(query));
    return { entries, cursor };
  },
});

export const me = operation({
  summary: "The identity of the caller",
  response: z.object({
    name: z.string(),
    role: z.string(),
    tenant: z.string().nullable(),
    expiresAt: schemas.timestamp.nullable(),
    scope: z
      .object({ job: z.string(), pipeline: z.string(), key: z.string(), tenant: z.string() })
      .partial()
      .optional(),
  }),
  async handle({ caller: { name, role, tenant, expiresAt, scope } }) {
    return { name, role, tenant, expiresAt, ...(scope && { scope }) };
  },
});

export const signIn = operation({
  summary: "Signs a browser in with a token: sets a cookie that scripts cannot read",
  body: z.strictObject({ token: z.string().min(1).max(500) }),
  response: z.object({ name: z.string(), role: z.string() }),
  audit: null,
  async handle(call) {
    const { body, context, address } = call;
    const caller = await context.authenticator.identify(body.token, { fresh: true });
    if (!caller || caller.role === "follower") {
      if (address !== null) context.failureLimiter.take(address);
      throw httpError("UNAUTHORIZED", "Invalid or expired token", {
        remedy: "Ask an admin for a token: stillwake tokens create",
      });
    }
    const left = caller.expiresAt
      ? Math.max(0, Math.floor((caller.expiresAt.getTime() - Date.now()) / 1000))
      : 30 * 86_400;
    return new Response(JSON.stringify({ name: caller.name, role: caller.role }), {
      headers: {
        "content-type": "application/json",
        "set-cookie": cookie(call, body.token, Math.min(left, 30 * 86_400)),
      },
    });
  },
});

export const signOut = operation({
  summary: "Signs a browser out",
  audit: null,
  status: 204,
  async handle(call) {
    const signedIn = readToken(call.request) !== undefined;
    return new Response(null, { status: 204, headers: signedIn ? { "set-cookie": cookie(call, "", 0) } : {} });
  },
});

/** Only for the paths of this server, not for the application it is mounted in. */
function cookie({ request, context }: Pick<Call, "request" | "context">, value: string, seconds: number): string {
  const secure = new URL(request.url).protocol === "https:" || request.headers.get("x-forwarded-proto") === "https";
  return `${COOKIE}=${value}; Path=${context.base}; HttpOnly; SameSite=Lax; Max-Age=${seconds}${secure ? "; Secure" : ""}`;
}
