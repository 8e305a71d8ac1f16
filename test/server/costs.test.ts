// Costs and budgets over HTTP, by tenant, and on the command line. The test calls the orchestrator's SQL functions; no machine is started.
import fs from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { createServer } from "../../src/server/index.ts";
import { stopClock, travel } from "../../src/testing/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { runCommand } from "../support/processes/cli-in-process.ts";

import { operations, wrongIn } from "../support/server/api-description.ts";
import { callerOf } from "../support/server/callers.ts";

const database = await freshDatabase();
const sql = await connect(database.url);
const errors: unknown[] = [];
const server = createServer({
  url: database.url,
  secret: "a secret of thirty-two characters or more",
  rate: { perSecond: 1e6, burst: 1e6 },
  onError: (error) => errors.push(error),
});
const sw = server.stillwake;
const { token: admin } = await sw.tokens.create({ name: "root", role: "admin" });
const { token: acme } = await sw.tokens.create({ name: "acme's", role: "reader", tenant: "acme" });
const { token: operator } = await sw.tokens.create({ name: "olga", role: "operator" });
const call = callerOf(server, admin);
const scan = pipeline("scan", { pool: "scan", tenant: (input) => (input as { tenant?: string }).tenant ?? null });
const clip = pipeline("clip", { pool: "scan" });
const jobs: Record<string, string> = {};
let month: string;

const described = (name: string, response: { status: number; json: unknown }) => {
  expect(
    wrongIn(operations.find(({ operationId }) => operationId === name)!, response.status, response.json as never),
  ).toEqual([]);
};
const cli = (...args: string[]) => runCommand([...args, "--url", database.url]);

beforeAll(async () => {
  await stopClock(sql);
  // Midday, so that midnight splits nothing.
  await travel(sql, `${Math.ceil(((36 - new Date().getUTCHours()) % 24) * 60) + 1}m`);
  for (const contract of [scan, clip]) await sw.register(contract);
  await sql.query("select stillwake.set_machines('scan', $1)", [
    {
      ...{
        provider: "fly",
        size: "performance-8x",
        region: "iad",
        slots: 2,
        warm: 3,
        max: 5,
        burst: 2,
        idle_exit_ms: 60_000,
      },
      ...{ price: 0.001, prices: "fly 2026-10-01", currency: "USD", disk: 2, idle_price: (2 * 0.15) / (30 * 86_400) },
    },
  ]);
  jobs.acme = (await sw.enqueue(scan, { tenant: "acme" })).id;
  jobs.globex = (await sw.enqueue(scan, { tenant: "globex" })).id;
  jobs.clip = (await sw.enqueue(clip, {})).id;
  jobs.later = (await sw.enqueue(clip, {}, { delay: "10d" })).id;
  const { rows } = await sql.query(
    `select life, machine from stillwake.reserve_machine('scan', 5, '{"ordinal": 0, "machine": "sw-m0", "burst": false, "provider": "fly", "region": "iad", "size": "performance-8x", "slots": 3, "price": 0.001, "prices": "fly 2026-10-01"}')`,
  );
  const [{ life, machine }] = rows;
  await sql.query("select stillwake.machine_started($1, 'id')", [life]);
  await sql.query("select stillwake.machine_registered($1, 'scan', 3)", [machine]);
  await travel(sql, "20s");
  const claimed = await sql.query(
    "select job_id, epoch, lease_id from stillwake.claim($1, 'scan', array['scan', 'clip'], 3, '1 day')",
    [machine],
  );
  expect(claimed.rows).toHaveLength(3);
  await travel(sql, "100s");
  for (const { job_id, epoch, lease_id } of claimed.rows)
    await sql.query("select stillwake.complete($1, $2, $3)", [job_id, epoch, lease_id]);
  await travel(sql, "60s");
  await sql.query("select stillwake.machine_ended($1)", [life]);
  month = (await sql.query("select to_char(stillwake.now() at time zone 'UTC', 'YYYY-MM') as month")).rows[0].month;
});
afterAll(async () => {
  await server.close();
  expect(errors).toEqual([]);
});

describe("GET /v1/costs", () => {
  it("returns the costs of the month, by pool by default, and the cost of stopped machines", async () => {
    const response = await call("GET", "/v1/costs");
    described("getCosts", response);
    const { total, rows, idlePools, since, until, by } = response.json;
    expect({ since: since.slice(0, 10), by }).toEqual({ since: `${month}-01`, by: "pool" });
    expect(until.slice(8, 10)).toBe("01");
    expect(total).toMatchObject({ machines: 1, jobs: 3 });
    expect(total.amount).toBeCloseTo(0.18, 9);
    expect(total.busySeconds).toBeCloseTo(100, 6);
    expect(total.idleSeconds).toBeCloseTo(80, 6);
    expect(rows).toHaveLength(1);
    expect(rows[0].name).toBe("scan");
    expect(idlePools).toEqual([{ pool: "scan", machines: 3, diskGb: 2, perMonth: expect.closeTo(0.9, 9) }]);
  });

  it("groups by pipeline, tenant and day", async () => {
    const by = async (what: string) =>
      Object.fromEntries(
        (await call("GET", `/v1/costs?month=${month}&by=${what}`)).json.rows.map(
          ({ name, amount }: { name: string | null; amount: number }) => [name, Number(amount.toFixed(9))],
        ),
      );
    expect(await by("pipeline")).toEqual({ scan: 0.12, clip: 0.06 });
    expect(await by("tenant")).toEqual({ acme: 0.06, globex: 0.06, null: 0.06 });
    expect(Object.values(await by("day"))).toEqual([0.18]);
  });

  it("returns nothing for a month without machines, and the costs of a range of days", async () => {
    expect((await call("GET", "/v1/costs?month=2020-01")).json).toMatchObject({
      rows: [],
      total: { amount: 0, jobs: 0 },
    });
    const { json } = await call("GET", `/v1/costs?since=${month}-01&until=2099-01-01T00:00:00Z`);
    expect(json.total.amount).toBeCloseTo(0.18, 9);
    expect((await call("GET", "/v1/costs?since=2020-01-01&until=2020-02-01")).json.total.amount).toBe(0);
  });

  it.each([
    ["month=2026-13", "month"],
    ["month=now", "month"],
    [`month=2026-11&since=2026-11-01`, "month"],
    ["month=9999-12", "month"],
    ["month=0000-01", "month"],
    ["since=yesterday", "since"],
    ["since=9999-12-31T23%3A59%3A59-23%3A59", "since"],
    ["since=2026-02-01&until=2026-01-01", "until"],
    ["by=colour", "by"],
  ])("rejects %s", async (query, field) => {
    const { status, json } = await call("GET", `/v1/costs?${query}`);
    expect(status).toBe(400);
    expect(json).toMatchObject({ code: "INVALID_INPUT", remedy: expect.any(String) });
    expect(JSON.stringify(json)).toContain(field);
  });

  it("returns a tenant's own part only", async () => {
    const { json, text } = await call("GET", "/v1/costs?by=tenant", { token: acme });
    expect(json.rows).toHaveLength(1);
    expect(json.total.amount).toBeCloseTo(0.06, 9);
    expect(json.idlePools).toEqual([]);
    expect(text).not.toContain("globex");
  });
});

describe("GET /v1/jobs/:id/cost", () => {
  it("returns the job's work, share of idle time and price, by machine", async () => {
    const response = await call("GET", `/v1/jobs/${jobs.clip}/cost`);
    described("getJobCost", response);
    expect(response.json).toMatchObject({ provisional: false });
    expect(response.json.amount).toBeCloseTo(0.06, 9);
    expect(response.json.parts).toHaveLength(1);
    expect(response.json.parts[0]).toMatchObject({
      ...{
        machine: "sw-m0",
        pool: "scan",
        provider: "fly",
        size: "performance-8x",
        region: "iad",
        prices: "fly 2026-10-01",
      },
      ...{ workedSeconds: 100, pricePerSecond: 0.001 },
    });
    expect(response.json.parts[0].idleSeconds).toBeCloseTo(80 / 3, 6);
  });

  it("has no parts for a job without a machine, and is not found if the job may not be seen", async () => {
    expect((await call("GET", `/v1/jobs/${jobs.later}/cost`)).json).toEqual({
      amount: 0,
      provisional: false,
      parts: [],
    });
    expect((await call("GET", `/v1/jobs/${jobs.acme}/cost`, { token: acme })).status).toBe(200);
    expect((await call("GET", `/v1/jobs/${jobs.globex}/cost`, { token: acme })).json.code).toBe("JOB_NOT_FOUND");
    const { token } = (await call("POST", "/v1/read-tokens", { body: { job: jobs.acme } })).json;
    expect((await call("GET", `/v1/jobs/${jobs.acme}`, { token })).status).toBe(200);
    expect((await call("GET", `/v1/jobs/${jobs.acme}/cost`, { token })).status).toBe(403);
  });
});

describe("/v1/budgets", () => {
  it("are set and removed by an admin, shown with their usage, and audited", async () => {
    expect((await call("PUT", "/v1/budgets/pool/scan", { token: operator, body: { amount: 5 } })).status).toBe(403);
    expect((await call("GET", "/v1/budgets/pool/scan")).json).toMatchObject({ code: "BUDGET_NOT_FOUND", status: 404 });
    const set = await call("PUT", "/v1/budgets/pool/scan", { body: { amount: 0.1 } });
    described("setBudget", set);
    expect(set.json).toEqual({ scope: "pool", name: "scan" });
    const budget = await call("GET", "/v1/budgets/pool/scan");
    described("getBudget", budget);
    expect(budget.json).toMatchObject({ amount: 0.1, period: "month", held: true, updatedBy: "root" });
    expect(budget.json.spent).toBeCloseTo(0.18, 9);
    const pool = (await call("GET", "/v1/pools")).json.pools.find(({ name }: { name: string }) => name === "scan");
    expect(pool.paused).toMatchObject({ by: "budget", reason: "The budget is used up: $0.18 of $0.10 this month" });
    await call("PUT", "/v1/budgets/tenant/acme%2Fwest", { body: { amount: 1, period: "day" } });
    const all = await call("GET", "/v1/budgets", { token: operator });
    described("listBudgets", all);
    expect(all.json.budgets.map(({ scope, name }: { scope: string; name: string }) => `${scope} ${name}`)).toEqual([
      "pool scan",
      "tenant acme/west",
    ]);
    for (const target of ["pool/scan", "tenant/acme%2Fwest"])
      expect((await call("DELETE", `/v1/budgets/${target}`)).status).toBe(200);
    expect((await call("GET", "/v1/budgets")).json.budgets).toEqual([]);
    const { rows } = await sql.query(
      "select act, target, before, after from stillwake.audit where target = 'scan' order by at",
    );
    expect(rows).toMatchObject([
      { act: "setBudget", before: null, after: { scope: "pool", amount: 0.1 } },
      { act: "clearBudget", before: { amount: 0.1, scope: "pool" }, after: { scope: "pool" } },
    ]);
  });

  it.each([
    ["fleet/scan", { amount: 1 }, 400],
    ["pool/scam", { amount: 1 }, 404],
    ["pool/scan", { amount: -1 }, 400],
    ["pool/scan", { amount: "1" }, 400],
    ["pool/scan", { amount: 1, period: "year" }, 400],
    ["pool/scan", {}, 400],
  ])("rejects %s with %j", async (target, body, status) => {
    expect((await call("PUT", `/v1/budgets/${target}`, { body })).status).toBe(status);
  });

  it("of an erased tenant leave nothing in the audit log", async () => {
    await call("PUT", "/v1/budgets/tenant/leaving", { body: { amount: 3 } });
    await sw.erase("leaving");
    const { rows } = await sql.query("select * from stillwake.audit a where a::text like '%leaving%'");
    expect(rows).toEqual([]);
  });
});

describe("stillwake cost", () => {
  it("prints the costs of the month, with a total and the cost of stopped machines", async () => {
    const { code, stdout } = await cli("cost", "--month", month, "--by", "pipeline");
    expect(code).toBe(0);
    expect(stdout).toContain(`${month}-01 to ${month}-`);
    expect(stdout).toMatch(/^PIPELINE +COST +JOBS +PER JOB +MACHINES +MACHINE TIME +IDLE$/m);
    expect(stdout).toMatch(/^scan +\$0\.12 +2 +\$0\.06 +1 +2m +44%$/m);
    expect(stdout).toMatch(/^total +\$0\.18 +3 +\$0\.06 +1 +3m +44%$/m);
    expect(stdout).toContain("Pool scan: 3 stopped machines of 2 GB cost another $0.90 a month.");
    expect(JSON.parse((await cli("cost", "--json")).stdout)).toMatchObject({ by: "pool" });
    expect((await cli("cost", "--month", "2020-01")).stderr).toContain("No machine costs in this period.");
  });

  it("estimates the cost of jobs, with the reasons, also with custom prices", async () => {
    const fly = "--provider fly --size performance-8x --memory 65536 --region iad --warm 3 --disk 2".split(" ");
    const { stdout } = await cli("cost", "estimate", "--jobs", "100", "--minutes", "5", ...fly);
    expect(stdout).toMatch(/all jobs +\$6\.39 +30000 s × \$0\.000213024/);
    expect(stdout).toMatch(/each job +\$0\.0639\d* /);
    expect(stdout).toMatch(/stopped machines +\$0\.90 a month +3 × 2 GB × \$0\.15 per GB and month/);
    const file = path.join(temporaryDirectory("prices"), "prices.json");
    const ours = { provider: "kubernetes", name: "ours", from: "2026-01-01", perSecond: 0.01 };
    fs.writeFileSync(file, JSON.stringify({ tables: [ours] }));
    const own = ["cost", "estimate", "--jobs", "1", "--minutes", "1", "--provider", "kubernetes", "--json"];
    expect(JSON.parse((await cli(...own, "--prices", file)).stdout)).toMatchObject({ amount: 0.6, table: "ours" });
    expect((await cli(...own)).stderr).toContain("There is no price for kubernetes");
    fs.writeFileSync(file, "{");
    expect((await cli(...own, "--prices", file)).stderr).toContain("is not JSON");
    expect((await cli("cost", "estimate", "--jobs", "many", "--minutes", "5", "--price", "1")).stderr).toContain(
      '--jobs "many" is not a number',
    );
  });
});

describe("stillwake budget", () => {
  it("sets, lists and clears", async () => {
    expect((await cli("budget")).stderr).toContain("There are no budgets.");
    expect((await cli("budget", "set", "tenant", "acme", "0.05", "--period", "day")).stdout).toBe(
      "Tenant acme has a budget of $0.05 per day.\n",
    );
    const { stdout } = await cli("budget");
    expect(stdout).toMatch(/^tenant acme +day +\$0\.05 +\$0\.06 +120% +exhausted +in /m);
    expect((await cli("budget", "clear", "tenant", "acme")).stdout).toBe("Tenant acme no longer has a budget.\n");
    for (const wrong of [
      ["set", "tenant", "acme"],
      ["set", "fleet", "x", "1"],
      ["clear", "pool", "scan", "1"],
    ])
      expect((await cli("budget", ...wrong)).code).not.toBe(0);
    expect((await cli("budget", "set", "pool", "scan", "a lot")).stderr).toContain("is not an amount of dollars");
  });
});

describe("stillwake job", () => {
  it("prints the cost of the job, by machine, with the price table", async () => {
    const { stdout } = await cli("job", jobs.clip!);
    expect(stdout).toMatch(
      /^cost +\$0\.06\d* on sw-m0 \(performance-8x in iad\): 1m 40s of work, 27s of start-up and idle time, prices fly 2026-10-01$/m,
    );
    expect((await cli("job", jobs.later!)).stdout).not.toMatch(/^cost/m);
  });
});
