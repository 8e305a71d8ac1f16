// The relay handler: a chain of invocations over real HTTP, each within its `maxDuration` and each invoking the next,
// with dropped connections and killed functions. A cron also invokes it.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { Readable } from "node:stream";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { pipeline } from "../../src/index.ts";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { type Relay, type RelayOptions, relay } from "../../src/worker/relay.ts";
import { connect } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, stillwake, until, attempts, name } = await inProcessFixture();
const client = await connect(database.url);
const secret = "a-secret-of-many-characters";
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
beforeAll(async () => {
  buildPackage();
  await client.query(
    "create table effects (workspace text, job uuid, epoch bigint, item integer, began timestamptz, ended timestamptz)",
  );
});

const slow = (pipelineName: string) =>
  implement(pipeline<{ count: number }>(pipelineName, { retry: { initial: "1ms", max: "1ms" } }), (job, { count }) =>
    job.each(
      "items",
      Array.from({ length: count }, (_, n) => n),
      { batch: 1 },
      () => new Promise((done) => setTimeout(done, 20)),
    ),
  );

function make(pipelines: RelayOptions["pipelines"], options: Partial<RelayOptions> = {}): Relay {
  return relay({ url: database.url, pipelines, maxDuration: "1s", secret, lease: "1s", grace: "100ms", ...options });
}

const ask = (depth?: string, token = secret) =>
  new Request("http://localhost/work", {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, ...(depth !== undefined && { "stillwake-depth": depth }) },
  });

async function linesOf(response: Response): Promise<Record<string, unknown>[]> {
  const text = await response.text();
  return text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
}

describe("a relay", () => {
  it("works within its `maxDuration`, releases jobs, invokes the next handler while more is due, and stops when nothing is", async () => {
    const code = slow(name());
    const depths: number[] = [];
    const results: Record<string, unknown>[] = [];
    const invoked: Promise<unknown>[] = [];
    const handler: Relay = make([code], {
      maxDuration: "2s",
      next: async ({ depth }) => {
        depths.push(depth);
        invoked.push(handler(ask(String(depth))).then(async (answer) => results.push((await linesOf(answer)).at(-1)!)));
      },
    });
    const { id } = await stillwake.enqueue(code.pipeline, { count: 220 });
    const [accepted, first] = await linesOf(await handler(ask()));
    expect(accepted).toEqual({ depth: 0, accepted: true });
    expect(first).toMatchObject({ depth: 0, jobs: 1, next: "invoked" });
    expect(await until(id)).toMatchObject({ state: "completed", output: { done: 220 }, attempt: 1, crashes: 0 });
    await waitFor(() => results.at(-1)?.next === "nothing is due");
    await Promise.all(invoked);
    expect(depths).toEqual(depths.map((_, n) => n + 1));
    expect(depths.length).toBeGreaterThan(1);
    expect((await attempts(id)).slice(0, -1).every(({ outcome }) => outcome === "released")).toBe(true);
  });

  it("rejects requests without the secret, and reveals nothing", async () => {
    const handler = make([slow(name())], { secret: [secret, "the-former-secret-of-before"] });
    for (const token of ["", "wrong", `${secret}x`, secret.slice(0, -1)]) {
      expect((await handler(ask("0", token))).status).toBe(401);
    }
    expect((await handler(new Request("http://localhost/"))).status).toBe(401);
    expect((await handler(new Request("http://localhost/", { method: "DELETE" }))).status).toBe(405);
    expect((await handler(ask("0", "the-former-secret-of-before"))).status).toBe(200);
    expect(() => make([slow(name())], { secret: "short" })).toThrow(/at least 16 characters/);
  });

  it("stops at the depth limit", async () => {
    const code = slow(name());
    const handler = make([code], { depth: 3, next: () => Promise.reject(new Error("never")) });
    await stillwake.enqueue(code.pipeline, { count: 200 });
    expect((await linesOf(await handler(ask("2")))).at(-1)).toMatchObject({
      next: "the depth limit is reached",
    });
    for (const depth of ["3", "-1", "1.5", "many", "1e9"]) expect((await handler(ask(depth))).status).toBe(400);
  });

  it("reports when the next handler cannot be invoked; the jobs continue with the next trigger", async () => {
    const code = slow(name());
    const handler = make([code], { next: "http://127.0.0.1:9/nobody" });
    const { id } = await stillwake.enqueue(code.pipeline, { count: 80 });
    expect((await linesOf(await handler(ask()))).at(-1)!.next).toContain("could not invoke the next handler");
    await waitFor(async () => {
      await linesOf(await handler(ask()));
      return (await stillwake.get(id)).state === "completed";
    });
  });

  it("invokes the next handler once when that one responds slowly", async () => {
    let asked = 0;
    const server = http.createServer(() => {
      asked += 1;
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    const code = slow(name());
    const handler = make([code], { next: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` });
    await stillwake.enqueue(code.pipeline, { count: 200 });
    expect((await linesOf(await handler(ask()))).at(-1)!.next).toBe("invoked; no response yet");
    expect(asked).toBe(1);
  });

  it("charges an attempt that does not fit into `maxDuration` and saved nothing, so that the job ends", async () => {
    const long = pipeline(name(), { retry: { attempts: 2, initial: "1ms", max: "1ms" } });
    const handler = make([
      implement(long, (job) => job.step("long", () => new Promise((done) => setTimeout(done, 3000)))),
    ]);
    const { id } = await stillwake.enqueue(long, {});
    await waitFor(async () => {
      await linesOf(await handler(ask()));
      return (await stillwake.get(id)).endedAt !== null;
    });
    expect(await stillwake.get(id)).toMatchObject({
      state: "failed",
      attempt: 2,
      failure: { code: "RETRIES_EXHAUSTED", cause: { code: "MAX_DURATION_EXCEEDED" } },
    });
  });

  it("enforces the timeout of a pipeline", async () => {
    const timed = pipeline(name(), { timeout: "200ms", retry: { attempts: 1 } });
    const handler = make([implement(timed, () => new Promise((done) => setTimeout(done, 5000)))], {
      maxDuration: "20s",
    });
    const { id } = await stillwake.enqueue(timed, {});
    await linesOf(await handler(ask()));
    expect(await stillwake.get(id)).toMatchObject({ state: "failed", failure: { cause: { code: "TIMEOUT" } } });
  });

  it("ends although Postgres is unreachable", async () => {
    const proxy = await faultProxy(database.url);
    onTestFinished(() => proxy.close());
    const code = slow(name());
    const handler = make([code], { url: proxy.url, maxDuration: "1s" });
    const { id } = await stillwake.enqueue(code.pipeline, { count: 500 });
    const answer = linesOf(await handler(ask()));
    await until(id, ({ progress }) => (progress?.done ?? 0) > 0);
    proxy.mode = "refuse";
    proxy.reset();
    expect((await answer).at(-1)).toMatchObject({ next: "nothing is due" });
  });

  it("sends the webhooks of its jobs before it ends", async () => {
    const webhookIds: string[] = [];
    const server = http.createServer((request, response) => {
      webhookIds.push(String(request.headers["webhook-id"]));
      response.end();
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const code = slow(name());
    const webhooks = { allowHttp: true, ports: [port], allow: ["127.0.0.1/32"] };
    const handler = make([code], { maxDuration: "10s", webhooks });
    await stillwake.enqueue(code.pipeline, { count: 1 }, { webhook: `http://127.0.0.1:${port}/done` });
    expect((await linesOf(await handler(ask()))).at(-1)).toMatchObject({ jobs: 1, next: "nothing is due" });
    expect(webhookIds).toEqual([expect.stringMatching(/^msg_/)]);
  });

  it("rejects invalid options", () => {
    for (const depth of [0, -1, 1.5, Number.NaN, "x" as never])
      expect(() => make([slow(name())], { depth })).toThrow(/depth/);
    for (const next of ["/work", 5 as never, "ftp://x"]) expect(() => make([slow(name())], { next })).toThrow(/next/);
  });

  it("continues when the caller disconnects, and is kept alive by waitUntil", async () => {
    const code = slow(name());
    const handler = make([code], { maxDuration: "20s" });
    const { id } = await stillwake.enqueue(code.pipeline, { count: 5 });
    const kept: Promise<unknown>[] = [];
    const answer = await handler(ask(), { waitUntil: (work) => void kept.push(work) });
    await answer.body!.cancel();
    await Promise.all(kept);
    expect((await stillwake.get(id)).state).toBe("completed");
  });
});

describe("a chain of invocations over HTTP", () => {
  const wanted = FULL ? 100 : 25;
  it(
    `ends complete after ${wanted} of them and more, with connections dropped and functions killed: no effect twice, never two at once for one key`,
    async () => {
      let random = SEED;
      const chance = () => {
        random = (Math.imul(random, 1103515245) + 12345) & 0x7fffffff;
        return random / 0x7fffffff;
      };
      const platform = await startPlatform(database.url, chance);
      onTestFinished(() => platform.close());
      // Imports of two workspaces, one at a time each; more are enqueued until the chain is long enough.
      const count = 250;
      const jobs: { id: string }[] = [];
      const more = async () => {
        for (const workspace of ["a", "b"]) {
          jobs.push(await stillwake.enqueue("inbox", { workspace, count, pauseMs: 30 }, { key: workspace }));
        }
      };
      await more();
      await more();
      const cron = setInterval(() => void platform.trigger(), 700);
      onTestFinished(() => clearInterval(cron));
      try {
        await waitFor(
          async () => {
            const states = await Promise.all(jobs.map(async ({ id }) => (await stillwake.get(id)).state));
            if (states.some((state) => state === "failed")) throw new Error("a job has failed");
            const left = states.filter((state) => state !== "completed").length;
            if (left <= 2 && platform.invocations < wanted) await more();
            return left === 0 && platform.invocations >= wanted;
          },
          { timeout: FULL ? 280_000 : 110_000, interval: 100, what: "all imports to be complete" },
        );
      } catch (error) {
        throw new Error(`seed ${SEED}`, { cause: error });
      }
      clearInterval(cron);
      const { rows } = await client.query(`
      select count(*)::int as effects, count(distinct (job, item))::int as distinct,
        (select count(*)::int from (select distinct workspace, job, epoch, began, ended from effects) a join (select distinct workspace, job, epoch, began, ended from effects) b
          on a.workspace = b.workspace and (a.job, a.epoch) < (b.job, b.epoch) and a.began < b.ended and b.began < a.ended) as together
      from effects`);
      expect(rows[0], `seed ${SEED}`).toEqual({
        effects: count * jobs.length,
        distinct: count * jobs.length,
        together: 0,
      });
      const { invocations, dropped, killed, deepest } = platform;
      expect(invocations, `seed ${SEED}`).toBeGreaterThanOrEqual(wanted);
      expect(dropped).toBeGreaterThan(0);
      expect(killed).toBeGreaterThan(0);
      recordFigure("relay: invocations", invocations, "", `seed ${SEED}; ${count * jobs.length} items`);
      recordFigure("relay: connections dropped", dropped);
      recordFigure("relay: functions killed", killed);
      recordFigure("relay: deepest", deepest);
      recordFigure("relay: effects repeated", rows[0].effects - rows[0].distinct);
    },
    FULL ? 300_000 : 120_000,
  );
});

/** A fake serverless platform: starts a function per request, drops connections before and after, and kills functions. */
async function startPlatform(url: string, chance: () => number) {
  let host: { child: ChildProcess; port: number } | undefined;
  let starting: Promise<{ child: ChildProcess; port: number }> | undefined;
  const platform = { invocations: 0, dropped: 0, killed: 0, deepest: 0, trigger, close };
  let closed = false;
  const server = http.createServer((request, response) => void pass(request, response).catch(() => response.destroy()));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}/work`;

  async function start() {
    const env = { PATH: process.env.PATH, URL_OF_DATABASE: url, NEXT: address, SECRET: secret, MAX_DURATION: "600ms" };
    const child = fork(path.join(ROOT, "test/fixtures/relay-function.mjs"), {
      env,
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    const [{ port }] = (await once(child, "message")) as [{ port: number }];
    child.on("exit", () => {
      if (host?.child === child) host = undefined;
    });
    host = { child, port };
    return host;
  }

  async function pass(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const luck = chance();
    if (luck < 0.1) {
      platform.dropped += 1;
      request.socket.destroy();
      return;
    }
    starting ??= host ? Promise.resolve(host) : start();
    const { child, port } = await starting.finally(() => (starting = undefined));
    platform.invocations += 1;
    platform.deepest = Math.max(platform.deepest, Number(request.headers["stillwake-depth"] ?? 0));
    const { authorization = "", "stillwake-depth": depth = "0" } = request.headers;
    const answer = await fetch(`http://127.0.0.1:${port}/work`, {
      method: "POST",
      headers: { authorization, "stillwake-depth": String(depth) },
    });
    if (luck < 0.2 || platform.invocations % 10 === 0) {
      platform.dropped += 1;
      request.socket.destroy();
    } else {
      response.writeHead(answer.status);
      Readable.fromWeb(answer.body as never)
        .on("error", () => response.destroy())
        .pipe(response);
    }
    if ((luck > 0.92 || platform.invocations % 12 === 0) && !closed) {
      setTimeout(() => {
        if (child.exitCode !== null || child.signalCode !== null) return;
        platform.killed += 1;
        child.kill("SIGKILL");
      }, chance() * 350);
    }
  }

  async function trigger(): Promise<void> {
    await fetch(address, { method: "POST", headers: { authorization: `Bearer ${secret}` } })
      .then((answer) => answer.body?.cancel())
      .catch(() => {});
  }

  async function close(): Promise<void> {
    closed = true;
    server.closeAllConnections();
    server.close();
    const child = host?.child;
    child?.kill("SIGKILL");
  }

  await start();
  // The first invocation that is not dropped registers the pipelines.
  await waitFor(
    async () => {
      await trigger();
      return (await client.query("select from stillwake.pipelines where name = 'inbox'")).rows.length > 0;
    },
    { timeout: 30_000, what: "the first invocation" },
  );
  return platform;
}
