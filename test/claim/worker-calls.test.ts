// The functions that workers call, as SQL.
import { beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { startClock, stopClock, travel } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";

const database = await freshDatabase();
const client = await connect(database.url);
await client.query(
  `select stillwake.register_pipeline('scan', '{"pool": "scan", "crash_limit": 100, "max_attempts": 100}')`,
);
// For the clock of this file the restart of Postgres is long past.
await travel(database.url, "1h");

interface Held {
  job_id: string;
  epoch: string;
  lease_id: string;
  version: number | null;
}
let held: Held;

beforeEach(async () => {
  await client.query("delete from stillwake.live_jobs; delete from stillwake.leases");
  await client.query("select stillwake.enqueue('scan')");
  held = (await claim("w1"))!;
});

describe("append_logs", () => {
  const lines = (batch: number, ...messages: string[]) =>
    one("select last_seq from stillwake.append_logs($1)", [
      JSON.stringify([{ ...fence(), batch, lines: messages.map((message) => ({ message })) }]),
    ]);

  it("writes a batch that is sent again only once, and returns the same", async () => {
    expect(await lines(1, "a", "b")).toBe("2");
    expect(await lines(1, "a", "b")).toBe("2");
    expect(await lines(2, "c")).toBe("3");
    expect(await lines(1, "a", "b")).toBe("3");
    expect(await messages()).toEqual(["a", "b", "c"]);
  });

  it("restarts with the batch numbers of the next attempt", async () => {
    await lines(7, "first attempt");
    await settle({ outcome: "released" });
    held = (await claim("w2"))!;
    await lines(1, "second attempt");
    expect(await messages()).toEqual(["first attempt", "second attempt"]);
  });

  it("sets the progress too, and refuses it with the lines of a replaced attempt", async () => {
    const progress = { fraction: 0.5, sentence: "half" };
    const batch = { ...fence(), batch: 1, lines: [], progress };
    await client.query("select stillwake.append_logs($1)", [JSON.stringify([batch])]);
    expect(await one("select progress from stillwake.jobs where id = $1", [held.job_id])).toMatchObject(progress);
    const stale = { ...batch, epoch: 99, batch: 2, progress: { fraction: 1 } };
    expect(await one("select last_seq from stillwake.append_logs($1)", [JSON.stringify([stale])])).toBeNull();
    expect(await one("select progress ->> 'fraction' from stillwake.jobs where id = $1", [held.job_id])).toBe("0.5");
  });
});

describe("presence", () => {
  const absent = (worker = "w2") =>
    client.query("select recovered, watched from stillwake.recover_absent($1)", [worker]).then(({ rows }) => rows[0]);
  const heartbeat = (presence: string | null) =>
    client.query("select * from stillwake.heartbeat($1, $2, $3, $4)", [
      [held.job_id],
      [held.epoch],
      [held.lease_id],
      presence,
    ]);

  it("a worker whose session is alive is left alone", async () => {
    const session = await connect(database.url);
    await session.query("select stillwake.hold_presence(4711)");
    await heartbeat("4711");
    expect(await absent()).toEqual({ recovered: 0, watched: 1 });
    await travel(database.url, "5s");
    expect(await absent()).toEqual({ recovered: 0, watched: 1 });
  });

  it("a session that is gone gives its worker a grace period, then its jobs are requeued at their old position", async () => {
    await stopClock(database.url);
    onTestFinished(() => startClock(database.url));
    await heartbeat("4712");
    expect(await absent()).toEqual({ recovered: 0, watched: 1 });
    await travel(database.url, "300ms");
    expect(await absent()).toEqual({ recovered: 0, watched: 1 });
    await travel(database.url, "200ms");
    expect(await absent()).toEqual({ recovered: 1, watched: 1 });
    const job = (await client.query("select state, crashes from stillwake.jobs where id = $1", [held.job_id])).rows[0];
    expect(job).toEqual({ state: "queued", crashes: 1 });
  });

  it("a worker that heartbeats within the grace period, with a new session or without one, is not dead", async () => {
    await heartbeat("4713");
    await absent();
    await heartbeat("4714");
    await travel(database.url, "5s");
    expect(await absent()).toEqual({ recovered: 0, watched: 1 });
    await heartbeat(null);
    await travel(database.url, "5s");
    expect(await absent()).toEqual({ recovered: 0, watched: 0 });
  });

  it("a worker does not watch itself", async () => {
    await heartbeat("4715");
    expect(await absent("w1")).toEqual({ recovered: 0, watched: 0 });
  });

  it("after an outage of Postgres no worker counts as gone before the length of a lease", async () => {
    await travel(database.url, "-1h");
    try {
      await heartbeat("4716");
      await client.query("update stillwake.leases set span = '1 day'");
      await absent();
      await travel(database.url, "5s");
      expect(await absent()).toEqual({ recovered: 0, watched: 1 });
    } finally {
      await travel(database.url, "1h");
    }
  });
});

describe("versions", () => {
  const claimAs = (version: number, oldest = 1) =>
    client
      .query("select * from stillwake.claim('w', 'scan', '{other,scan}', 1, '15 seconds', null, null, $1, $2)", [
        [9, version],
        [1, oldest],
      ])
      .then(({ rows }) => rows[0] as Held | undefined);
  const due = (version: number, oldest = 1) =>
    one("select stillwake.next_due('{scan}', '{other,scan}', $1, $2) is not null", [
      [9, version],
      [1, oldest],
    ]);

  beforeEach(async () => {
    await settle({ outcome: "released" });
    held = (await claimAs(2))!;
    expect(held.version).toBe(2);
    await settle({ outcome: "released" });
  });

  it("a job is not claimed by code older than the code that started it, and does not wake it", async () => {
    expect(await due(1)).toBe(false);
    expect(await claimAs(1)).toBeUndefined();
    expect(await due(2)).toBe(true);
    expect(await claimAs(2)).toMatchObject({ job_id: held.job_id, version: 2 });
  });

  it("newer code claims it, with the version that started it, unless its p_oldest excludes it", async () => {
    expect(await due(3, 3)).toBe(false);
    expect(await claimAs(3, 3)).toBeUndefined();
    expect(await claimAs(3)).toMatchObject({ job_id: held.job_id, version: 2 });
  });

  it("a worker without versions claims any", async () => {
    expect(await claim("psql")).toMatchObject({ job_id: held.job_id });
  });

  it("is adopted with its checkpoints or without them, once, with an event", async () => {
    held = (await claimAs(3))!;
    await saveStep("clone");
    const adopt = (restart: boolean) =>
      client.query("select stillwake.adopt($1, $2, $3, 3, $4)", [held.job_id, held.epoch, held.lease_id, restart]);
    await adopt(true);
    await adopt(true);
    expect(await one("select count(*) from stillwake.checkpoints where job_id = $1", [held.job_id])).toBe("0");
    const events = await client.query(
      "select kind, data from stillwake.events where job_id = $1 and kind = 'restarted'",
      [held.job_id],
    );
    expect(events.rows).toEqual([{ kind: "restarted", data: { from: 2, to: 3 } }]);
    expect(await one("select version from stillwake.jobs where id = $1", [held.job_id])).toBe(3);
  });
});

describe("a replaced attempt", () => {
  beforeEach(async () => {
    await settle({ outcome: "released" });
    await claim("w2");
  });

  it.each([
    ["adopt", "select stillwake.adopt($1, $2, $3, 2, true)"],
    ["save_artifact", `select stillwake.save_artifact($1, $2, $3, 'a', 1, '${"0".repeat(64)}', 'text/plain', 'k')`],
    ["load_artifacts", "select stillwake.load_artifacts($1, $2, $3)"],
    ["save_checkpoint", "select stillwake.save_checkpoint($1, $2, $3, 'clone')"],
  ])("is refused by %s", async (_, text) => {
    await expect(client.query(text, [held.job_id, held.epoch, held.lease_id])).rejects.toMatchObject({ code: "SW005" });
    expect(await one("select count(*) from stillwake.artifacts")).toBe("0");
  });
});

describe("save_checkpoints", () => {
  it("keeps the first of two results of one step in one call, also if the step was saved before", async () => {
    const save = async (...outputs: number[]) => {
      const calls = outputs.map((output) => ({ ...fence(), step: "s", output }));
      const { rows } = await client.query("select result from stillwake.save_checkpoints($1)", [JSON.stringify(calls)]);
      return rows.map(({ result }) => result);
    };
    expect(await save(1, 2)).toEqual(["saved", "saved"]);
    expect(await save(3, 4)).toEqual(["kept", "kept"]);
    expect(await one("select output from stillwake.checkpoints where job_id = $1", [held.job_id])).toBe(1);
  });

  describe("with log lines", () => {
    const save = (epoch: string, lines: object[]) => {
      const { job, lease } = fence();
      return one("select result from stillwake.save_checkpoints($1, $2, $3, $4, $5, $6, p_lines => $7)", [
        [job],
        [epoch],
        [lease],
        ["s"],
        ["1"],
        [5],
        JSON.stringify([{ job, epoch, lease, batch: 1, lines }]),
      ]);
    };
    const steps = () => one("select count(*)::int from stillwake.checkpoints where job_id = $1", [held.job_id]);

    it("stores them once, also when the call is repeated after its response was lost", async () => {
      expect(await save(held.epoch, [{ message: "a", step: "s" }])).toBe("saved");
      expect(await save(held.epoch, [{ message: "a", step: "s" }])).toBe("kept");
      expect(await messages()).toEqual(["a"]);
    });

    it("refuses both from a replaced attempt", async () => {
      expect(await save("99", [{ message: "a" }])).toBe("lost");
      expect([await steps(), await messages()]).toEqual([0, []]);
    });

    it("stores neither when one of the lines is invalid", async () => {
      await expect(save(held.epoch, [{ message: "a" }, { level: "loud" }])).rejects.toMatchObject({ code: "SW001" });
      expect([await steps(), await messages()]).toEqual([0, []]);
    });
  });
});

describe("save_checkpoint", () => {
  it("commits and rolls back with the transaction it is called in", async () => {
    await client.query("begin");
    await saveStep("clone");
    await client.query("rollback");
    expect(await one("select count(*) from stillwake.checkpoints where job_id = $1", [held.job_id])).toBe("0");
  });

  it("refuses a step that was saved, so that its work is not done twice", async () => {
    await saveStep("clone");
    await expect(saveStep("clone")).rejects.toMatchObject({ code: "SW006" });
  });
});

describe("settle", () => {
  it("saves the step a job sleeps in together with the sleep", async () => {
    await settle({ outcome: "slept", for: "1 hour", step: "overnight" });
    expect(await one("select step from stillwake.checkpoints where job_id = $1", [held.job_id])).toBe("overnight");
    expect(await one("select waiting_for from stillwake.jobs where id = $1", [held.job_id])).toBe("time");
  });

  it("names the event of a release by its reason", async () => {
    await settle({ outcome: "released", reason: "aborted:shutdown" });
    expect(await one("select kind from stillwake.events where job_id = $1", [held.job_id])).toBe("aborted:shutdown");
    expect(await one("select attempt from stillwake.jobs where id = $1", [held.job_id])).toBe(0);
  });
});

it("an artifact stored again replaces its row, and is deleted when the job is retried from the start", async () => {
  const save = (digit: string) =>
    client.query("select stillwake.save_artifact($1, $2, $3, 'report', 5, $4, 'text/plain', $5)", [
      held.job_id,
      held.epoch,
      held.lease_id,
      digit.repeat(64),
      `key-${digit}`,
    ]);
  await save("a");
  await save("b");
  expect(await one("select key from stillwake.artifacts where job_id = $1", [held.job_id])).toBe("key-b");
  await settle({ outcome: "failed", fatal: true, failure: {} });
  await client.query("select stillwake.retry($1, true)", [held.job_id]);
  expect(await one("select count(*) from stillwake.artifacts where job_id = $1", [held.job_id])).toBe("0");
});

it("a cancel hints the worker that runs the job, if it listens", async () => {
  const session = await connect(database.url);
  const told = new Promise((resolve) => session.on("notification", ({ payload }) => resolve(payload)));
  await session.query('listen "stillwake.hint"');
  await client.query("select stillwake.listen('w1', 'scan')");
  await client.query("select stillwake.cancel($1)", [held.job_id]);
  expect(await told).toBe("@w1");
});

function fence() {
  return { job: held.job_id, epoch: held.epoch, lease: held.lease_id };
}

async function one(text: string, values: unknown[] = []): Promise<unknown> {
  const { rows } = await client.query(text, values);
  return Object.values(rows[0] ?? {})[0];
}

async function claim(worker: string): Promise<Held | undefined> {
  return (await client.query("select * from stillwake.claim($1, 'scan', '{scan}')", [worker])).rows[0];
}

async function settle(settlement: Record<string, unknown>): Promise<void> {
  await client.query("select stillwake.settle($1)", [JSON.stringify([{ ...fence(), ...settlement }])]);
}

function saveStep(step: string) {
  return client.query("select stillwake.save_checkpoint($1, $2, $3, $4)", [
    held.job_id,
    held.epoch,
    held.lease_id,
    step,
  ]);
}

async function messages(): Promise<string[]> {
  const { rows } = await client.query("select message from stillwake.logs where job_id = $1 order by seq", [
    held.job_id,
  ]);
  return rows.map(({ message }) => message);
}
