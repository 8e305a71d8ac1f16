// Fuzzing: for any request the server responds with 2xx or 4xx, soon, and keeps running. Requests are generated from
// the API description: mostly valid, then wrong somewhere. Responses are checked strictly against the same description.
import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL, round } from "../support/processes/fault-checks.ts";
import { wrongIn } from "../support/server/api-description.ts";
import { type OddRequest, oddRequest } from "../support/server/odd-requests.ts";
import { furnish } from "../support/server/sample-data.ts";

const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const COUNT = FULL ? 20_000 : 3000;
/** Concurrent requests. */
const CROWD = 25;
const RESPONSE_TIMEOUT_MS = 15_000;

const database = await freshDatabase();
const { server, admin, jobs, webhook, errors } = await furnish(database);
const agent = new http.Agent({ keepAlive: true, maxSockets: CROWD });
const listening = await server.listen({ port: 0 });
afterAll(() => agent.destroy());

interface Answered {
  status: number;
  type: string;
  text: string;
}

/** Used connections. `reusedSocket` of a request is false for a socket that was assigned while the request was queued. */
const used = new WeakSet<net.Socket>();

async function send(sent: Omit<OddRequest, "operation">): Promise<Answered> {
  const { method, path, headers, body } = sent;
  const { port } = listening;
  const all = { authorization: `Bearer ${admin}`, ...headers, ...(body && { "content-length": body.length }) };
  const request = http.request({ host: "127.0.0.1", port, method, path, headers: all, agent });
  let again = false;
  request.on("socket", (socket) => {
    again = used.has(socket);
    used.add(socket);
  });
  const late = setTimeout(
    () => request.destroy(new Error(`No answer in ${RESPONSE_TIMEOUT_MS} ms`)),
    RESPONSE_TIMEOUT_MS,
  );
  try {
    request.end(body);
    const [response] = (await once(request, "response")) as [http.IncomingMessage];
    const type = response.headers["content-type"] ?? "";
    let text = "";
    if (type.startsWith("text/event-stream")) response.destroy();
    else for await (const chunk of response.setEncoding("utf8")) text += chunk;
    return { status: response.statusCode!, type, text };
  } catch (error) {
    // The server may close a connection just when it is reused; retry with a new one.
    if (again && (error as { code?: string }).code === "ECONNRESET") return send(sent);
    throw error;
  } finally {
    clearTimeout(late);
  }
}

/** Must not be in a response: internal details such as files and statements. */
const internals =
  /\bat \S+ \(|node_modules|\.[jt]s:\d+|\bselect \*|insert into|SQLSTATE|ECONNREFUSED|violates|syntax error at/i;

function judge({ operation, method, path }: OddRequest, { status, type, text }: Answered): string[] {
  if (status >= 500 || status < 200) return [`${status}`];
  if (status >= 400) {
    if (method === "HEAD") return [];
    if (type !== "application/problem+json") return [`${status} is ${type || "nothing"}`];
    const { code, remedy, status: said } = JSON.parse(text);
    const faults = [!code && "no code", !remedy && "no remedy", said !== status && "another status in the body"];
    if (internals.test(text)) faults.push("contains internal details");
    return faults.filter((fault) => fault !== false);
  }
  // A path with dots may be normalized to another one.
  const pathExists = method === operation.method && new URL(`http://x${path}`).pathname === path.split("?")[0];
  if (!pathExists || !type.startsWith("application/json")) return [];
  return operation.operationId === "openapi" ? [] : wrongIn(operation, status, JSON.parse(text));
}

describe("any request", () => {
  it("gets 2xx or 4xx, as described, and the server keeps running", { timeout: 900_000 }, async () => {
    const statuses: Record<number, number> = {};
    const real = {
      jobs: Object.values(jobs),
      webhooks: [webhook],
      tokens: ["01a1e3c0-7692-7084-838d-62fb99747fdf"],
      "jobs names": ["deep/report.txt"],
      "pipelines names": ["held", "work"],
      "pools names": ["held", "side"],
      "limits names": ["api"],
      "breakers names": ["shop"],
      "schedules names": ["minutely", "nightly", "new"],
      "endpoints names": ["hook", "deaf", "new"],
    };
    const startedAt = performance.now();
    const wrong: string[] = [];
    const check = async (request: OddRequest) => {
      const answered = await send(request).catch(({ message }: Error) => ({ status: 0, type: "", text: message }));
      statuses[answered.status] = (statuses[answered.status] ?? 0) + 1;
      const faults = judge(request, answered).join("; ");
      const { method, path, headers, body } = request;
      const sent = `${method} ${path} ${JSON.stringify(headers)} ${body?.toString()}`.slice(0, 1000);
      if (faults) wrong.push(`${sent}: ${faults.slice(0, 500)}\n${answered.text.slice(0, 500)}`);
    };
    for (let done = 0; done < COUNT && wrong.length === 0; done += 1000) {
      const requests = fc.sample(oddRequest(real), { seed: SEED + done, numRuns: 1000 });
      const work = async () => {
        for (let next = requests.pop(); next; next = requests.pop()) await check(next);
      };
      await Promise.all(Array.from({ length: CROWD }, work));
      for (const error of errors.splice(0)) wrong.push((error as Error).stack!);
    }
    expect(wrong, `seed ${SEED}`).toEqual([]);
    const seconds = (performance.now() - startedAt) / 1000;
    recordFigure(
      "odd requests",
      COUNT,
      "",
      `seed ${SEED}, ${round(COUNT / seconds)} a second, ${JSON.stringify(statuses)}`,
    );
    recordFigure(
      "odd requests with 5xx",
      Object.entries(statuses).reduce((sum, [status, n]) => sum + (Number(status) >= 500 ? n : 0), 0),
    );
    expect((await send({ method: "GET", path: "/health", headers: {}, body: undefined })).status).toBe(200);
    expect((await send({ method: "GET", path: `/v1/jobs/${jobs.good}`, headers: {}, body: undefined })).status).toBe(
      200,
    );
  });
});

describe("bytes that are not a request", () => {
  const auth = () => `authorization: Bearer ${admin}\r\ncontent-type: application/json`;
  const post = (more: string, body = "") => `POST /v1/jobs HTTP/1.1\r\nhost: x\r\n${auth()}\r\n${more}\r\n\r\n${body}`;
  const job = '{"pipeline":"held"}';
  const cases: [string, () => string | Buffer][] = [
    ["a length that is too long", () => post("content-length: 500", job)],
    ["a length that is too short", () => post("content-length: 5", job)],
    ["a length that is none", () => post("content-length: many", job)],
    ["a length below nothing", () => post("content-length: -1", job)],
    ["two lengths", () => post("content-length: 19\r\ncontent-length: 20", job)],
    [
      "a length and chunks",
      () => post("content-length: 19\r\ntransfer-encoding: chunked", `13\r\n${job}\r\n0\r\n\r\n`),
    ],
    ["chunks that end early", () => post("transfer-encoding: chunked", `ff\r\n${job}`)],
    ["a chunk of no size", () => post("transfer-encoding: chunked", `zz\r\n${job}\r\n0\r\n\r\n`)],
    ["a chunk of a size without end", () => post("transfer-encoding: chunked", `${"f".repeat(40)}\r\n${job}`)],
    ["a chunk that is longer than it says", () => post("transfer-encoding: chunked", `5\r\n${job}\r\n0\r\n\r\n`)],
    ["an encoding that is unknown", () => post("transfer-encoding: cow", job)],
    ["a coding over chunks", () => post("transfer-encoding: gzip, chunked", `13\r\n${job}\r\n0\r\n\r\n`)],
    ["lines that end badly", () => `GET /v1/jobs HTTP/1.1\nhost: x\n${auth()}\n\n`],
    ["no host", () => "GET /health HTTP/1.1\r\n\r\n"],
    ["two hosts", () => "GET /health HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n"],
    ["a host that is none", () => "GET /health HTTP/1.1\r\nhost: a b/@\r\n\r\n"],
    ["an older version", () => "GET /health HTTP/1.0\r\n\r\n"],
    ["a version that is none", () => "GET /health HTTP/9.9\r\nhost: x\r\n\r\n"],
    ["a newer version", () => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ["a whole address", () => "GET http://elsewhere.example/health HTTP/1.1\r\nhost: x\r\n\r\n"],
    ["a star", () => "OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n"],
    ["a path without a slash", () => "GET health HTTP/1.1\r\nhost: x\r\n\r\n"],
    ["two slashes", () => "GET //evil.example/v1/jobs HTTP/1.1\r\nhost: x\r\n\r\n"],
    ["a tunnel", () => "CONNECT evil.example:443 HTTP/1.1\r\nhost: x\r\n\r\n"],
    ["a method that is none", () => "FETCH /health HTTP/1.1\r\nhost: x\r\n\r\n"],
    ["an upgrade", () => "GET /health HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"],
    ["an expectation", () => post("expect: miracles\r\ncontent-length: 19", job)],
    ["a NUL in a header", () => "GET /health HTTP/1.1\r\nhost: x\r\nx: a\0b\r\n\r\n"],
    ["a header without a name", () => "GET /health HTTP/1.1\r\nhost: x\r\n: y\r\n\r\n"],
    ["headers without end", () => `GET /health HTTP/1.1\r\nhost: x\r\nx: ${"y".repeat(20_000)}`],
    ["a thousand headers", () => `GET /health HTTP/1.1\r\nhost: x\r\n${"x: y\r\n".repeat(3000)}\r\n`],
    ["a path without end", () => `GET /${"x".repeat(20_000)} HTTP/1.1\r\nhost: x\r\n\r\n`],
    ["noise", () => Buffer.from(Array.from({ length: 500 }, (_, n) => (n * 7919) & 255))],
    ["a greeting of TLS", () => Buffer.from("16030100a5010000a10303", "hex")],
    ["nothing", () => ""],
  ];

  it.each(cases)("get a response or a closed connection: %s", async (_, bytes) => {
    const socket = net.connect(listening.port, "127.0.0.1");
    let text = "";
    socket.setEncoding("latin1").on("data", (data) => (text += data));
    socket.on("error", () => {});
    const closed = once(socket, "close");
    // Half closed: the server receives nothing more.
    socket.end(bytes());
    const late = setTimeout(() => socket.destroy(new Error("late")), RESPONSE_TIMEOUT_MS);
    await closed;
    clearTimeout(late);
    expect(socket.errored?.message).not.toBe("late");
    for (const [, status] of text.matchAll(/^HTTP\/1.1 (\d{3})/gm)) expect(Number(status)).toBeLessThan(500);
    expect(text).not.toMatch(internals);
    expect((await send({ method: "GET", path: "/health", headers: {}, body: undefined })).status).toBe(200);
    expect(errors.splice(0)).toEqual([]);
  });
});
