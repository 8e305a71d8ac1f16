// Webhooks go out beside the work: a worker sends them when its jobs end, when somebody else's do, and before it leaves. Without work it is silent.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createStillwake, pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { verifyWebhook } from "../../src/webhooks/index.ts";
import { createSender, implement } from "../../src/worker/index.ts";
import { type OwnServer, ownServer } from "../support/database/postgres-server.ts";
import { HERE, startReceiver, status } from "../support/fakes/webhook-receiver.ts";
import { recordFigure } from "../support/figures.ts";
import { connect, FULL, recordTimes } from "../support/processes/aftermath.ts";
import { buildPackage } from "../support/processes/build.ts";
import { runCli } from "../support/processes/cli.ts";
import { ownWorker } from "../support/processes/recorded-worker.ts";

const task = pipeline<{ n: number }>("task");
const elsewhere = pipeline("elsewhere", { pool: "elsewhere" });
const code = implement(task, (_, { n }) => ({ n }));
let server: OwnServer;
let client: pg.Client;
let stillwake: ReturnType<typeof createStillwake>;

beforeAll(async () => {
  buildPackage();
  // Every statement is written down, after the name of the connection.
  server = await ownServer({ log_statement: "all", log_line_prefix: "<%a> " });
  client = await connect(server.url);
  stillwake = createStillwake({ url: server.url });
  await stillwake.register(task, elsewhere);
});
afterAll(async () => {
  await stillwake.close();
  await client.end();
  await server[Symbol.asyncDispose]();
});

describe("a worker", () => {
  it("tells of its jobs, signed, soon after they end", async () => {
    const receiver = await startReceiver();
    const { secret } = await stillwake.webhooks.set("told", { url: receiver.url });
    const worker = await ownWorker({ url: server.url, pipelines: [code], webhooks: HERE });
    await worker.hears("push.ready");
    const times: number[] = [];
    for (let n = 1; n <= 20; n++) {
      const { id } = await stillwake.enqueue(task, { n }, { webhook: { endpoint: "told" } });
      await stillwake.wait(id, { timeout: "20s" });
      const ended = performance.now();
      const came = (await receiver.gets(n)).at(-1)!;
      times.push(Math.max(0, came.at - ended));
      const payload = await verifyWebhook(came.body, came.headers, secret!);
      expect(payload).toMatchObject({ type: "job.completed", data: { id, pipeline: "task" } });
    }
    recordTimes("webhooks: from the end of a job to its receiver", times);
    await worker.hears("webhook", { times: 20 });
    expect(worker.of("webhook")[0]).toMatchObject({ endpoint: "told", state: "delivered", status: 204, attempt: 1 });
  });

  it("hears of webhooks that others have caused, of jobs it could not even run", async () => {
    const receiver = await startReceiver();
    const worker = await ownWorker({ url: server.url, pipelines: [code], webhooks: HERE });
    await worker.hears("push.ready");
    const { id } = await stillwake.enqueue(elsewhere, {}, { webhook: receiver.url });
    await stillwake.cancel(id);
    const [came] = await receiver.gets(1);
    expect(JSON.parse(came!.body)).toMatchObject({ type: "job.cancelled", data: { id } });
  });

  it("without hints asks when its own jobs end, and now and then for those of others", async () => {
    const receiver = await startReceiver();
    await ownWorker({ url: server.url, directUrl: false, poll: "200ms", pipelines: [code], webhooks: HERE });
    await stillwake.enqueue(task, { n: 1 }, { webhook: receiver.url });
    await receiver.gets(1);
    const { id } = await stillwake.enqueue(elsewhere, {}, { webhook: receiver.url });
    await stillwake.cancel(id);
    await receiver.gets(2);
  });

  it("tries again by itself when it is time", async () => {
    const receiver = await startReceiver(status(503));
    await ownWorker({ url: server.url, pipelines: [code], webhooks: HERE });
    await stillwake.enqueue(task, { n: 1 }, { webhook: receiver.url });
    await receiver.gets(1);
    receiver.respond = status(200);
    const [first, second] = await receiver.gets(2);
    expect(second!.id).toBe(first!.id);
    expect(second!.at - first!.at).toBeGreaterThan(4500);
  });

  it("that ends when nothing is left has told everybody before", async () => {
    const receiver = await startReceiver();
    const jobs = await stillwake.enqueueMany(task, [{ n: 1 }, { n: 2 }, { n: 3 }], { webhook: receiver.url });
    const { worker } = await ownWorker({
      url: server.url,
      directUrl: false,
      pipelines: [code],
      until: "empty",
      webhooks: HERE,
    });
    await worker.done;
    expect(receiver.received.map(({ body }) => JSON.parse(body).data.id).sort()).toEqual(
      jobs.map(({ id }) => id).sort(),
    );
    for (const { id } of jobs) expect((await stillwake.webhooks.list({ job: id }))[0]!.state).toBe("delivered");
  });

  it("sends none when it is told not to", async () => {
    const receiver = await startReceiver();
    const { id } = await stillwake.enqueue(task, { n: 1 }, { webhook: receiver.url });
    const { worker } = await ownWorker({ url: server.url, pipelines: [code], until: "empty", webhooks: false });
    await worker.done;
    expect((await stillwake.webhooks.list({ job: id }))[0]).toMatchObject({ state: "pending", attempts: 0 });
    expect(receiver.received).toEqual([]);
    await client.query("delete from stillwake.webhooks where state = 'pending'");
  });

  it.each([
    [{ webhooks: "yes" }, "webhooks"],
    [{ webhooks: { retries: 3 } }, "webhooks.retries"],
    [{ webhooks: { concurrency: 0 } }, "webhooks.concurrency"],
    [{ webhooks: { timeout: "2m" } }, "webhooks.timeout"],
    [{ webhooks: { ports: [0] } }, "webhooks.ports"],
    [{ webhooks: { allow: ["everywhere"] } }, "allow"],
  ])("refuses %j", async (options, field) => {
    await expect(ownWorker({ url: server.url, pipelines: [code], ...(options as object) })).rejects.toMatchObject({
      field,
    });
  });
});

describe("stillwake webhooks send", () => {
  it("sends what is due, once, and says what came of it", async () => {
    const receiver = await startReceiver();
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-webhooks-"));
    onTestFinished(() => fs.rmSync(dir, { recursive: true, force: true }));
    const config = path.join(dir, "stillwake.config.mjs");
    fs.writeFileSync(config, 'export default { webhooks: { allowHttp: true, allow: ["127.0.0.1/32 *"] } };');
    const { id } = await stillwake.enqueue(elsewhere, {}, { webhook: receiver.url });
    await stillwake.cancel(id);
    const run = await runCli(["webhooks", "send", "--config", config], { DATABASE_URL: server.url });
    expect(run).toEqual({
      code: 0,
      stderr: "",
      stdout: "1 delivered, 0 to be tried again, 0 failed, 0 taken over by others\n",
    });
    expect(receiver.received).toHaveLength(1);
    const again = await runCli(["webhooks", "send", "--json", "--config", config], { DATABASE_URL: server.url });
    expect(JSON.parse(again.stdout)).toEqual({ delivered: 0, pending: 0, failed: 0, lost: 0 });
  });
});

describe("idle means silent", () => {
  /** Statements of Stillwake's connections since the call. */
  const listen = () => {
    const from = server.log().length;
    return () =>
      server
        .log()
        .slice(from)
        .split("\n")
        .filter((line) => /^<stillwake>.*LOG: {2}(statement|execute)/.test(line));
  };
  /** The length of a silence is what is tested. */
  const silence = () => new Promise((resolve) => setTimeout(resolve, FULL ? 120_000 : 4000));

  it("a sender with nothing to send, or nothing before tomorrow, asks nothing", async () => {
    const receiver = await startReceiver();
    const { id } = await stillwake.enqueue(elsewhere, {}, { webhook: receiver.url });
    await stillwake.cancel(id);
    const sender = createSender({ url: server.url, ...HERE });
    onTestFinished(() => sender.stop());
    await sender.flush();
    expect(receiver.received).toHaveLength(1);
    const far = await stillwake.enqueue(elsewhere, {}, { webhook: receiver.url });
    await stillwake.cancel(far.id);
    await client.query(
      "update stillwake.webhooks set next_at = stillwake.now() + interval '1 day' where state = 'pending'",
    );
    await sender.flush();
    await waitFor(
      async () => {
        const { rows } = await client.query("select from pg_stat_activity where application_name = 'stillwake'");
        return rows.length === 0;
      },
      { timeout: 20_000, what: "its connections to be closed" },
    );
    const heard = listen();
    await silence();
    expect(heard()).toEqual([]);
    recordFigure("webhooks: statements of an idle sender", heard().length, "", FULL ? "in 120 s" : "in 4 s");
    // It was not silent for being dead.
    await client.query("update stillwake.webhooks set next_at = stillwake.now() where state = 'pending'");
    sender.poke();
    await receiver.gets(2);
  });
}, 240_000);
