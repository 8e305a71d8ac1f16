// Row-level security, the second barrier between tenants: what the tenant role can read of views, tables, partitions
// and functions, and the reads of the library through that role, also with hostile filters.
import { randomBytes, randomUUID } from "node:crypto";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writeCursor } from "../../src/client/pagination.ts";
import { Reader } from "../../src/client/reader.ts";
import { Database } from "../../src/db/database.ts";
import { migrate } from "../../src/db/migrate.ts";
import { tenantDatabase } from "../../src/db/tenant-database.ts";
import { InvalidInput, JobNotFound } from "../../src/errors.ts";
import { travel } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { findPgBouncer, startPgBouncer } from "../support/database/pgbouncer.ts";
import { insertTenantRows, type TenantRows } from "../support/database/tenant-rows.ts";
import { recordFigure } from "../support/figures.ts";

const database = await freshDatabase();
const owner = await connect(database.url);
const suffix = randomBytes(4).toString("hex");
const acme = `acme${suffix}`;
const globex = `globex${suffix}`;
const logins = { app: login("app"), reader: login("reader") };
let ours: TenantRows;
let theirs: TenantRows;
/** A login of the app with one connection, so that state left on it affects the next read. */
let app: Database;

beforeAll(async () => {
  for (const [role, { name }] of Object.entries(logins)) {
    await owner.query(`create role ${name} login password 'secret'; grant stillwake_${role} to ${name}`);
  }
  ours = await insertTenantRows(owner, globex);
  theirs = await insertTenantRows(owner, acme);
  await owner.query("select stillwake.enqueue('report', '{\"of\": \"nobody\"}')");
  app = new Database({ url: logins.app.url, connections: 1 });
});
afterAll(async () => {
  await app.close();
  for (const { name } of Object.values(logins)) await owner.query(`drop owned by ${name}; drop role ${name}`);
});

/** Runs a query as the tenant role; undefined: no tenant is set. */
async function as(tenant: string | undefined, text: string, values: unknown[] = []): Promise<pg.QueryResultRow[]> {
  await owner.query("begin read only");
  try {
    if (tenant !== undefined) await owner.query("select set_config('stillwake.tenant', $1, true)", [tenant]);
    await owner.query("select set_config('role', 'stillwake_tenant', true)");
    return (await owner.query(text, values)).rows;
  } finally {
    await owner.query("rollback");
  }
}

interface Relation {
  name: string;
  kind: "r" | "p" | "v";
  partition: boolean;
  /** Readable by a tenant. */
  columns: string[];
}

async function relations(): Promise<Relation[]> {
  const { rows } = await owner.query(
    `select c.relname as name, c.relkind as kind, c.relispartition as partition,
      array(select quote_ident(a.attname) from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        and has_column_privilege('stillwake_tenant', c.oid, a.attname, 'select') order by a.attnum) as columns
    from pg_class c where c.relnamespace = 'stillwake'::regnamespace and c.relkind in ('r', 'p', 'v') order by 1`,
  );
  return rows;
}

/** Relations that a tenant may read. All others are inaccessible. */
const readable = "artifacts attempts checkpoints ended_attempts ended_jobs events feed jobs live_jobs logs".split(" ");

describe("the tenant role", () => {
  it("can read only its relations, and no partition directly", async () => {
    const all = await relations();
    expect(all.filter(({ partition }) => partition).length).toBeGreaterThan(10);
    expect(all.filter(({ columns }) => columns.length > 0).map(({ name }) => name)).toEqual(readable);
    for (const { name, columns } of all.filter((relation) => relation.columns.length === 0)) {
      expect(columns).toEqual([]);
      await expect(as(globex, `select from stillwake.${name} limit 1`), name).rejects.toMatchObject({ code: "42501" });
    }
  });

  it.each([undefined, "", "nobody", "%", "' or true --"])("sees 0 rows as %j", async (tenant) => {
    for (const name of readable) expect(await as(tenant, `select from stillwake.${name}`), name).toEqual([]);
  });

  it("sees all its own rows, and no others", async () => {
    let leaks = 0;
    for (const { name, columns } of (await relations()).filter((relation) => readable.includes(relation.name))) {
      const rows = await as(globex, `select ${columns.join(", ")} from stillwake.${name}`);
      const text = JSON.stringify(rows);
      leaks += [acme, "nobody", ...theirs.ids].filter((word) => text.includes(word)).length;
      const id = columns.includes("job_id") ? "job_id" : "id";
      const { rows: mine } = await owner.query(
        `select count(*)::integer as count from stillwake.${name} where ${id} = any ($1)`,
        [ours.ids],
      );
      expect(rows.length, name).toBe(mine[0].count);
      expect(rows.length, name).toBeGreaterThan(0);
    }
    expect(leaks).toBe(0);
    recordFigure("rows: leaks through views and tables", leaks);
  });

  it("sees no more through joins, subqueries, counts, and conditions that fail on other rows", async () => {
    const { completed } = theirs.jobs;
    const queries: [text: string, values?: unknown[]][] = [
      ["select l.* from stillwake.jobs j join stillwake.logs l on l.job_id = $1", [completed]],
      ["select (select input from stillwake.jobs where id = $1) as input from stillwake.jobs where false", [completed]],
      [
        "select from stillwake.jobs j full join stillwake.feed f on true where j.tenant = $1 or f.job_id = $2",
        [acme, completed],
      ],
      ["select from stillwake.live_jobs where tenant <> $1 or tenant is null", [globex]],
      // An error of these would reveal that the row exists.
      [
        "select 1 / (case when input ->> 'mark' = $1 then 0 else 1 end) from stillwake.jobs where tenant <> $2",
        [acme, globex],
      ],
      ["select from stillwake.jobs where 1 / (case when tenant = $1 then 0 else 1 end) = 2", [acme]],
      ["select from stillwake.feed where job_id = $1 and (message::integer = 1 or true)", [completed]],
      [
        "select from stillwake.artifacts where key like '%' || $1 || '%' and 1 / (octet_length(name) - octet_length(name)) = 1",
        [completed],
      ],
    ];
    for (const [text, values] of queries) expect(await as(globex, text, values), text).toEqual([]);
    const counts =
      "select (select count(*) from stillwake.jobs)::integer as jobs, (select max(id::text) from stillwake.ended_jobs) as last";
    const [seen] = await as(globex, counts);
    expect(seen!.jobs).toBe(ours.ids.length);
    expect(ours.ids).toContain(seen!.last);
  });

  it("may call six functions, which reveal nothing of others; all others are rejected without details", async () => {
    const { rows } = await owner.query(
      "select oid::regprocedure::text as name from pg_proc where pronamespace = 'stillwake'::regnamespace and has_function_privilege('stillwake_tenant', oid, 'execute') order by 1",
    );
    expect(rows.map(({ name }) => name)).toEqual(
      ["children(uuid)", "now()", "schema_state()", "statement_time()", "visible_gates()", "visible_holds()"].map(
        (name) => `stillwake.${name}`,
      ),
    );
    const children = "select stillwake.children($1) as children";
    expect((await as(globex, children, [ours.jobs.parent]))[0]!.children).toMatchObject({ total: 1 });
    expect((await as(globex, children, [theirs.jobs.parent]))[0]!.children).toBeNull();
    expect((await as(undefined, children, [ours.jobs.parent]))[0]!.children).toBeNull();
    for (const call of [
      "cancel($1)",
      "retry($1)",
      "load_checkpoints($1, 1, $1)",
      "job_exists($1)",
      "read_feeds(array[$1::uuid], null, null)",
    ]) {
      const rejected = await as(globex, `select stillwake.${call}`, [theirs.jobs.failed]).catch((error) => error);
      expect(rejected, call).toMatchObject({ code: "42501" });
      expect(JSON.stringify(rejected) + rejected.message).not.toContain(theirs.jobs.failed);
    }
  });

  it("sees that a breaker is open, but not the reason from other tenants", async () => {
    await owner.query("select stillwake.register_breaker('api')");
    await owner.query(`select stillwake.register_pipeline('report', '{"breakers": ["api"], "pool": "reports"}')`);
    const { rows } = await owner.query("select stillwake.enqueue('report', '1', $1) as id", [{ tenant: globex }]);
    await owner.query("select stillwake.open_breaker('api', null, $1, 'ops')", [`500 for ${acme}`]);
    const query = "select state, pause from stillwake.jobs where id = $1";
    const [mine] = await as(globex, query, [rows[0].id]);
    expect(mine).toMatchObject({ state: "paused", pause: { breaker: "api", reason: "api is failing" } });
    expect((await owner.query(query, [rows[0].id])).rows[0].pause.reason).toContain(acme);
    await owner.query("select stillwake.close_breaker('api')");
    await owner.query(`select stillwake.register_pipeline('report', '{"pool": "reports"}')`);
    await owner.query("select stillwake.cancel($1)", [rows[0].id]);
    ours.ids.push(rows[0].id);
  });

  it("cannot read partitions that were created later, except through their parents", async () => {
    const before = new Set((await relations()).map(({ name }) => name));
    await travel(owner, "21d");
    await owner.query("select stillwake.make_partitions()");
    const { rows } = await owner.query("select stillwake.enqueue('report', $1, $2) as id", [{}, { tenant: acme }]);
    theirs.ids.push(rows[0].id);
    const created = (await relations()).filter(({ name, partition }) => partition && !before.has(name));
    expect(created.length).toBeGreaterThan(5);
    for (const { name } of created) {
      await expect(as(acme, `select from stillwake.${name}`), name).rejects.toMatchObject({ code: "42501" });
    }
    await owner.query("select stillwake.cancel($1)", [rows[0].id]);
    const events = "select kind from stillwake.events where job_id = $1";
    expect(await as(globex, events, [rows[0].id])).toEqual([]);
    expect((await as(acme, events, [rows[0].id])).length).toBeGreaterThan(0);
  });
});

describe("the catalogue", () => {
  it("has row security on every table with a tenant or a job, and a tenant policy or no privilege", async () => {
    const { rows } = await owner.query(
      `select c.relname as name, c.relrowsecurity as secured, c.relforcerowsecurity as forced,
        exists (select from pg_policies p where p.schemaname = 'stillwake' and p.tablename = c.relname and 'stillwake_tenant' = any (p.roles) and p.qual like '%current_setting%') as has_policy,
        has_any_column_privilege('stillwake_tenant', c.oid, 'select') as granted
      from pg_class c where c.relnamespace = 'stillwake'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
        and exists (select from pg_attribute a where a.attrelid = c.oid and a.attname in ('tenant', 'job_id', 'job_ids'))`,
    );
    expect(rows.length).toBeGreaterThan(12);
    expect(rows.filter(({ secured }) => !secured)).toEqual([]);
    expect(rows.filter(({ granted, has_policy }) => granted !== has_policy)).toEqual([]);
    // The functions run as the owner and see everything.
    expect(rows.filter(({ forced }) => forced)).toEqual([]);
  });

  it("has no public policy, none that lets a tenant write, and no tenant view that reads as the owner", async () => {
    const { rows: policies } = await owner.query(
      "select tablename, policyname, cmd, roles::text[] as roles, permissive from pg_policies where schemaname = 'stillwake'",
    );
    expect(policies.filter(({ roles }) => roles.includes("public"))).toEqual([]);
    expect(policies.filter(({ cmd }) => cmd !== "SELECT")).toEqual([]);
    const { rows: views } = await owner.query(
      `select relname from pg_class where relnamespace = 'stillwake'::regnamespace and relkind = 'v'
        and has_table_privilege('stillwake_tenant', oid, 'select') and not coalesce(reloptions @> '{security_invoker=true}', false)`,
    );
    expect(views).toEqual([]);
  });

  it("has a tenant role that cannot log in, bypasses no policy and is a member of no role", async () => {
    const { rows } = await owner.query(
      `select rolsuper, rolbypassrls, rolcanlogin, rolcreaterole, rolcreatedb, array(select m.roleid::regrole::text from pg_auth_members m where m.member = r.oid) as member_of
      from pg_roles r where rolname = 'stillwake_tenant'`,
    );
    expect(rows).toEqual([
      {
        rolsuper: false,
        rolbypassrls: false,
        rolcanlogin: false,
        rolcreaterole: false,
        rolcreatedb: false,
        member_of: [],
      },
    ]);
  });

  it("does not change the query plans of the owner", async () => {
    const plan = async () => {
      const { rows } = await owner.query(
        "explain (costs off) select id from stillwake.live_jobs where tenant = 'x' and id = $1",
        [ours.jobs.queued],
      );
      return rows.map((row) => row["QUERY PLAN"]).join("\n");
    };
    expect(await plan()).not.toContain("current_setting");
    await owner.query("begin; set local role stillwake_tenant");
    expect(await plan()).toContain("current_setting");
    await owner.query("rollback");
  });
});

describe("reads of the library for a tenant", () => {
  const readerOf = (tenant: string) => new Reader(tenantDatabase(app, tenant), undefined);

  it("return the same as for an operator, restricted to the tenant's rows", async () => {
    const reader = readerOf(globex);
    const { jobs } = await reader.list({ limit: 200 });
    expect(jobs.map(({ id }) => id).sort()).toEqual([...ours.ids].sort());
    const { completed, failed } = ours.jobs;
    expect(await reader.get(completed)).toMatchObject({ state: "completed", output: { mark: globex } });
    expect((await reader.logs(completed)).map(({ message }) => message)).toEqual([`line of ${globex}`]);
    expect((await reader.attempts(failed)).map(({ outcome }) => outcome)).toEqual(["failed", "failed"]);
    expect((await reader.steps(completed)).map(({ name }) => name)).toEqual([`step ${globex}`]);
    expect((await reader.artifacts(completed)).map(({ name }) => name)).toEqual([`${globex}.txt`]);
    expect((await reader.list({ parent: ours.jobs.parent })).jobs.map(({ id }) => id)).toEqual([ours.jobs.child]);
  });

  it("return the same for a job of another tenant as for a missing one", async () => {
    const reader = readerOf(globex);
    const results = async (id: string) => {
      const error = await reader.get(id).catch((thrown) => thrown);
      expect(error).toBeInstanceOf(JobNotFound);
      return {
        error: error.message.replaceAll(id, "ID"),
        rest: [
          await reader.logs(id),
          await reader.attempts(id),
          await reader.steps(id),
          await reader.artifacts(id),
          await reader.list({ parent: id }),
        ],
      };
    };
    expect(await results(theirs.jobs.completed)).toEqual(await results(randomUUID().replace(/^(.{14})./, "$17")));
  });

  it("return no row of another tenant with any filter, and leave no state on the connection", async () => {
    const reader = readerOf(globex);
    const hostileValues = [
      acme,
      `' or 1=1 --`,
      `' or tenant = '${acme}`,
      `'; reset role; select * from stillwake.live_jobs; --`,
      `'); select set_config('role', 'none', true); --`,
      `' || set_config('stillwake.tenant', '${acme}', true) || '`,
      `\\'; set role none; --`,
      `$1`,
      `$$ or true $$`,
      `/* */ or true`,
      `%`,
      `_`,
      `*`,
      `ʼ or 1=1 --`,
      `＇ or 1=1 --`,
      `\u0085' or true --`,
      `{"$gt": ""}`,
      `null`,
      `stillwake_tenant`,
      theirs.jobs.completed,
    ];
    let queries = 0;
    let leaks = 0;
    const expectNoLeak = async (read: () => Promise<unknown>) => {
      queries += 1;
      const result = await read().catch((error) => {
        // Rejected by our validation or by the column type, never by a syntax error.
        if (!(error instanceof InvalidInput || error instanceof JobNotFound)) expect(error.code).toMatch(/^22/);
        return [];
      });
      const text = JSON.stringify(result);
      if ([acme, ...theirs.ids].some((word) => text.includes(word))) leaks += 1;
      const [left] = await app.query<{ who: string; tenant: string | null }>(
        "select current_user as who, nullif(current_setting('stillwake.tenant', true), '') as tenant",
      );
      expect(left).toEqual({ who: logins.app.name, tenant: null });
    };
    for (const word of hostileValues) {
      for (const filter of ["pipeline", "pool", "state", "key", "tenant", "parent", "text"]) {
        await expectNoLeak(() => reader.list({ [filter]: word }));
      }
      await expectNoLeak(() => reader.list({ cursor: word }));
      await expectNoLeak(() => reader.list({ since: word as never }));
      await expectNoLeak(() => reader.list({ [word]: "x" } as never));
      await expectNoLeak(() => reader.list({ limit: word as never }));
      await expectNoLeak(() => reader.logs(word));
      await expectNoLeak(() => reader.logs(theirs.jobs.completed, { after: word }));
      for (const method of ["get", "attempts", "steps", "artifacts"] as const)
        await expectNoLeak(() => reader[method](word));
    }
    // Valid ids and cursors of another tenant.
    for (const id of theirs.ids) {
      await expectNoLeak(() => reader.list({ cursor: writeCursor(id) }));
      await expectNoLeak(() => reader.list({ tenant: acme, key: `${acme}-completed` }));
      for (const method of ["get", "logs", "attempts", "steps", "artifacts"] as const)
        await expectNoLeak(() => reader[method](id));
    }
    expect(leaks).toBe(0);
    recordFigure("rows: leaks through filters", leaks, "", `${queries} queries`);
  });

  it("cannot use another tenant than the one they were created for", async () => {
    for (const tenant of [
      `${globex}', true), set_config('role', 'none`,
      `x' or 'a'='a`,
      acme.toUpperCase(),
      ` ${acme}`,
    ]) {
      expect((await new Reader(tenantDatabase(app, tenant), undefined).list()).jobs).toEqual([]);
    }
    expect(() => tenantDatabase(app, "")).toThrow(InvalidInput);
    expect(() => tenantDatabase(app, undefined as never)).toThrow(InvalidInput);
    expect(() => tenantDatabase(app, "a\0b")).toThrow(InvalidInput);
  });

  it("write nothing", async () => {
    const scoped = tenantDatabase(app, globex);
    await expect(scoped.read("delete from stillwake.live_jobs")).rejects.toMatchObject({ code: "NOT_ALLOWED" });
    await expect(scoped.read("select stillwake.cancel($1)", [ours.jobs.queued])).rejects.toMatchObject({
      code: "42501",
    });
    expect((await owner.query("select state from stillwake.jobs where id = $1", [ours.jobs.queued])).rows).toEqual([
      { state: "paused" },
    ]);
  });

  it("of two tenants on few connections do not mix, also when connections break", async () => {
    await using shared = Object.assign(new Database({ url: logins.app.url, connections: 2 }), {
      [Symbol.asyncDispose]: () => shared.close(),
    });
    const readers = [ours, theirs].map((rows) => ({
      rows,
      reader: new Reader(tenantDatabase(shared, rows.tenant), undefined),
    }));
    let leaks = 0;
    const rounds = Array.from({ length: 60 }, async (_, round) => {
      const { rows, reader } = readers[round % 2]!;
      if (round === 30) {
        await owner.query(
          "select pg_terminate_backend(pid) from pg_stat_activity where usename = $1 and datname = current_database()",
          [logins.app.name],
        );
      }
      if (round % 7 === 3)
        await tenantDatabase(shared, rows.tenant)
          .read("select 1 / 0")
          .catch(() => {});
      const { jobs } = await reader.list({ limit: 200 });
      leaks += jobs.filter(({ id }) => !rows.ids.includes(id)).length;
      expect(jobs.length).toBe(rows.ids.length);
      const [left] = await shared.query<{ who: string }>("select current_user as who");
      expect(left!.who).toBe(logins.app.name);
    });
    await Promise.all(rounds);
    expect(leaks).toBe(0);
  });

  it("are rejected with a remedy for a login that may not set the role", async () => {
    await using reader = Object.assign(new Database({ url: logins.reader.url }), {
      [Symbol.asyncDispose]: () => reader.close(),
    });
    await expect(new Reader(tenantDatabase(reader, globex), undefined).list()).rejects.toMatchObject({
      code: "TENANT_ROLE_MISSING",
      remedy: expect.stringContaining("stillwake_app"),
    });
    expect((await new Reader(reader, undefined).list({ limit: 200 })).jobs.length).toBeGreaterThan(ours.ids.length);
  });

  it("work when the owner is not a superuser, and in a schema of another name", async () => {
    const schema = `other_${suffix}`;
    const { name, url } = login("owner");
    await owner.query(`create role ${name} login createrole password 'secret'`);
    await owner.query(`grant create on database ${database.name} to ${name}`);
    await migrate({ url, schema });
    const own = new Database({ url, schema });
    try {
      await own.query(`select ${schema}.register_pipeline('report')`);
      for (const tenant of [acme, globex]) await own.query(`select ${schema}.enqueue('report', '1', $1)`, [{ tenant }]);
      const { jobs } = await new Reader(tenantDatabase(own, globex), undefined).list();
      expect(jobs.map(({ tenant }) => tenant)).toEqual([globex]);
      expect((await new Reader(own, undefined).list()).jobs).toHaveLength(2);
    } finally {
      await own.close();
      for (const role of ["app", "worker", "reader", "tenant"].map((one) => `${schema}_${one}`)) {
        await owner.query(`drop owned by ${role}; drop role ${role}`);
      }
      await owner.query(`drop owned by ${name} cascade; drop role ${name}`);
    }
  });

  const bouncer = findPgBouncer();
  it("work through PgBouncer in transaction mode", async (context) => {
    if (typeof bouncer === "string") return context.skip(bouncer);
    await using pooler = await startPgBouncer({
      program: bouncer.program,
      url: database.url,
      mode: "transaction",
      size: 2,
    });
    await using pooled = Object.assign(new Database({ url: pooler.url, connections: 6 }), {
      [Symbol.asyncDispose]: () => pooled.close(),
    });
    await Promise.all(
      Array.from({ length: 40 }, async (_, round) => {
        const rows = round % 2 ? ours : theirs;
        const { jobs } = await new Reader(tenantDatabase(pooled, rows.tenant), undefined).list({ limit: 200 });
        expect(jobs.map(({ id }) => id).sort()).toEqual([...rows.ids].sort());
        const [left] = await pooled.query<{ tenant: string | null }>(
          "select nullif(current_setting('stillwake.tenant', true), '') as tenant",
        );
        expect(left!.tenant).toBeNull();
      }),
    );
  });

  it("cost little more than those of an operator", async () => {
    await owner.query(
      `insert into stillwake.feed (job_id, seq, at, epoch, kind, level, message)
      select $1, 1000 + n, stillwake.now(), 1, 'log', 'info', 'line ' || n from generate_series(1, 1000) n`,
      [ours.jobs.completed],
    );
    await owner.query("analyze stillwake.feed, stillwake.live_jobs, stillwake.ended_jobs");
    const { rows } = await owner.query(
      "select count(*)::integer as count from pg_inherits where inhparent = 'stillwake.ended_jobs'::regclass",
    );
    const cost = async (reader: Reader) => {
      const times: number[] = [];
      for (let round = 0; round < 12; round++) {
        const began = performance.now();
        expect(await reader.logs(ours.jobs.completed, { after: "1000", limit: 1000 })).toHaveLength(1000);
        times.push(performance.now() - began);
      }
      return times.sort((a, b) => a - b)[5]!;
    };
    const operator = await cost(new Reader(app, undefined));
    const tenant = await cost(readerOf(globex));
    recordFigure(
      "rows: 1,000 lines for a tenant",
      tenant,
      "ms",
      `${operator.toFixed(1)} ms without row-level security; ${rows[0].count} partitions of ended jobs`,
    );
    expect(rows[0].count).toBeGreaterThanOrEqual(5);
    expect(tenant).toBeLessThan(operator * 10 + 200);
  });
});

function login(role: string): { name: string; url: string } {
  const name = `stillwake_rows_${role}_${suffix}`;
  const url = new URL(database.url);
  url.username = name;
  url.password = "secret";
  return { name, url: url.href };
}
