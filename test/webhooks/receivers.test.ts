// Faulty receivers. Every delivery is recorded, the retry schedule is kept, and no other receiver waits.
import { once } from "node:events";
import type http from "node:http";
import net from "node:net";
import type pg from "pg";
import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { pipeline, type Webhook } from "../../src/index.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import { parseRetryAfter } from "../../src/time.ts";
import { type CreateSenderOptions, createSender } from "../../src/worker/index.ts";
import { connect, connectedDatabase } from "../support/database/connections.ts";
import { ALLOW_LOCALHOST, respondWith, startReceiver } from "../support/fakes/webhook-receiver.ts";
import { recordTimes } from "../support/processes/fault-checks.ts";

const { database, stillwake, client } = await connectedDatabase();

beforeAll(() => stillwake.register(pipeline("task")));
beforeEach(async () => {
  await client.query("truncate stillwake.webhooks, stillwake.deliveries, stillwake.webhook_lanes");
});

/** Creates ended jobs with webhooks to this URL. */
async function endedJobs(count: number, webhook: string | { endpoint: string; url?: string }): Promise<string[]> {
  const jobs = await stillwake.enqueueMany("task", Array(count).fill({}), { webhook });
  await client.query("select stillwake.cancel(i) from unnest($1::uuid[]) i", [jobs.map(({ id }) => id)]);
  return jobs.map(({ id }) => id);
}

function sender(options: Partial<CreateSenderOptions> = {}) {
  const made = createSender({ url: database.url, ...ALLOW_LOCALHOST, timeout: "1s", ...options });
  onTestFinished(() => made.stop());
  return made;
}

/** A webhook to this URL after one delivery, and the seconds until the next one. */
async function afterOneTry(
  url: string,
  options: Partial<CreateSenderOptions> = {},
): Promise<Webhook & { waitS: number }> {
  const [job] = await endedJobs(1, url);
  const one = sender(options);
  await one.flush();
  await one.stop();
  const [hook] = await stillwake.webhooks.list({ job: job! });
  const { rows } = await client.query(
    "select extract(epoch from next_at - stillwake.now())::float8 as s from stillwake.webhooks where id = $1",
    [hook!.id],
  );
  return { ...hook!, waitS: rows[0].s };
}

/** A TCP server with a custom connection handler. */
async function rawServer(onRequest: (socket: net.Socket) => void): Promise<string> {
  const sockets = new Set<net.Socket>();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.once("data", () => onRequest(socket));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as net.AddressInfo).port}/`;
}

/** Sends this text, a byte at a time, forever. */
const trickle = (socket: net.Socket, text: string) => {
  let place = 0;
  const timer = setInterval(() => socket.write(text[place++ % text.length]!), 20);
  socket.on("close", () => clearInterval(timer));
};

describe("a receiver that", () => {
  it("responds with any 2xx has accepted it", async () => {
    const receiver = await startReceiver();
    for (const code of [200, 201, 202, 204, 299]) {
      receiver.respond = respondWith(code);
      expect(await afterOneTry(receiver.url)).toMatchObject({
        state: "delivered",
        deliveries: [{ status: code, error: null }],
      });
    }
  });

  it.each([400, 401, 404, 409, 500, 502, 503])("responds with %i is retried in 5 s", async (code) => {
    const receiver = await startReceiver(respondWith(code, {}, "no"));
    const hook = await afterOneTry(receiver.url);
    expect(hook).toMatchObject({
      state: "pending",
      attempts: 1,
      deliveries: [{ status: code, error: "STATUS", response: "no" }],
    });
    expect(hook.waitS).toBeGreaterThan(0);
    expect(hook.waitS).toBeLessThan(5.5);
  });

  it.each([301, 302, 303, 307, 308])("redirects (%i) has not accepted it", async (code) => {
    const elsewhere = await startReceiver();
    const receiver = await startReceiver(respondWith(code, { location: elsewhere.url }));
    expect(await afterOneTry(receiver.url)).toMatchObject({
      state: "pending",
      deliveries: [{ status: code, error: "REDIRECT" }],
    });
    expect(elsewhere.received).toEqual([]);
  });

  it("never responds is abandoned after the time limit", async () => {
    const silent = await rawServer(() => {});
    expect(await afterOneTry(silent)).toMatchObject({
      state: "pending",
      deliveries: [{ status: null, error: "TIMEOUT" }],
    });
  });

  it("sends a byte at a time is abandoned after the same time limit", async () => {
    const headers = await rawServer((socket) =>
      trickle(socket, "HTTP/1.1 200 OK\r\nx-a: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
    );
    const began = performance.now();
    expect(await afterOneTry(headers)).toMatchObject({ deliveries: [{ error: "TIMEOUT" }] });
    expect(performance.now() - began).toBeLessThan(8000);
    // The body after the status is only for display: the webhook is accepted.
    const body = await rawServer((socket) => {
      socket.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
      trickle(socket, "1\r\nx\r\n");
    });
    expect(await afterOneTry(body, { timeout: "10s" })).toMatchObject({ state: "delivered" });
  });

  it("sends 10 MB is cut off after a kilobyte", async () => {
    let written = 0;
    const receiver = await startReceiver((_, response) => {
      response.writeHead(500);
      const piece = "x".repeat(65_536);
      const more = () => {
        while (written < 10_000_000 && !response.destroyed) {
          written += piece.length;
          if (!response.write(piece)) return void response.once("drain", more);
        }
        response.end();
      };
      more();
    });
    const hook = await afterOneTry(receiver.url);
    expect(hook.deliveries[0]!.response).toBe("x".repeat(1024));
    expect(written).toBeLessThan(9_000_000);
  });

  it("sends characters that Postgres cannot store is recorded without them", async () => {
    const receiver = await startReceiver((_, response) => {
      response.writeHead(500).end(Buffer.concat([Buffer.from("a\0b\xff", "latin1"), Buffer.from("💡".repeat(400))]));
    });
    const hook = await afterOneTry(receiver.url);
    expect(hook).toMatchObject({ attempts: 1, deliveries: [{ status: 500 }] });
    expect(hook.deliveries[0]!.response).toMatch(/^ab.💡/u);
  });

  it("closes the connection, is unreachable, or speaks another protocol has failed", async () => {
    const resets = await rawServer((socket) => socket.resetAndDestroy());
    expect(await afterOneTry(resets)).toMatchObject({ deliveries: [{ error: "CONNECTION_LOST" }] });
    const closes = await rawServer((socket) => socket.end());
    expect(await afterOneTry(closes)).toMatchObject({ deliveries: [{ error: "CONNECTION_LOST" }] });
    const ssh = await rawServer((socket) => socket.end("SSH-2.0-OpenSSH_9.6\r\n"));
    expect(await afterOneTry(ssh)).toMatchObject({ deliveries: [{ error: "NOT_HTTP" }] });
    const gone = await startReceiver();
    await gone.close();
    expect(await afterOneTry(gone.url)).toMatchObject({ deliveries: [{ error: "UNREACHABLE" }] });
    const wordy = await rawServer((socket) => socket.end(`HTTP/1.1 200 OK\r\nx: ${"y".repeat(100_000)}\r\n\r\n`));
    expect(await afterOneTry(wordy)).toMatchObject({ state: "pending", deliveries: [{ error: "NOT_HTTP" }] });
  });

  it("closes idle connections is not counted as failing", async () => {
    const receiver = await startReceiver((_, response) => {
      response.writeHead(204).end();
      // After the response, without announcing it.
      setImmediate(() => response.socket?.resetAndDestroy());
    });
    const jobs = await endedJobs(30, receiver.url);
    const one = sender({ concurrency: 1, timeout: "15s" });
    await one.flush();
    const hooks = await stillwake.webhooks.list({ state: "delivered" });
    expect(hooks.map(({ attempts }) => attempts)).toEqual(jobs.map(() => 1));
  });

  it("responds with 410 gets no more webhooks: the endpoint is disabled, and one to a job's own URL has failed", async () => {
    const receiver = await startReceiver(respondWith(410));
    const own = await afterOneTry(receiver.url);
    expect(own).toMatchObject({ state: "failed", attempts: 1, deliveries: [{ status: 410 }] });
    expect((await stillwake.webhooks.endpoints()).find(({ name }) => name === "default")!.disabledAt).toBeNull();

    await stillwake.webhooks.set("gone", { url: receiver.url });
    const jobs = await endedJobs(20, { endpoint: "gone" });
    receiver.received = [];
    const one = sender({ concurrency: 1 });
    await one.flush();
    expect(receiver.received).toHaveLength(1);
    expect((await stillwake.webhooks.endpoints()).find(({ name }) => name === "gone")).toMatchObject({
      disabledAt: expect.any(Date),
      disabledReason: expect.stringContaining("410"),
    });
    receiver.respond = respondWith(204);
    await stillwake.webhooks.enable("gone");
    await one.flush();
    expect(new Set(receiver.received.map(({ body }) => JSON.parse(body).data.id))).toEqual(new Set(jobs));
  });

  it("sends Retry-After is given that time: seconds, a date by its own clock, at most a day, and at least the schedule", async () => {
    const receiver = await startReceiver();
    const waits = async (headers: http.OutgoingHttpHeaders, code = 429) => {
      await client.query("truncate stillwake.webhook_lanes");
      receiver.respond = respondWith(code, headers as Record<string, string>);
      return (await afterOneTry(receiver.url)).waitS;
    };
    const about = (seconds: number) => expect.closeTo(seconds, -1.3);
    expect(await waits({ "retry-after": "120" })).toEqual(about(120));
    expect(await waits({ "retry-after": "120" }, 503)).toEqual(about(120));
    const wrong = Date.parse("Tue, 15 Nov 1994 12:45:26 GMT");
    const at = (ms: number) => new Date(ms).toUTCString();
    expect(await waits({ date: at(wrong), "retry-after": at(wrong + 300_000) })).toEqual(about(300));
    expect(await waits({ "retry-after": "31536000" })).toEqual(about(86_400));
    for (const value of ["0", "soon", "-5", at(wrong)]) {
      expect(await waits({ "retry-after": value })).toEqual(about(5));
    }
    expect(parseRetryAfter("7")).toBe(7000);
    expect(parseRetryAfter(undefined)).toBeUndefined();
  });

  it("sends Retry-After gets no other webhook of its lane before", async () => {
    const receiver = await startReceiver(respondWith(429, { "retry-after": "600" }));
    await endedJobs(1, receiver.url);
    const one = sender();
    await one.flush();
    await endedJobs(5, receiver.url);
    await one.flush();
    expect(receiver.received).toHaveLength(1);
    const due = async () =>
      (await client.query("select extract(epoch from stillwake.webhooks_due() - stillwake.now())::float8 as s")).rows[0]
        .s;
    expect(await due()).toBeGreaterThan(500);
    receiver.respond = respondWith(204);
    await travel(client, "601s");
    one.poke();
    await receiver.gets(7);
  });
});

describe("one failing receiver", () => {
  it("gets one at a time after five failures in a row, and more again after a success", async () => {
    const receiver = await startReceiver(respondWith(500));
    await endedJobs(30, receiver.url);
    const claim = async (limit = 100) =>
      (await client.query("select id, epoch::text, failing from stillwake.claim_webhooks('s', $1)", [limit])).rows;
    const settle = (rows: { id: string; epoch: string }[], code: number) =>
      client.query("select stillwake.settle_webhooks($1)", [
        JSON.stringify(rows.map(({ id, epoch }) => ({ id, epoch, sender: "s", status: code }))),
      ]);
    const first = await claim();
    expect(first).toHaveLength(10);
    expect(await claim()).toEqual([]);
    await settle(first.slice(0, 4), 500);
    const more = await claim();
    expect(more).toHaveLength(4);
    await settle([...first.slice(4), ...more], 500);
    const single = await claim();
    expect(single).toEqual([expect.objectContaining({ failing: true })]);
    expect(await claim()).toEqual([]);
    await settle(single, 200);
    expect(await claim()).toHaveLength(10);
  });

  it("and a hundred dead ones leave half of the slots to the others", async () => {
    const hosts = Array.from({ length: 100 }, (_, n) => `https://dead-${n}.example/`);
    for (const url of hosts) await endedJobs(1, url);
    await client.query(
      "insert into stillwake.webhook_lanes (name, endpoint, failures, updated_at) select distinct lane, endpoint, 9, stillwake.now() from stillwake.webhooks",
    );
    await endedJobs(3, "https://zz-alive.example/");
    const { rows } = await client.query("select failing from stillwake.claim_webhooks('s', 20, '1 minute', 10)");
    expect(rows.filter(({ failing }) => failing)).toHaveLength(10);
    expect(rows.filter(({ failing }) => !failing)).toHaveLength(3);
  });

  it("gets at most ten concurrent deliveries, however many senders there are", async () => {
    await endedJobs(40, "https://busy.example/");
    const other = await connect(database.url);
    await client.query("begin");
    const one = await client.query("select id from stillwake.claim_webhooks('one', 100)");
    const claiming = other.query("select id from stillwake.claim_webhooks('two', 100)");
    // It waits for the first claim, or does not see its webhooks.
    await Promise.race([claiming, waitFor(async () => (await waits(client)) > 0)]);
    await client.query("commit");
    expect(one.rowCount).toBe(10);
    expect((await claiming).rows).toEqual([]);
  });

  it("is not claimed first again: claims alternate between lanes", async () => {
    for (const host of ["a", "b", "c"]) await endedJobs(20, `https://${host}.example/`);
    const claim = async (after: string) =>
      (await client.query("select lane from stillwake.claim_webhooks('s', 5, '1 minute', null, $1)", [after])).rows.map(
        ({ lane }) => lane.at(-9),
      );
    expect(await claim("default b.example")).toEqual(Array(5).fill("c"));
    expect(await claim("default c.example")).toEqual(Array(5).fill("a"));
    expect(await claim("default a.example")).toEqual(Array(5).fill("b"));
  });

  it("does not delay a healthy one, whether it fails or never responds", async () => {
    const silent = await rawServer(() => {});
    let turn = 0;
    const poor = await startReceiver((one, response) => respondWith(turn++ % 10 < 3 ? 500 : 204)(one, response));
    const healthy = await startReceiver();
    await endedJobs(100, silent);
    await endedJobs(100, poor.url);
    const one = sender({ timeout: "6s" });
    const sentAt = new Map<string, number>();
    for (let batch = 0; batch < 20; batch++) {
      const jobs = await endedJobs(10, healthy.url);
      for (const job of jobs) sentAt.set(job, performance.now());
      one.poke();
      await waitFor(() => healthy.received.length >= sentAt.size, {
        timeout: 20_000,
        what: "the healthy receiver to get its webhooks",
      });
    }
    const times = healthy.received.map(({ body, at }) => at - sentAt.get(JSON.parse(body).data.id)!);
    const { p99 } = recordTimes("a healthy endpoint beside bad ones", times);
    expect(times).toHaveLength(200);
    expect(p99).toBeLessThan(5800);
    await travel(client, "6s");
    one.poke();
    await waitFor(async () => new Set(poor.received.map(({ id }) => id)).size === 100);
  });
});

/** The number of sessions that wait for an advisory lock. */
async function waits(client: pg.Client): Promise<number> {
  const { rows } = await client.query(
    "select count(*)::int as n from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())",
  );
  return rows[0].n;
}
