// Machines over HTTP, in metrics, on the command line and in the doctor. The test calls the orchestrator's SQL
// functions; no machine is started.

import { afterAll, describe, expect, it } from "vitest";
import { runDoctor } from "../../src/db/doctor.ts";
import { pipeline } from "../../src/index.ts";
import { createServer } from "../../src/server/index.ts";
import { travel } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { runCommand } from "../support/processes/cli-in-process.ts";

import { operations, wrongIn } from "../support/server/api-description.ts";
import { callerOf } from "../support/server/callers.ts";

const database = await freshDatabase();
const sql = await connect(database.url);
const pokes: (string | undefined)[] = [];
const errors: unknown[] = [];
const server = createServer({
  url: database.url,
  rate: { perSecond: 1e6, burst: 1e6 },
  onError: (error) => errors.push(error),
  onPoke(pool) {
    pokes.push(pool);
    if (pool === "broken") throw new Error("The orchestrator stumbles");
  },
});
const sw = server.stillwake;
const { token: admin } = await sw.tokens.create({ name: "root", role: "admin" });
const call = callerOf(server, admin);
afterAll(() => server.close());

const facts = {
  provider: "fly",
  size: "performance-8x",
  region: "iad",
  slots: 2,
  warm: 1,
  max: 3,
  burst: 2,
  idle_exit_ms: 60_000,
  price: 0.000213,
  prices: "fly 2026-10-01",
  currency: "USD",
  idle_price: 0.00000006,
};

let created = 0;
/** A new pool with machines, and a pipeline in it. */
async function fleetOf(more: object = {}) {
  const pool = `scan-${++created}`;
  const contract = pipeline(`scan-${created}`, { pool });
  await sw.register(contract);
  await sql.query("select stillwake.set_machines($1, $2)", [pool, JSON.stringify({ ...facts, ...more })]);
  const reserve = async (ordinal: number) => {
    const life = {
      ...facts,
      ordinal,
      machine: `sw-abc-${pool}-m${ordinal}`,
      burst: ordinal > 1,
      by: "orchestrator-1",
      why: "2 jobs are waiting, room for 0",
    };
    const { rows } = await sql.query("select life, machine from stillwake.reserve_machine($1, $2, $3)", [
      pool,
      facts.max,
      JSON.stringify(life),
    ]);
    return rows[0] as { life: string; machine: string };
  };
  const register = (machine: string) => sql.query("select stillwake.machine_registered($1, $2, 2)", [machine, pool]);
  const claim = (machine: string, limit = 1) =>
    sql.query("select job_id as job, epoch, lease_id as lease from stillwake.claim($1, $2, array[$3], $4)", [
      machine,
      pool,
      contract.name,
      limit,
    ]);
  const end = (life: string, exit: object = {}) =>
    sql.query("select stillwake.machine_ended($1, $2)", [life, JSON.stringify(exit)]);
  const leave = (machine: string, reason: string | null = null) =>
    sql.query("select stillwake.machine_leaves($1, $2, $3)", [machine, pool, reason]);
  return { pool, contract, reserve, register, claim, end, leave };
}

async function settle(claimed: { job: string; epoch: string; lease: string }): Promise<void> {
  await sql.query("select stillwake.settle($1)", [JSON.stringify([{ ...claimed, outcome: "completed" }])]);
}

const machinesOf = async (pool: string, query = "") => {
  const { status, json } = await call("GET", `/v1/machines${query}`);
  const described = operations.find(({ operationId }) => operationId === "listMachines")!;
  expect(wrongIn(described, status, json)).toEqual([]);
  return json.machines.filter((machine: { pool: string }) => machine.pool === pool);
};
const poolOf = async (name: string) => {
  const { status, json } = await call("GET", "/v1/pools");
  const described = operations.find(({ operationId }) => operationId === "listPools")!;
  expect(wrongIn(described, status, json)).toEqual([]);
  return json.pools.find((found: { name: string }) => found.name === name);
};
const endOf = async (pool: string) => (await machinesOf(pool, "?ended=true")).map(({ end }: { end: unknown }) => end);

describe("a machine", () => {
  it("is listed from its request on, with the reason, and in each state until its end", async () => {
    const { pool, contract, reserve, register, claim, end, leave } = await fleetOf();
    await sw.enqueueMany(contract, [{}, {}, {}]);
    const { life, machine } = await reserve(1);
    const [starting] = await machinesOf(pool);
    expect(starting).toMatchObject({
      worker: machine,
      state: "starting",
      running: 0,
      since: null,
      listening: false,
      machine: {
        life,
        ordinal: 1,
        burst: false,
        provider: "fly",
        size: "performance-8x",
        region: "iad",
        slots: 2,
        jobs: 0,
        price: 0.000213,
        why: "2 jobs are waiting, room for 0",
        requestedBy: "orchestrator-1",
        registeredAt: null,
      },
      end: null,
    });
    await sql.query("select stillwake.machine_started($1, 'd8d9')", [life]);
    expect((await machinesOf(pool))[0]).toMatchObject({
      state: "starting",
      machine: { providerId: "d8d9", startedAt: expect.any(String) },
    });
    await register(machine);
    expect((await machinesOf(pool))[0]).toMatchObject({ state: "idle", running: 0 });
    const { rows } = await claim(machine, 2);
    expect(await machinesOf(pool)).toMatchObject([
      { state: "up", running: 2, leaseUntil: expect.any(String), machine: { jobs: 2 } },
    ]);
    expect(await poolOf(pool)).toMatchObject({ wanted: 2, machines: { now: 1, starting: 0 } });
    for (const row of rows) await settle(row);
    const [last] = (await claim(machine)).rows;
    await settle(last);
    await leave(machine);
    expect((await machinesOf(pool))[0]).toMatchObject({ state: "leaving", machine: { jobs: 3 } });
    await end(life);
    expect(await machinesOf(pool)).toEqual([]);
    expect(await machinesOf(pool, "?ended=true")).toMatchObject([
      {
        worker: machine,
        state: "ended",
        machine: { life, jobs: 3 },
        end: { at: expect.any(String), how: "ended by itself (idle)", normal: true },
      },
    ]);
  });

  it("that is about to be stopped is retiring", async () => {
    const { pool, reserve, register } = await fleetOf();
    const { life, machine } = await reserve(1);
    await register(machine);
    await sql.query("select stillwake.retire_machine($1)", [life]);
    expect(await machinesOf(pool)).toMatchObject([{ state: "retiring" }]);
  });

  it.each<[how: string, registers: boolean, exit: object, normal: boolean]>([
    ["out of memory at 64 GB", true, { oom: true, memory: "64 GB", code: 137 }, false],
    ["never registered", false, { reason: "its worker never registered" }, false],
    ["never registered: exit code 1", false, { code: 1 }, false],
    ["never registered: ImagePullBackOff", false, { reason: "ImagePullBackOff" }, false],
    ["killed by SIGKILL", true, { signal: "SIGKILL" }, false],
    ["ended with exit code 3", true, { code: 3 }, false],
    ["ended with exit code 3 (Error)", true, { code: 3, reason: "Error" }, false],
    ["ended by itself", true, { code: 0 }, true],
    ["was stopped", true, { requested: true, code: 143 }, true],
    ["disappeared", true, {}, false],
  ])("has the end reason %s", async (how, registers, exit, normal) => {
    const { pool, reserve, register, end } = await fleetOf();
    const { life, machine } = await reserve(2);
    if (registers) await register(machine);
    await end(life, exit);
    expect(await endOf(pool)).toEqual([{ at: expect.any(String), how, normal }]);
  });

  it.each<[how: string, reason: string | null, exit: object, normal: boolean]>([
    ["ended with exit code 1", "stopped", { code: 1 }, false],
    ["ended with exit code 1 (the database cannot be reached)", "the database cannot be reached", { code: 1 }, false],
    ["stopped on request (SIGTERM)", "SIGTERM", { code: 0 }, true],
    ["stopped on request (SIGTERM)", "SIGTERM", { code: 143 }, true],
    ["stopped on request", "the machine is to be stopped", { code: 0 }, true],
    ["ended by itself (idle)", null, { code: 0 }, true],
  ])("whose worker has exited has the end reason %s (%s, %j)", async (how, reason, exit, normal) => {
    const { pool, reserve, register, leave, end } = await fleetOf();
    const { life, machine } = await reserve(2);
    await register(machine);
    await leave(machine, reason);
    await end(life, exit);
    expect(await endOf(pool)).toEqual([{ at: expect.any(String), how, normal }]);
  });

  it("that was killed is not listed as a worker because of its listener, until it returns", async () => {
    const { pool, reserve, register, end } = await fleetOf();
    const { life, machine } = await reserve(1);
    await register(machine);
    await end(life, { signal: "SIGKILL" });
    await sql.query("select stillwake.listen($1, $2)", [machine, pool]);
    await sql.query("select stillwake.listen('by-hand', $1)", [pool]);
    expect(await machinesOf(pool)).toMatchObject([{ worker: "by-hand", machine: null }]);
    await reserve(1);
    await register(machine);
    expect(await machinesOf(pool)).toMatchObject([{ worker: machine, state: "idle", listening: true }, {}]);
  });

  it("of the original fleet is marked as such in a copied database", async () => {
    const { pool, reserve } = await fleetOf();
    await reserve(1);
    await sql.query("begin");
    await sql.query("select stillwake.adopt_fleet()");
    const { rows } = await sql.query("select ending, ended_normally from stillwake.machines(100) where pool = $1", [
      pool,
    ]);
    await sql.query("rollback");
    expect(rows).toEqual([{ ending: "belongs to the fleet this database was copied from", ended_normally: true }]);
  });

  it("is distinguished from a worker without a machine, which is listed while it has leases", async () => {
    const { pool, contract, claim } = await fleetOf();
    await sw.enqueue(contract, {});
    await claim("by-hand");
    expect(await machinesOf(pool)).toMatchObject([
      { worker: "by-hand", state: "up", running: 1, machine: null, end: null },
    ]);
    expect((await poolOf(pool)).machines.now).toBe(0);
  });
});

describe("ended machines", () => {
  it("follow the others, latest first, and are deleted with the retention of their jobs", async () => {
    const { pool, reserve, end } = await fleetOf();
    const first = await reserve(2);
    await end(first.life);
    await travel(sql, "1m");
    const second = await reserve(3);
    await end(second.life);
    const alive = await reserve(1);
    const names = async () => (await machinesOf(pool, "?ended=true")).map(({ worker }: { worker: string }) => worker);
    expect(await names()).toEqual([alive.machine, second.machine, first.machine]);
    await travel(sql, "46d");
    expect(await names()).toEqual([alive.machine]);
  });
});

describe("a pool", () => {
  it("has the settings of its machines, the number it needs, why they cannot start, and the wasted starts", async () => {
    const { pool, contract, reserve, end } = await fleetOf();
    expect(await poolOf(pool)).toMatchObject({
      machines: {
        provider: "fly",
        size: "performance-8x",
        region: "iad",
        slots: 2,
        warm: 1,
        max: 3,
        burst: 2,
        idleExitMs: 60_000,
        price: 0.000213,
        idlePrice: 0.00000006,
        prices: "fly 2026-10-01",
        currency: "USD",
        largerPool: null,
        now: 0,
        starting: 0,
      },
      wanted: 0,
      providerError: null,
      wastedStarts: 0,
    });
    await sw.enqueueMany(contract, new Array(5).fill({}));
    expect((await poolOf(pool)).wanted).toBe(3);
    await sw.enqueueMany(contract, new Array(50).fill({}));
    expect((await poolOf(pool)).wanted).toBe(3);
    const { life } = await reserve(1);
    expect((await poolOf(pool)).machines).toMatchObject({ now: 1, starting: 1 });
    await end(life, { code: 1 });
    const providerError = {
      code: "PROVIDER_AUTH",
      message: "Fly rejects the token: make a new one",
      until: new Date(Date.now() + 60_000).toISOString(),
    };
    await sql.query("select stillwake.report_provider_error($1, $2)", [pool, JSON.stringify(providerError)]);
    expect(await poolOf(pool)).toMatchObject({
      wastedStarts: 1,
      providerError: {
        code: "PROVIDER_AUTH",
        message: providerError.message,
        remedy: null,
        since: expect.any(String),
        until: providerError.until,
      },
    });
    await sw.pause({ pool });
    expect((await poolOf(pool)).wanted).toBe(0);
  });

  it("needs as many as the view for autoscalers returns, and null without an orchestrator", async () => {
    const { pool, contract } = await fleetOf({ slots: 3, max: 100 });
    await sw.enqueueMany(contract, new Array(10).fill({}));
    const { rows } = await sql.query("select wanted from stillwake.wanted_workers where pool = $1", [pool]);
    expect((await poolOf(pool)).wanted).toBe(rows[0].wanted);
    await sql.query("select stillwake.set_machines($1, null)", [pool]);
    expect(await poolOf(pool)).toMatchObject({ machines: null, wanted: null });
  });
});

describe("a poke", () => {
  it("reaches the orchestrator of this process, with its pool", async () => {
    pokes.length = 0;
    expect(await call("POST", "/v1/poke")).toMatchObject({ status: 202, json: { poked: true } });
    expect(await call("POST", "/v1/poke", { body: { pool: "scan" } })).toMatchObject({
      status: 202,
      json: { poked: true },
    });
    expect(pokes).toEqual([undefined, "scan"]);
    expect((await call("POST", "/v1/poke", { body: { pool: "" } })).status).toBe(400);
  });

  it("succeeds even if the orchestrator throws; onError receives the error", async () => {
    expect((await call("POST", "/v1/poke", { body: { pool: "broken" } })).status).toBe(202);
    expect(errors.splice(0)).toMatchObject([{ message: "The orchestrator stumbles" }]);
  });

  it("is rejected with a remedy if there is no orchestrator", async () => {
    const alone = createServer({ url: database.url });
    const refused = await callerOf(alone, admin)("POST", "/v1/poke");
    await alone.close();
    expect(refused).toMatchObject({
      status: 409,
      json: { code: "NO_ORCHESTRATOR", remedy: expect.stringMatching(/watchdog/) },
    });
  });

  it("is sent by the watchdog, after its own work", async () => {
    pokes.length = 0;
    expect((await call("POST", "/v1/watchdog")).status).toBe(200);
    expect(pokes).toEqual([undefined]);
  });
});

describe("the metrics", () => {
  it("have machines by state, the wanted number, the provider error, and starts and ends", async () => {
    const { pool, contract, reserve, register, claim, end } = await fleetOf();
    await sw.enqueueMany(contract, [{}, {}, {}]);
    const reserved = await reserve(1);
    await register(reserved.machine);
    await claim(reserved.machine);
    await reserve(2);
    await end((await reserve(3)).life, { code: 1 });
    await sql.query("select stillwake.report_provider_error($1, $2)", [
      pool,
      JSON.stringify({ code: "PROVIDER_RATE", message: "Too often" }),
    ]);
    const { text } = await call("GET", "/metrics");
    const lines = text.split("\n").filter((line: string) => line.includes(`pool="${pool}"`));
    expect(lines).toEqual(
      expect.arrayContaining([
        `stillwake_machines{pool="${pool}",state="up"} 1`,
        `stillwake_machines{pool="${pool}",state="starting"} 1`,
        `stillwake_machines{pool="${pool}",state="idle"} 0`,
        `stillwake_pool_wanted{pool="${pool}"} 2`,
        `stillwake_pool_provider_error{pool="${pool}",code="PROVIDER_RATE"} 1`,
        `stillwake_pool_wasted_starts{pool="${pool}"} 1`,
        `stillwake_machines_started_5m{pool="${pool}"} 3`,
        `stillwake_machines_ended_5m{pool="${pool}",normal="false"} 1`,
      ]),
    );
  });
});

describe("the command line", () => {
  it("lists machines, ended ones with the reason, and pools with the wanted number and their provider error", async () => {
    const { pool, contract, reserve, register, claim, end } = await fleetOf();
    await sw.enqueueMany(contract, [{}, {}, {}]);
    const { machine } = await reserve(1);
    await register(machine);
    await claim(machine);
    await end((await reserve(2)).life, { oom: true, memory: "16 GB" });
    await sql.query("select stillwake.report_provider_error($1, $2)", [
      pool,
      JSON.stringify({ code: "PROVIDER_CAPACITY", message: "No room in iad" }),
    ]);
    const env = { DATABASE_URL: database.url };
    const [listed, ended, pools] = await Promise.all([
      runCommand(["machines", "--pool", pool], env),
      runCommand(["machines", "--ended", "--pool", pool], env),
      runCommand(["pools"], env),
    ]);
    expect(listed.stdout).toMatch(
      new RegExp(
        `^MACHINE .*\n${machine} +${pool} +up +1/2 .* fly performance-8x iad +by polling +2 jobs are waiting, room for 0\n$`,
      ),
    );
    expect(ended.stdout).toMatch(/out of memory at 16 GB/);
    expect(ended.stdout.trim().split("\n")).toHaveLength(2);
    expect(pools.stdout).toMatch(new RegExp(`${pool} .*1 of 3, wants 2 .*No room in iad`));
  });
});

describe("the doctor", () => {
  const found = async (check: string, address: string | null = null) =>
    (await runDoctor({ url: database.url, address })).find((finding) => finding.check === check);

  it("reports that a database is a copy of the one with the machines, without changing anything", async () => {
    await sql.query("update stillwake.pools set provider_error = null");
    await sql.query("select stillwake.fleet('db.example.com:5432/app')");
    expect(await found("fleet", "db.example.com:5432/app")).toMatchObject({ level: "ok" });
    expect(await found("fleet"), "one at an address of this machine").toMatchObject({ level: "warning" });
    expect(await found("fleet", "staging.example.com:5432/app")).toMatchObject({
      level: "warning",
      found: expect.stringMatching(/a copy: its machines belong to the database at db\.example\.com:5432\/app/),
      remedy: expect.stringMatching(/stillwake fleet adopt/),
    });
    await sql.query("update stillwake.fleet set cluster = '1'");
    expect(await found("fleet", "db.example.com:5432/app")).toMatchObject({
      level: "warning",
      found: expect.stringMatching(/of cluster 1\b/),
    });
    const { rows } = await sql.query("select addresses from stillwake.fleet");
    expect(rows).toEqual([{ addresses: ["db.example.com:5432/app"] }]);
    await sql.query("select stillwake.adopt_fleet('db.example.com:5432/app')");
    expect(await found("fleet", "db.example.com:5432/app")).toMatchObject({
      level: "ok",
      found: expect.stringMatching(/0 machines are up/),
    });
  });

  it("reports why machines cannot start", async () => {
    const { pool } = await fleetOf();
    await sql.query("select stillwake.report_provider_error($1, $2)", [
      pool,
      JSON.stringify({ code: "PROVIDER_AUTH", message: "Fly rejects the token" }),
    ]);
    const fleet = await found("fleet", "db.example.com:5432/app");
    expect(fleet).toMatchObject({ level: "warning", found: `${pool}: Fly rejects the token` });
    await sql.query("select stillwake.report_provider_error($1, null)", [pool]);
  });

  it("reports pools whose jobs wait without a worker", async () => {
    await sql.query("select stillwake.cancel(id) from stillwake.jobs where state in ('queued', 'running', 'paused')");
    await travel(sql, "2m");
    await sql.query("select stillwake.watchdog()");
    expect(await found("pools")).toMatchObject({ level: "ok" });
    const { pool, contract } = await fleetOf();
    await sw.enqueue(contract, {});
    expect(await found("pools")).toMatchObject({ level: "ok" });
    await travel(sql, "2m");
    expect(await found("pools")).toMatchObject({
      level: "warning",
      found: expect.stringMatching(new RegExp(`\\b${pool}\\b.*no machine was started`)),
      remedy: expect.stringMatching(/orchestrator/),
    });
    await sql.query("select stillwake.set_machines($1, null)", [pool]);
    expect(await found("pools")).toMatchObject({
      level: "warning",
      found: expect.stringMatching(new RegExp(`\\b${pool}\\b.*no worker serves`)),
      remedy: expect.stringMatching(/stillwake worker --pool/),
    });
  });
});
