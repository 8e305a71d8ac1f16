// Protection of the server: no public address without tokens, streams end with their token, pages of other sites can do
// nothing, sizes and rates are limited, and internal errors are hidden.
import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { pipeline } from "../../src/index.ts";
import { createServer, type ServerOptions, type StillwakeServer } from "../../src/server/index.ts";
import { routes } from "../../src/server/routes.ts";
import { waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { runCommand } from "../support/processes/cli-in-process.ts";
import { callerOf } from "../support/server/callers.ts";

const database = await freshDatabase();
const SECRET = "a secret of more than thirty-two characters";
const server = createServer({ url: database.url, secret: SECRET, origins: ["https://app.example.com"] });
const sw = server.stillwake;
const listening = await server.listen({ port: 0 });
const { token: admin } = await sw.tokens.create({ name: "root", role: "admin" });
const call = callerOf(server, admin);
const held = pipeline("held");
beforeAll(() => sw.register(held));
afterAll(() => server.close());

function another(options: Partial<ServerOptions> = {}): StillwakeServer {
  const created = createServer({ url: database.url, secret: SECRET, ...options });
  onTestFinished(() => created.close());
  return created;
}

/** A request with headers that fetch() does not allow. */
async function raw(
  { port }: { port: number },
  options: { method?: string; path?: string; headers?: http.OutgoingHttpHeaders; body?: string } = {},
) {
  const { method = "GET", path = "/health", headers = {}, body } = options;
  const request = http.request({ host: "127.0.0.1", port, method, path, headers, agent: false });
  request.end(body);
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  let text = "";
  for await (const chunk of response.setEncoding("utf8")) text += chunk;
  return { status: response.statusCode!, headers: response.headers, text };
}

describe("a server without tokens", () => {
  it.each(["0.0.0.0", "::", "192.0.2.7", "example.com"])("does not listen on %s", async (host) => {
    const open = another({ auth: "none" });
    await expect(open.listen({ port: 0, host })).rejects.toThrow(/without tokens cannot listen.*127\.0\.0\.1/s);
  });

  it.each(["127.0.0.1", "localhost", "127.8.8.8"])("listens on the loopback address %s", async (host) => {
    const { port } = await another({ auth: "none" }).listen({ port: 0, host });
    expect(port).toBeGreaterThan(0);
  });

  it("is rejected by the command with a message and a code", async () => {
    const run = await runCommand(["server", "--no-auth", "--host", "0.0.0.0", "--port", "0"], {
      DATABASE_URL: database.url,
    });
    expect(run.code).not.toBe(0);
    expect(run.stderr).toMatch(/without tokens cannot listen on 0\.0\.0\.0/);
    expect(run.stdout).not.toMatch(/serves/);
  });
});

describe("a stream", () => {
  async function follow(from: StillwakeServer, token: string): Promise<{ over: Promise<string>; isOver(): boolean }> {
    const { id } = await sw.enqueue(held, {}, { delay: "1h" });
    const headers = { authorization: `Bearer ${token}` };
    const response = await from.fetch(new Request(`http://x/v1/jobs/${id}/stream`, { headers }));
    expect(response.status).toBe(200);
    let text = "";
    let isOver = false;
    const read = async () => {
      for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) text += Buffer.from(chunk);
      isOver = true;
      return text;
    };
    const over = read();
    await waitFor(() => text.includes("event: state"), { what: "the stream to start" });
    return { over, isOver: () => isOver };
  }

  it("ends at once when its token is revoked at the same server; others continue", async () => {
    const token = await sw.tokens.create({ name: "viewer", role: "reader" });
    const [mine, another] = [await follow(server, token.token), await follow(server, admin)];
    await call("DELETE", `/v1/tokens/${token.id}`);
    await waitFor(mine.isOver, { what: "the stream to end" });
    expect(await mine.over).not.toContain("event: end");
    expect(another.isOver()).toBe(false);
  });

  it("ends at the next check when its token was revoked at another server", async () => {
    const attentive = another({ streams: { recheck: "100ms" } });
    const token = await sw.tokens.create({ name: "viewer", role: "reader" });
    const [mine, spared] = [await follow(attentive, token.token), await follow(attentive, admin)];
    await sw.tokens.revoke(token.id);
    expect(await mine.over).not.toContain("event: end");
    expect(spared.isOver()).toBe(false);
  });

  it("ends when its token expires", async () => {
    const { token } = await sw.tokens.create({ name: "viewer", role: "reader", expiresIn: "2s" });
    const { over } = await follow(server, token);
    expect(await over).not.toContain("event: end");
    // A cached token is not accepted after it expires.
    expect((await call("GET", "/v1/me", { token })).status).toBe(401);
  });

  it("is not opened by a token in the URL, and the number of streams is limited", async () => {
    const few = another({ streams: { perToken: 1 } });
    const { id } = await sw.enqueue(held, {}, { delay: "1h" });
    const path = `/v1/jobs/${id}/stream`;
    expect((await call("GET", `${path}?token=${admin}`, { token: undefined })).status).toBe(401);
    await follow(few, admin);
    const headers = { authorization: `Bearer ${admin}` };
    expect((await few.fetch(new Request(`http://x${path}`, { headers }))).status).toBe(429);
  });

  it("is closed after a HEAD request", async () => {
    const few = another({ streams: { perToken: 1 } });
    const { id } = await sw.enqueue(held, {}, { delay: "1h" });
    const headers = { authorization: `Bearer ${admin}` };
    for (let n = 0; n < 3; n++) {
      const response = await few.fetch(new Request(`http://x/v1/jobs/${id}/stream`, { method: "HEAD", headers }));
      expect(response.status).toBe(200);
    }
  });
});

describe("a page of another site", () => {
  const post = (headers: Record<string, string>, from = listening) =>
    raw(from, {
      method: "POST",
      path: "/v1/jobs",
      headers: { authorization: `Bearer ${admin}`, "content-type": "application/json", ...headers },
      body: JSON.stringify({ pipeline: "held", delay: "1h" }),
    });
  const foreign: Record<string, string>[] = [
    { origin: "https://evil.example" },
    { origin: "null" },
    { origin: "http://127.0.0.1:1" },
    { "sec-fetch-site": "cross-site" },
    { "sec-fetch-site": "same-site" },
  ];

  it.each(foreign)("cannot write: %j", async (headers) => {
    const open = await another({ auth: "none" }).listen({ port: 0 });
    for (const from of [listening, open]) {
      const { status, text } = await post(headers, from);
      expect(status).toBe(403);
      expect(JSON.parse(text)).toMatchObject({ code: "FORBIDDEN" });
    }
  });

  it("is distinguished from the server's own pages, from programs and from listed origins", async () => {
    const own = { origin: listening.url };
    for (const headers of [own, {}, { "sec-fetch-site": "same-origin" }, { origin: "https://app.example.com" }]) {
      expect((await post(headers)).status).toBe(201);
    }
  });

  it("cannot read: there are no CORS headers unless its origin is listed, and never for cookies", async () => {
    const send = (origin: string, method = "GET") => raw(listening, { method, headers: { origin } });
    const allowing = (headers: http.IncomingHttpHeaders) =>
      Object.keys(headers).filter((name) => name.startsWith("access-control"));
    expect(allowing((await send("https://evil.example")).headers)).toEqual([]);
    expect(await send("https://evil.example", "OPTIONS")).toMatchObject({ status: 403 });
    expect(allowing((await send("https://evil.example", "OPTIONS")).headers)).toEqual([]);
    const listed = await send("https://app.example.com", "OPTIONS");
    expect(listed.status).toBe(204);
    expect(listed.headers).toMatchObject({ "access-control-allow-origin": "https://app.example.com", vary: "origin" });
    expect(listed.headers["access-control-allow-credentials"]).toBeUndefined();
  });

  it("cannot use another host name to reach a server without tokens", async () => {
    const open = await another({ auth: "none" }).listen({ port: 0 });
    for (const host of [
      "evil.example",
      `evil.example:${open.port}`,
      "127.0.0.1.evil.example",
      "localhost.evil.example",
    ]) {
      expect((await raw(open, { path: "/v1/jobs", headers: { host } })).status, host).toBe(403);
    }
    for (const host of ["localhost", `127.0.0.1:${open.port}`, "[::1]:4700"]) {
      expect((await raw(open, { path: "/v1/jobs", headers: { host } })).status, host).toBe(200);
    }
  });

  it("gets a cookie that scripts cannot read and other sites do not send", async () => {
    const signIn = (headers: Record<string, string>, token = admin) =>
      raw(listening, {
        method: "POST",
        path: "/v1/session",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify({ token }),
      });
    const { status, headers } = await signIn({});
    expect(status).toBe(200);
    const [given] = headers["set-cookie"]!;
    expect(given).toMatch(/; Path=\/; HttpOnly; SameSite=Lax; Max-Age=\d+$/);
    expect((await signIn({ "x-forwarded-proto": "https" })).headers["set-cookie"]![0]).toMatch(/; Secure$/);
    const cookie = given!.split(";")[0]!;
    expect((await raw(listening, { path: "/v1/me", headers: { cookie } })).text).toContain('"root"');
    const evil = { cookie, origin: "https://evil.example" };
    expect((await raw(listening, { method: "POST", path: "/v1/watchdog", headers: evil })).status).toBe(403);
    expect((await signIn({}, "swt_nothing")).status).toBe(401);
    expect((await signIn({ origin: "https://evil.example" })).status).toBe(403);
    const out = await raw(listening, { method: "DELETE", path: "/v1/session", headers: { cookie } });
    expect(out).toMatchObject({ status: 204 });
    expect(out.headers["set-cookie"]![0]).toMatch(/^stillwake=; .*Max-Age=0/);
  });

  it("may not frame, sniff, cache or execute a response", async () => {
    for (const path of ["/health", "/docs", "/v1/jobs", "/nowhere"]) {
      const { headers } = await raw(listening, { path });
      expect(headers, path).toMatchObject({ "x-content-type-options": "nosniff", "cache-control": "no-store" });
      expect(headers["content-security-policy"]).toMatch(/default-src 'none'.*frame-ancestors 'none'/);
      expect(headers["content-security-policy"]).not.toMatch(/unsafe/);
    }
  });
});

describe("a request that is too large", () => {
  const send = (body: string, headers: Record<string, string> = {}) =>
    raw(listening, {
      method: "POST",
      path: "/v1/jobs",
      headers: { authorization: `Bearer ${admin}`, "content-type": "application/json", ...headers },
      body,
    });
  const job = (input: string) => `{"pipeline":"held","delay":"1h","input":${input}}`;

  it("is rejected: a body of more than a megabyte, with or without a content length", async () => {
    const large = job(JSON.stringify("x".repeat(1024 * 1024)));
    expect((await send(large)).status).toBe(413);
    expect((await send(large, { "transfer-encoding": "chunked" })).status).toBe(413);
  });

  it("is rejected: an input of more than 256 KB, deeper than 64, of more than 10,000 values", async () => {
    expect((await send(job(JSON.stringify("x".repeat(200_000))))).status).toBe(201);
    expect((await send(job(JSON.stringify("x".repeat(300_000))))).status).toBe(400);
    // The body itself is one level.
    expect((await send(job(`${"[".repeat(63)}${"]".repeat(63)}`))).status).toBe(201);
    expect((await send(job(`${"[".repeat(64)}${"]".repeat(64)}`))).status).toBe(400);
    expect((await send(job(JSON.stringify(Array(9_900).fill(1))))).status).toBe(201);
    expect((await send(job(JSON.stringify(Array(10_001).fill(1))))).status).toBe(400);
  });

  it("is rejected: headers of more than 16 KB, pages of more than 200", async () => {
    expect((await raw(listening, { headers: { "x-long": "x".repeat(17_000) } })).status).toBe(431);
    for (const noun of ["jobs", "webhooks", "audit"]) {
      expect((await call("GET", `/v1/${noun}?limit=200`)).status).toBe(200);
      expect((await call("GET", `/v1/${noun}?limit=201`)).status).toBe(400);
    }
  });

  it("is not a missing body: a POST without one needs no headers", async () => {
    const { id } = await sw.enqueue(held, {}, { delay: "1h" });
    const socket = net.connect(listening.port, "127.0.0.1");
    let text = "";
    socket.setEncoding("utf8").on("data", (data) => (text += data));
    socket.write(
      `POST /v1/jobs/${id}/cancel HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${admin}\r\nconnection: close\r\n\r\n`,
    );
    await once(socket, "close");
    expect(text).toMatch(/^HTTP\/1.1 200 /);
  });
});

describe("a caller with too many requests", () => {
  it("gets a Retry-After, and other callers are served", async () => {
    const strict = another({ rate: { perSecond: 0.5, burst: 5 } });
    const send = callerOf(strict, admin);
    const { token } = await sw.tokens.create({ name: "eager", role: "reader" });
    const statuses: number[] = [];
    for (let n = 0; n < 8; n++) statuses.push((await send("GET", "/v1/me", { token })).status);
    expect(statuses.slice(0, 5)).toEqual([200, 200, 200, 200, 200]);
    expect(statuses).toContain(429);
    const refused = await send("GET", "/v1/me", { token });
    expect(refused).toMatchObject({ status: 429, json: { code: "TOO_MANY_REQUESTS" } });
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    expect((await send("GET", "/v1/me")).status).toBe(200);
  });

  it("is also counted by tenant, over all its tokens", async () => {
    const strict = callerOf(another({ rate: { perSecond: 0.5, burst: 5 } }), admin);
    const statuses: number[] = [];
    for (let n = 0; n < 8; n++) {
      const { token } = await sw.tokens.create({ name: `t${n}`, role: "reader", tenant: "many" });
      statuses.push((await strict("GET", "/v1/me", { token })).status);
    }
    expect(statuses).toContain(429);
  });

  it("is rejected after many invalid tokens", async () => {
    const statuses = new Set<number>();
    for (let n = 0; n < 70; n++) {
      const headers = { authorization: `Bearer swt_${String(n).padStart(43, "x")}` };
      statuses.add((await raw(listening, { path: "/v1/jobs", headers })).status);
    }
    expect([...statuses].sort()).toEqual([401, 429]);
    expect((await raw(listening, { path: "/v1/me", headers: { authorization: `Bearer ${admin}` } })).status).toBe(200);
  });
});

describe("an internal error", () => {
  const internals =
    /\bat .*\.[tj]s|node_modules|select |insert |ECONN|127\.0\.0\.1|hunter2|somebody|relation|schema "|stack|SQLSTATE/i;

  it.each([
    ["cannot be reached", () => "postgres://somebody:hunter2@127.0.0.1:1/somewhere"],
    ["has no Stillwake in it", () => inject("server")],
  ])("is hidden when the database %s: 503 on every route, with Retry-After", async (_, url) => {
    const errors: unknown[] = [];
    const lost = another({ auth: "none", url: url(), retryTimeout: "50ms", onError: (error) => errors.push(error) });
    const id = "01a1e3c0-7692-7084-838d-62fb99747fdf";
    const bodies: Record<string, unknown> = {
      enqueue: { pipeline: "held" },
      cancelJobs: { ids: [id] },
      retryJobs: { ids: [id] },
      signalJob: { event: "go" },
      capPool: { concurrency: 1 },
      setSchedule: { cron: "* * * * *", pipeline: "held" },
      setEndpoint: { url: "https://hook.example/" },
      createToken: { name: "n", role: "reader" },
      createReadToken: { job: id },
      signIn: { token: `swt_${"x".repeat(43)}` },
      setBudget: { amount: 1 },
    };
    const untouched = ["health", "openapi", "docs", "me", "signOut", "poke"];
    for (const { method, path, name } of routes.filter((route) => !untouched.includes(route.name))) {
      const where = path
        .replace(":id", id)
        .replace(/:scope.*?(?=\/|$)/, "pool")
        .replace(/:name.*?(?=\/|$)/, "x");
      const body = bodies[name] ?? (method === "GET" || method === "DELETE" ? undefined : {});
      const request = new Request(`http://127.0.0.1${where}`, {
        method,
        headers: { "content-type": "application/json" },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const response = await lost.fetch(request);
      const text = await response.text();
      expect(response.status, `${name}: ${text}`).toBe(503);
      expect(response.headers.get("retry-after")).toBe("2");
      expect(text).not.toMatch(internals);
    }
    expect(errors.length).toBeGreaterThan(0);
    expect((await lost.fetch(new Request("http://127.0.0.1/health"))).status).toBe(200);
    expect((await lost.fetch(new Request("http://127.0.0.1/v1/health"))).status).toBe(503);
  });

  it("is hidden when the server itself fails", async () => {
    const wrong = another({
      authenticate: () => {
        throw new Error("select * from somebody at 127.0.0.1");
      },
      onError: () => {},
    });
    const response = await wrong.fetch(new Request("http://x/v1/jobs"));
    expect(response.status).toBe(500);
    const text = await response.text();
    expect(JSON.parse(text)).toMatchObject({ code: "INTERNAL" });
    expect(text).not.toMatch(internals);
  });
});
