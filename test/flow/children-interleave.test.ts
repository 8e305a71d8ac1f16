// Fan-out and events under real concurrency: two and three transactions on one parent, in every order of their steps. In every order no job
// waits for something that is over, the counts match the children, and no child of a failed or cancelled parent continues.
import { afterAll, describe, expect, it } from "vitest";
import { stopClock, travel } from "../../src/testing/index.ts";
import { connect, type HeldJob } from "../model/actors.ts";
import { TABLES } from "../model/children/engine.ts";
import { longWorkViolations } from "../model/children/invariants.ts";
import {
  claimChild,
  claimParent,
  complete,
  controlJob,
  type Family,
  type FamilyOptions,
  fail,
  lose,
  makeFamily,
  settle,
  settlement,
  signalParent,
  spawnChildren,
  wait,
} from "../model/children/setups.ts";
import { Interleaver, ordersOf, type Statement } from "../model/interleave.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";

const database = await freshDatabase();
const client = await connect(database.url);
await client.query(`alter database ${database.name} set deadlock_timeout = '30ms'`);
await client.query(`set synchronous_commit = off;
  select stillwake.register_pipeline('parent', '{"max_attempts": 1}');
  select stillwake.register_pipeline('child', '{"max_attempts": 1, "crash_limit": 1}')`);
await stopClock(client);
const interleaver = await Interleaver.open(database.url, 3);
await client.query(`create schema saved;
  ${TABLES.map((table) => `create table saved.${table} (like stillwake.${table});`).join("\n")}
  create function saved.restore() returns void language plpgsql as $$ begin
  ${TABLES.map((table) => `delete from stillwake.${table}; insert into stillwake.${table} select * from saved.${table};`).join("\n")}
  end $$`);

let explored = 0;
let waits = 0;
let deadlocks = 0;

async function save<Cast>(make: () => Promise<Cast>): Promise<Cast> {
  await client.query(TABLES.map((table) => `delete from stillwake.${table}`).join(";"));
  const setup = await make();
  await client.query(
    TABLES.map((table) => `delete from saved.${table}; insert into saved.${table} table stillwake.${table}`).join(";"),
  );
  return setup;
}

/** Deadlocks are retried, as src/db/database.ts does; no other error is allowed. */
async function everyOrder(
  actors: Statement[][],
  {
    deadlock = false,
    orphans = true,
    after,
  }: { deadlock?: boolean; orphans?: boolean; after?: () => Promise<void> } = {},
) {
  await client.query(`vacuum ${TABLES.map((table) => `stillwake.${table}`).join(", ")}`);
  for (const order of ordersOf(actors.map((statements) => statements.length + 1))) {
    await client.query("select saved.restore()");
    // BEGIN is sent with the first statement, because alone it does not affect others.
    const steps = order.flatMap((actor, step) => (order.indexOf(actor) === step ? [actor, actor] : [actor]));
    const scripts = actors.map((statements) => [{ text: "begin" }, ...statements, { text: "commit" }]);
    const played = await interleaver.run(scripts, steps);
    const story = `order ${order}: ${JSON.stringify(played.results)}`;
    for (const [actor, answers] of played.results.entries()) {
      const errors = answers.filter((response) => typeof response === "string" && !response.startsWith("SW"));
      if (errors.length === 0) continue;
      expect(deadlock && errors[0] === "40P01", story).toBe(true);
      deadlocks += 1;
      for (const { text, values } of actors[actor]!) await client.query(text, values);
    }
    expect(await longWorkViolations(client, orphans), story).toEqual([]);
    await after?.();
    explored += 1;
    waits += played.waits;
  }
}

const family = (options: FamilyOptions): Promise<Family> => save(() => makeFamily(client, options));
const stateOf = async (id: string) =>
  (await client.query("select state, waiting_for, run_at from stillwake.jobs where id = $1", [id])).rows[0];
/** Queued and claimable. */
const isDue = async (id: string) => {
  const { rows } = await client.query(
    "select state = 'queued' and run_at <= stillwake.now() as due from stillwake.live_jobs where id = $1",
    [id],
  );
  return rows[0]?.due as boolean;
};

describe("a parent that is about to wait while its last two children end", () => {
  const ends = { complete, fail, lose };
  const pairs = [
    ["complete", "complete"],
    ["complete", "fail"],
    ["fail", "fail"],
    ["lose", "complete"],
  ] as const;
  it.each(FULL ? pairs : pairs.slice(0, 2))("is queued or continues: %s, %s", async (item, second) => {
    const { parent, children } = await family({ total: 4, running: [0, 2] });
    await everyOrder([[wait(parent, "children")], [ends[item](children[0]!)], [ends[second](children[1]!)]], {
      after: async () => expect(await isDue(parent.job)).toBe(true),
    });
  });

  it("is queued by the first failed child, although the other continues", async () => {
    const { parent, children } = await family({ total: 3, running: [0, 1, 2], onError: "fail" });
    await everyOrder([[wait(parent, "children")], [complete(children[0]!)], [fail(children[1]!)]], {
      after: async () => expect(await isDue(parent.job)).toBe(true),
    });
  });

  it("is queued by the last part, if children of different parts end", async () => {
    const { parent, children } = await family({ total: 130, running: [5, 129] });
    await everyOrder([[wait(parent, "children")], [complete(children[0]!)], [complete(children[1]!)]], {
      after: async () => expect(await isDue(parent.job)).toBe(true),
    });
  });

  it("is queued if it waits and both parts end at the same time, with several children each", async () => {
    const { parent, children } = await family({ total: 130, running: [5, 6, 128, 129], waits: "children" });
    const [a, b, c, d] = children.map((held) => settlement(held, { outcome: "completed" }));
    await everyOrder([[settle(a!, c!)], [settle(d!, b!)]], {
      after: async () => expect(await isDue(parent.job)).toBe(true),
    });
  });
});

describe("a parent that waits for an event", () => {
  it("receives a signal sent while it goes to sleep, and one sent at its timeout", async () => {
    const { parent } = await family({ total: 0, running: [] });
    const until = (await client.query("select stillwake.now() + interval '1 second' as until")).rows[0].until;
    await everyOrder([[wait(parent, "event", { until })], [signalParent(parent.job)], [claimParent]], {
      after: async () => {
        const { state, waiting_for } = await stateOf(parent.job);
        expect([state, waiting_for]).toEqual([state === "running" ? "running" : "queued", null]);
      },
    });
  });

  it("is claimed once if it receives a signal at its timeout", async () => {
    const { parent } = await save(async () => {
      const created = await makeFamily(client, { total: 0, running: [] });
      const until = (await client.query("select stillwake.now() + interval '1 second' as until")).rows[0].until;
      const { text, values } = wait(created.parent, "event", { until });
      await client.query(text, values);
      return created;
    });
    await travel(client, "2s");
    await everyOrder([[signalParent(parent.job)], [claimParent], [claimParent]], {
      after: async () => {
        const { rows } = await client.query("select count(*)::integer as n from stillwake.leases");
        expect(rows[0].n).toBeLessThanOrEqual(1);
      },
    });
  });
});

describe("a parent that was paused while it waited", () => {
  it.each(["children", "event"] as const)(
    "and resumed keeps its queue position when it is queued (%s)",
    async (what) => {
      const { parent, children } = await family({ total: 1, running: [0], waits: what });
      const place = async () =>
        (await client.query("select run_at from stillwake.live_jobs where id = $1", [parent.job])).rows;
      for (const verb of ["pause", "resume"] as const) {
        const { text, values } = controlJob(verb, parent.job);
        await client.query(text, values);
      }
      const before = await place();
      await travel(client, "5s");
      const { text, values } = what === "children" ? complete(children[0]!) : signalParent(parent.job);
      await client.query(text, values);
      expect(await place()).toEqual(before);
      expect(await longWorkViolations(client, true)).toEqual([]);
    },
  );
});

describe("a parent that is cancelled", () => {
  it("while its last child ends and while it goes to sleep: no child continues, and it ends", async () => {
    const { parent, children } = await family({ total: 2, running: [1] });
    await everyOrder([[controlJob("cancel", parent.job)], [complete(children[0]!)], [wait(parent, "children")]], {
      deadlock: true,
      after: async () => expect(["cancelled", "running"]).toContain((await stateOf(parent.job)).state),
    });
  });

  it("while it waits and its last child ends", async () => {
    const { parent, children } = await family({ total: 2, running: [1], waits: "children" });
    await everyOrder([[controlJob("cancel", parent.job)], [complete(children[0]!)]], {
      deadlock: true,
      after: async () => expect((await stateOf(parent.job)).state).toBe("cancelled"),
    });
  });

  it.each(["parent waits", "parent runs"])(
    "while a child is being claimed: that child gets a stop request too (%s)",
    async (how) => {
      const { parent } = await family({
        total: 2,
        running: [],
        inLine: [0, 1],
        ...(how === "parent waits" && { waits: "children" }),
      });
      await everyOrder([[controlJob("cancel", parent.job)], [claimChild]], {
        deadlock: true,
        after: async () => {
          const { rows } = await client.query(
            "select count(*)::integer as n from stillwake.live_jobs where pipeline = 'child' and cancel is null",
          );
          expect(rows[0].n).toBe(0);
        },
      });
    },
  );

  it("or fails while a child is being claimed", async () => {
    const { parent } = await family({ total: 2, running: [], inLine: [0, 1] });
    await everyOrder([[fail(parent)], [claimChild]], { deadlock: true });
  });

  it("while a child is queued again", async () => {
    const { parent, children } = await family({ total: 2, running: [0], inLine: [1] });
    await everyOrder(
      [[controlJob("cancel", parent.job)], [settle(settlement(children[0]!, { outcome: "released" }))], [claimChild]],
      { deadlock: true },
    );
  });
});

describe("a child that is retried", () => {
  const withFailed = (options: FamilyOptions) =>
    save(async () => {
      const created = await makeFamily(client, options);
      const [first] = created.children;
      await client.query(fail(first!).text, fail(first!).values);
      return created;
    });

  it("while its parent goes to sleep: the parent waits for a live child or not at all", async () => {
    const { parent, children } = await withFailed({ total: 2, running: [0] });
    await everyOrder([[controlJob("retry", children[0]!.job)], [wait(parent, "children")]]);
  });

  it("while its parent goes to sleep and another child ends", async () => {
    const { parent, children } = await withFailed({ total: 3, running: [0, 1], onError: "fail" });
    await everyOrder([[controlJob("retry", children[0]!.job)], [wait(parent, "children")], [complete(children[1]!)]]);
  });

  it("while a child of another part fails: the spawn keeps that failure", async () => {
    const { parent, children } = await withFailed({ total: 130, running: [0, 1, 128, 129], onError: "fail" });
    await everyOrder([[controlJob("retry", children[0]!.job)], [fail(children[2]!)], [wait(parent, "children")]], {
      deadlock: true,
      after: async () => expect(await isDue(parent.job)).toBe(true),
    });
  });

  it("while its parent is", async () => {
    const { parent, children } = await save(async () => {
      const created = await makeFamily(client, { total: 3, running: [0, 1] });
      for (const held of [...created.children, created.parent]) await client.query(fail(held).text, fail(held).values);
      return created;
    });
    await everyOrder([[controlJob("retry", parent.job)], [controlJob("retry", children[1]!.job)]], {
      deadlock: true,
      after: async () => {
        const { rows } = await client.query("select count(*)::integer as n from stillwake.live_jobs");
        expect(rows[0].n).toBe(3);
      },
    });
  });
});

describe("a spawn", () => {
  it("accepts no idempotency keys: an existing job would never be counted as a child", async () => {
    const { parent } = await family({ total: 0, running: [] });
    const { job, epoch, lease } = parent;
    const spawn = client.query(
      "select stillwake.spawn($1, $2, $3, 'more', 'child', '[1]', $4, null, 0, 1, 'collect')",
      [job, epoch, lease, { idempotency_keys: ["seen"] }],
    );
    await expect(spawn).rejects.toMatchObject({ code: "SW001" });
  });

  it("whose children are not stored in order names those that are missing", async () => {
    const { parent } = await family({ total: 0, running: [] });
    const { job, epoch, lease } = parent;
    const spawn = client.query(
      "select stillwake.spawn($1, $2, $3, 'more', 'child', '[1]', '{}', array[stillwake.new_id()], 128, 129, 'collect')",
      [job, epoch, lease],
    );
    await expect(spawn).rejects.toThrow("Children 0 to 127 are missing before child 128");
  });
});

describe("a worker that dies with a parent and its children", () => {
  it("leaves none of them running: all are recovered, and no child of a failed parent is queued", async () => {
    const { parent } = await family({ total: 25, running: [], inLine: Array.from({ length: 25 }, (_, n) => n) });
    const { rows } = await client.query(
      "select job_id from stillwake.claim('c', 'default', '{child}', 25, '1 hour', gen_random_uuid())",
    );
    expect(rows).toHaveLength(25);
    // One worker has all of them; the parent, the oldest job, is recovered first and fails for good.
    await client.query("update stillwake.leases set job_ids = array_append(job_ids, $1) where id <> $2", [
      parent.job,
      parent.lease,
    ]);
    await client.query(
      "update stillwake.live_jobs set lease_id = (select id from stillwake.leases where id <> $1) where id = $2",
      [parent.lease, parent.job],
    );
    await client.query("delete from stillwake.leases where id = $1", [parent.lease]);
    await client.query("update stillwake.leases set until = '-infinity', span = '0'");
    expect((await client.query("select stillwake.recover() as n")).rows[0].n).toBe(26);
    expect(await longWorkViolations(client, true)).toEqual([]);
    expect((await client.query("select from stillwake.live_jobs")).rowCount).toBe(0);
  });
});

describe("two workers that settle several attempts of the same spawns at the same time", () => {
  const mixed = (a: HeldJob, b: HeldJob, c: HeldJob) =>
    settle(
      settlement(a, { outcome: "completed" }),
      settlement(b, { outcome: "failed", fatal: true, failure: {} }),
      settlement(c, { outcome: "slept", for: "1 minute" }),
    );

  it("in opposite order of its parts", async () => {
    const { children } = await family({ total: 130, running: [0, 1, 2, 127, 128, 129], waits: "children" });
    const [a, b, c, d, e, f] = children;
    await everyOrder([[mixed(a!, e!, c!)], [mixed(f!, b!, d!)]]);
  });

  it("of two spawns, in opposite order", async () => {
    const { children, more } = await save(async () => {
      const created = await makeFamily(client, { total: 130, running: [0, 129] });
      await spawnChildren(client, created.parent, "more", 130, "fail");
      const { rows } = await client.query(
        "select job_id as job, epoch, lease_id as lease from stillwake.claim('c', 'default', '{child}', 200, '1 hour')",
      );
      const numbers = await client.query("select id, child_no from stillwake.live_jobs where spawn = 'more'");
      const find = (n: number) => rows.find(({ job }) => job === numbers.rows.find((row) => row.child_no === n).id);
      const last = [1, 128];
      const others = rows.filter(({ job }) => !last.some((n) => find(n).job === job));
      await client.query(settle(...others.map((held) => settlement(held, { outcome: "completed" }))).text, [
        JSON.stringify(others.map((held) => settlement(held, { outcome: "completed" }))),
      ]);
      return { ...created, more: last.map(find) as HeldJob[] };
    });
    const both = (a: HeldJob, b: HeldJob) =>
      settle(settlement(a, { outcome: "completed" }), settlement(b, { outcome: "failed", fatal: true, failure: {} }));
    await everyOrder([[both(children[0]!, more[0]!)], [both(more[1]!, children[1]!)]], { deadlock: true });
  });
});

afterAll(() => {
  recordFigure("children: interleavings explored", explored, "", "0 violations");
  recordFigure("children: deadlocks where they are documented", deadlocks, "", "the loser is repeated; elsewhere: 0");
  recordFigure("children: steps that waited for a lock", waits);
});
