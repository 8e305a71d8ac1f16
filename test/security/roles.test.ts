// Roles: real logins with one role each, against every table, view and function.
import { randomBytes } from "node:crypto";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { settleAndClaim } from "../../src/db/calls/worker.ts";
import { createStillwake, pipeline } from "../../src/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";

const database = await freshDatabase();
const owner = await connect(database.url);
const mark = randomBytes(4).toString("hex");
const logins = { app: login("app"), worker: login("worker"), reader: login("reader"), nobody: login("nobody") };
type Role = keyof typeof logins;
const clients = {} as Record<Role, pg.Client>;
const report = pipeline("report");

beforeAll(async () => {
  for (const role of Object.keys(logins) as Role[]) {
    await owner.query(`create role ${logins[role].name} login password 'secret'`);
    if (role !== "nobody") await owner.query(`grant stillwake_${role} to ${logins[role].name}`);
    clients[role] = new pg.Client({ connectionString: logins[role].url });
    await clients[role].connect();
  }
  await owner.query("select stillwake.register_pipeline('report')");
});
afterAll(async () => {
  for (const role of Object.keys(logins) as Role[]) {
    await clients[role].end();
    await owner.query(`drop owned by ${logins[role].name} cascade`);
    await owner.query(`drop role ${logins[role].name}`);
  }
});

/** All functions that roles other than the owner may call. A new function must be listed here, or only the owner may call it. */
const allowed: Record<Role, string[]> = {
  app: "adopt_fleet begin_audit_entry budget_state cancel cap_pool check_tokens children close_breaker closed_gates costs create_token database_identity demand disable_endpoint enable_endpoint ended_counts enqueue enqueue_many erase_tenant finish_audit_entry fleet housekeep housekeeping_done housekeeping_due job_cost limit_quotas live_counts machine_counts machine_ended machine_leaves machine_registered machine_started machines make_partitions next_due now open_breaker orchestrator_snapshot pause pause_pool pause_schedule read_feeds recover_absent register_breaker register_limit register_pipeline remove_schedule report_provider_error resend_webhook reserve_machine reset_limit resume resume_pool resume_schedule retire_machine retry revoke_token rotate_secret run_schedules save_checkpoint save_position schema_state set_budget set_endpoint set_machines set_schedule set_weight signal statement_time tend_jobs unwatch upcoming visible_gates visible_holds watch watchdog webhooks_due".split(
    " ",
  ),
  worker:
    "adopt append_logs check_breaker claim claim_webhooks complete demand expire fail find_signal heartbeat hold_presence housekeep housekeeping_done housekeeping_due listen load_artifacts load_checkpoints load_children machine_leaves machine_registered make_partitions next_due now pipeline_pools progress recover recover_absent register_breaker register_limit register_pipeline release report_breaker_result run_due_schedules save_artifact save_checkpoint save_checkpoints save_position schema_state settle settle_and_claim settle_webhooks spawn spawn_state take_signal tend_jobs unlisten use_limit watchdog webhooks_due".split(
      " ",
    ),
  reader:
    "budget_state children closed_gates costs demand ended_counts job_cost limit_quotas live_counts machine_counts machines next_due now read_feeds schema_state statement_time unwatch upcoming visible_gates visible_holds watch webhooks_due".split(
      " ",
    ),
  nobody: [],
};
const views =
  "artifacts attempts breakers checkpoints deliveries events jobs limits logs pipelines pools schedules tenants wanted_workers webhook_endpoints webhooks".split(
    " ",
  );
/** Tables behind the views: some columns are readable, see below. */
const tables = "ended_attempts ended_jobs feed live_jobs".split(" ");
const readable: Record<Role, string[]> = {
  app: [...views, ...tables, "access_tokens", "audit"],
  reader: [...views, ...tables],
  worker: [],
  nobody: [],
};

describe.each(Object.keys(logins) as Role[])("%s", (role) => {
  it("may call its functions and no others", async () => {
    const { rows } = await owner.query(
      "select distinct proname from pg_proc where pronamespace = 'stillwake'::regnamespace and has_function_privilege($1, oid, 'execute') and has_schema_privilege($1, 'stillwake', 'usage') order by 1",
      [logins[role].name],
    );
    expect(rows.map(({ proname }) => proname)).toEqual(allowed[role]);
  });

  it("may read its views, and write nowhere", async () => {
    const relations = await owner.query(
      "select relname from pg_class where relnamespace = 'stillwake'::regnamespace and relkind in ('r', 'p', 'v') order by 1",
    );
    expect(relations.rows.length).toBeGreaterThan(20);
    for (const { relname } of relations.rows) {
      const read = clients[role].query(`select from stillwake.${relname} limit 1`);
      if (readable[role].includes(relname)) await read;
      else await expect(read, relname).rejects.toMatchObject({ code: "42501" });
      for (const write of [
        `delete from stillwake.${relname}`,
        `insert into stillwake.${relname} default values`,
        `begin; lock table stillwake.${relname} in access exclusive mode`,
      ]) {
        const rejected = await clients[role].query(write).catch((error) => error);
        // 55000: the view is not writable.
        expect(rejected.code, write).toMatch(/^(42501|55000)$/);
        await clients[role].query("rollback");
      }
    }
  });

  it("may read no fencing or secret column, and only the tables behind its views", async () => {
    const { rows } = await owner.query<{ table: string; name: string }>(
      `select c.relname as table, a.attname as name from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      where c.relnamespace = 'stillwake'::regnamespace and c.relkind in ('r', 'p', 'v') and has_column_privilege($1, c.oid, a.attname, 'select')`,
      [logins[role].name],
    );
    const closed = /^(lease_id|probe_lease|presence|hash|secret|headers|trace|log_batch)$/;
    expect(rows.filter(({ name }) => closed.test(name)).filter(({ table }) => table !== "webhook_endpoints")).toEqual(
      [],
    );
    const columns = (table: string) => rows.filter((row) => row.table === table).map(({ name }) => name);
    // The view shows awaits as awaited_event.
    for (const table of ["live_jobs", "ended_jobs"]) {
      expect(columns(table).filter((name) => ![...columns("jobs"), "outcome", "awaits"].includes(name))).toEqual([]);
    }
    expect(columns("ended_attempts").filter((name) => !columns("attempts").includes(name))).toEqual([]);
  });

  it("may neither create nor change anything in the schema", async () => {
    for (const statement of [
      "create table stillwake.mine (id int)",
      "create function stillwake.mine() returns void language sql as 'select'",
      "create or replace function stillwake.now() returns timestamptz language sql as 'select now()'",
      "alter table stillwake.live_jobs add column mine int",
      "drop function stillwake.now()",
    ]) {
      await expect(clients[role].query(statement), statement).rejects.toMatchObject({ code: "42501" });
    }
  });
});

describe("through the client", () => {
  it("an app enqueues, reads and controls jobs", async () => {
    await using stillwake = createStillwake({ url: logins.app.url });
    await stillwake.register(pipeline("from-app", { pool: "apps" }));
    const { id } = await stillwake.enqueue(report, { n: 1 }, { idempotencyKey: "app", delay: "1h" });
    expect((await stillwake.list({ state: "queued" })).jobs.map((job) => job.id)).toEqual([id]);
    expect(await stillwake.pause(id)).toBe("paused");
    expect(await stillwake.resume(id)).toBe("queued");
    expect(await stillwake.cancel(id)).toBe("cancelled");
    expect(await stillwake.retry(id)).toBe("queued");
    await stillwake.pause({ pool: "apps" });
    await stillwake.resume({ pool: "apps" });
    await stillwake.cancel(id);
  });

  it("a reader reads, and everything else is rejected", async () => {
    await using stillwake = createStillwake({ url: logins.reader.url });
    const [job] = (await stillwake.list()).jobs;
    expect((await stillwake.get(job!.id)).id).toBe(job!.id);
    await expect(stillwake.enqueue("report", 1)).rejects.toMatchObject({ code: "42501" });
    await expect(stillwake.cancel(job!.id)).rejects.toMatchObject({ code: "42501" });
  });

  it("a worker runs a job from claim to settle, and sees no other", async () => {
    const { rows } = await owner.query(
      "select stillwake.enqueue('report', '{\"mine\": true}') as mine, stillwake.enqueue('report', '{\"secret\": true}') as other",
    );
    const { mine, other } = rows[0];
    await using stillwake = createStillwake({ url: logins.worker.url });
    const request = { worker: "w", pool: "default", pipelines: ["report"], limit: 1, lease: "1 minute" };
    const { claimed } = await settleAndClaim(stillwake.database, [], request);
    const { job_id, epoch, lease_id, input } = claimed[0]!;
    expect([job_id, input]).toEqual([mine, { mine: true }]);

    const lease = { job: job_id, epoch, lease: lease_id };
    const fence = [job_id, epoch, lease_id];
    const worker = clients.worker;
    await worker.query("select stillwake.heartbeat(array[$1]::uuid[], array[$2]::bigint[], array[$3]::uuid[])", fence);
    await worker.query("select stillwake.save_checkpoints($1)", [
      JSON.stringify([{ ...lease, step: "one", output: 1 }]),
    ]);
    await worker.query("select stillwake.append_logs($1)", [
      JSON.stringify([{ ...lease, lines: [{ message: "hello" }] }]),
    ]);
    await worker.query("select stillwake.progress($1, $2, $3, '{\"fraction\": 0.5}')", fence);
    expect((await worker.query("select step from stillwake.load_checkpoints($1, $2, $3)", fence)).rows).toEqual([
      { step: "one" },
    ]);

    await expect(worker.query("select stillwake.load_checkpoints($1, 0, $2)", [other, lease_id])).rejects.toMatchObject(
      { code: "SW005" },
    );
    await expect(stillwake.get(other)).rejects.toMatchObject({ code: "42501" });
    await expect(stillwake.enqueue("report", 1)).rejects.toMatchObject({ code: "42501" });
    await expect(stillwake.cancel(other)).rejects.toMatchObject({ code: "42501" });
    expect((await worker.query("select stillwake.complete($1, $2, $3, '7') as state", fence)).rows).toEqual([
      { state: "completed" },
    ]);
  });
});

describe("the functions that run as the owner", () => {
  it("all set their search_path, and none is executable by public", async () => {
    const { rows } = await owner.query(
      `select oid::regprocedure::text as name, prosecdef as definer, proconfig @> array['search_path=pg_catalog, pg_temp'] as fixed,
        exists (select from aclexplode(coalesce(proacl, acldefault('f', proowner))) where grantee = 0) as public
      from pg_proc where pronamespace = 'stillwake'::regnamespace`,
    );
    expect(rows.length).toBeGreaterThan(50);
    expect(rows.filter(({ definer, fixed }) => definer && !fixed)).toEqual([]);
    expect(rows.filter((row) => row.public)).toEqual([]);
    expect(rows.filter(({ definer }) => definer).length).toBeGreaterThan(20);
  });

  it("cannot be hijacked by tables, functions and operators of the caller", async () => {
    await owner.query(
      `grant create, temporary on database ${database.name} to ${logins.app.name}, ${logins.worker.name}`,
    );
    await owner.query("select stillwake.enqueue('report')");
    for (const role of ["app", "worker"] as const) await clients[role].query(trap(`${role}_trap`));
    const { app, worker } = clients;
    const { rows } = await app.query(
      'select stillwake.enqueue(\'report\', \'{}\', \'{"priority": 9, "idempotency_key": "trap", "delay": "0s"}\') as id',
    );
    await app.query("select stillwake.pause($1, 'why', 'me')", [rows[0].id]);
    await app.query("select stillwake.resume($1)", [rows[0].id]);
    const claimed = await worker.query("select * from stillwake.claim('w', 'default', '{report}', 1)");
    const { job_id, epoch, lease_id } = claimed.rows[0];
    expect(job_id).toBe(rows[0].id);
    const lease = { job: job_id, epoch, lease: lease_id };
    await worker.query("select * from stillwake.append_logs($1)", [
      JSON.stringify([{ ...lease, lines: [{ message: "x" }] }]),
    ]);
    await worker.query("select * from stillwake.settle($1)", [
      JSON.stringify([{ ...lease, outcome: "failed", failure: { message: "x" }, fatal: true }]),
    ]);
    await worker.query("select stillwake.recover(), stillwake.expire(), stillwake.next_due()");
    await worker.query("select * from stillwake.demand()");
    await app.query("select stillwake.retry($1)", [job_id]);
    await app.query("select stillwake.cancel($1)", [job_id]);
    await app.query("select * from stillwake.watchdog()");
    expect((await owner.query("select state from stillwake.jobs where id = $1", [job_id])).rows).toEqual([
      { state: "cancelled" },
    ]);

    // Control: a statement of the caller itself is hijacked.
    await expect(app.query("select 'a'::text = 'b'::text")).rejects.toThrow("caught in the trap");
    await expect(app.query("select jsonb_typeof('1'::jsonb)")).rejects.toThrow("caught in the trap");
  });
});

/** A schema before pg_catalog with functions, operators and temporary tables that would run as the owner. */
function trap(schema: string): string {
  const functions = [
    ["jsonb_typeof", "jsonb", "text"],
    ["jsonb_array_length", "jsonb", "integer"],
    ["cardinality", "uuid[]", "integer"],
    ["format", "text, variadic text[]", "text"],
    ["gen_random_uuid", "", "uuid"],
    ["clock_timestamp", "", "timestamptz"],
    ["hashtext", "text", "integer"],
    ["pg_notify", "text, text", "void"],
  ].map(
    ([name, input, output]) =>
      `create function ${schema}.${name}(${input}) returns ${output} language plpgsql as $$ begin raise 'caught in the trap'; end $$;`,
  );
  const operators = ["text", "uuid", "bigint", "timestamptz", "jsonb"].map(
    (
      type,
    ) => `create function ${schema}.same(${type}, ${type}) returns boolean language plpgsql as $$ begin raise 'caught in the trap'; end $$;
    create operator ${schema}.= (leftarg = ${type}, rightarg = ${type}, function = ${schema}.same);`,
  );
  const tables = ["live_jobs", "leases", "pipelines", "pools", "feed", "ended_jobs"].map(
    (name) => `create temporary table ${name} (trap int);`,
  );
  return `create schema ${schema}; ${functions.join("\n")} ${operators.join("\n")} ${tables.join("\n")} set search_path = ${schema}, pg_temp, pg_catalog;`;
}

function login(role: string): { name: string; url: string } {
  const name = `stillwake_test_${role}_${mark}`;
  const url = new URL(database.url);
  url.username = name;
  url.password = "secret";
  return { name, url: url.href };
}
