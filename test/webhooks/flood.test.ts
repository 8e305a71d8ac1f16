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
const WELL = COUNT / 100;

beforeAll(() => stillwake.register(pipeline("task")));

it(`${COUNT} webhooks, 30 % of the deliveries fail: none is lost`, async () => {
  // Nine receivers fail three of ten deliveries, at most six times for one webhook; one healthy receiver gets few webhooks.
  let turn = 0;
  const tries = new Map<string, number>();
  const poor = await Promise.all(
    Array.from({ length: 9 }, () =>
      startReceiver((one, response) => {
        const before = tries.get(one.id) ?? 0;
        tries.set(one.id, before + 1);
        respondWith(turn++ % 10 < 3 && before < 6 ? 500 : 204)(one, response);
      }),
    ),
  );
  const well = await startReceiver();
  const receivers = [...poor, well];
  for (const [place, { url }] of receivers.entries()) await stillwake.webhooks.set(`e${place}`, { url });
  for (let round = 0; round < 10; round++) {
    for (const [place, receiver] of receivers.entries()) {
      const count = (receiver === well ? WELL : (COUNT - WELL) / 9) / 10;
      await stillwake.enqueueMany("task", Array(count).fill({}), { webhook: { endpoint: `e${place}` } });
    }
  }
  const senders = ["one", "two"].map((name) => createSender({ url: database.url, name, ...ALLOW_LOCALHOST }));
  onTestFinished(async () => void (await Promise.all(senders.map((one) => one.stop()))));

  const began = performance.now();
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
    for (const one of senders) one.poke();
  }
  await waitFor(() => well.received.length >= WELL, {
    timeout: 1_200_000,
    interval: 50,
    what: "the healthy receiver to get its webhooks",
  });
  const healthyMs = performance.now() - began;
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
      for (const one of senders) one.poke();
      return n === 0;
    },
    { timeout: 2_400_000, interval: 200, what: "everything to be delivered or to have failed" },
  );

  const allMs = performance.now() - began;
  const arrived = new Set(receivers.flatMap(({ received }) => received.map(({ body }) => JSON.parse(body).data.id)));
  const { rows } = await client.query(
    "select state, count(*)::int as n, max(attempts) as tries from stillwake.webhooks group by 1",
  );
  const lost = COUNT - arrived.size;
  recordFigure("webhooks: completions", COUNT);
  recordFigure("webhooks: lost", lost, "", `${COUNT} completions, 30 % of tries fail`);
  recordTimes(
    "webhooks: a healthy endpoint in the flood",
    well.received.map(({ body, at }) => at - endedAt.get(JSON.parse(body).data.id)!),
  );
  const sum = receivers.reduce((sum, { received }) => sum + received.length, 0);
  recordFigure("webhooks: tries", sum, "", `most for one: ${rows[0].tries}`);
  recordFigure(
    "webhooks: deliveries per second",
    round(sum / (allMs / 1000)),
    "",
    "two senders and ten receivers in one process",
  );
  recordFigure("webhooks: all of a healthy endpoint", round(healthyMs / 1000), "s", `${WELL} of ${COUNT}`);
  expect(lost).toBe(0);
  expect(rows).toEqual([{ state: "delivered", n: COUNT, tries: expect.any(Number) }]);
}, 3_600_000);
