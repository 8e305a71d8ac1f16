// Streams under load: many readers, some that do not read, and the latency of a line.
import http from "node:http";
import net from "node:net";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { Database } from "../../src/db/database.ts";
import { createStillwake, pipeline } from "../../src/index.ts";
import { FeedReader } from "../../src/live/feed-reader.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { append, claimJobs, complete } from "../support/database/feed-writer.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { FULL, round } from "../support/processes/fault-checks.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";
import { fetchStream, parser, type StreamEvent, serveStreams, streamServer } from "../support/server/streams.ts";

const database = await freshDatabase();
const sql = await connect(database.url);
const client = new Database({ url: database.url });
beforeAll(buildPackage);
afterAll(() => client.close());

describe("many readers, and some that do not read", () => {
  it("a reader that does not read costs little, is disconnected, and loses nothing when it reconnects", {
    timeout: 60_000,
  }, async () => {
    const reader = new FeedReader(client, { directUrl: database.url });
    onTestFinished(() => reader.close());
    const url = await serveStreams({ reader, stallMs: 1000 });
    const [lease] = await claimJobs(sql, 1);
    const socket = net.connect(Number(new URL(url).port), "127.0.0.1").pause();
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => {});
    socket.write(`GET /${lease!.job} HTTP/1.1\r\nhost: x\r\n\r\n`);
    await waitFor(() => reader.status.followers === 1);
    // More than the kernel buffers for a client that does not read.
    const text = "x".repeat(16_000);
    let written = 0;
    while (reader.status.followers === 1 && written < 4000) {
      await append(
        sql,
        [lease!],
        Array.from({ length: 50 }, () => ({ message: `${++written} ${text}` })),
      );
    }
    await waitFor(() => reader.status.followers === 0, { timeout: 20_000, what: "the stream to be closed" });
    await complete(sql, lease!);
    let raw = "";
    const received: StreamEvent[] = [];
    socket.on("data", (data) => (raw += data.toString("latin1")));
    socket.resume();
    await waitFor(() => socket.destroyed || socket.readableEnded, { timeout: 20_000 });
    const last = [...raw.matchAll(/^id: (\d+)-[0-9a-f]{8}$/gm)].map(([, seq]) => Number(seq));
    expect(last).toEqual(last.map((_, index) => index + 1));
    expect(last.length).toBeGreaterThan(0);
    // The last one may be incomplete.
    const place = Math.max(0, last.at(-1)! - 1);
    await fetchStream(
      `${url}/${lease!.job}`,
      (item) => received.push(item),
      place ? `${place}-${lease!.job.slice(-8)}` : "",
    );
    expect(received.filter(({ event }) => event === "log").map(({ data }) => Number(data.seq))).toEqual(
      Array.from({ length: written - place }, (_, n) => place + 1 + n),
    );
    recordFigure(
      "written before a reader that does not read was disconnected",
      round((written * 16) / 1000),
      "MB",
      "1 s allowed; default 60 s",
    );
  });

  const readers = FULL ? 1000 : 200;
  const asleep = readers / 10;

  it(`${readers} readers of 50 jobs, ${asleep} of which never read: the others are served in time, and memory is bounded`, {
    timeout: 120_000,
  }, async () => {
    const server = await streamServer(database.url);
    const leases = await claimJobs(sql, 50);
    const before = await server.memory();
    const delays: number[] = [];
    const counts = new Map<number, number>();
    for (let n = 0; n < readers; n++) {
      const address = `http://127.0.0.1:${server.port}/${leases[n % 50]!.job}`;
      const request = http.get(address, { agent: false }, (response) => {
        // A client that never reads has no data listener.
        if (n < asleep) return;
        const parse = parser(({ event, data }) => {
          if (event !== "log") return;
          delays.push(Date.now() - Number.parseInt(data.message, 10));
          counts.set(n, (counts.get(n) ?? 0) + 1);
        });
        response
          .setEncoding("utf8")
          .on("data", parse)
          .on("error", () => {});
      });
      onTestFinished(() => void request.on("error", () => {}).destroy());
    }
    await waitFor(async () => (await server.memory()).followers === readers, {
      timeout: 60_000,
      interval: 200,
      what: "all to follow",
    });
    const connected = await server.memory();
    const rounds = FULL ? 100 : 40;
    const maximum = { rss: 0 };
    for (let at = 0; at < rounds; at++) {
      const started = performance.now();
      await append(sql, leases, [{ message: `${Date.now()} ${"y".repeat(400)}` }]);
      if (at % 20 === 19) maximum.rss = Math.max(maximum.rss, (await server.memory()).rss);
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, 100 - (performance.now() - started))));
    }
    await waitFor(() => [...counts.values()].filter((count) => count === rounds).length === readers - asleep, {
      timeout: 60_000,
      what: "every line at every reader",
    });
    const sorted = delays.sort((a, b) => a - b);
    const at = (part: number) => sorted[Math.floor(sorted.length * part)]!;
    expect(delays).toHaveLength(rounds * (readers - asleep));
    expect(at(0.5)).toBeLessThan(5000);
    // Otherwise a kilobyte per line and reader would be buffered.
    const perReader = (connected.rss - before.rss) / readers / 1024;
    expect(maximum.rss - connected.rss).toBeLessThan(150 * 1024 * 1024);
    const note = `${readers} readers of 50 jobs, ${asleep} never read, about 500 lines/s`;
    recordFigure("memory per reader (RSS)", round(perReader), "kB", note);
    recordFigure("heap per reader", round((connected.heapUsed - before.heapUsed) / readers / 1024), "kB", note);
    recordFigure("memory grown while serving", round((maximum.rss - connected.rss) / 1024 / 1024), "MB", note);
    recordFigure("delivery, p50", at(0.5), "ms", note);
    recordFigure("delivery, p99", at(0.99), "ms", note);
  });
});

describe("a line that a job writes", () => {
  it("1,000 lines/s over 50 jobs: reaches its reader in a fraction of a second", { timeout: 120_000 }, async () => {
    const server = await streamServer(database.url);
    const perJob = FULL ? 400 : 60;
    const writing = implement(pipeline("writing", { pool: "writing" }), async (job) => {
      for (let n = 0; n < perJob; n++) {
        job.log.info(`${performance.now()} line ${n}`);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    });
    await using stillwake = createStillwake({ url: database.url });
    await stillwake.register(writing.pipeline);
    const jobs = await stillwake.enqueueMany("writing", new Array(50).fill(null));
    const delays: number[] = [];
    const streams = jobs.map(({ id }) =>
      fetchStream(`http://127.0.0.1:${server.port}/${id}`, ({ event, data }) => {
        if (event === "log" && / line \d+$/.test(data.message))
          delays.push(performance.now() - Number.parseFloat(data.message));
      }),
    );
    await waitFor(async () => (await server.memory()).followers === 50, { interval: 100, what: "all to be followed" });
    const startedAt = performance.now();
    await startRecordedWorker({ url: database.url, pool: "writing", pipelines: [writing], slots: 50 });
    await Promise.all(streams);
    const rate = delays.length / ((performance.now() - startedAt) / 1000);
    expect(delays).toHaveLength(50 * perJob);
    const sorted = delays.sort((a, b) => a - b);
    const at = (part: number) => sorted[Math.floor(sorted.length * part)]!;
    expect(at(0.5)).toBeLessThan(3000);
    const note = `${Math.round(rate)} lines/s over 50 jobs`;
    recordFigure("live path: job.log to SSE client, p50", round(at(0.5)), "ms", note);
    recordFigure("live path: job.log to SSE client, p95", round(at(0.95)), "ms", note);
    recordFigure("live path: job.log to SSE client, p99", round(at(0.99)), "ms", note);
  });
});
