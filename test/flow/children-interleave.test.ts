// Fan-out and events under real concurrency: two and three transactions about one parent, in every order of their steps. Whatever the order,
// nobody waits for what is over, the counts are those of the children, and nobody goes on whose parent has failed or was cancelled.
import { afterAll, describe, expect, it } from "vitest";
import { stopClock, travel } from "../../src/testing/index.ts";
import { connect, type Held } from "../model/actors.ts";
import { TABLES } from "../model/children/engine.ts";
import { longWorkViolations } from "../model/children/invariants.ts";
import {
  about,
  claimChild,
  claimParent,
  complete,
  type Family,
  fail,
  lose,
  makeFamily,
  type Setting,
  say,
  settle,
  settlement,
  spawnChildren,
  wait,
} from "../model/children/scenes.ts";
import { ordersOf, Stage, type Statement } from "../model/interleave.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/aftermath.ts";

const database = await freshDatabase();
const client = await connect(database.url);
await client.query(`alter database ${database.name} set deadlock_timeout = '30ms'`);
await client.query(`set synchronous_commit = off;
  select stillwake.register_pipeline('parent', '{"max_attempts": 1}');
  select stillwake.register_pipeline('child', '{"max_attempts": 1, "crash_limit": 1}')`);
await stopClock(client);
const stage = await Stage.open(database.url, 3);
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
  const cast = await make();
  await client.query(
    TABLES.map((table) => `delete from saved.${table}; insert into saved.${table} table stillwake.${table}`).join(";"),
  );
  return cast;
}

/** What is left to deadlock detection is repeated, as src/db/database.ts does; nothing else may go wrong. */
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
    // Begin goes with the first statement, because alone it does nothing to others.
    const steps = order.flatMap((actor, step) => (order.indexOf(actor) === step ? [actor, actor] : [actor]));
    const scripts = actors.map((statements) => [{ text: "begin" }, ...statements, { text: "commit" }]);
    const played = await stage.play(scripts, steps);
    const story = `order ${order}: ${JSON.stringify(played.answers)}`;
    for (const [actor, answers] of played.answers.entries()) {
      const errors = answers.filter((answer) => typeof answer === "string" && !answer.startsWith("SW"));
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

const family = (setting: Setting): Promise<Family> => save(() => makeFamily(client, setting));
const stateOf = async (id: string) =>
  (await client.query("select state, waiting_for, run_at from stillwake.jobs where id = $1", [id])).rows[0];
/** Back in line, and nothing keeps it from being claimed. */
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
  it.each(FULL ? pairs : pairs.slice(0, 2))("is woken or goes on: %s, %s", async (one, two) => {
    const { parent, children } = await family({ total: 4, running: [0, 2] });
    await everyOrder([[wait(parent, "children")], [ends[one](children[0]!)], [ends[two](children[1]!)]], {
      after: async () => expect(await isDue(parent.job)).toBe(true),
    });
  });

  it("is woken by the first that fails, although the other goes on", async () => {
    const { parent, children } = await family({ total: 3, running: [0, 1, 2], onError: "fail" });
    await everyOrder([[wait(parent, "children")], [complete(children[0]!)], [fail(children[1]!)]], {
      after: async () => expect(await isDue(parent.job)).toBe(true),
    });
  });

  it("is woken by the last part, when they end in different ones", async () => {
    const { parent, children } = await family({ total: 130, running: [5, 129] });
    await everyOrder([[wait(parent, "children")], [complete(children[0]!)], [complete(children[1]!)]], {
      after: async () => expect(await isDue(parent.job)).toBe(true),
    });
  });

  it("is woken when it waits already and both parts end at once, several children each", async () => {
    const { parent, children } = await family({ total: 130, running: [5, 6, 128, 129], waits: "children" });
    const [a, b, c, d] = children.map((held) => settlement(held, { outcome: "completed" }));
    await everyOrder([[settle(a!, c!)], [settle(d!, b!)]], {
      after: async () => expect(await isDue(parent.job)).toBe(true),
    });
  });
});

describe("a parent that waits for an event", () => {
  it("hears what is said while it lies down, and once its time is over", async () => {
    const { parent } = await family({ total: 0, running: [] });
    const until = (await client.query("select stillwake.now() + interval '1 second' as until")).rows[0].until;
    await everyOrder([[wait(parent, "event", { until })], [say(parent.job)], [claimParent]], {
      after: async () => {
        const { state, waiting_for } = await stateOf(parent.job);
        expect([state, waiting_for]).toEqual([state === "running" ? "running" : "queued", null]);
      },
    });
  });

  it("is claimed once when it is spoken to in the moment in which its time is over", async () => {
    const { parent } = await save(async () => {
      const made = await makeFamily(client, { total: 0, running: [] });
      const until = (await client.query("select stillwake.now() + interval '1 second' as until")).rows[0].until;
      const { text, values } = wait(made.parent, "event", { until });
      await client.query(text, values);
      return made;
    });
    await travel(client, "2s");
    await everyOrder([[say(parent.job)], [claimParent], [claimParent]], {
      after: async () => {
        const { rows } = await client.query("select count(*)::integer as n from stillwake.leases");
        expect(rows[0].n).toBeLessThanOrEqual(1);
      },
    });
  });
});

describe("a parent that was set aside while it waited", () => {
  it.each(["children", "event"] as const)(
    "and came back keeps its place in line when it is woken (%s)",
    async (what) => {
      const { parent, children } = await family({ total: 1, running: [0], waits: what });
      const place = async () =>
        (await client.query("select run_at from stillwake.live_jobs where id = $1", [parent.job])).rows;
      for (const verb of ["pause", "resume"] as const) {
        const { text, values } = about(verb, parent.job);
        await client.query(text, values);
      }
      const before = await place();
      await travel(client, "5s");
      const { text, values } = what === "children" ? complete(children[0]!) : say(parent.job);
      await client.query(text, values);
      expect(await place()).toEqual(before);
      expect(await longWorkViolations(client, true)).toEqual([]);
    },
  );
});

describe("a parent that is cancelled", () => {
  it("while its last child ends and while it lies down: no child goes on, and it ends", async () => {
    const { parent, children } = await family({ total: 2, running: [1] });
    await everyOrder([[about("cancel", parent.job)], [complete(children[0]!)], [wait(parent, "children")]], {
      deadlock: true,
      after: async () => expect(["cancelled", "running"]).toContain((await stateOf(parent.job)).state),
    });
  });

  it("while it waits and its last child ends", async () => {
    const { parent, children } = await family({ total: 2, running: [1], waits: "children" });
    await everyOrder([[about("cancel", parent.job)], [complete(children[0]!)]], {
      deadlock: true,
      after: async () => expect((await stateOf(parent.job)).state).toBe("cancelled"),
    });
  });

  it.each(["parent waits", "parent runs"])(
    "while a child is being claimed: that one is asked to stop too (%s)",
    async (how) => {
      const { parent } = await family({
        total: 2,
        running: [],
        inLine: [0, 1],
        ...(how === "parent waits" && { waits: "children" }),
      });
      await everyOrder([[about("cancel", parent.job)], [claimChild]], {
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

  it("while a child comes back to the line", async () => {
    const { parent, children } = await family({ total: 2, running: [0], inLine: [1] });
    await everyOrder(
      [[about("cancel", parent.job)], [settle(settlement(children[0]!, { outcome: "released" }))], [claimChild]],
      { deadlock: true },
    );
  });
});

describe("a child that is retried", () => {
  const withFailed = (setting: Setting) =>
    save(async () => {
      const made = await makeFamily(client, setting);
      const [first] = made.children;
      await client.query(fail(first!).text, fail(first!).values);
      return made;
    });

  it("while its parent lies down: who waits, waits for something", async () => {
    const { parent, children } = await withFailed({ total: 2, running: [0] });
    await everyOrder([[about("retry", children[0]!.job)], [wait(parent, "children")]]);
  });

  it("while its parent lies down and another one ends", async () => {
    const { parent, children } = await withFailed({ total: 3, running: [0, 1], onError: "fail" });
    await everyOrder([[about("retry", children[0]!.job)], [wait(parent, "children")], [complete(children[1]!)]]);
  });

  it("while one of another part fails: the spawn does not forget that", async () => {
    const { parent, children } = await withFailed({ total: 130, running: [0, 1, 128, 129], onError: "fail" });
    await everyOrder([[about("retry", children[0]!.job)], [fail(children[2]!)], [wait(parent, "children")]], {
      deadlock: true,
      after: async () => expect(await isDue(parent.job)).toBe(true),
    });
  });

  it("while its parent is", async () => {
    const { parent, children } = await save(async () => {
      const made = await makeFamily(client, { total: 3, running: [0, 1] });
      for (const held of [...made.children, made.parent]) await client.query(fail(held).text, fail(held).values);
      return made;
    });
    await everyOrder([[about("retry", parent.job)], [about("retry", children[1]!.job)]], {
      deadlock: true,
      after: async () => {
        const { rows } = await client.query("select count(*)::integer as n from stillwake.live_jobs");
        expect(rows[0].n).toBe(3);
      },
    });
  });
});

describe("a spawn", () => {
  it("takes no idempotency keys: a child that is an older job would never be counted", async () => {
    const { parent } = await family({ total: 0, running: [] });
    const { job, epoch, lease } = parent;
    const spawn = client.query(
      "select stillwake.spawn($1, $2, $3, 'more', 'child', '[1]', $4, null, 0, 1, 'collect')",
      [job, epoch, lease, { idempotency_keys: ["seen"] }],
    );
    await expect(spawn).rejects.toMatchObject({ code: "SW001" });
  });
});

describe("a worker that dies with a parent and its children", () => {
  it("leaves none of them running: all are recovered, and none that its parent cannot want is back in line", async () => {
    const { parent } = await family({ total: 25, running: [], inLine: Array.from({ length: 25 }, (_, n) => n) });
    const { rows } = await client.query(
      "select job_id from stillwake.claim('c', 'default', '{child}', 25, '1 hour', gen_random_uuid())",
    );
    expect(rows).toHaveLength(25);
    // One worker has them all; the parent, which is the oldest, is recovered first and fails for good.
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

describe("two workers that settle several attempts of the same spawns at once", () => {
  const mixed = (a: Held, b: Held, c: Held) =>
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
      const made = await makeFamily(client, { total: 130, running: [0, 129] });
      await spawnChildren(client, made.parent, "more", 130, "fail");
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
      return { ...made, more: last.map(find) as Held[] };
    });
    const both = (a: Held, b: Held) =>
      settle(settlement(a, { outcome: "completed" }), settlement(b, { outcome: "failed", fatal: true, failure: {} }));
    await everyOrder([[both(children[0]!, more[0]!)], [both(more[1]!, children[1]!)]], { deadlock: true });
  });
});

afterAll(() => {
  recordFigure("children: interleavings explored", explored, "", "0 violations");
  recordFigure("children: deadlocks where they are documented", deadlocks, "", "the loser is repeated; elsewhere: 0");
  recordFigure("children: steps that waited for a lock", waits);
});
