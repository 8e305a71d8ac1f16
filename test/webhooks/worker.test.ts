// Workers send webhooks: when their own jobs or those of others end, and before they stop. An idle sender sends no queries.
import fs from "node:fs";
import path from "node:path";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { verifyWebhook } from "../../src/webhooks/index.ts";
import { createSender, implement } from "../../src/worker/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { connect, openStillwake } from "../support/database/connections.ts";
import { startPostgresServer } from "../support/database/postgres-server.ts";
import { ALLOW_LOCALHOST, respondWith, startReceiver } from "../support/fakes/webhook-receiver.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { runCli } from "../support/processes/cli.ts";
import { FULL, recordTimes } from "../support/processes/fault-checks.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";

const task = pipeline<{ n: number }>("task");
const elsewhere = pipeline("elsewhere", { pool: "elsewhere" });
const code = implement(task, (_, { n }) => ({ n }));
// Every statement is logged with the application_name of its connection.
const server = await startPostgresServer({ log_statement: "all", log_line_prefix: "<%a> " });
const client = await connect(server.url);
const stillwake = openStillwake(server.url);

beforeAll(async () => {
  buildPackage();
  await stillwake.register(task, elsewhere);
});

describe("a worker", () => {
  it("sends signed webhooks soon after its jobs end", async () => {
    const receiver = await startReceiver();
    const { secret } = await stillwake.webhooks.set("billing", { url: receiver.url });
    const worker = await startRecordedWorker({ url: server.url, pipelines: [code], webhooks: ALLOW_LOCALHOST });
    await worker.waitForEvent("hints.ready");
    const times: number[] = [];
    for (let n = 1; n <= 20; n++) {
      const { id } = await stillwake.enqueue(task, { n }, { webhook: { endpoint: "billing" } });
      await stillwake.wait(id, { timeout: "20s" });
      const ended = performance.now();
      const came = (await receiver.gets(n)).at(-1)!;
      times.push(Math.max(0, came.at - ended));
      const payload = await verifyWebhook(came.body, came.headers, secret!);
      expect(payload).toMatchObject({ type: "job.completed", data: { id, pipeline: "task" } });
    }
    recordTimes("webhooks: from the end of a job to its receiver", times);
    await worker.waitForEvent("webhook", { times: 20 });
    expect(worker.eventsOf("webhook")[0]).toMatchObject({
      endpoint: "billing",
      state: "delivered",
      status: 204,
      attempt: 1,
    });
  });

  it("sends webhooks of other workers' jobs, even of pipelines it does not have", async () => {
    const receiver = await startReceiver();
    const worker = await startRecordedWorker({ url: server.url, pipelines: [code], webhooks: ALLOW_LOCALHOST });
    await worker.waitForEvent("hints.ready");
    const { id } = await stillwake.enqueue(elsewhere, {}, { webhook: receiver.url });
    await stillwake.cancel(id);
    const [came] = await receiver.gets(1);
    expect(JSON.parse(came!.body)).toMatchObject({ type: "job.cancelled", data: { id } });
  });

  it("without hints checks after its own jobs, and at an interval for those of others", async () => {
    const receiver = await startReceiver();
    await startRecordedWorker({
      url: server.url,
      directUrl: false,
      poll: "200ms",
      pipelines: [code],
      webhooks: ALLOW_LOCALHOST,
    });
    await stillwake.enqueue(task, { n: 1 }, { webhook: receiver.url });
    await receiver.gets(1);
    const { id } = await stillwake.enqueue(elsewhere, {}, { webhook: receiver.url });
    await stillwake.cancel(id);
    await receiver.gets(2);
  });

  it("retries by itself at the due time", async () => {
    const receiver = await startReceiver(respondWith(503));
    await startRecordedWorker({ url: server.url, pipelines: [code], webhooks: ALLOW_LOCALHOST });
    await stillwake.enqueue(task, { n: 1 }, { webhook: receiver.url });
    await receiver.gets(1);
    receiver.respond = respondWith(200);
    const [first, second] = await receiver.gets(2);
    expect(second!.id).toBe(first!.id);
    expect(second!.at - first!.at).toBeGreaterThan(4500);
  });

  it("that exits when nothing is left sends all webhooks first", async () => {
    const receiver = await startReceiver();
    const jobs = await stillwake.enqueueMany(task, [{ n: 1 }, { n: 2 }, { n: 3 }], { webhook: receiver.url });
    const { worker } = await startRecordedWorker({
      url: server.url,
      directUrl: false,
      pipelines: [code],
      until: "empty",
      webhooks: ALLOW_LOCALHOST,
    });
    await worker.done;
    expect(receiver.received.map(({ body }) => JSON.parse(body).data.id).sort()).toEqual(
      jobs.map(({ id }) => id).sort(),
    );
    for (const { id } of jobs) expect((await stillwake.webhooks.list({ job: id }))[0]!.state).toBe("delivered");
  });

  it("sends none with webhooks: false", async () => {
    const receiver = await startReceiver();
    const { id } = await stillwake.enqueue(task, { n: 1 }, { webhook: receiver.url });
    const { worker } = await startRecordedWorker({
      url: server.url,
      pipelines: [code],
      until: "empty",
      webhooks: false,
    });
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
  ])("rejects %j", async (options, field) => {
    await expect(
      startRecordedWorker({ url: server.url, pipelines: [code], ...(options as object) }),
    ).rejects.toMatchObject({
      field,
    });
  });
});

describe("stillwake webhooks send", () => {
  it("sends what is due, once, and prints the results", async () => {
    const receiver = await startReceiver();
    const dir = temporaryDirectory("webhooks");
    const config = path.join(dir, "stillwake.config.mjs");
    fs.writeFileSync(config, 'export default { webhooks: { allowHttp: true, allow: ["127.0.0.1/32 *"] } };');
    const { id } = await stillwake.enqueue(elsewhere, {}, { webhook: receiver.url });
    await stillwake.cancel(id);
    const run = await runCli(["webhooks", "send", "--config", config], { DATABASE_URL: server.url });
    expect(run).toEqual({
      code: 0,
      stderr: "",
      stdout: "1 delivered, 0 to be retried, 0 failed, 0 taken over by another sender\n",
    });
    expect(receiver.received).toHaveLength(1);
    const again = await runCli(["webhooks", "send", "--json", "--config", config], { DATABASE_URL: server.url });
    expect(JSON.parse(again.stdout)).toEqual({ delivered: 0, pending: 0, failed: 0, lost: 0 });
  });
});

describe("when idle", () => {
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
  /** Waits in real time, because the duration of the silence is tested. */
  const silence = () => new Promise((resolve) => setTimeout(resolve, FULL ? 120_000 : 4000));

  it("a sender with nothing to send, or nothing before tomorrow, sends no queries", async () => {
    const receiver = await startReceiver();
    const { id } = await stillwake.enqueue(elsewhere, {}, { webhook: receiver.url });
    await stillwake.cancel(id);
    const sender = createSender({ url: server.url, ...ALLOW_LOCALHOST });
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
    const statements = listen();
    await silence();
    expect(statements()).toEqual([]);
    recordFigure("webhooks: statements of an idle sender", statements().length, "", FULL ? "in 120 s" : "in 4 s");
    // The sender is still alive.
    await client.query("update stillwake.webhooks set next_at = stillwake.now() where state = 'pending'");
    sender.poke();
    await receiver.gets(2);
  });
}, 240_000);
