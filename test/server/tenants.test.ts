// Two tenants at one server: neither can read, take or affect the other's jobs, whatever keys they use.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { signReadToken } from "../../src/client/read-token.ts";
import { pipeline } from "../../src/index.ts";
import { createServer } from "../../src/server/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { readAnswer, requestOf } from "../support/server/callers.ts";

const database = await freshDatabase();
const client = await connect(database.url);
const SECRET = "a secret of more than thirty-two characters";
const server = createServer({ url: database.url, secret: SECRET, origins: ["https://app.example.com"] });
const sw = server.stillwake;
const work = pipeline("work");
const sealedWork = pipeline("sealed-work", { sealed: ["token"] });
const tokens: Record<string, string> = {};

beforeAll(async () => {
  await sw.register(work, sealedWork);
  await sw.webhooks.set("full", { url: null, body: "full" });
  for (const tenant of ["acme", "globex"]) {
    tokens[tenant] = (await sw.tokens.create({ name: tenant, role: "operator", tenant })).token;
  }
  tokens.admin = (await sw.tokens.create({ name: "root", role: "admin" })).token;
});
afterAll(() => server.close());

async function call(caller: string, method: string, path: string, body?: unknown, headers = {}) {
  const token = tokens[caller] ?? caller;
  return readAnswer(await server.fetch(requestOf(`http://localhost${path}`, method, { token, body, headers })));
}

describe("a key of another tenant", () => {
  it.each(["join", "wait", "replace", "reject"] as const)(
    "is free, also for %s: neither tenant's job is joined, delayed, replaced or returned",
    async (onConflict) => {
      const labels = { key: `shared-${onConflict}`, idempotencyKey: `invoice-${onConflict}` };
      const squatter = await call("acme", "POST", "/v1/jobs", {
        pipeline: "work",
        ...labels,
        delay: "1h",
        priority: -1000,
      });
      const theirs = await sw.enqueue(work, { mine: true }, { ...labels, tenant: "globex", onConflict });
      const ours = await sw.enqueue(work, { mine: true }, { ...labels, onConflict });
      expect(new Set([squatter.json.id, theirs.id, ours.id]).size).toBe(3);
      for (const { id, existing } of [theirs, ours]) {
        expect(existing).toBe(false);
        expect(await sw.get(id)).toMatchObject({ state: "queued", waitingFor: null });
      }
      expect((await sw.get(squatter.json.id)).state).toBe("queued");
      // Within a tenant both are known.
      const again = await sw.enqueue(work, {}, { tenant: "globex", idempotencyKey: labels.idempotencyKey });
      expect(again).toEqual({ id: theirs.id, existing: true });
      expect(await sw.enqueue(work, {}, { key: labels.key, onConflict: "join" })).toEqual({
        id: ours.id,
        existing: true,
      });
    },
  );

  it("does not make a call wait for the open transaction of its owner", async () => {
    await client.query("begin");
    await client.query(
      'select stillwake.enqueue(\'work\', \'{}\', \'{"key": "race", "tenant": "globex", "idempotency_key": "race"}\')',
    );
    const body = { pipeline: "work", key: "race", idempotencyKey: "race", onConflict: "replace" };
    expect((await call("acme", "POST", "/v1/jobs", body)).status).toBe(201);
    await client.query("rollback");
  });

  it("is not stored for a tenant the call is not bound to", async () => {
    const bound = { boundTo: "acme", key: "bound" };
    await expect(sw.enqueue(work, {}, { ...bound, tenant: "globex" })).rejects.toMatchObject({ field: "tenant" });
    expect((await sw.get((await sw.enqueue(work, {}, { ...bound, delay: "1h" })).id)).tenant).toBe("acme");
  });

  it("of the same tenant is joined and replaced as usual", async () => {
    const first = await call("acme", "POST", "/v1/jobs", { pipeline: "work", key: "own", delay: "1h" });
    const second = await call("acme", "POST", "/v1/jobs", { pipeline: "work", key: "own", delay: "1h" });
    expect(second.json).toEqual({ id: first.json.id, existing: true });
    const third = await call("acme", "POST", "/v1/jobs", {
      pipeline: "work",
      key: "own",
      onConflict: "replace",
      delay: "1h",
    });
    expect(third.status).toBe(201);
    expect((await sw.get(first.json.id)).state).toBe("cancelled");
  });
});

describe("a webhook that a tenant's token requests", () => {
  const enqueue = (webhook: unknown) => call("acme", "POST", "/v1/jobs", { pipeline: "work", webhook, delay: "1h" });

  beforeAll(async () => {
    const headers = { authorization: "Bearer of-the-installation" };
    await sw.webhooks.set("shared-url", { url: "https://billing.example.com/hook", headers });
    await sw.webhooks.set("shared-origins", { origins: ["https://n8n.example.com"], headers });
    await sw.webhooks.set("of-globex", { tenant: "globex" });
    await sw.webhooks.set("of-acme", {
      tenant: "acme",
      origins: ["https://acme.example.com"],
      headers: { "x-key": "1" },
    });
  });

  it.each([
    { endpoint: "full", url: "https://attacker.example.com/" },
    { endpoint: "shared-url" },
    { endpoint: "shared-url", url: "https://billing.example.com/admin/refund?all=1" },
    { endpoint: "shared-origins", url: "https://n8n.example.com/" },
    { endpoint: "of-globex", url: "https://attacker.example.com/" },
    { endpoint: "missing" },
  ])("cannot use an endpoint that is not the tenant's, and the error lists no others: %j", async (webhook) => {
    const refused = await enqueue(webhook);
    expect(refused).toMatchObject({ status: 400, json: { code: "INVALID_INPUT", field: "endpoint" } });
    expect(refused.json.detail).toBe(`Endpoint "${webhook.endpoint}" does not exist for tenant "acme"`);
    expect(refused.json.remedy).toBe("Known endpoints: of-acme. An admin creates endpoints of a tenant.");
  });

  it("uses the tenant's endpoints on their origins, and bare URLs while the endpoint default has nothing to protect", async () => {
    expect((await enqueue({ endpoint: "of-acme", url: "https://acme.example.com/a" })).status).toBe(201);
    expect((await enqueue({ endpoint: "of-acme", url: "https://attacker.example.com/" })).status).toBe(400);
    expect((await enqueue("https://anywhere.example.com/")).status).toBe(201);
    await sw.webhooks.set("default", { origins: ["https://n8n.example.com"], headers: { "x-api-key": "secret" } });
    expect((await enqueue("https://n8n.example.com/")).status).toBe(400);
    await sw.webhooks.set("default", { origins: [], headers: {} });
  });
});

describe("an operator's token", () => {
  const enqueue = async (token: string, options: object) =>
    call(token, "POST", "/v1/jobs", { pipeline: "work", delay: "1h", ...options });

  beforeAll(() =>
    sw.register(
      pipeline("secret-report"),
      pipeline("urgent", { priority: 20, pool: "urgent" }),
      pipeline("gpu-work", { pool: "gpu" }),
    ),
  );

  it.each([
    [{ pool: "gpu" }, "pool"],
    [{ pool: "no-such-pool" }, "pool"],
    [{ priority: 1 }, "priority"],
    [{ pipeline: "urgent", priority: 21 }, "priority"],
    [{ inputs: [1, 2], priority: 1000 }, "priority"],
  ])("of a tenant uses the pool of the pipeline and no higher priority: %j is rejected", async (options, field) => {
    const refused = await enqueue("acme", options);
    expect(refused).toMatchObject({ status: 403, json: { code: "FORBIDDEN", field } });
    expect(refused.text).not.toMatch(/default|urgent.*gpu/);
  });

  it.each([
    {},
    { pool: "default", priority: 0 },
    { priority: -1000 },
    { pipeline: "urgent", pool: "urgent", priority: 20 },
    { pipeline: "gpu-work" },
  ])("of a tenant enqueues any pipeline as it is registered: %j", async (options) => {
    expect((await enqueue("acme", options)).status).toBe(201);
  });

  it.each([{ tenant: "acme" }, {}])("enqueues what it carries, with %j", async (scope) => {
    const limits = { pipelines: ["urgent", "work"], pools: ["gpu"], maxPriority: 5 };
    const created = await call("admin", "POST", "/v1/tokens", {
      name: "limited",
      role: "operator",
      ...scope,
      ...limits,
    });
    const { token } = created.json;
    expect((await enqueue(token, { pool: "gpu", priority: 5 })).status).toBe(201);
    for (const options of [
      { pipeline: "secret-report" },
      { pipeline: "does-not-exist" },
      { pool: "urgent" },
      { priority: 6 },
    ]) {
      expect(await enqueue(token, options)).toMatchObject({ status: 403, json: { code: "FORBIDDEN" } });
    }
    const settings = { cron: "0 3 * * *", pipeline: "secret-report" };
    expect((await call(token, "PUT", "/v1/schedules/sneaky", settings)).status).toBe(403);
    const { json } = await call("admin", "GET", "/v1/tokens");
    expect(json.tokens.find(({ id }: { id: string }) => id === created.json.id)).toMatchObject(limits);
  });

  it("of the whole installation uses any pool and priority by default", async () => {
    const { token } = await sw.tokens.create({ name: "op", role: "operator" });
    expect((await enqueue(token, { pool: "gpu", priority: 1000 })).status).toBe(201);
  });
});

describe("a read token of a key", () => {
  it("gives access to jobs of its tenant, or without a tenant, not to those of another tenant with the same key", async () => {
    const mine = await sw.enqueue(work, {}, { tenant: "globex", key: "cust", delay: "1h" });
    await sw.cancel(mine.id);
    const planted = await sw.enqueue(work, {}, { tenant: "acme", key: "cust", delay: "1h" });
    const token = signReadToken([SECRET], { pipeline: "work", key: "cust", tenant: "globex" });
    expect((await call(token, "GET", "/v1/jobs")).json.jobs.map(({ id }: { id: string }) => id)).toEqual([mine.id]);
    expect((await call(token, "GET", `/v1/jobs/${planted.id}`)).status).toBe(404);
    const general = signReadToken([SECRET], { pipeline: "work", key: "cust" });
    expect((await call(general, "GET", "/v1/jobs")).json.jobs).toEqual([]);
  });

  it.each([
    "text=hunter2",
    "tenant=globex",
    "pool=default",
    "key=other",
    "parent=01a1e107-2508-7182-ae66-db7bbe9aa49e",
  ])("cannot filter by hidden fields: %s", async (query) => {
    const token = signReadToken([SECRET], { pipeline: "work", key: "cust", tenant: "globex" });
    expect((await call(token, "GET", `/v1/jobs?${query}`)).status).toBe(403);
  });
});

describe("a sealed value", () => {
  it("is not accepted in plain, neither for a job nor for a schedule, and is in no audit entry", async () => {
    const input = { token: "plain-as-the-day-123" };
    expect((await call("admin", "POST", "/v1/jobs", { pipeline: "sealed-work", input })).status).toBe(400);
    expect(
      (await call("admin", "PUT", "/v1/schedules/nightly", { cron: "0 3 * * *", pipeline: "sealed-work", input }))
        .status,
    ).toBe(400);
    await expect(
      client.query("select stillwake.set_schedule('nightly', $1)", [
        JSON.stringify({ cron: "0 3 * * *", pipeline: "sealed-work", input }),
      ]),
    ).rejects.toMatchObject({ code: "SW001" });
    const named = { token: { $secret: "github" } };
    expect(
      (
        await call("admin", "PUT", "/v1/schedules/nightly", {
          cron: "0 3 * * *",
          pipeline: "sealed-work",
          input: named,
        })
      ).status,
    ).toBe(200);
    const { rows } = await client.query("select (select json_agg(a) from stillwake.audit a)::text as acts");
    expect(rows[0].acts).not.toContain("plain-as-the-day");
  });
});

describe("the server", () => {
  it("accepts a valid token from an address with many invalid ones, and does not count requests without a token", async () => {
    const quiet = createServer({ url: database.url, clientAddress: () => "203.0.113.7" });
    const send = async (token?: string) =>
      (
        await quiet.fetch(
          new Request("http://localhost/v1/me", { headers: token ? { authorization: `Bearer ${token}` } : {} }),
        )
      ).status;
    for (let n = 0; n < 80; n++) expect(await send()).toBe(401);
    expect(await send(tokens.admin)).toBe(200);
    const bad = await Promise.all(Array.from({ length: 80 }, (_, n) => send(`swt_${String(n).padStart(43, "x")}`)));
    expect(bad).toContain(429);
    expect(await send(tokens.admin)).toBe(200);
    await quiet.close();
  });

  it("accepts no cookie from a page of another origin, listed or not", async () => {
    const cookie = { cookie: `stillwake=${tokens.admin}`, authorization: "" };
    const send = async (origin: string) => {
      const headers = new Headers({ cookie: cookie.cookie, origin, host: "localhost" });
      return (await server.fetch(new Request("http://localhost/v1/pools/default/pause", { method: "POST", headers })))
        .status;
    };
    expect(await send("https://app.example.com")).toBe(401);
    expect(await send("https://elsewhere.example.com")).toBe(403);
    expect(await send("http://localhost")).toBe(200);
  });

  it("audits operations of callers identified by the application, with any name", async () => {
    const own = createServer({
      url: database.url,
      authenticate: () => ({ name: "ann", role: "operator", tenant: null, id: "user_42", expiresAt: null }),
    });
    const { id } = await sw.enqueue(work, {}, { delay: "1h" });
    const response = await own.fetch(new Request(`http://localhost/v1/jobs/${id}/cancel`, { method: "POST" }));
    expect(response.status).toBe(200);
    expect((await sw.tokens.audit({ target: id })).entries).toMatchObject([
      { actor: "ann", act: "cancelJob", before: { state: "queued" } },
    ]);
    await own.close();
  });

  it("returns at most some megabytes, however long the lines and inputs are", async () => {
    const { id } = await sw.enqueue(work, {}, { tenant: "acme", delay: "1h" });
    await client.query(
      "insert into stillwake.feed (job_id, seq, at, epoch, kind, level, message) select $1, s, now(), 0, 'log', 'info', repeat('x', 16000) from generate_series(1, 2000) s",
      [id],
    );
    const { json } = await call("acme", "GET", `/v1/jobs/${id}/logs?limit=10000`);
    expect(JSON.stringify(json).length).toBeLessThan(20_000_000);
    expect(json.lines.length).toBeGreaterThan(100);
    const more = await call("acme", "GET", `/v1/jobs/${id}/logs?limit=10000&after=${json.next}`);
    expect(Number(more.json.lines[0].seq)).toBe(Number(json.next) + 1);

    const large = { text: Array.from({ length: 5000 }, (_, n) => `${n}-${Math.imul(n, 2654435761)}`).join(" ") };
    const big = await sw.enqueue(work, large, { tenant: "acme", delay: "1h" });
    const page = await call("acme", "GET", "/v1/jobs?limit=1");
    expect(page.json.jobs[0]).toMatchObject({ id: big.id, input: null, omitted: ["input"] });
    expect((await call("acme", "GET", `/v1/jobs/${big.id}`)).json.input).toEqual(large);
  });
});
