// The server over HTTP: a real port, real tokens, every kind of resource.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { breaker, limit, pipeline, schedule } from "../../src/index.ts";
import { createServer } from "../../src/server/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { type Call, readAnswer, requestOf } from "../support/server/callers.ts";

const database = await freshDatabase();
const SECRET = "a secret of more than thirty-two characters";
const server = createServer({ url: database.url, secret: SECRET });
const sw = server.stillwake;
const listening = await server.listen({ port: 0 });
const { token: admin } = await sw.tokens.create({ name: "root", role: "admin" });
const greet = pipeline("greet", { input: z.object({ name: z.string().min(1), loud: z.boolean().default(false) }) });

beforeAll(async () => {
  await sw.register(greet, pipeline("plain", { needs: [limit("api", { max: 5, per: "1m" }), breaker("shop", {})] }));
});
afterAll(() => server.close());

const call: Call = async (method, path, options = {}) =>
  readAnswer(await fetch(requestOf(`${listening.url}${path}`, method, { token: admin, ...options })));

describe("jobs over HTTP", () => {
  it("are enqueued one by one, with the defaults of their schema, and read as by the client", async () => {
    const created = await call("POST", "/v1/jobs", {
      body: { pipeline: "greet", input: { name: "Ada" }, delay: "1h" },
    });
    expect(created).toMatchObject({ status: 201, json: { existing: false } });
    const { json } = await call("GET", `/v1/jobs/${created.json.id}`);
    expect(json).toEqual(JSON.parse(JSON.stringify(await sw.get(created.json.id))));
    expect(json).toMatchObject({ input: { name: "Ada", loud: false }, state: "queued", waitingFor: "time" });
  });

  it("are enqueued in bulk, and an idempotency key returns the same job", async () => {
    const many = await call("POST", "/v1/jobs", { body: { pipeline: "plain", inputs: [1, 2, 3] } });
    expect(many.json.jobs).toHaveLength(3);
    const once = { body: { pipeline: "plain", input: {} }, headers: { "idempotency-key": "once" } };
    const [first, second] = [await call("POST", "/v1/jobs", once), await call("POST", "/v1/jobs", once)];
    expect(second.json).toEqual({ id: first.json.id, existing: true });
  });

  it("that do not fit the schema are rejected with every invalid path", async () => {
    const refused = await call("POST", "/v1/jobs", { body: { pipeline: "greet", input: { name: "" } } });
    expect(refused.status).toBe(400);
    expect(refused.headers.get("content-type")).toBe("application/problem+json");
    expect(refused.json).toMatchObject({
      code: "INVALID_INPUT",
      field: "input.name",
      issues: [{ path: "input.name" }],
    });
    expect(refused.json.remedy).toBeTruthy();
  });

  it("are listed, filtered and controlled", async () => {
    const { json } = await call("POST", "/v1/jobs", {
      body: { pipeline: "plain", input: { mark: "needle-42" }, delay: "1h" },
    });
    const found = await call("GET", "/v1/jobs?text=NEEDLE-42&limit=5");
    expect(found.json.jobs.map(({ id }: { id: string }) => id)).toEqual([json.id]);
    expect((await call("POST", `/v1/jobs/${json.id}/pause`, { body: { reason: "later" } })).json).toEqual({
      id: json.id,
      state: "paused",
    });
    expect((await call("POST", `/v1/jobs/${json.id}/resume`)).json.state).toBe("queued");
    expect((await call("POST", `/v1/jobs/${json.id}/cancel`)).json.state).toBe("cancelled");
    expect((await call("POST", `/v1/jobs/${json.id}/retry`)).json.state).toBe("queued");
    expect((await call("POST", "/v1/jobs/cancel", { body: { ids: [json.id] } })).json.jobs).toEqual([
      { id: json.id, state: "cancelled" },
    ]);
    const audit = await call("GET", `/v1/audit?target=${json.id}`);
    expect(audit.json.entries.map(({ act }: { act: string }) => act)).toEqual([
      "retryJob",
      "cancelJob",
      "resumeJob",
      "pauseJob",
    ]);
    expect(audit.json.entries[3]).toMatchObject({
      actor: "root",
      before: { state: "queued" },
      after: { id: json.id, state: "paused" },
    });
  });

  it("are not controlled if the audit entry cannot be written, and rejected operations are audited", async () => {
    const { id } = await sw.enqueue(greet, { name: "Ada" }, { delay: "1h" });
    const quiet = createServer({ url: database.url, onError: () => {} });
    const steer = async (how: string) => {
      const headers = { authorization: `Bearer ${admin}` };
      return (await quiet.fetch(new Request(`http://x/v1/jobs/${id}/${how}`, { method: "POST", headers }))).status;
    };
    await sw.database.query("alter table stillwake.audit add constraint shut check (false) not valid");
    expect(await steer("cancel")).toBe(500);
    expect((await sw.get(id)).state).toBe("queued");
    await sw.database.query("alter table stillwake.audit drop constraint shut");
    expect(await steer("cancel")).toBe(200);
    expect(await steer("pause")).toBe(409);
    expect((await call("GET", `/v1/audit?target=${id}`)).json.entries).toMatchObject([
      { act: "pauseJob", before: { state: "cancelled" }, after: { refused: "NOT_ALLOWED" } },
      { act: "cancelJob", before: { state: "queued" }, after: { state: "cancelled" } },
    ]);
    await quiet.close();
  });

  it("are followed to their end", async () => {
    const { json } = await call("POST", "/v1/jobs", { body: { pipeline: "plain", input: {}, delay: "1h" } });
    const streamed = call("GET", `/v1/jobs/${json.id}/stream`);
    await call("POST", `/v1/jobs/${json.id}/cancel`);
    const { text, headers } = await streamed;
    expect(headers.get("content-type")).toMatch("text/event-stream");
    expect(text).toMatch(/event: end\n/);
  });
});

describe("every list of the server", () => {
  it.each([
    "jobs",
    "pipelines",
    "pools",
    "machines",
    "limits",
    "breakers",
    "schedules",
    "endpoints",
    "webhooks",
    "tokens",
    "audit",
    "stats",
    "me",
  ])("/v1/%s responds", async (noun) => {
    await sw.schedules.set(schedule("nightly", { cron: "0 3 * * *", pipeline: greet, input: { name: "x" } }));
    const response = await call("GET", `/v1/${noun}`);
    expect(response.status, response.text).toBe(200);
  });

  it("has metrics, health, a description and a page", async () => {
    expect((await call("GET", "/metrics")).text).toMatch(/stillwake_pool_claimable_jobs\{pool="default"\}/);
    expect((await call("GET", "/health", { token: null })).json).toMatchObject({ status: "ok" });
    expect((await call("GET", "/v1/health")).json.lateSchedules).toEqual([]);
    expect((await call("GET", "/openapi.json", { token: null })).json.openapi).toBe("3.1.0");
    expect((await call("GET", "/docs", { token: null })).text).toMatch(/Enqueues one job/);
  });
});
