// Downloads of URLs of users: resumed by Range, within limits, and only from allowed addresses.
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import os from "node:os";
import path from "node:path";
import { addressGuard } from "stillwake/worker";
import { afterAll, beforeEach, expect, it } from "vitest";
import { type DownloadOptions, download } from "../src/http/download.ts";

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-download-"));
const file = path.join(folder, "file");
const content = randomBytes(300_000);
let requests: http.IncomingHttpHeaders[] = [];
let handle: (request: http.IncomingMessage, response: http.ServerResponse, count: number) => void;
const server = http.createServer((request, response) => {
  requests.push(request.headers);
  handle(request, response, requests.length);
});
await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/file`;
afterAll(() => {
  server.closeAllConnections();
  server.close();
  fs.rmSync(folder, { recursive: true });
});
beforeEach(() => {
  requests = [];
});

const get = (more: Partial<DownloadOptions> = {}, address = url) =>
  download(address, file, {
    guard: addressGuard({ allowHttp: true, allow: ["127.0.0.1/32 *"] }),
    signal: new AbortController().signal,
    maxBytes: 400_000,
    silenceMs: 1000,
    userAgent: "test",
    onProgress: () => {},
    onResume: () => {},
    ...more,
  });

/** Sends the file from the requested byte, and cuts the connection after `most` bytes. */
function send(request: http.IncomingMessage, response: http.ServerResponse, most: number, etag = '"a"'): void {
  const range =
    request.headers["if-range"] === undefined || request.headers["if-range"] === etag ? request.headers.range : "";
  const from = Number(/^bytes=(\d+)-$/.exec(range ?? "")?.[1] ?? 0);
  response.writeHead(from > 0 ? 206 : 200, {
    etag,
    "content-length": content.length - from,
    ...(from > 0 && { "content-range": `bytes ${from}-${content.length - 1}/${content.length}` }),
  });
  const part = content.subarray(from, from + most);
  if (from + most >= content.length) response.end(part);
  else response.write(part, () => response.destroy());
}

it("resumes where the connection was lost, as often as it takes", async () => {
  handle = (request, response) => send(request, response, 10_000);
  const resumed: number[] = [];
  const { size, resumed: times } = (await get({ onResume: (done) => resumed.push(done) }))!;
  expect([size, times]).toEqual([content.length, 29]);
  expect(resumed).toEqual(Array.from({ length: 29 }, (_, n) => (n + 1) * 10_000));
  expect(requests.map((headers) => headers.range)).toEqual([undefined, ...resumed.map((done) => `bytes=${done}-`)]);
  expect(fs.readFileSync(file).equals(content)).toBe(true);
});

it("begins again if the file has changed meanwhile", async () => {
  handle = (request, response, count) =>
    send(request, response, count === 1 ? 50_000 : content.length, count === 1 ? '"a"' : '"b"');
  expect(await get()).toMatchObject({ size: content.length, resumed: 1 });
  expect(fs.readFileSync(file).equals(content)).toBe(true);
});

it("resumes after silence", async () => {
  handle = (request, response, count) => {
    if (count > 1) return send(request, response, content.length);
    response.writeHead(200, { etag: '"a"', "content-length": content.length });
    response.write(content.subarray(0, 5000));
  };
  expect(await get({ silenceMs: 200 })).toMatchObject({ size: content.length, resumed: 1 });
});

it("gives up if the server never sends another byte", async () => {
  handle = (request, response, count) => (count === 1 ? send(request, response, 100) : void response.destroy());
  await expect(get()).rejects.toMatchObject({ kind: "upstream", reason: "connection lost" });
  expect(requests).toHaveLength(21);
});

it("is limited in size, whether or not the server names it", async () => {
  handle = (request, response) => send(request, response, content.length);
  await expect(get({ maxBytes: 299_999 })).rejects.toMatchObject({ kind: "too large" });
  handle = (_, response) => response.end(content);
  await expect(get({ maxBytes: 299_999 })).rejects.toMatchObject({ kind: "too large" });
  expect(await get({ maxBytes: 300_000 })).toMatchObject({ size: content.length });
});

it("connects to allowed addresses only, also after a redirect", async () => {
  handle = (_, response) => void response.writeHead(302, { location: "http://169.254.169.254/" }).end();
  await expect(get()).rejects.toMatchObject({ kind: "blocked" });
  await expect(get({}, "http://10.0.0.1/")).rejects.toMatchObject({ kind: "blocked" });
});

it("reports a page, and stops with its signal", async () => {
  handle = (_, response) => void response.writeHead(200, { "content-type": "text/html" }).end("<html>");
  expect(await get()).toBeUndefined();
  handle = (_, response) => void response.writeHead(200).write("a");
  const stop = new AbortController();
  const stopped = get({ signal: stop.signal, silenceMs: 60_000, onProgress: () => stop.abort(new Error("stopped")) });
  await expect(stopped).rejects.toThrow("stopped");
});
