// T52: whatever is sent to the server, it answers 2xx or 4xx, soon, and is there afterwards. Requests are made from the description of the API: right
// enough to get far, then wrong somewhere. What it answers is held against the same description, strictly. S10, S14.
import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Listening } from "../../src/server/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL, round } from "../support/processes/aftermath.ts";
import { wrongIn } from "../support/server/api-description.ts";
import { type OddRequest, oddRequest } from "../support/server/odd-requests.ts";
import { furnish } from "../support/server/sample-data.ts";

const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const COUNT = FULL ? 20_000 : 3000;
/** At once. */
const CROWD = 25;
const PATIENCE_MS = 15_000;

const database = await freshDatabase();
const { server, admin, jobs, webhook, errors } = await furnish(database);
const agent = new http.Agent({ keepAlive: true, maxSockets: CROWD });
let listening: Listening;

beforeAll(async () => {
  listening = await server.listen({ port: 0 });
});
afterAll(() => agent.destroy());

interface Answered {
  status: number;
  type: string;
  text: string;
}

/** Connections that have been used. The request's own reusedSocket does not tell of one that was handed over while the request stood in line. */
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
  const late = setTimeout(() => request.destroy(new Error(`No answer in ${PATIENCE_MS} ms`)), PATIENCE_MS);
  try {
    request.end(body);
    const [response] = (await once(request, "response")) as [http.IncomingMessage];
    const type = response.headers["content-type"] ?? "";
    let text = "";
    if (type.startsWith("text/event-stream")) response.destroy();
    else for await (const chunk of response.setEncoding("utf8")) text += chunk;
    return { status: response.statusCode!, type, text };
  } catch (error) {
    // The server may hang up on a connection just when it is used again; a new one has to do.
    if (again && (error as { code?: string }).code === "ECONNRESET") return send(sent);
    throw error;
  } finally {
    clearTimeout(late);
  }
}

/** What must not be in an answer: where it went wrong, in which file, at which statement. */
const inside =
  /\bat \S+ \(|node_modules|\.[jt]s:\d+|\bselect \*|insert into|SQLSTATE|ECONNREFUSED|violates|syntax error at/i;

function judge({ operation, method, path }: OddRequest, { status, type, text }: Answered): string[] {
  if (status >= 500 || status < 200) return [`${status}`];
  if (status >= 400) {
    if (method === "HEAD") return [];
    if (type !== "application/problem+json") return [`${status} is ${type || "nothing"}`];
    const { code, remedy, status: said } = JSON.parse(text);
    const faults = [!code && "no code", !remedy && "no remedy", said !== status && "another status in the body"];
    if (inside.test(text)) faults.push("tells of the inside");
    return faults.filter((one) => one !== false);
  }
  // A path with dots in it may lead elsewhere.
  const isThere = method === operation.method && new URL(`http://x${path}`).pathname === path.split("?")[0];
  if (!isThere || !type.startsWith("application/json")) return [];
  return operation.operationId === "openapi" ? [] : wrongIn(operation, status, JSON.parse(text));
}

describe("T52: whatever is sent", () => {
  it("is answered 2xx or 4xx, as described, and the server is there afterwards", { timeout: 900_000 }, async () => {
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
    const began = performance.now();
    const wrong: string[] = [];
    const one = async (request: OddRequest) => {
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
        for (let next = requests.pop(); next; next = requests.pop()) await one(next);
      };
      await Promise.all(Array.from({ length: CROWD }, work));
      for (const error of errors.splice(0)) wrong.push((error as Error).stack!);
    }
    expect(wrong, `seed ${SEED}`).toEqual([]);
    const seconds = (performance.now() - began) / 1000;
    recordFigure(
      "odd requests",
      COUNT,
      "",
      `seed ${SEED}, ${round(COUNT / seconds)} a second, ${JSON.stringify(statuses)}`,
    );
    recordFigure(
      "odd requests answered 5xx",
      Object.entries(statuses).reduce((sum, [status, n]) => sum + (Number(status) >= 500 ? n : 0), 0),
    );
    expect((await send({ method: "GET", path: "/health", headers: {}, body: undefined })).status).toBe(200);
    expect((await send({ method: "GET", path: `/v1/jobs/${jobs.good}`, headers: {}, body: undefined })).status).toBe(
      200,
    );
  });
});

describe("bytes that are no request", () => {
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

  it.each(cases)("are answered or hung up on: %s", async (_, bytes) => {
    const socket = net.connect(listening.port, "127.0.0.1");
    let text = "";
    socket.setEncoding("latin1").on("data", (data) => (text += data));
    socket.on("error", () => {});
    const closed = once(socket, "close");
    // Half closed: the server has all that will ever come.
    socket.end(bytes());
    const late = setTimeout(() => socket.destroy(new Error("late")), PATIENCE_MS);
    await closed;
    clearTimeout(late);
    expect(socket.errored?.message).not.toBe("late");
    for (const [, status] of text.matchAll(/^HTTP\/1.1 (\d{3})/gm)) expect(Number(status)).toBeLessThan(500);
    expect(text).not.toMatch(inside);
    expect((await send({ method: "GET", path: "/health", headers: {}, body: undefined })).status).toBe(200);
    expect(errors.splice(0)).toEqual([]);
  });
});
