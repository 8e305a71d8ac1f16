// `stillwake migrate --realtime`: tenants read their feed through Supabase Realtime. On a Postgres with logical
// replication: what a subscriber receives, and what the roles of a Supabase project can read under row-level security.
import type pg from "pg";
import { beforeAll, describe, expect, it } from "vitest";
import { migrate, printMigrations } from "../../src/index.ts";
import { testDatabase, travel } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { startPostgresServer } from "../support/database/postgres-server.ts";
import { dumpSchema } from "../support/database/schema-dump.ts";
import { recordFigure } from "../support/figures.ts";

const server = await startPostgresServer({ wal_level: "logical", max_replication_slots: 4 });
const { url } = server;
const owner = await connect(url);

const SLOT = "realtime_test";

/** What a subscriber of the publication received since the last call: the tables, and the rows as texts. */
async function published(): Promise<{ tables: string[]; rows: (string | null)[][] }> {
  const { rows } = await owner.query<{ data: Buffer }>(
    `select data from pg_logical_slot_get_binary_changes('${SLOT}', null, null, 'proto_version', '1', 'publication_names', 'supabase_realtime')`,
  );
  const tables = new Map<number, string>();
  const inserted: (string | null)[][] = [];
  for (const { data } of rows) {
    const kind = String.fromCharCode(data[0]!);
    if (kind === "R") {
      const [space, name] = data.subarray(5).toString("utf8").split("\0");
      tables.set(data.readInt32BE(1), `${space}.${name}`);
    } else if (kind === "I") inserted.push(tupleAt(data, 6));
    else if (!"BC".includes(kind)) tables.set(-1, `a message of kind ${kind}`);
  }
  return { tables: [...tables.values()], rows: inserted };
}

function tupleAt(data: Buffer, start: number): (string | null)[] {
  const values: (string | null)[] = [];
  let at = start + 2;
  for (let left = data.readInt16BE(start); left > 0; left--) {
    const isNull = String.fromCharCode(data[at]!) !== "t";
    at += 1;
    if (isNull) {
      values.push(null);
      continue;
    }
    const size = data.readInt32BE(at);
    values.push(data.subarray(at + 4, at + 4 + size).toString("utf8"));
    at += 4 + size;
  }
  return values;
}

/** A running job of the tenant with these lines. */
async function logged(tenant: string | null, ...messages: string[]): Promise<string> {
  await owner.query("select stillwake.enqueue('report', '{}', $1)", [tenant ? { tenant } : {}]);
  const { rows } = await owner.query(
    "select job_id as job, epoch, lease_id as lease from stillwake.claim('w', 'default', '{report}', 1)",
  );
  await owner.query("select stillwake.append_logs($1)", [
    JSON.stringify([{ ...rows[0], lines: messages.map((message) => ({ message })) }]),
  ]);
  await owner.query("select stillwake.complete($1, $2, $3)", Object.values(rows[0]));
  return rows[0].job;
}

async function as(role: string, claims: unknown, text: string): Promise<pg.QueryResultRow[]> {
  await owner.query("begin");
  try {
    const json = typeof claims === "string" ? claims : JSON.stringify(claims);
    if (claims !== undefined) await owner.query("select set_config('request.jwt.claims', $1, true)", [json]);
    await owner.query("select set_config('role', $1, true)", [role]);
    return (await owner.query(text)).rows;
  } finally {
    await owner.query("rollback");
  }
}
const messages = "select message from stillwake.realtime_feed where kind = 'log' order by message";

describe("migrate --realtime", () => {
  it("rejects a database without the Supabase roles, and invalid names, and changes nothing", async () => {
    const before = await dumpSchema(owner, "stillwake");
    await expect(migrate({ url, realtime: {} })).rejects.toThrow('The role "authenticated" does not exist');
    for (const realtime of [
      { publication: 'x"; drop' },
      { publication: "" },
      { claim: "a'b" },
      { claim: "a..b" },
      { claim: "" },
    ]) {
      await expect(migrate({ url, realtime })).rejects.toMatchObject({ code: "INVALID_INPUT" });
      expect(() => printMigrations(undefined, realtime)).toThrow(/is not a valid/);
    }
    expect(await dumpSchema(owner, "stillwake")).toBe(before);
  });

  it("may be repeated, and creates the same as the printed script", async () => {
    await owner.query("create role authenticated nologin; create role anon nologin");
    const before = await dumpSchema(owner, "stillwake");
    await migrate({ url, realtime: {} });
    const once = await dumpSchema(owner, "stillwake");
    expect(once).not.toBe(before);
    await migrate({ url, realtime: {} });
    await migrate({ url });
    expect(await dumpSchema(owner, "stillwake")).toBe(once);

    await using second = await testDatabase({ server: url, prefix: "realtime_printed" });
    const client = await connect(second.url);
    await client.query("create publication supabase_realtime");
    for (let times = 0; times < 2; times++)
      await client.query(printMigrations("feeds", { publication: "supabase_realtime" }));
    expect(await dumpSchema(client, "feeds")).toBe(once);
    const { rows } = await client.query("select schemaname, tablename from pg_publication_tables");
    expect(rows).toEqual([{ schemaname: "feeds", tablename: "realtime_feed" }]);
  });
});

describe("a subscriber", () => {
  beforeAll(async () => {
    await owner.query("select stillwake.register_pipeline('report')");
    await owner.query(`select pg_create_logical_replication_slot('${SLOT}', 'pgoutput')`);
  });

  it("receives the lines and events of jobs with a tenant, under one table name, in every week", async () => {
    const first = await logged("acme", "one", "two");
    await logged(null, "of nobody");
    await travel(owner, "9d");
    await owner.query("select stillwake.make_partitions()");
    const second = await logged("globex", "three");
    const { tables, rows } = await published();
    expect(tables).toEqual(["stillwake.realtime_feed"]);
    const lines = rows
      .filter((row) => row[5] === "log")
      .map(([job, , , tenant, , , level, , message]) => [job, tenant, level, message]);
    expect(lines).toEqual([
      [first, "acme", "info", "one"],
      [first, "acme", "info", "two"],
      [second, "globex", "info", "three"],
    ]);
    expect(rows.map((row) => row[3])).not.toContain(null);
    const { rows: kept } = await owner.query(
      "select job_id, seq from stillwake.feed where job_id = any ($1) order by 1, 2",
      [[first, second]],
    );
    expect(
      rows
        .map(([job, seq]) => ({ job_id: job, seq }))
        .sort((a, b) => (`${a.job_id}${a.seq}` < `${b.job_id}${b.seq}` ? -1 : 1)),
    ).toEqual(kept);
  });
});

describe("its row-level security", () => {
  it("shows signed-in users the lines of the tenant in their token", async () => {
    expect(await as("authenticated", { tenant: "acme" }, messages)).toEqual([{ message: "one" }, { message: "two" }]);
    expect(await as("authenticated", { tenant: "globex", role: "authenticated" }, messages)).toEqual([
      { message: "three" },
    ]);
  });

  it.each([
    undefined,
    "",
    {},
    { tenant: null },
    { tenant: "" },
    { tenant: ["acme"] },
    { tenant: { a: "acme" } },
    { app_metadata: { tenant: "acme" } },
    { tenant: "ACME" },
    "null",
    "[]",
    '"acme"',
  ])("shows 0 rows for the claims %j", async (claims) => {
    expect(await as("authenticated", claims, messages)).toEqual([]);
  });

  it("shows anon nothing, and neither role any other table, view or function", async () => {
    await expect(as("anon", { tenant: "acme" }, messages)).rejects.toMatchObject({ code: "42501" });
    const { rows } = await owner.query(
      `select r.rolname as role, c.relname as name from pg_class c cross join pg_roles r where c.relnamespace = 'stillwake'::regnamespace and c.relkind in ('r', 'p', 'v')
        and r.rolname in ('anon', 'authenticated') and has_any_column_privilege(r.oid, c.oid, 'select, insert, update')
      union all
      select r.rolname, p.proname from pg_proc p cross join pg_roles r where p.pronamespace = 'stillwake'::regnamespace
        and r.rolname in ('anon', 'authenticated') and has_function_privilege(r.oid, p.oid, 'execute')`,
    );
    expect(rows).toEqual([{ role: "authenticated", name: "realtime_feed" }]);
    await expect(as("authenticated", { tenant: "acme" }, "delete from stillwake.realtime_feed")).rejects.toMatchObject({
      code: "42501",
    });
  });

  it("reads a nested claim if configured", async () => {
    await migrate({ url, realtime: { claim: "app_metadata.tenant" } });
    expect(await as("authenticated", { app_metadata: { tenant: "globex" }, tenant: "acme" }, messages)).toEqual([
      { message: "three" },
    ]);
    expect(await as("authenticated", { tenant: "acme" }, messages)).toEqual([]);
  });
});

describe("the copy", () => {
  it("is emptied by the watchdog after an hour, without a message to subscribers", async () => {
    const count = async () =>
      (await owner.query("select count(*)::integer as count from stillwake.realtime_feed")).rows[0].count;
    await owner.query("select stillwake.watchdog()");
    // Its first line is nine days old.
    expect(await count()).toBe(0);
    const id = await logged("acme", "later");
    await owner.query("select stillwake.watchdog()");
    expect(await count()).toBeGreaterThan(0);
    await travel(owner, "61m");
    await owner.query("select stillwake.watchdog()");
    expect(await count()).toBe(0);
    expect((await owner.query("select message from stillwake.logs where job_id = $1", [id])).rows).toEqual([
      { message: "later" },
    ]);
    const { rows, tables } = await published();
    expect(rows.filter((row) => row[5] === "log").map((row) => row[8])).toEqual(["later"]);
    expect(tables).toEqual(["stillwake.realtime_feed"]);
  });

  it("is deleted when its tenant is erased", async () => {
    await logged("leaving", "goodbye");
    const { rows } = await owner.query("select objects from stillwake.erase_tenant('leaving')");
    await owner.query("select stillwake.erase_tenant('leaving', 500, $1)", [rows[0].objects]);
    expect((await owner.query("select from stillwake.realtime_feed where tenant = 'leaving'")).rowCount).toBe(0);
  });

  it("costs about as much as the line itself, and only if enabled", async () => {
    const cost = async () => {
      const times: number[] = [];
      for (let round = 0; round < 7; round++) {
        await owner.query("select stillwake.enqueue('report', '{}', $1)", [{ tenant: "acme" }]);
        const { rows } = await owner.query(
          "select job_id as job, epoch, lease_id as lease from stillwake.claim('w', 'default', '{report}', 1)",
        );
        const lines = Array.from({ length: 1000 }, (_, n) => ({ message: `line ${n} of a thousand` }));
        const startedAt = performance.now();
        await owner.query("select stillwake.append_logs($1)", [JSON.stringify([{ ...rows[0], lines }])]);
        times.push(performance.now() - startedAt);
        await owner.query("select stillwake.complete($1, $2, $3)", Object.values(rows[0]));
      }
      return times.sort((a, b) => a - b)[3]!;
    };
    const copied = await cost();
    await owner.query("drop trigger mirror_feed on stillwake.feed");
    const plain = await cost();
    recordFigure("realtime: 1,000 lines with a copy", copied, "ms", `${plain.toFixed(1)} ms without`);
    expect(copied).toBeLessThan(plain * 20 + 500);
  });
});
