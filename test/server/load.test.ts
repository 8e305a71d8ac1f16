// One caller cannot keep the server from serving others: slow reads, searches, invalid tokens, floods of public pages.
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { pipeline } from "../../src/index.ts";
import { forwardedAddress } from "../../src/server/http/client-address.ts";
import { createServer, type ServerOptions, type StillwakeServer } from "../../src/server/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { readAnswer, requestOf } from "../support/server/callers.ts";

const database = await freshDatabase();
const client = await connect(database.url);
const server = createServer({ url: database.url });
const sw = server.stillwake;
const tokens: Record<string, string> = {};

beforeAll(async () => {
  await sw.register(pipeline("work"));
  for (const tenant of ["acme", "globex", "initech"]) {
    tokens[tenant] = (await sw.tokens.create({ name: tenant, role: "operator", tenant })).token;
    await sw.enqueue("work", { text: "needle" }, { tenant, delay: "1h" });
  }
});
afterAll(() => server.close());

function another(options: Partial<ServerOptions>): StillwakeServer {
  const created = createServer({ url: database.url, ...options });
  onTestFinished(() => created.close());
  return created;
}

async function call(caller: string, method: string, path: string, body?: unknown, at = server, headers = {}) {
  const token = tokens[caller] ?? caller;
  return readAnswer(await at.fetch(requestOf(`http://localhost${path}`, method, { token, body, headers })));
}

/** Lists of jobs wait until the returned function is called: they count children. Enqueues do not. */
async function blockReads(): Promise<() => Promise<void>> {
  const blocker = await connect(database.url);
  await blocker.query("begin; lock table stillwake.spawns in access exclusive mode");
  let held = true;
  const release = async () => {
    if (held) await blocker.end();
    held = false;
  };
  onTestFinished(release);
  return release;
}

async function blockedStatements(): Promise<number> {
  const { rows } = await client.query(
    "select count(*)::int as count from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
  );
  return rows[0].count;
}

const isServed = async () => {
  const startedAt = performance.now();
  expect((await call("globex", "POST", "/v1/jobs", { pipeline: "work", delay: "1h" })).status).toBe(201);
  expect(performance.now() - startedAt).toBeLessThan(2500);
};

describe("searches of one caller", () => {
  it("run one at a time on separate connections: an enqueue of another tenant does not wait", async () => {
    const release = await blockReads();
    const searches = Array.from({ length: 12 }, () => call("acme", "GET", "/v1/jobs?text=needle"));
    await waitFor(async () => (await blockedStatements()) > 0, { what: "the first search to wait" });
    await isServed();
    const other = call("initech", "GET", "/v1/jobs?text=needle");
    await waitFor(async () => (await blockedStatements()) === 2, { what: "the search of another caller to start" });
    await release();
    expect((await other).status).toBe(200);
    const statuses = (await Promise.all(searches)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(5);
    expect(statuses.filter((status) => status === 429)).toHaveLength(7);
  });

  it("are stopped by Postgres after three seconds, with a remedy", async () => {
    await blockReads();
    expect(await call("acme", "GET", "/v1/jobs?text=needle")).toMatchObject({
      status: 422,
      json: { code: "SEARCH_TOO_SLOW", field: "text", remedy: expect.stringContaining("since") },
    });
    expect(await blockedStatements()).toBe(0);
  });
});

describe("slow requests of one caller", () => {
  it("use at most half of the connections; further ones wait, and other tenants are served", async () => {
    const release = await blockReads();
    const reads = Array.from({ length: 30 }, () => call("acme", "GET", "/v1/jobs"));
    await waitFor(async () => (await blockedStatements()) === 5, { what: "five reads to wait" });
    await isServed();
    expect(await blockedStatements()).toBe(5);
    await release();
    expect(new Set((await Promise.all(reads)).map(({ status }) => status))).toEqual(new Set([200]));
  });
});

describe("invalid tokens from one address", () => {
  it("do not lock out valid ones that the server has not seen yet, nor the sign-in", async () => {
    const proxied = another({ clientAddress: () => "203.0.113.7" });
    const send = (token: string) => call(token, "GET", "/v1/me", undefined, proxied);
    const bad = await Promise.all(Array.from({ length: 200 }, (_, n) => send(`swt_${String(n).padStart(43, "x")}`)));
    expect(new Set(bad.map(({ status }) => status))).toEqual(new Set([401, 429]));
    for (let n = 0; n < 20; n++) {
      const { token } = await sw.tokens.create({ name: `valid-${n}`, role: "reader" });
      expect((await send(token)).status).toBe(200);
      await Promise.all(Array.from({ length: 5 }, (_, m) => send(`swt_${`${n}-${m}`.padStart(43, "A")}`)));
    }
    const session = { method: "POST", headers: { "content-type": "application/json" } };
    const signIn = new Request("http://localhost/v1/session", {
      ...session,
      body: JSON.stringify({ token: tokens.acme }),
    });
    expect((await proxied.fetch(signIn)).status).toBe(200);
  });

  it("are looked up together: many at once take one connection", async () => {
    const before = await client.query(
      "select count(*)::int as count from pg_stat_activity where datname = current_database()",
    );
    const fresh = another({});
    await Promise.all(
      Array.from({ length: 100 }, (_, n) =>
        call(`swt_${String(n).padStart(43, "y")}`, "GET", "/v1/me", undefined, fresh),
      ),
    );
    const after = await client.query(
      "select count(*)::int as count from pg_stat_activity where datname = current_database()",
    );
    expect(after.rows[0].count - before.rows[0].count).toBeLessThanOrEqual(1);
  });
});

describe("a flood of a public page", () => {
  it("does not keep /health from answering, nor a browser from signing in", async () => {
    const strict = another({ rate: { perSecond: 0.01, burst: 5 } });
    const get = async (path: string) => (await strict.fetch(new Request(`http://localhost${path}`))).status;
    const docs: number[] = [];
    for (let n = 0; n < 10; n++) docs.push(await get("/docs"));
    expect(docs).toContain(429);
    for (let n = 0; n < 20; n++) expect(await get("/health")).toBe(200);
    const signIn = new Request("http://localhost/v1/session", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token: tokens.acme }),
    });
    expect((await strict.fetch(signIn)).status).toBe(200);
  });

  it("counts by the client's address behind trusted proxies", async () => {
    const strict = another({ rate: { perSecond: 0.01, burst: 5 }, trustProxy: 1 });
    const get = async (forwarded: string) =>
      (await strict.fetch(new Request("http://localhost/docs", { headers: { "x-forwarded-for": forwarded } }))).status;
    // What the client wrote itself is left of the proxy's entry.
    const statuses: number[] = [];
    for (let n = 0; n < 10; n++) statuses.push(await get(`198.51.100.${n}, 203.0.113.1`));
    expect(statuses).toContain(429);
    expect(await get("203.0.113.2")).toBe(200);
  });
});

describe("the address of a client", () => {
  it.each([
    [0, "203.0.113.9", "10.0.0.1"],
    [1, null, "10.0.0.1"],
    [1, "203.0.113.9", "203.0.113.9"],
    [1, "spoofed, 203.0.113.9", "203.0.113.9"],
    [1, "198.51.100.7, 203.0.113.9:4711", "203.0.113.9"],
    [2, "198.51.100.7, 203.0.113.9", "198.51.100.7"],
    [2, "203.0.113.9", "203.0.113.9"],
    [2, "unknown, 203.0.113.9", "203.0.113.9"],
    [1, "[2001:db8::7]:443", "2001:db8::7"],
  ])("behind %i proxies with X-Forwarded-For %s is %s", (proxies, forwarded, expected) => {
    const headers = forwarded === null ? {} : { "x-forwarded-for": forwarded };
    expect(forwardedAddress(new Request("http://localhost/", { headers }), "10.0.0.1", proxies)).toBe(expected);
  });
});
