// The poke: a client that enqueues notifies the orchestrator. It is a hint: if it fails, the job is stored all the same, and
// no caller waits longer than the limit.
import http from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { createStillwake, pipeline, type StillwakeOptions, schedule } from "../../src/index.ts";
import { servePokes } from "../../src/orchestrator/poke-http.ts";
import { createServer } from "../../src/server/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";

const { url } = await freshDatabase();
const client = await connect(url);
const work = pipeline("work");

function stillwakeWith(poke: NonNullable<StillwakeOptions["poke"]>) {
  const stillwake = createStillwake({ url, poke });
  onTestFinished(() => stillwake.close());
  return stillwake;
}

async function listen(onRequest: http.RequestListener): Promise<string> {
  const server = http.createServer(onRequest);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/poke`;
}

const stored = async () =>
  (await client.query("select count(*)::int as n from stillwake.jobs where pipeline = 'work'")).rows[0].n as number;

describe("a poke", () => {
  it("is sent after the commit of every operation that may create work", async () => {
    const counts: number[] = [];
    const stillwake = stillwakeWith(async () => {
      counts.push(await stored());
    });
    const countAfter = async (act: () => Promise<unknown>) => {
      const before = counts.length;
      await act();
      await waitFor(() => counts.length > before);
      return counts.at(-1)!;
    };
    const before = await stored();
    expect(await countAfter(() => stillwake.enqueue(work, {}))).toBe(before + 1);
    expect(await countAfter(() => stillwake.enqueueMany(work, [{}, {}]))).toBe(before + 3);
    const { id } = await stillwake.enqueue(work, {}, { delay: "1h" });
    await countAfter(() => stillwake.pause({ pool: "default" }).then(() => stillwake.resume({ pool: "default" })));
    await countAfter(() => stillwake.pause(id).then(() => stillwake.resume(id)));
    await countAfter(() => stillwake.signal(id, "go"));
    await stillwake.cancel(id);
    await countAfter(() => stillwake.retry(id));
    await countAfter(() => stillwake.schedules.set(schedule("nightly", { cron: "0 3 * * *", pipeline: work })));
    await countAfter(() => stillwake.costs.setBudget("pool", "default", 100));
    await countAfter(() => stillwake.costs.clearBudget("pool", "default"));
    await countAfter(() => stillwake.poke());
  });

  it("is sent shortly after an enqueue in the caller's transaction, whose commit is not visible to the client", async () => {
    let pokes = 0;
    const stillwake = stillwakeWith(() => {
      pokes += 1;
    });
    await stillwake.register(work);
    const before = await stored();
    await client.query("begin");
    await stillwake.enqueue(work, {}, { tx: client });
    expect(pokes).toBe(0);
    await client.query("commit");
    await waitFor(() => pokes > 0);
    expect(await stored()).toBe(before + 1);
  });

  it("that fails, throws, is rejected or gets an invalid response fails no enqueue", async () => {
    const refused = await listen((_request, response) => response.writeHead(500).end("no"));
    const cut = await listen((request) => request.socket.destroy());
    const thrower = () => {
      throw new Error("no");
    };
    const before = await stored();
    const targets = [
      thrower,
      async () => thrower(),
      refused,
      cut,
      "http://127.0.0.1:9/v1/poke",
      "http://no.such.host.invalid/v1/poke",
    ];
    for (const target of targets) expect((await stillwakeWith(target).enqueue(work, {})).existing).toBe(false);
    expect(await stored()).toBe(before + targets.length);
  });

  it("without a response delays an enqueue by at most its limit, and a thousand enqueues only once", async () => {
    let asked = 0;
    const silent = await listen(() => {
      asked += 1;
    });
    const stillwake = stillwakeWith({ url: silent, limit: "150ms" });
    const quick = stillwakeWith(() => {});
    const timed = async (client: typeof stillwake) => {
      const began = performance.now();
      await client.enqueue(work, {});
      return performance.now() - began;
    };
    await timed(quick);
    await timed(stillwake);
    const plainMs = await timed(quick);
    const pokedMs = await timed(stillwake);
    recordFigure(
      "an enqueue whose poke gets no response",
      Math.round(pokedMs),
      "ms",
      `limit 150 ms, without a poke ${Math.round(plainMs)} ms`,
    );
    expect(pokedMs).toBeLessThan(150 + 20 * plainMs + 1000);
    const before = asked;
    await Promise.all(Array.from({ length: 1000 }, () => stillwake.enqueue(work, {})));
    expect(asked - before, "one is in progress, the next waits for it").toBeLessThanOrEqual(1);
  });

  it("is sent with its token to a server with an orchestrator, and to a separate orchestrator process", async () => {
    const heard: (string | undefined)[] = [];
    const server = createServer({ url, onPoke: (pool) => void heard.push(pool) });
    onTestFinished(() => server.close());
    const { token } = await server.stillwake.tokens.create({ name: "enqueuer", role: "worker" });
    const { url: base } = await server.listen({ port: 0 });
    await stillwakeWith({ url: `${base}/v1/poke`, token }).enqueue(work, {});
    await waitFor(() => heard.length === 1);
    await stillwakeWith({ url: `${base}/v1/poke`, token: "wrong" }).enqueue(work, {});
    await server.stillwake.enqueue(work, {});
    await waitFor(() => heard.length === 2);

    let pokes = 0;
    const own = await servePokes({
      port: 0,
      token: "secret",
      poke: () => (pokes += 1),
      health: () => ({ well: true }),
    });
    onTestFinished(() => own.close());
    await stillwakeWith({ url: `${own.url}/v1/poke`, token: "secret" }).enqueue(work, {});
    await waitFor(() => pokes === 1);
    const ask = (path: string, init?: RequestInit) => fetch(own.url + path, init).then(({ status }) => status);
    expect([
      await ask("/v1/poke", { method: "POST" }),
      await ask("/v1/poke"),
      await ask("/else"),
      await ask("/health"),
    ]).toEqual([401, 405, 404, 200]);
    expect(pokes).toBe(1);
    await expect(servePokes({ port: 0, host: "0.0.0.0", poke: () => {}, health: () => ({}) })).rejects.toThrow(
      "STILLWAKE_TOKEN",
    );
  });

  it("to an invalid URL is rejected when the client is created", () => {
    expect(() => createStillwake({ url, poke: "jobs.example.com" })).toThrow('poke "jobs.example.com" is not a URL');
  });
});
