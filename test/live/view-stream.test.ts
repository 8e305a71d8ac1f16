// The stream of the live view against a real server: cut at any byte, restarted, refused, retried. No line is lost or repeated.
import { createServer as createHttp } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { createServer } from "../../src/server/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { JobStore, type JobStoreOptions } from "../../src/view/job-store.ts";
import { headline } from "../../src/view/sentences.ts";
import type { Snapshot } from "../../src/view/snapshot.ts";
import { append, claimJobs, complete, feedFixture, numbers, texts } from "../support/database/feed-writer.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { cuttingProxy } from "../support/server/streams.ts";

const { database, sql } = await feedFixture();
const SECRET = "a secret of more than thirty-two characters";
const open = () => createServer({ url: database.url, secret: SECRET });
let server = open();
let listening = await server.listen({ port: 0 });
const timing = { initialRetry: 20, maxRetry: 100 };
afterAll(() => server.close());

/** Follows a job until the test is over. */
function follow(options: JobStoreOptions): JobStore {
  const store = new JobStore({ timing, ...options });
  const unsubscribe = store.subscribe(() => {});
  onTestFinished(() => {
    unsubscribe();
    store.close();
  });
  return store;
}

const readAccess = (job: string) => ({ id: job, server: listening.url, token: server.stillwake.readToken({ job }) });
const until = (store: JobStore, what: string, test: (snapshot: Snapshot) => boolean) =>
  waitFor(() => test(store.getSnapshot()), { what, interval: 10, timeout: 25_000 });
function* budgets(): Generator<number, never> {
  for (let size = 250; ; size = (size + 97) % 3000) yield size;
}

/** The messages; the outcome without its duration. */
const lines = (store: JobStore) =>
  store.getSnapshot().lines.map(({ message, kind }) => (kind === "end" ? message.replace(/ in .*/, "") : message));

describe("a store", () => {
  it("receives lines, steps, progress and the outcome with a read token", async () => {
    const [lease] = await claimJobs(sql, 1);
    const store = follow(readAccess(lease!.job));
    await until(store, "the connection", ({ connection, job }) => connection === "live" && job !== null);
    await append(sql, [lease!], [{ message: "Cloning…", step: "clone" }]);
    await until(store, "the line", ({ version }) => version === 1);
    expect(headline(store.getSnapshot())).toBe("Running: Cloning…");
    await sql.query("select stillwake.save_checkpoints($1)", [
      JSON.stringify([{ ...lease, step: "clone", output: 1, took_ms: 1500 }]),
    ]);
    await until(store, "the step", ({ steps }) => steps[0]?.state === "kept");
    expect(store.getSnapshot().steps).toMatchObject([{ name: "clone", tookMs: 1500 }]);
    await complete(sql, lease!, { answer: 42 });
    await until(store, "the end", ({ connection }) => connection === "over");
    expect(store.getSnapshot()).toMatchObject({ job: { state: "completed" }, end: { output: { answer: 42 } } });
  });

  it("neither loses nor repeats a line when every connection is cut at any byte", async () => {
    const [lease] = await claimJobs(sql, 1);
    const sizes = budgets();
    const proxy = await cuttingProxy(listening.url, () => sizes.next().value);
    const store = follow({ ...readAccess(lease!.job), server: proxy.url, timing: { initialRetry: 2, maxRetry: 5 } });
    for (let from = 1; from <= 1000; from += 100) {
      await append(
        sql,
        [lease!],
        numbers(from, from + 99).map(({ message }) => ({ message: `${message} ünï 😀` })),
      );
    }
    await waitFor(() => proxy.cuts() > 20, { what: "cuts" });
    proxy.spare();
    await complete(sql, lease!);
    await until(store, "the end", ({ connection }) => connection === "over");
    expect(lines(store)).toEqual([...texts(1, 1000).map((text) => `${text} ünï 😀`), "Completed"]);
  });

  it("continues after the server was restarted", async () => {
    const [lease] = await claimJobs(sql, 1);
    const store = follow(readAccess(lease!.job));
    await append(sql, [lease!], numbers(1, 50));
    await until(store, "the first lines", ({ version }) => version === 50);
    const { port } = new URL(listening.url);
    await server.close();
    await append(sql, [lease!], numbers(51, 80));
    await until(store, "the loss", ({ connection }) => connection === "reconnecting");
    server = open();
    listening = await server.listen({ port: Number(port) });
    await append(sql, [lease!], numbers(81, 100));
    await complete(sql, lease!);
    await until(store, "the end", ({ connection }) => connection === "over");
    expect(lines(store)).toEqual([...texts(1, 100), "Completed"]);
  });

  it("continues after its end when the job was retried and it is reopened", async () => {
    const [lease] = await claimJobs(sql, 1, "retried");
    await append(sql, [lease!], numbers(1, 3));
    const fail = {
      ...lease,
      outcome: "failed",
      fatal: true,
      failure: { message: "no disk", sentence: "The disk is full" },
    };
    await sql.query("select stillwake.settle($1)", [JSON.stringify([fail])]);
    const statuses: number[] = [];
    const recorded: typeof fetch = async (...args) => {
      const response = await fetch(...args);
      statuses.push(response.status);
      return response;
    };
    const store = follow({ ...readAccess(lease!.job), fetch: recorded });
    await until(store, "the end", ({ connection }) => connection === "over");
    expect(headline(store.getSnapshot())).toBe("Failed: The disk is full.");
    store.reopen();
    await waitFor(() => statuses.length === 2, { what: "the second response" });
    expect(statuses).toEqual([200, 204]);
    await sql.query("select stillwake.retry($1)", [lease!.job]);
    store.reopen();
    await until(store, "the retry", ({ job, end }) => job?.state === "queued" && end === null);
    const ended = "Failed: The disk is full";
    expect(lines(store)).toEqual(["1", "2", "3", ended, "Retried, from the last checkpoint"]);
  });

  it("shows a refusal as a sentence, and sends no more requests", async () => {
    const [one, two] = await claimJobs(sql, 2);
    let requests = 0;
    const counted: typeof fetch = (...args) => {
      requests += 1;
      return fetch(...args);
    };
    const tokenless = follow({ id: one!.job, server: listening.url, fetch: counted });
    const foreign = follow({ ...readAccess(one!.job), id: two!.job, fetch: counted });
    for (const store of [tokenless, foreign]) {
      await until(store, "the refusal", ({ connection }) => connection === "refused");
      expect(store.getSnapshot().problem).toMatch(/^This (page may not show the job|job does not exist).*\.$/);
    }
    expect(requests).toBe(2);
  });

  it("requests another token when the last one has expired", async () => {
    const [lease] = await claimJobs(sql, 1);
    const tokens = ["swr_old", server.stillwake.readToken({ job: lease!.job })];
    const store = follow({ ...readAccess(lease!.job), token: () => tokens.shift()! });
    await append(sql, [lease!], numbers(1, 2));
    await until(store, "the lines", ({ version }) => version === 2);
    expect(tokens).toEqual([]);
  });

  it("respects Retry-After of a busy server, and replaces a connection that has gone silent", async () => {
    const requests: number[] = [];
    const fake = createHttp((request, response) => {
      requests.push(performance.now());
      if (requests.length === 1) response.writeHead(503, { "retry-after": "1" }).end();
      else if (requests.length === 2) response.writeHead(200, { "content-type": "text/event-stream" }).write(":\n\n");
      else response.writeHead(request.headers["last-event-id"] ? 500 : 204).end();
    }).listen(0, "127.0.0.1");
    onTestFinished(() => {
      fake.closeAllConnections();
      fake.close();
    });
    await waitFor(() => fake.listening);
    const url = `http://127.0.0.1:${(fake.address() as AddressInfo).port}`;
    const store = follow({ id: "x", server: url, token: "t", timing: { ...timing, silence: 300 } });
    await until(store, "the end", ({ connection }) => connection === "over");
    expect(requests[1]! - requests[0]!).toBeGreaterThan(900);
    expect(requests[2]! - requests[1]!).toBeGreaterThan(290);
  });

  it("disconnects while the page is hidden, and continues when it becomes visible", async () => {
    const page = Object.assign(new EventTarget(), { visibilityState: "hidden" });
    Object.assign(globalThis, { document: page });
    onTestFinished(() => void Reflect.deleteProperty(globalThis, "document"));
    const [lease] = await claimJobs(sql, 1);
    const store = follow({ ...readAccess(lease!.job), timing: { ...timing, silence: 60_000, hidden: 50 } });
    await until(store, "the rest", ({ connection }) => connection === "reconnecting");
    await append(sql, [lease!], numbers(1, 3));
    page.visibilityState = "visible";
    page.dispatchEvent(new Event("visibilitychange"));
    await until(store, "the lines", ({ version }) => version === 3);
    expect(lines(store)).toEqual(texts(1, 3));
  });

  it("loads all lines of a long settled job, from the beginning", async () => {
    const [lease] = await claimJobs(sql, 1);
    const count = FULL ? 100_000 : 30_000;
    for (let from = 1; from <= count; from += 10_000) await append(sql, [lease!], numbers(from, from + 9999));
    await complete(sql, lease!);
    const startedAt = performance.now();
    const store = follow(readAccess(lease!.job));
    await until(store, "the end", ({ connection }) => connection === "over");
    const seconds = (performance.now() - startedAt) / 1000;
    recordFigure("view: lines of an ended job, read by the view's stream", count / seconds, "a second");
    expect(lines(store)).toEqual([...texts(1, count), "Completed"]);
  });
});
