// Who may come in, and what they did.
import { z } from "zod";
import { type ReadTokenOptions, signReadToken } from "../../client/read-token.ts";
import { InvalidInput } from "../../errors.ts";
import type { Duration } from "../../time.ts";
import { COOKIE, credentialOf } from "../http/identify.ts";
import { refusal } from "../http/problem.ts";
import { type Call, operation } from "../operation.ts";
import * as shapes from "../shapes.ts";
import { jobOf } from "./jobs.ts";

const label = z.string().min(1).max(200);

export const list = operation({
  summary: "The tokens; never the words themselves",
  answer: z.object({ tokens: z.array(shapes.Token) }),
  handle: async ({ stillwake }) => ({ tokens: await stillwake.tokens.list() }),
});

export const create = operation({
  summary: "Makes a token, which is answered this once",
  body: z.strictObject({
    name: label,
    role: z.enum(["reader", "operator", "admin", "worker"]),
    tenant: label.optional(),
    expiresIn: z.string().max(50).optional(),
  }),
  answer: z.object({ id: z.uuid(), token: z.string() }),
  status: 201,
  record: (answer, body) => ({ ...(body as object), id: (answer as { id: string }).id }),
  async handle({ stillwake, body, who }) {
    const { name, role, tenant, expiresIn } = body;
    return stillwake.tokens.create(
      { name, role, ...(tenant && { tenant }), ...(expiresIn && { expiresIn: expiresIn as Duration }) },
      { by: who.name },
    );
  },
});

export const revoke = operation({
  summary: "Takes a token back",
  answer: z.object({ id: z.uuid() }),
  async handle({ stillwake, params, who, house, before }) {
    const id = params.id!.toLowerCase();
    await before((await stillwake.tokens.list()).find((one) => one.id === id) ?? null);
    await stillwake.tokens.revoke(id, { by: who.name });
    house.identifier.forget();
    house.streams.sendAway(id);
    return { id };
  },
});

export const createReadToken = operation({
  summary: "A word that opens one job, or all jobs of one key, for reading and for a short time",
  about:
    "For the browser of a customer who follows it. Nothing of it is stored; it cannot be taken back, so keep it short.",
  body: z.strictObject({
    job: z.uuid().optional(),
    pipeline: label.optional(),
    key: z.string().min(1).max(500).optional(),
    tenant: label.optional(),
    expiresIn: z.string().max(50).optional(),
  }),
  answer: z.object({ token: z.string() }),
  status: 201,
  record: (_, body) => body,
  async handle(call) {
    const { house, body, who } = call;
    if (house.secrets.length === 0) {
      throw refusal("NOT_ALLOWED", "This server has no secret to sign with", {
        remedy: "Start it with STILLWAKE_SECRET, 32 characters at least",
      });
    }
    if (body.job !== undefined) await jobOf({ ...call, params: { id: body.job } });
    if (who.tenant !== null && body.tenant !== undefined && body.tenant !== who.tenant) {
      throw new InvalidInput("The token is of another tenant", { field: "tenant", remedy: "Leave tenant out" });
    }
    const tenant = body.job === undefined ? (who.tenant ?? body.tenant) : undefined;
    const given = Object.fromEntries(Object.entries({ ...body, tenant }).filter(([, value]) => value !== undefined));
    return { token: signReadToken(house.secrets, given as ReadTokenOptions) };
  },
});

export const audit = operation({
  summary: "What was done through the server, newest first",
  query: z.strictObject({
    target: z.string().min(1).max(500).optional(),
    limit: z.coerce.number().int().min(1).max(200).optional(),
    cursor: z.string().max(100).optional(),
  }),
  answer: z.object({ acts: z.array(shapes.Act), cursor: z.string().nullable() }),
  async handle({ stillwake, query }) {
    const given = Object.fromEntries(Object.entries(query).filter(([, value]) => value !== undefined));
    return stillwake.tokens.acts(given);
  },
});

export const me = operation({
  summary: "Who the server takes you for",
  answer: z.object({
    name: z.string(),
    role: z.string(),
    tenant: z.string().nullable(),
    expiresAt: shapes.moment.nullable(),
    scope: z
      .object({ job: z.string(), pipeline: z.string(), key: z.string(), tenant: z.string() })
      .partial()
      .optional(),
  }),
  async handle({ who: { name, role, tenant, expiresAt, scope } }) {
    return { name, role, tenant, expiresAt, ...(scope && { scope }) };
  },
});

export const signIn = operation({
  summary: "Signs a browser in with a token: it is given a cookie that scripts cannot read",
  body: z.strictObject({ token: z.string().min(1).max(500) }),
  answer: z.object({ name: z.string(), role: z.string() }),
  record: null,
  async handle(call) {
    const { body, house, address } = call;
    const wait = address === null ? 0 : house.failures.wait(address);
    if (wait > 0) throw refusal("TOO_MANY_REQUESTS", "Too many words that open nothing", { remedy: "Wait a moment" });
    const who = await house.identifier.identify(body.token, { fresh: true });
    if (!who || who.role === "follower") {
      if (address !== null) house.failures.take(address);
      throw refusal("UNAUTHORIZED", "That token opens nothing", {
        remedy: "Ask an admin for one: stillwake tokens create",
      });
    }
    const left = who.expiresAt ? Math.max(0, Math.floor((who.expiresAt.getTime() - Date.now()) / 1000)) : 30 * 86_400;
    return new Response(JSON.stringify({ name: who.name, role: who.role }), {
      headers: {
        "content-type": "application/json",
        "set-cookie": cookie(call, body.token, Math.min(left, 30 * 86_400)),
      },
    });
  },
});

export const signOut = operation({
  summary: "Signs a browser out",
  record: null,
  status: 204,
  async handle(call) {
    const had = credentialOf(call.request);
    return new Response(null, { status: 204, headers: had ? { "set-cookie": cookie(call, "", 0) } : {} });
  },
});

/** For the paths of this server alone: an application around it has no use for it. */
function cookie({ request, house }: Pick<Call, "request" | "house">, value: string, seconds: number): string {
  const secure = new URL(request.url).protocol === "https:" || request.headers.get("x-forwarded-proto") === "https";
  return `${COOKIE}=${value}; Path=${house.base}; HttpOnly; SameSite=Lax; Max-Age=${seconds}${secure ? "; Secure" : ""}`;
}
