// The poke: whoever enqueues tells whoever starts machines. It is a hint: however it fails, the job is stored, and nobody waits longer than the limit.
import http from "node:http";
import type { AddressInfo } from "node:net";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createStillwake, pipeline, type StillwakeOptions, schedule } from "../../src/index.ts";
import { servePokes } from "../../src/orchestrator/poke-http.ts";
import { createServer } from "../../src/server/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";

const { url } = await freshDatabase();
const client = new pg.Client({ connectionString: url });
beforeAll(() => client.connect());
afterAll(() => client.end());
const work = pipeline("work");

function stillwakeWith(poke: NonNullable<StillwakeOptions["poke"]>) {
  const stillwake = createStillwake({ url, poke });
  onTestFinished(() => stillwake.close());
  return stillwake;
}

async function listening(answer: http.RequestListener): Promise<string> {
  const server = http.createServer(answer);
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
  it("comes after the commit, of everything that may give work", async () => {
    const seen: number[] = [];
    const stillwake = stillwakeWith(async () => {
      seen.push(await stored());
    });
    const told = async (act: () => Promise<unknown>) => {
      const before = seen.length;
      await act();
      await waitFor(() => seen.length > before);
      return seen.at(-1)!;
    };
    const before = await stored();
    expect(await told(() => stillwake.enqueue(work, {}))).toBe(before + 1);
    expect(await told(() => stillwake.enqueueMany(work, [{}, {}]))).toBe(before + 3);
    const { id } = await stillwake.enqueue(work, {}, { delay: "1h" });
    await told(() => stillwake.pause({ pool: "default" }).then(() => stillwake.resume({ pool: "default" })));
    await told(() => stillwake.pause(id).then(() => stillwake.resume(id)));
    await told(() => stillwake.signal(id, "go"));
    await stillwake.cancel(id);
    await told(() => stillwake.retry(id));
    await told(() => stillwake.schedules.set(schedule("nightly", { cron: "0 3 * * *", pipeline: work })));
    await told(() => stillwake.costs.setBudget("pool", "default", 100));
    await told(() => stillwake.costs.clearBudget("pool", "default"));
    await told(() => stillwake.poke());
  });

  it("in the caller's own transaction comes soon after, since nobody here sees the commit", async () => {
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

  it("that fails, throws, is refused or answered with rubbish fails no enqueue", async () => {
    const refused = await listening((_request, response) => response.writeHead(500).end("no"));
    const cut = await listening((request) => request.socket.destroy());
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

  it("that is never answered delays an enqueue by its limit at most, and a thousand enqueues no more than once", async () => {
    let asked = 0;
    const silent = await listening(() => {
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
      "an enqueue whose poke is never answered",
      Math.round(pokedMs),
      "ms",
      `limit 150 ms, without a poke ${Math.round(plainMs)} ms`,
    );
    expect(pokedMs).toBeLessThan(150 + 20 * plainMs + 1000);
    const before = asked;
    await Promise.all(Array.from({ length: 1000 }, () => stillwake.enqueue(work, {})));
    expect(asked - before, "one is under way, the next waits for it").toBeLessThanOrEqual(1);
  });

  it("goes with its token to a server that runs an orchestrator, and to an orchestrator that is a process of its own", async () => {
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

  it("to something that is no address is refused when the client is made", () => {
    expect(() => createStillwake({ url, poke: "jobs.example.com" })).toThrow(
      'poke "jobs.example.com" is not an address',
    );
  });
});
