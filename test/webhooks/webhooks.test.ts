// Webhooks: written in the commit that ends the job, recorded per delivery, and managed by operators.

import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { settleWebhooks } from "../../src/db/calls/webhooks.ts";
import { pipeline } from "../../src/index.ts";
import { startClock, stopClock, travel, waitFor } from "../../src/testing/index.ts";
import { verifyWebhook } from "../../src/webhooks/index.ts";
import { type CreateSenderOptions, createSender, type SentWebhook } from "../../src/worker/index.ts";
import { connect, connectedDatabase } from "../support/database/connections.ts";
import { ALLOW_LOCALHOST, respondWith, startReceiver } from "../support/fakes/webhook-receiver.ts";

const { database, stillwake, client } = await connectedDatabase();
const task = pipeline<{ n: number }>("task");

beforeAll(() => stillwake.register(task));

const q = async (text: string, values: unknown[] = []) => (await client.query(text, values)).rows;

/** A job of `task` that has ended with this state. */
async function ended(
  end: "completed" | "failed" | "cancelled",
  options: Parameters<typeof stillwake.enqueue>[2] = {},
  output: unknown = { answer: 42 },
): Promise<string> {
  const { id } = await stillwake.enqueue("task", { n: 1 }, options);
  if (end === "cancelled") await stillwake.cancel(id);
  else await settle(id, end, output);
  return id;
}

async function settle(id: string, end: "completed" | "failed", output: unknown): Promise<void> {
  const [job] = await q("select * from stillwake.claim('test', 'default', '{task}', 1)");
  expect(job?.job_id).toBe(id);
  const fence = [id, job.epoch, job.lease_id];
  if (end === "completed") await q("select stillwake.complete($1, $2, $3, $4)", [...fence, JSON.stringify(output)]);
  else {
    const failure = { name: "Error", message: "no luck", code: "NO_LUCK", stack: "at secret.ts:1" };
    await q("select stillwake.fail($1, $2, $3, $4, true)", [...fence, JSON.stringify(failure)]);
  }
}

function sender(options: Partial<CreateSenderOptions> = {}) {
  const sent: SentWebhook[] = [];
  const made = createSender({ url: database.url, ...ALLOW_LOCALHOST, onSent: (one) => sent.push(one), ...options });
  onTestFinished(() => made.stop());
  return { ...made, sent };
}

const listed = async (job: string) => (await stillwake.webhooks.list({ job }))[0]!;

describe("the end of a job and its webhook", () => {
  it("are one commit: a settlement that is rolled back writes no webhook", async () => {
    const { id } = await stillwake.enqueue(task, { n: 1 }, { webhook: "https://example.com/hook" });
    const [job] = await q("select * from stillwake.claim('test', 'default', '{task}', 1)");
    await client.query("begin");
    await q("select stillwake.complete($1, $2, $3)", [id, job.epoch, job.lease_id]);
    expect(await q("select state from stillwake.webhooks where job_id = $1", [id])).toEqual([{ state: "pending" }]);
    await client.query("rollback");
    expect(await stillwake.webhooks.list({ job: id })).toEqual([]);
    await q("select stillwake.complete($1, $2, $3)", [id, job.epoch, job.lease_id]);
    expect(await listed(id)).toMatchObject({ event: "job.completed", state: "pending", attempts: 0, deliveries: [] });
    // A settlement that is repeated after a lost response writes none.
    await q("select stillwake.complete($1, $2, $3)", [id, job.epoch, job.lease_id]);
    expect(await stillwake.webhooks.list({ job: id })).toHaveLength(1);
  });

  it.each(["completed", "failed", "cancelled"] as const)("are written together when it is %s", async (end) => {
    const id = await ended(end, { webhook: "https://example.com/hook" });
    expect(await listed(id)).toMatchObject({
      event: `job.${end}`,
      url: "https://example.com/hook",
      endpoint: "default",
    });
  });

  it("are written together when the job expires, and when it crashes for the last time", async () => {
    const options = { webhook: "https://example.com/hook", attempts: 1 };
    const late = await stillwake.enqueue(task, { n: 1 }, { ...options, expiresIn: "1s" });
    await travel(client, "2s");
    await q("select stillwake.expire()");
    expect(await listed(late.id)).toMatchObject({ event: "job.failed" });
    const lost = await stillwake.enqueue(task, { n: 1 }, options);
    await q("select * from stillwake.claim('test', 'default', '{task}', 1, '1 second')");
    await travel(client, "1h");
    await q("select stillwake.recover()");
    expect(await listed(lost.id)).toMatchObject({ event: "job.failed" });
  });

  it("are written again for a retried job", async () => {
    const id = await ended("failed", { webhook: "https://example.com/hook" });
    await stillwake.retry(id);
    await settle(id, "completed", 1);
    const hooks = await stillwake.webhooks.list({ job: id });
    expect(hooks.map(({ event }) => event)).toEqual(["job.completed", "job.failed"]);
    expect(hooks[0]!.id).not.toBe(hooks[1]!.id);
  });

  it("a caller that joins a job by its key gets its own webhook, once", async () => {
    const key = { key: "shared" };
    const first = await stillwake.enqueue(task, { n: 1 }, { ...key, webhook: "https://one.example/" });
    for (const webhook of ["https://two.example/", "https://two.example/", "https://one.example/"]) {
      expect(await stillwake.enqueue(task, { n: 2 }, { ...key, webhook })).toEqual({ id: first.id, existing: true });
    }
    await settle(first.id, "completed", 1);
    const hooks = await stillwake.webhooks.list({ job: first.id });
    expect(hooks.map(({ url }) => url).sort()).toEqual(["https://one.example/", "https://two.example/"]);
  });

  it("a job without a webhook writes nothing", async () => {
    const id = await ended("completed");
    expect(await stillwake.webhooks.list({ job: id })).toEqual([]);
  });
});

describe("an endpoint", () => {
  it("gets the webhooks of all jobs of its pipelines, for the outcomes it subscribes to", async () => {
    await stillwake.webhooks.set("all-tasks", { url: "https://all.example/", pipelines: ["task"], on: ["failed"] });
    const job = await ended("failed");
    const both = await ended("failed", { webhook: { endpoint: "all-tasks" } });
    const own = await ended("failed", { webhook: "https://own.example/" });
    const not = await ended("completed");
    expect((await stillwake.webhooks.list({ job })).map(({ url }) => url)).toEqual(["https://all.example/"]);
    expect((await stillwake.webhooks.list({ job: both })).map(({ url }) => url)).toEqual(["https://all.example/"]);
    expect((await stillwake.webhooks.list({ job: own })).map(({ url }) => url).sort()).toEqual([
      "https://all.example/",
      "https://own.example/",
    ]);
    expect(await stillwake.webhooks.list({ job: not })).toEqual([]);
    await stillwake.webhooks.set("all-tasks", { pipelines: [] });
    expect(await stillwake.webhooks.list({ job: await ended("failed") })).toEqual([]);
  });

  it("shows its secret once, and its headers by name", async () => {
    const { secret } = await stillwake.webhooks.set("shy", {
      url: "https://a.example/",
      headers: { Authorization: "Bearer t" },
    });
    expect(secret).toMatch(/^whsec_/);
    expect(await stillwake.webhooks.set("shy", { body: "full" })).toEqual({ secret: null });
    const [shy] = (await stillwake.webhooks.endpoints()).filter(({ name }) => name === "shy");
    expect(shy).toMatchObject({ headers: ["authorization"], body: "full", url: "https://a.example/", secrets: 1 });
    expect(JSON.stringify(await stillwake.webhooks.endpoints())).not.toMatch(/whsec_|Bearer/);
  });

  it("has a secret that no other endpoint has", async () => {
    const { secret } = await stillwake.webhooks.set("mine", { url: "https://a.example/" });
    await expect(stillwake.webhooks.set("yours", { secret: secret! })).rejects.toMatchObject({ field: "secret" });
    await stillwake.webhooks.set("yours");
    await expect(stillwake.webhooks.rotate("yours", { secret: secret! })).rejects.toMatchObject({ field: "secret" });
  });

  it("has two secrets during a rotation, and no third", async () => {
    const { secret: first } = await stillwake.webhooks.set("turning", { url: "https://a.example/" });
    const { secret: second } = await stillwake.webhooks.rotate("turning", { keep: "1h" });
    await stillwake.webhooks.rotate("turning", { secret: second });
    const live = async () =>
      (
        await q(
          "select secret from stillwake.endpoint_secrets where endpoint = 'turning' and coalesce(expires_at > stillwake.now(), true) order by created_at",
        )
      ).map((row) => row.secret);
    expect(await live()).toEqual([first, second]);
    const { secret: third } = await stillwake.webhooks.rotate("turning", { keep: "1h" });
    expect(await live()).toEqual([second, third]);
    await travel(client, "61m");
    expect(await live()).toEqual([third]);
  });

  it.each([
    ["a name that is none", "Shouting", {}, "endpoint"],
    ["a URL that is none", "bad", { url: "example.com" }, "url"],
    ["a URL with a password", "bad", { url: "https://u:p@example.com/" }, "url"],
    ["a short secret", "bad", { secret: "whsec_c2hvcnQ=" }, "secret"],
    ["a secret that is no base64", "bad", { secret: `whsec_${"a".repeat(33)}` }, "secret"],
    ["a header that signs", "bad", { headers: { "Webhook-Id": "x" } }, "headers.Webhook-Id"],
    ["a header that makes the request", "bad", { headers: { host: "x" } }, "headers.host"],
    ["a header with a line break", "bad", { headers: { "x-a": "1\r\nx-b: 2" } }, "headers.x-a"],
    ["headers without a URL and without origins", "bad", { headers: { "x-api-key": "x" } }, "origins"],
    ["an origin with a path", "bad", { origins: ["https://example.com/hooks"] }, "origins"],
    ["an origin that is none", "bad", { origins: ["example.com"] }, "origins"],
    ["an empty tenant", "bad", { tenant: "" }, "tenant"],
    ["the endpoint of bare URLs and a tenant", "default", { tenant: "acme" }, "tenant"],
    ["an end that is none", "bad", { on: ["done"] }, "on"],
    ["no end at all", "bad", { on: [] }, "on"],
    ["a body that is a text", "bad", { body: "json" }, "body"],
    ["a template with a name nobody knows", "bad", { body: { a: [{ b: "$outputs" }] } }, "body"],
    ["a template with a path into what has none", "bad", { body: { a: "$id.x" } }, "body"],
    ["a template that is too long", "bad", { body: { a: "x".repeat(9000) } }, "body"],
    ["a template that is too deep", "bad", { body: JSON.parse(`${"[".repeat(60)}1${"]".repeat(60)}`) }, "body"],
    ["pipelines without a url", "bad", { pipelines: ["task"] }, "url"],
    ["an option nobody knows", "bad", { uri: "x" }, "uri"],
  ])("is rejected with %s", async (_, name, options, field) => {
    await expect(stillwake.webhooks.set(name, options as never)).rejects.toMatchObject({
      code: "INVALID_INPUT",
      field,
    });
    expect((await stillwake.webhooks.endpoints()).map((one) => one.name)).not.toContain("bad");
  });

  it.each([
    "example.com",
    "ftp://example.com/",
    "https://user:pass@example.com/",
    "https://example.com/a b",
    `https://example.com/${"x".repeat(2000)}`,
    { endpoint: "nobody" },
    { endpoint: "Bad Name" },
    { endpoint: "mine", uri: "x" },
    {},
    7,
  ])("of a job as %.50j is rejected by enqueue", async (webhook) => {
    await expect(stillwake.enqueue(task, { n: 1 }, { webhook: webhook as never })).rejects.toMatchObject({
      code: "INVALID_INPUT",
    });
    await expect(q("select stillwake.enqueue('task', '{}', $1)", [JSON.stringify({ webhook })])).rejects.toMatchObject({
      code: "SW001",
    });
  });
});

describe("the body", () => {
  const bodyOf = async (job: string) => JSON.parse((await listed(job)).body);

  it("is thin by default: ids and states, no data of user code", async () => {
    const secret = "c4n4ry";
    const id = await ended("completed", { webhook: "https://a.example/", key: secret, tenant: secret }, { secret });
    expect(await bodyOf(id)).toEqual({
      type: "job.completed",
      timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      data: { id, pipeline: "task", state: "completed", attempt: 1, code: null },
    });
    expect((await listed(id)).body).not.toContain(secret);
  });

  it("is full on request: output and failure, never the stack", async () => {
    await stillwake.webhooks.set("full", { url: "https://a.example/", body: "full" });
    const webhook = { endpoint: "full" };
    expect((await bodyOf(await ended("completed", { webhook, key: "k" }))).data).toMatchObject({
      output: { answer: 42 },
      input: { n: 1 },
      key: "k",
      failure: null,
    });
    const failed = await ended("failed", { webhook });
    expect((await bodyOf(failed)).data.failure).toEqual({ name: "Error", message: "no luck", code: "NO_LUCK" });
    expect((await listed(failed)).body).not.toContain("secret.ts");
  });

  it("supports an existing format with a template: the digest's callback, for both outcomes, with its headers", async () => {
    const receiver = await startReceiver();
    const { secret } = await stillwake.webhooks.set("digest", {
      headers: { "x-api-key": "n8n" },
      origins: [receiver.url],
      body: { task_id: "$id", status: "$STATE", result: "$output", error: "$error", for: "$input.n", price: "$$5" },
      on: ["completed", "failed"],
    });
    const webhook = { endpoint: "digest", url: `${receiver.url}/webhook/digest?x=1` };
    const done = await ended("completed", { webhook }, { html: "<p>" });
    const failed = await ended("failed", { webhook });
    const cancelled = await ended("cancelled", { webhook });
    await sender().flush();
    const came = Object.fromEntries(receiver.received.map((one) => [JSON.parse(one.body).task_id, one]));
    expect(Object.keys(came).sort()).toEqual([done, failed].sort());
    const common = { for: 1, price: "$5" };
    expect(await verifyWebhook(came[done]!.body, came[done]!.headers, secret!, { tolerance: "7d" })).toEqual({
      ...common,
      task_id: done,
      status: "COMPLETED",
      result: { html: "<p>" },
      error: null,
    });
    expect(JSON.parse(came[failed]!.body)).toEqual({
      ...common,
      task_id: failed,
      status: "FAILED",
      result: null,
      error: "no luck",
    });
    expect(came[done]!.path).toBe("/webhook/digest?x=1");
    expect(came[done]!.headers).toMatchObject({ "x-api-key": "n8n", "content-type": "application/json" });
    expect(came[done]!.headers["user-agent"]).toMatch(/^Stillwake\/\d/);
    expect(await stillwake.webhooks.list({ job: cancelled })).toEqual([]);
  });

  it("is never longer than 20 KB, and lists what was omitted", async () => {
    await stillwake.webhooks.set("large", { url: "https://a.example/", body: "full" });
    await stillwake.webhooks.set("listing", { url: "https://a.example/", body: ["$id", "$output"] });
    const huge = { text: "ä".repeat(30_000) };
    const full = await ended("completed", { webhook: { endpoint: "large" } }, huge);
    expect(Buffer.byteLength((await listed(full)).body)).toBeLessThanOrEqual(20_480);
    expect(await bodyOf(full)).toMatchObject({
      omitted: ["output"],
      data: { id: full, output: null, input: { n: 1 } },
    });
    const array = await ended("completed", { webhook: { endpoint: "listing" } }, huge);
    expect(await bodyOf(array)).toEqual([array, null]);
    const fits = await ended("completed", { webhook: { endpoint: "large" } }, { text: "x".repeat(19_000) });
    expect(await bodyOf(fits)).not.toHaveProperty("omitted");
  });
});

describe("every delivery", () => {
  it("is signed with both secrets during a rotation", async () => {
    const receiver = await startReceiver();
    const { secret: old } = await stillwake.webhooks.set("signed", { url: receiver.url });
    const { secret } = await stillwake.webhooks.rotate("signed", { keep: "1h" });
    const id = await ended("completed", { webhook: { endpoint: "signed" } });
    const one = sender();
    await one.flush();
    // The timestamp is the database's, which differs from this process's clock now.
    const ours = { tolerance: "30d" } as const;
    const [first] = receiver.received;
    expect(first!.headers["webhook-signature"]!.split(" ")).toHaveLength(2);
    for (const either of [old!, secret]) await verifyWebhook(first!.body, first!.headers, either, ours);
    await travel(client, "2h");
    await stillwake.webhooks.resend((await listed(id)).id);
    await one.flush();
    const second = receiver.received[1]!;
    expect(second.headers["webhook-signature"]!.split(" ")).toHaveLength(1);
    await verifyWebhook(second.body, second.headers, secret, ours);
    expect(Number(second.headers["webhook-timestamp"]) - Number(first!.headers["webhook-timestamp"])).toBeGreaterThan(
      7000,
    );
  });

  it("is listed with its result, and a webhook can be resent under its id", async () => {
    const receiver = await startReceiver(respondWith(500, {}, "out of order"));
    const id = await ended("completed", { webhook: receiver.url });
    const one = sender({ name: "first" });
    await one.flush();
    expect(await listed(id)).toMatchObject({
      state: "pending",
      attempts: 1,
      deliveries: [{ n: "1", sender: "first", status: 500, error: "STATUS", response: "out of order" }],
    });
    receiver.respond = respondWith(200, {}, "thanks");
    const { id: hook } = await listed(id);
    await stillwake.webhooks.resend(hook);
    one.poke();
    await waitFor(async () => (await listed(id)).state === "delivered");
    expect((await listed(id)).deliveries.map(({ status }) => status)).toEqual([500, 200]);
    await stillwake.webhooks.resend(hook);
    one.poke();
    await receiver.gets(3);
    expect(new Set(receiver.received.map((one) => one.id))).toEqual(new Set([hook]));
    expect(new Set(receiver.received.map((one) => one.body)).size).toBe(1);
    await expect(stillwake.webhooks.resend("msg_nothing")).rejects.toMatchObject({ field: "id" });
  });

  it("is fenced: a sender that was replaced records nothing", async () => {
    const id = await ended("completed", { webhook: "https://a.example/" });
    await q("select * from stillwake.claim_webhooks('slow', 100, '10 seconds')");
    const { id: hook } = await listed(id);
    await travel(client, "11s");
    await q("select * from stillwake.claim_webhooks('next', 100, '10 seconds')");
    const epochs = await q("select epoch from stillwake.webhooks where id = $1", [hook]);
    expect(epochs).toEqual([{ epoch: "2" }]);
    const record = { id: hook, epoch: "1", sender: "slow", status: 200 };
    expect(await settleWebhooks(stillwake.database, [record])).toEqual([{ id: hook, state: "lost" }]);
    expect(await settleWebhooks(stillwake.database, [{ ...record, epoch: "2" }])).toEqual([
      { id: hook, state: "lost" },
    ]);
    expect((await listed(id)).deliveries).toEqual([]);
    const earlier = { ...record, sender: "next" };
    expect(await settleWebhooks(stillwake.database, [earlier])).toEqual([{ id: hook, state: "lost" }]);
    const own = { ...record, epoch: "2", sender: "next" };
    expect(await settleWebhooks(stillwake.database, [own])).toEqual([{ id: hook, state: "delivered" }]);
    // The response was lost: the same record again changes nothing.
    expect(await settleWebhooks(stillwake.database, [own])).toEqual([{ id: hook, state: "delivered" }]);
    expect((await listed(id)).deliveries).toHaveLength(1);
  });

  it("is one of ten, over about three days; then the webhook has failed and can be resent", async () => {
    const id = await ended("completed", { webhook: "https://schedule.example/" });
    const { id: hook } = await listed(id);
    await stopClock(client);
    onTestFinished(() => startClock(client));
    const waits: number[] = [];
    for (let n = 1; n <= 10; n++) {
      const { state } = await listed(id);
      expect(state).toBe("pending");
      const due = (
        await q(
          "select extract(epoch from next_at - stillwake.now())::float8 as s from stillwake.webhooks where id = $1",
          [hook],
        )
      )[0].s;
      if (n > 1) waits.push(due);
      if (due > 0) {
        // Not earlier.
        await travel(client, `${Math.floor(due * 1000) - 1}ms`);
        expect(await q("select id from stillwake.claim_webhooks('s', 100) where id = $1", [hook])).toEqual([]);
        await travel(client, "2ms");
      }
      const [claimed] = await q(
        "select id, epoch::text, attempt from stillwake.claim_webhooks('s', 100) where id = $1",
        [hook],
      );
      expect(claimed).toMatchObject({ id: hook, attempt: n });
      await settleWebhooks(stillwake.database, [{ id: hook, epoch: claimed.epoch, sender: "s", error: "TIMEOUT" }]);
    }
    const plan = [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400];
    expect(waits).toHaveLength(plan.length);
    for (const [place, wait] of waits.entries()) {
      expect(wait).toBeGreaterThanOrEqual(plan[place]!);
      expect(wait).toBeLessThanOrEqual(plan[place]! * 1.1);
    }
    expect(await listed(id)).toMatchObject({ state: "failed", attempts: 10, nextAt: null });
    await stillwake.webhooks.resend(hook);
    expect(await listed(id)).toMatchObject({ state: "pending", attempts: 0, endedAt: null });
  });
});

describe("a disabled endpoint", () => {
  it("holds back pending and new webhooks until it is enabled", async () => {
    const receiver = await startReceiver();
    await stillwake.webhooks.set("held", { url: receiver.url });
    const before = await ended("completed", { webhook: { endpoint: "held" } });
    await stillwake.webhooks.disable("held", { reason: "they move" });
    const after = await ended("completed", { webhook: { endpoint: "held" } });
    const one = sender();
    await one.flush();
    expect(receiver.received).toEqual([]);
    expect(await listed(before)).toMatchObject({ state: "pending", nextAt: null, attempts: 0 });
    await expect(stillwake.webhooks.resend((await listed(after)).id)).rejects.toMatchObject({ code: "NOT_ALLOWED" });
    expect((await stillwake.webhooks.endpoints()).find(({ name }) => name === "held")).toMatchObject({
      disabledReason: "they move",
      disabledAt: expect.any(Date),
    });
    await stillwake.webhooks.enable("held");
    one.poke();
    const came = await receiver.gets(2);
    expect(came.map(({ body }) => JSON.parse(body).data.id).sort()).toEqual([before, after].sort());
    await expect(stillwake.webhooks.disable("nobody")).rejects.toMatchObject({ field: "endpoint" });
  });
});

describe("an endpoint whose URL changes", () => {
  it("receives everything at its new URL, including held back and resent webhooks", async () => {
    const old = await startReceiver(respondWith(410));
    const moved = await startReceiver();
    await stillwake.webhooks.set("mover", { url: old.url });
    const held = await ended("completed", { webhook: { endpoint: "mover" } });
    const one = sender();
    await one.flush();
    expect(old.received).toHaveLength(1);
    const later = await ended("completed", { webhook: { endpoint: "mover" } });
    await stillwake.webhooks.set("mover", { url: moved.url });
    await stillwake.webhooks.enable("mover");
    one.poke();
    const came = await moved.gets(2);
    expect(came.map(({ body }) => JSON.parse(body).data.id).sort()).toEqual([held, later].sort());
    expect(old.received).toHaveLength(1);
    await waitFor(async () => (await listed(later)).state === "delivered");
    await stillwake.webhooks.resend((await listed(later)).id);
    one.poke();
    await moved.gets(3);
  });

  it("sends webhooks that were created while it was being enabled", async () => {
    const receiver = await startReceiver();
    await stillwake.webhooks.set("racing", { url: receiver.url });
    await stillwake.webhooks.disable("racing");
    const { id } = await stillwake.enqueue("task", { n: 1 }, { webhook: { endpoint: "racing" } });
    await client.query("begin");
    await settle(id, "completed", {});
    await stillwake.webhooks.enable("racing");
    await client.query("commit");
    await sender().flush();
    expect(receiver.received).toHaveLength(1);
  });

  it("does not send its headers and signature to other hosts", async () => {
    await stillwake.webhooks.set("private", { url: "https://a.example.com/hook", headers: { "x-api-key": "secret" } });
    const name = (url: string) => stillwake.enqueue(task, { n: 1 }, { webhook: { endpoint: "private", url } });
    await expect(name("https://evil.example.com/hook")).rejects.toMatchObject({ code: "INVALID_INPUT" });
    await expect(name("https://a.example.com:8443/hook")).rejects.toMatchObject({ code: "INVALID_INPUT" });
    const { id } = await name("https://a.example.com/other");
    await stillwake.cancel(id);
    expect((await listed(id)).url).toBe("https://a.example.com/other");
  });

  it("without a URL sends its headers only to the origins that it names", async () => {
    await stillwake.webhooks.set("several", {
      origins: ["https://One.example.com:443", "https://two.example.com:8443"],
      headers: { "x-api-key": "secret" },
    });
    await stillwake.webhooks.disable("several");
    const name = (url: string) => stillwake.enqueue(task, { n: 1 }, { webhook: { endpoint: "several", url } });
    for (const url of ["https://one.example.com/a", "https://ONE.example.com:443/b", "https://two.example.com:8443/"]) {
      await stillwake.cancel((await name(url)).id);
    }
    for (const url of ["https://evil.example.com/", "http://one.example.com/", "https://two.example.com/"]) {
      await expect(name(url)).rejects.toMatchObject({ code: "INVALID_INPUT", field: "webhook.url" });
    }
  });

  it("does not send headers that it gets later to the URL of an earlier job", async () => {
    const receiver = await startReceiver();
    await stillwake.webhooks.set("later", {});
    await ended("completed", { webhook: { endpoint: "later", url: `${receiver.url}/early` } });
    await stillwake.webhooks.set("later", { url: "https://own.example.com/", headers: { "x-api-key": "secret" } });
    await sender().flush();
    expect(receiver.received.map(({ path, headers }) => [path, headers["x-api-key"]])).toEqual([["/early", undefined]]);
  });

  it("of a tenant is used by jobs of that tenant only, by name and by pipeline", async () => {
    await stillwake.webhooks.set("of-acme", { url: "https://acme.example/", tenant: "acme", pipelines: ["task"] });
    await stillwake.webhooks.disable("of-acme");
    const webhook = { endpoint: "of-acme" };
    for (const options of [{ webhook }, { webhook, tenant: "globex" }]) {
      await expect(stillwake.enqueue(task, { n: 1 }, options)).rejects.toMatchObject({ field: "webhook.endpoint" });
    }
    const urls = async (options: Parameters<typeof ended>[1]) =>
      (await stillwake.webhooks.list({ job: await ended("completed", options) })).map(({ url }) => url);
    expect(await urls({ tenant: "acme", webhook })).toEqual(["https://acme.example/"]);
    expect(await urls({ tenant: "acme" })).toEqual(["https://acme.example/"]);
    expect(await urls({ tenant: "globex" })).toEqual([]);
    expect(await urls({})).toEqual([]);
    await stillwake.webhooks.set("of-acme", { pipelines: [] });
  });
});

describe("a transaction that joins a job and stays open", () => {
  it("blocks no other caller, and gets its webhook although the job ends before it commits", async () => {
    const receiver = await startReceiver();
    const webhook = receiver.url;
    const { id } = await stillwake.enqueue("task", { n: 1 }, { key: "joined", webhook: `${webhook}/first` });
    const joiner = await connect(database.url);
    await joiner.query("begin");
    const second = await stillwake.enqueue(
      "task",
      { n: 2 },
      { key: "joined", webhook: `${webhook}/second`, tx: joiner },
    );
    expect(second).toEqual({ id, existing: true });
    await client.query("set statement_timeout = '5s'");
    await settle(id, "completed", {});
    await client.query("set statement_timeout = 0");
    await joiner.query("commit");
    const one = sender();
    await one.flush();
    expect((await receiver.gets(2)).map(({ path }) => path).sort()).toEqual(["/first", "/second"]);
    expect(await q("select from stillwake.webhook_joins")).toEqual([]);
  });
});

describe("a receiver that sends Retry-After", () => {
  it("is not called before that time, even if a concurrent delivery succeeds", async () => {
    await stillwake.webhooks.set("asking", { url: "https://asking.example.com/" });
    for (let n = 0; n < 3; n++) await ended("completed", { webhook: { endpoint: "asking" } });
    const claim = () => q("select id, epoch from stillwake.claim_webhooks('me', 10) where endpoint = 'asking'");
    const [first, second, third] = await claim();
    const settled = (records: object[]) => settleWebhooks(stillwake.database, records as never);
    await settled([{ id: first.id, epoch: first.epoch, sender: "me", status: 429, retry_after: 3600 }]);
    await settled([{ id: second.id, epoch: second.epoch, sender: "me", status: 204 }]);
    await settled([{ id: third.id, epoch: third.epoch, sender: "me", status: 500 }]);
    await travel(client, "10m");
    expect(await claim()).toEqual([]);
    await travel(client, "1h");
    expect(await claim()).toHaveLength(2);
  });
});

describe("secrets", () => {
  it("are distinguished as old and new although the clock was set back", async () => {
    await stillwake.webhooks.set("turning", { url: "https://turning.example.com/" });
    const secrets: string[] = [];
    for (const back of ["-2h", "1s", "1s"] as const) {
      secrets.push((await q("select stillwake.rotate_secret('turning') as secret"))[0].secret);
      await travel(client, back);
    }
    await travel(client, "2h");
    const kept = await q("select secret from stillwake.endpoint_secrets where endpoint = 'turning'");
    expect(kept.map(({ secret }) => secret).sort()).toEqual(secrets.slice(1).sort());
  });
});

describe("a thin body", () => {
  it("contains no text of the job's code, not even as a failure code", async () => {
    const { id } = await stillwake.enqueue("task", { n: 1 }, { webhook: "https://example.com/hook" });
    const [job] = await q("select * from stillwake.claim('test', 'default', '{task}', 1)");
    await q("select stillwake.fail($1, $2, $3, $4, true)", [
      id,
      job.epoch,
      job.lease_id,
      JSON.stringify({ code: "password=hunter2" }),
    ]);
    const [row] = await q("select body from stillwake.webhooks where job_id = $1", [id]);
    expect(JSON.parse(row.body).data).toMatchObject({ state: "failed", code: null });
  });
});

describe("a sender", () => {
  it("is not stopped by an error in onSent", async () => {
    const receiver = await startReceiver();
    const errors: unknown[] = [];
    await ended("completed", { webhook: receiver.url });
    const one = sender({
      onSent: () => {
        throw new Error("no");
      },
      onError: (error) => errors.push(error),
    });
    await one.flush(10_000);
    expect(receiver.received).toHaveLength(1);
    expect(errors).toHaveLength(1);
  });
});

describe("old webhooks", () => {
  it("are deleted: delivered ones after 7 days, failed ones after 30, pending ones never", async () => {
    const hooks = async () =>
      await q(
        "select state, count(*)::int as n from stillwake.webhooks where job_id = any ($1) group by 1 order by 1",
        [jobs],
      );
    const jobs = [
      await ended("completed", { webhook: "https://d.example/" }),
      await ended("completed", { webhook: "https://f.example/" }),
      await ended("completed", { webhook: "https://p.example/" }),
    ];
    const set = (job: string, state: string) =>
      q("update stillwake.webhooks set state = $2, ended_at = stillwake.now(), sender = null where job_id = $1", [
        job,
        state,
      ]);
    await set(jobs[0]!, "delivered");
    await set(jobs[1]!, "failed");
    await travel(client, "6d");
    await q("select stillwake.watchdog()");
    expect(await hooks()).toEqual([
      { state: "delivered", n: 1 },
      { state: "failed", n: 1 },
      { state: "pending", n: 1 },
    ]);
    await travel(client, "2d");
    await q("select stillwake.watchdog()");
    expect(await hooks()).toEqual([
      { state: "failed", n: 1 },
      { state: "pending", n: 1 },
    ]);
    await travel(client, "23d");
    await q("select stillwake.watchdog()");
    expect(await hooks()).toEqual([{ state: "pending", n: 1 }]);
  });
});
