// The fence: an attempt that lost its job writes nothing, however it was lost and whatever the write.
import { afterAll, describe, expect, it } from "vitest";
import { travel } from "../../src/testing/index.ts";
import {
  claim,
  connect,
  dump,
  enqueue,
  first,
  type HeldJob,
  outcomes,
  prepareJobs,
  readJob,
  settle,
  writes,
} from "../model/actors.ts";
import { violations } from "../model/invariants.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";

const database = await freshDatabase();
const client = await connect(database.url);
const { startJob, take, letLeaseRunOut } = await prepareJobs(client);

/** The ways to lose a job, and the settlements that then repeat how the attempt had ended and return that state. */
const ways: Record<
  string,
  { lose(held: HeldJob): Promise<unknown>; pipeline?: string; told?: Record<string, string> }
> = {
  "it was recovered and waits": {
    async lose() {
      await letLeaseRunOut();
      expect(await first(client, "select stillwake.recover()", [])).toBe(1);
    },
    told: { lost: "queued" },
  },
  "it was recovered and runs elsewhere": {
    async lose() {
      await letLeaseRunOut();
      await take("w2");
    },
    told: { lost: "running" },
  },
  "it was recovered and completed elsewhere": {
    async lose() {
      await letLeaseRunOut();
      expect(await settle(client, await take("w2"), outcomes.completed)).toBe("completed");
    },
    told: { lost: "queued" },
  },
  "it slept and runs elsewhere": {
    async lose(held) {
      await settle(client, held, { outcome: "slept", for: "0 seconds" });
      await take("w2");
    },
    told: { slept: "running" },
  },
  "it was released and the same worker claimed it again": {
    async lose(held) {
      await settle(client, held, outcomes.released);
      await take("w1");
    },
    told: { released: "running" },
  },
  "it failed and waits for its retry": {
    lose: (held) => settle(client, held, outcomes.failed),
    told: { failed: "queued", "failed for good": "queued" },
  },
  "it was cancelled and its worker never reported again": {
    async lose({ job }) {
      await client.query("select stillwake.cancel($1)", [job]);
      await letLeaseRunOut();
      await client.query("select stillwake.recover()");
      expect((await readJob(client, job)).state).toBe("cancelled");
    },
    told: { lost: "cancelled" },
  },
  "it was poisoned": {
    pipeline: "frail",
    async lose({ job }) {
      await letLeaseRunOut();
      await client.query("select stillwake.recover()");
      expect((await readJob(client, job)).failure.code).toBe("POISONED");
    },
    told: { lost: "failed" },
  },
  "it failed for good and was retried": {
    async lose(held) {
      await settle(client, held, outcomes["failed for good"]);
      await client.query("select stillwake.retry($1)", [held.job]);
      await take("w2");
    },
    told: { failed: "running", "failed for good": "running" },
  },
  "it was completed while another job of its lease goes on": {
    async lose(held) {
      await settle(client, held, outcomes.released);
      await enqueue(client, "sturdy");
      const pair = await claim(client, "w1", ["sturdy"], { limit: 2 });
      expect(new Set(pair.map(({ lease }) => lease)).size).toBe(1);
      Object.assign(held, pair[0]);
      await settle(client, held, outcomes.completed);
    },
    told: { completed: "completed" },
  },
};

describe("a settlement without a lease", () => {
  it("is refused, also for a job that never ran", async () => {
    await startJob();
    const waiting = await enqueue(client, "sturdy");
    const before = await dump(client);
    const text = "select stillwake.complete($1, 0, null, '{}')";
    expect(await first(client, text, [waiting])).toBe("SW001");
    const nothing = JSON.stringify([{ job: waiting, outcome: "completed" }]);
    expect(await first(client, "select * from stillwake.settle($1)", [nothing])).toBe("SW001");
    expect(await dump(client)).toEqual(before);
  });

  it('returns "lost" when it names another lease than the one the job ended under', async () => {
    const held = await startJob();
    await settle(client, held, outcomes.completed);
    const stranger = { ...held, lease: "00000000-0000-4000-8000-000000000001" };
    expect(await settle(client, stranger, outcomes.completed)).toBe("lost");
  });
});

describe("a worker that lost its job", () => {
  let refusals = 0;
  afterAll(() =>
    recordFigure(
      "lease: writes of lost attempts refused",
      refusals,
      "",
      `${Object.keys(ways).length} ways to lose a job`,
    ),
  );

  it.each(Object.entries(ways))("is refused and changes nothing with any write, because %s", async (_, way) => {
    const held = await startJob(way.pipeline);
    await way.lose(held);
    const before = await dump(client);
    for (const [name, write] of Object.entries(writes)) {
      expect(await write.send(client, held), name).toBe(write.refused);
      expect(await dump(client), name).toEqual(before);
    }
    for (const [name, outcome] of Object.entries(outcomes)) {
      expect(await settle(client, held, outcome), name).toBe(way.told?.[name] ?? "lost");
      expect(await dump(client), name).toEqual(before);
    }
    refusals += Object.keys(writes).length + Object.keys(outcomes).length - Object.keys(way.told ?? {}).length;
    expect(await violations(client)).toEqual([]);
  });

  it("is refused by the functions for one attempt with SW005", async () => {
    const { job, epoch, lease } = await startJob();
    await letLeaseRunOut();
    await take("w2");
    const before = await dump(client);
    expect(await first(client, "select stillwake.complete($1, $2, $3)", [job, epoch, lease])).toBe("SW005");
    expect(await first(client, "select stillwake.fail($1, $2, $3, '{}')", [job, epoch, lease])).toBe("SW005");
    expect(await first(client, "select stillwake.release($1, $2, $3)", [job, epoch, lease])).toBe("SW005");
    expect(await dump(client)).toEqual(before);
  });

  it("is listed in `refused` when it settles and claims in one call", async () => {
    const held = await startJob();
    await letLeaseRunOut();
    await take("w2");
    const { rows } = await client.query(
      "select job_id, refused from stillwake.settle_and_claim($1, 'w1', 'default', '{sturdy}', 1, '10s')",
      [JSON.stringify([{ ...held, ...outcomes.completed }])],
    );
    expect(rows).toEqual([{ job_id: null, refused: [held.job] }]);
  });

  it("is not accepted by the attempt's number: claim(w2), sleep(w2), claim(w1), complete(w2) is refused", async () => {
    await startJob();
    await letLeaseRunOut();
    const stale = await take("w2");
    await settle(client, stale, { outcome: "slept", for: "0 seconds" });
    const current = await take("w1");
    const job = await readJob(client, stale.job);
    const attempts = await client.query(
      "select attempt from stillwake.attempts where job_id = $1 and epoch = any ($2)",
      [stale.job, [stale.epoch, current.epoch]],
    );
    expect(attempts.rows.map((row) => row.attempt)).toEqual([job.attempt, job.attempt]);
    expect(await settle(client, stale, outcomes.completed)).toBe("lost");
    expect(await settle(client, current, outcomes.completed)).toBe("completed");
  });

  it.each(["epoch", "lease"] as const)(
    "is not accepted with a handle that is right except for its %s",
    async (part) => {
      const held = await startJob();
      const forged = { ...held, [part]: part === "epoch" ? "0" : "00000000-0000-4000-8000-000000000000" };
      const before = await dump(client);
      for (const write of Object.values(writes)) expect(await write.send(client, forged)).toBe(write.refused);
      for (const outcome of Object.values(outcomes)) expect(await settle(client, forged, outcome)).toBe("lost");
      expect(await dump(client)).toEqual(before);
    },
  );
});

describe("a worker that is late but was not replaced", () => {
  it("may still write and complete: only the epoch decides, not the time", async () => {
    const held = await startJob();
    await travel(client, "2h");
    for (const [name, write] of Object.entries(writes)) {
      if (name !== "heartbeat") expect(await write.send(client, held), name).not.toBe(write.refused);
    }
    expect(await settle(client, held, outcomes.completed)).toBe("completed");
  });

  it("keeps its lease by a heartbeat, and the next recovery skips it", async () => {
    const held = await startJob();
    await letLeaseRunOut();
    expect(await writes.heartbeat!.send(client, held)).toBeUndefined();
    expect(await first(client, "select stillwake.recover()", [])).toBe(0);
    expect((await readJob(client, held.job)).state).toBe("running");
  });

  it("learns of a cancel request from its next heartbeat", async () => {
    const held = await startJob();
    await client.query("select stillwake.pause($1)", [held.job]);
    expect(await writes.heartbeat!.send(client, held)).toBe("pause");
    await client.query("select stillwake.cancel($1)", [held.job]);
    expect((await readJob(client, held.job)).state).toBe("running");
    expect(await writes.heartbeat!.send(client, held)).toBe("cancel");
    expect(await settle(client, held, outcomes.released)).toBe("cancelled");
  });
});

describe("a settlement whose response was lost", () => {
  it.each(Object.entries(outcomes))(
    "returns the same state when it is repeated, and is written once: %s",
    async (_, outcome) => {
      for (const asked of [false, true]) {
        const held = await startJob();
        if (asked) await client.query("select stillwake.cancel($1)", [held.job]);
        const answer = await settle(client, held, outcome);
        const before = await dump(client);
        expect(await settle(client, held, outcome)).toBe(answer);
        expect(await dump(client)).toEqual(before);
      }
    },
  );
});
