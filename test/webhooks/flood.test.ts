// Many jobs end at once and a third of the deliveries fail: all webhooks arrive, and a healthy receiver does not wait.
import { beforeAll, expect, it, onTestFinished } from "vitest";
import { pipeline } from "../../src/index.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import { createSender } from "../../src/worker/index.ts";
import { connectedDatabase } from "../support/database/connections.ts";
import { ALLOW_LOCALHOST, respondWith, startReceiver } from "../support/fakes/webhook-receiver.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL, recordTimes, round } from "../support/processes/fault-checks.ts";

const { database, stillwake, client } = await connectedDatabase();
const COUNT = FULL ? 100_000 : 3000;
const HEALTHY = COUNT / 100;

beforeAll(() => stillwake.register(pipeline("task")));

it(`${COUNT} webhooks, 30 % of the deliveries fail: none is lost`, async () => {
  // Nine receivers fail three of ten deliveries, at most six times for one webhook; one healthy receiver gets few webhooks.
  let deliveryCount = 0;
  const deliveries = new Map<string, number>();
  const failing = await Promise.all(
    Array.from({ length: 9 }, () =>
      startReceiver((request, response) => {
        const before = deliveries.get(request.id) ?? 0;
        deliveries.set(request.id, before + 1);
        respondWith(deliveryCount++ % 10 < 3 && before < 6 ? 500 : 204)(request, response);
      }),
    ),
  );
  const healthy = await startReceiver();
  const receivers = [...failing, healthy];
  for (const [index, { url }] of receivers.entries()) await stillwake.webhooks.set(`e${index}`, { url });
  for (let round = 0; round < 10; round++) {
    for (const [index, receiver] of receivers.entries()) {
      const count = (receiver === healthy ? HEALTHY : (COUNT - HEALTHY) / 9) / 10;
      await stillwake.enqueueMany("task", Array(count).fill({}), { webhook: { endpoint: `e${index}` } });
    }
  }
  const senders = ["one", "two"].map((name) => createSender({ url: database.url, name, ...ALLOW_LOCALHOST }));
  onTestFinished(async () => void (await Promise.all(senders.map((sender) => sender.stop()))));

  const startedAt = performance.now();
  const endedAt = new Map<string, number>();
  for (;;) {
    const { rows } = await client.query("select * from stillwake.claim('flood', 'default', '{task}', 500)");
    if (rows.length === 0) break;
    const settlements = rows.map(({ job_id, epoch, lease_id }) => ({
      job: job_id,
      epoch,
      lease: lease_id,
      outcome: "completed",
      output: 1,
    }));
    await client.query("select stillwake.settle($1)", [JSON.stringify(settlements)]);
    const now = performance.now();
    for (const { job_id } of rows) endedAt.set(job_id, now);
    for (const sender of senders) sender.poke();
  }
  await waitFor(() => healthy.received.length >= HEALTHY, {
    timeout: 1_200_000,
    interval: 50,
    what: "the healthy receiver to get its webhooks",
  });
  const healthyMs = performance.now() - startedAt;
  await waitFor(
    async () => {
      const { rows } = await client.query(
        `select count(*)::int as n, count(sender)::int as sending, count(*) filter (where next_at <= stillwake.now())::int as due,
          ceil(extract(epoch from max(next_at) - stillwake.now()))::int as wait
        from stillwake.webhooks where state = 'pending'`,
      );
      const { n, sending, due, wait } = rows[0];
      // Skips the wait of failed webhooks.
      if (n > 0 && sending === 0 && due === 0) await travel(client, `${wait}s`);
      for (const sender of senders) sender.poke();
      return n === 0;
    },
    { timeout: 2_400_000, interval: 200, what: "everything to be delivered or to have failed" },
  );

  const allMs = performance.now() - startedAt;
  const arrived = new Set(receivers.flatMap(({ received }) => received.map(({ body }) => JSON.parse(body).data.id)));
  const { rows } = await client.query(
    "select state, count(*)::int as n, max(attempts) as deliveries from stillwake.webhooks group by 1",
  );
  const lost = COUNT - arrived.size;
  recordFigure("webhooks: completions", COUNT);
  recordFigure("webhooks: lost", lost, "", `${COUNT} completions, 30 % of the deliveries fail`);
  recordTimes(
    "webhooks: a healthy endpoint in the flood",
    healthy.received.map(({ body, at }) => at - endedAt.get(JSON.parse(body).data.id)!),
  );
  const sum = receivers.reduce((sum, { received }) => sum + received.length, 0);
  recordFigure("webhooks: deliveries", sum, "", `most for one webhook: ${rows[0].deliveries}`);
  recordFigure(
    "webhooks: deliveries per second",
    round(sum / (allMs / 1000)),
    "",
    "two senders and ten receivers in one process",
  );
  recordFigure(
    "webhooks: time until a healthy endpoint has all of its webhooks",
    round(healthyMs / 1000),
    "s",
    `${HEALTHY} of ${COUNT}`,
  );
  expect(lost).toBe(0);
  expect(rows).toEqual([{ state: "delivered", n: COUNT, deliveries: expect.any(Number) }]);
}, 3_600_000);
