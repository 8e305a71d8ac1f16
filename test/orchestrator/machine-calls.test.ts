// The SQL functions of machines: reservation, registration and exit of a worker, wasted starts, and retries in a larger pool.
import { describe, expect, it } from "vitest";
import { travel } from "../../src/testing/index.ts";
import { connectedDatabase } from "../support/database/connections.ts";

const { stillwake, client } = await connectedDatabase();

const one = async (text: string, values: unknown[] = []) => (await client.query(text, values)).rows[0];
let made = 0;

/** A pool with a pipeline of the same name. */
async function pool(machines: object = { provider: "memory", slots: 1 }): Promise<string> {
  const name = `pool${++made}`;
  await client.query("select stillwake.set_machines($1, $2)", [name, machines]);
  await client.query("select stillwake.register_pipeline($1, $2)", [name, { pool: name, max_attempts: 9 }]);
  return name;
}
const reserve = (of: string, ordinal: number, { most = 5, burst = true, machine = `${of}-m${ordinal}` } = {}) =>
  one("select life, machine from stillwake.reserve_machine($1, $2, $3)", [
    of,
    most,
    { ordinal, machine, burst, provider: "memory", slots: 1, by: "test", why: "so" },
  ]);
const arrive = async (machine: string, of: string) =>
  (await one("select stillwake.machine_registered($1, $2) as yes", [machine, of])).yes;
const leaves = async (machine: string, of: string, reason: string | null = null, pipelines = [of]) =>
  (await one("select stillwake.machine_leaves($1, $2, $3, $4) as yes", [machine, of, reason, pipelines])).yes;
const end = async (life: string, exit: object = {}) =>
  (await one("select stillwake.machine_ended($1, $2) as jobs", [life, exit])).jobs;
const enqueue = async (of: string) => (await one("select stillwake.enqueue($1, '{}') as id", [of])).id as string;
const claim = async (machine: string, of: string) =>
  one("select * from stillwake.claim($1, $2, array[$2])", [machine, of]);
const wastedStarts = async (of: string) =>
  (await one("select wasted_starts from stillwake.pools where name = $1", [of])).wasted_starts;

describe("an ordinal", () => {
  it("is reserved once, up to max, and not in a paused pool; the name of a burst machine is never reused", async () => {
    const name = await pool();
    const first = await reserve(name, 1);
    expect(await reserve(name, 1)).toBeUndefined();
    expect(await reserve(name, 2, { most: 1 })).toBeUndefined();
    await end(first.life, { never: true });
    const second = await reserve(name, 1);
    expect(second.machine).not.toBe(first.machine);
    expect((await reserve(name, 2, { burst: false })).machine).toBe(`${name}-m2`);
    await client.query("select stillwake.pause_pool($1)", [name]);
    expect(await reserve(name, 3)).toBeUndefined();
  });

  it("is taken from the name of a machine that was not requested; if it is in use, the machine has to exit", async () => {
    const name = await pool();
    expect(await arrive(`${name}-m4`, name)).toBe(true);
    expect(
      await one("select ordinal, requested_by from stillwake.machine_lives where machine = $1", [`${name}-m4`]),
    ).toEqual({
      ordinal: 4,
      requested_by: null,
    });
    expect(await reserve(name, 4)).toBeUndefined();
    expect(await arrive(`${name}-m4-77`, name)).toBe(false);
    expect(await arrive("by-hand", name)).toBe(true);
  });
});

describe("a machine that asks to exit", () => {
  it("stays while there is a job for it, and exits when there is none that its worker can run", async () => {
    const name = await pool();
    const { machine } = await reserve(name, 1);
    await arrive(machine, name);
    await enqueue(name);
    expect(await leaves(machine, name)).toBe(false);
    expect(await leaves(machine, name, null, ["another"])).toBe(true);
    await arrive(machine, name);
    const job = await claim(machine, name);
    expect(job.job_id).toBeDefined();
    expect(await leaves(machine, name)).toBe(true);
    expect(await one("select left_reason from stillwake.machine_lives where machine = $1", [machine])).toEqual({
      left_reason: "idle",
    });
  });

  it("has not left when it claims after all", async () => {
    const name = await pool();
    const { machine } = await reserve(name, 1);
    await arrive(machine, name);
    expect(await leaves(machine, name)).toBe(true);
    await enqueue(name);
    await claim(machine, name);
    expect(await one("select left_at, left_reason from stillwake.machine_lives where machine = $1", [machine])).toEqual(
      { left_at: null, left_reason: null },
    );
  });

  it("exits at once after a stop signal", async () => {
    const name = await pool();
    const { machine } = await reserve(name, 1);
    await enqueue(name);
    expect(await leaves(machine, name, "SIGTERM")).toBe(true);
  });
});

describe("a wasted start", () => {
  it("is a machine that ended without a job although one was waiting, or before its worker exited", async () => {
    const name = await pool();
    const idle = await reserve(name, 1);
    await arrive(idle.machine, name);
    await leaves(idle.machine, name);
    await end(idle.life);
    expect(await wastedStarts(name), "there was nothing to do").toBe(0);
    await end((await reserve(name, 1)).life, { code: 1 });
    expect(await wastedStarts(name), "it broke down").toBe(1);
    await enqueue(name);
    const blind = await reserve(name, 1);
    await arrive(blind.machine, name);
    await leaves(blind.machine, name, null, ["another"]);
    await end(blind.life);
    expect(await wastedStarts(name), "it could not do what there was").toBe(2);
    const good = await reserve(name, 1);
    await arrive(good.machine, name);
    await claim(good.machine, name);
    await end(good.life);
    expect(await wastedStarts(name), "the next did something").toBe(0);
    await end((await reserve(name, 1)).life, { code: 1 });
    await client.query("select stillwake.set_machines($1, $2)", [name, { provider: "memory", slots: 2 }]);
    expect(await wastedStarts(name), "it is made of something else now").toBe(0);
    await end((await reserve(name, 1)).life, { code: 1 });
    await client.query("select stillwake.resume_pool($1)", [name]);
    expect(await wastedStarts(name), "an operator resumes the pool").toBe(0);
  });

  it("is not a machine that never ran", async () => {
    const name = await pool();
    await enqueue(name);
    for (let ordinal = 1; ordinal <= 3; ordinal++)
      await end((await reserve(name, ordinal)).life, { reason: "its worker never registered" });
    expect(await wastedStarts(name)).toBe(0);
    const { life } = await reserve(name, 1);
    await client.query("select stillwake.machine_started($1, 'x')", [life]);
    await end(life, { reason: "its worker never registered" });
    expect(await wastedStarts(name)).toBe(1);
  });

  it("is not recorded for a machine that was certainly never started", async () => {
    const name = await pool();
    const { life } = await reserve(name, 1);
    await end(life, { never: true });
    expect(await one("select count(*)::int as n from stillwake.machine_lives where pool = $1", [name])).toEqual({
      n: 0,
    });
    expect(await wastedStarts(name)).toBe(0);
  });
});

describe("a job whose machine dies", () => {
  it("is queued again at once with the exit code, but without the machine's log", async () => {
    const name = await pool();
    const id = await enqueue(name);
    const { life, machine } = await reserve(name, 1);
    await arrive(machine, name);
    await claim(machine, name);
    expect(await end(life, { signal: "SIGKILL" })).toBe(1);
    expect(await end(life), "once").toBe(0);
    const job = await stillwake.get(id);
    expect(job).toMatchObject({ state: "queued", crashes: 1, pool: name });
    expect(job.failure).toMatchObject({ code: "MACHINE_DIED", message: `Machine ${machine} was killed by SIGKILL` });
  });

  it("counts once in the cost of both machines", async () => {
    const name = await pool({ provider: "memory", price: 0.5 });
    await enqueue(name);
    for (const exit of [{ signal: "SIGKILL" }, {}]) {
      const { life, machine } = await reserve(name, 1);
      await client.query("select stillwake.machine_started($1, 'x')", [life]);
      await arrive(machine, name);
      await claim(machine, name);
      await end(life, exit);
    }
    const sum = await one(
      "select machines::int, jobs::int from stillwake.costs(stillwake.now() - interval '1 day') where name = $1",
      [name],
    );
    expect(sum).toEqual({ machines: 2, jobs: 1 });
  });

  it("of memory exhaustion is retried in the larger pool; so is one whose runner ran out of memory", async () => {
    const large = await pool();
    const small = await pool({ provider: "memory", slots: 1, larger_pool: large });
    const byMachine = await enqueue(small);
    const { life, machine } = await reserve(small, 1);
    await arrive(machine, small);
    await claim(machine, small);
    await end(life, { oom: true, memory: "2 GB" });
    const byRunner = await enqueue(small);
    const claimed = await claim("worker", small);
    const lost = {
      job: claimed.job_id,
      epoch: claimed.epoch,
      lease: claimed.lease_id,
      outcome: "lost",
      failure: { code: "RUNNER_OOM", message: "m" },
    };
    await client.query("select * from stillwake.settle($1)", [JSON.stringify([lost])]);
    for (const id of [byMachine, byRunner])
      expect(await stillwake.get(id)).toMatchObject({ state: "queued", pool: large });
    const { rows } = await client.query("select kind, data from stillwake.events where job_id = $1 order by seq", [
      byMachine,
    ]);
    expect(rows).toContainEqual({ kind: "moved", data: { from: small, to: large, reason: "It ran out of memory" } });
    expect(
      (await client.query("select * from stillwake.claim('larger', $1, array[$2], 5)", [large, small])).rowCount,
    ).toBe(2);
  });

  it("keeps its tenant's fair share and budget in the larger pool", async () => {
    const large = await pool();
    const small = await pool({ provider: "memory", larger_pool: large });
    await client.query("select stillwake.enqueue($1, '{}', $2)", [small, { tenant: "acme" }]);
    const { life, machine } = await reserve(small, 1);
    await arrive(machine, small);
    await claim(machine, small);
    await client.query(
      "insert into stillwake.tenants (name, held_until, hold_reason) values ('acme', stillwake.now() + interval '1 hour', 'used up')",
    );
    await end(life, { oom: true });
    expect(
      (await client.query("select * from stillwake.claim('larger', $1, array[$2], 5)", [large, small])).rowCount,
    ).toBe(0);
    await client.query("delete from stillwake.tenants where name = 'acme'");
    expect(
      (await client.query("select * from stillwake.claim('larger', $1, array[$2], 5)", [large, small])).rowCount,
    ).toBe(1);
  });

  it("stays in its pool without a larger one", async () => {
    const name = await pool({ provider: "memory", larger_pool: "no-such-pool" });
    const id = await enqueue(name);
    const { life, machine } = await reserve(name, 1);
    await arrive(machine, name);
    await claim(machine, name);
    await end(life, { oom: true });
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", pool: name });
  });

  it("by a silent worker no longer counts its slots, until the worker claims again", async () => {
    const name = await pool();
    await enqueue(name);
    const { machine } = await reserve(name, 1);
    await arrive(machine, name);
    await client.query("select * from stillwake.claim($1, $2, array[$2], 1, '1 second')", [machine, name]);
    const silent = async () =>
      (await one("select silent_since is not null as yes from stillwake.machine_lives where machine = $1", [machine]))
        .yes;
    expect(await silent()).toBe(false);
    await travel(client, "2m");
    expect((await one("select stillwake.recover(100, $1) as jobs", [name])).jobs).toBe(1);
    expect(await silent()).toBe(true);
    expect(
      (await one("select lives from stillwake.orchestrator_snapshot($1)", [[name]])).lives[0].silent_since,
    ).not.toBeNull();
    await claim(machine, name);
    expect(await silent()).toBe(false);
  });
});
