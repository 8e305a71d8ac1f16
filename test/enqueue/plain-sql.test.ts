// The SQL functions called from psql, Python or pg_cron: every rejected call has an SQLSTATE SW00x with the field as
// detail and the remedy as hint, and leaves nothing behind.
import type pg from "pg";
import { beforeAll, describe, expect, it } from "vitest";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";

const database = await freshDatabase();
const sql = await connect(database.url);

beforeAll(() => sql.query(`select stillwake.register_pipeline('report', '{"pool": "heavy"}')`));

describe("enqueue refuses", () => {
  const long = JSON.stringify("x".repeat(501));
  it.each<[options: string, field: string]>([
    ["null", "options"],
    ["'null'", "options"],
    ["'[]'", "options"],
    ["'5'", "options"],
    [`'["idempotency_key"]'`, "options"],
    [`'{"prioritty": 5}'`, "prioritty"],
    [`'{"runAt": "2030-01-01"}'`, "runAt"],
    [`'{"delay": 5}'`, "delay"],
    [`'{"delay": "soon"}'`, "delay"],
    [`'{"delay": "-5 minutes"}'`, "delay"],
    [`'{"delay": "infinity"}'`, "delay"],
    [`'{"delay": "290000 years"}'`, "delay"],
    [`'{"delay": "99999999999999 years"}'`, "delay"],
    [`'{"delay": {}}'`, "delay"],
    [`'{"delay": "1 hour", "run_at": "2030-01-01"}'`, "delay"],
    [`'{"run_at": "someday"}'`, "run_at"],
    [`'{"run_at": "2030-13-45"}'`, "run_at"],
    [`'{"run_at": "2030-01-01 00:00 Mars/Phobos"}'`, "run_at"],
    [`'{"run_at": "infinity"}'`, "run_at"],
    [`'{"run_at": "-infinity"}'`, "run_at"],
    [`'{"run_at": 20300101}'`, "run_at"],
    [`'{"run_at": true}'`, "run_at"],
    [`'{"expires_in": "later"}'`, "expires_in"],
    [`'{"expires_in": "-1 hour"}'`, "expires_in"],
    [`'{"expires_in": "1 hour", "expires_at": "2099-01-01"}'`, "expires_in"],
    [`'{"expires_in": "1 hour", "delay": "2 hours"}'`, "expires_at"],
    [`'{"expires_at": "2020-01-01"}'`, "expires_at"],
    [`'{"expires_at": []}'`, "expires_at"],
    [`'{"priority": 1001}'`, "priority"],
    [`'{"priority": 1.5}'`, "priority"],
    [`'{"priority": "5"}'`, "priority"],
    [`'{"priority": true}'`, "priority"],
    [`'{"priority": 1e400}'`, "priority"],
    [`'{"max_attempts": 0}'`, "max_attempts"],
    [`'{"max_attempts": 1001}'`, "max_attempts"],
    [`'{"key": ""}'`, "key"],
    [`'{"key": 5}'`, "key"],
    [`'{"key": ${long}}'`, "key"],
    [`'{"tenant": {}}'`, "tenant"],
    [`'{"tenant": ${long}}'`, "tenant"],
    [`'{"pool": 5}'`, "pool"],
    [`'{"idempotency_key": ""}'`, "idempotency_key"],
    [`'{"idempotency_key": 5}'`, "idempotency_key"],
    [`'{"idempotency_key": ${long}}'`, "idempotency_key"],
    [`'{"idempotency_keys": "one"}'`, "idempotency_key"],
    [`'{"idempotency_keys": ["one", "two"]}'`, "idempotency_key"],
  ])("the options %s", async (options, field) => {
    await refused(`select stillwake.enqueue('report', '{}', ${options})`, "SW001", field);
  });

  it.each<[call: string, state: string, field: string]>([
    ["stillwake.enqueue('reprot')", "SW002", "pipeline"],
    ["stillwake.enqueue(null)", "SW002", "pipeline"],
    [`stillwake.enqueue('report', '{}', '{"pool": "gpu"}')`, "SW003", "pool"],
    ["stillwake.enqueue('report', null)", "SW001", "input"],
    ["stillwake.enqueue_many('report', null)", "SW001", "inputs"],
    ["stillwake.enqueue_many('report', '{}')", "SW001", "inputs"],
    ["stillwake.enqueue_many('report', '[1, 2]', '{}', array[gen_random_uuid()])", "SW001", "ids"],
    ["stillwake.enqueue_many('report', '[1]', '{}', array[null]::uuid[])", "SW001", "ids"],
    [`stillwake.enqueue_many('report', '[1, 2]', '{"idempotency_keys": ["one"]}')`, "SW001", "idempotency_key"],
  ])("%s", async (call, state, field) => {
    const error = await refused(`select ${call}`, state, field);
    if (state === "SW002") expect(error.hint).toMatch(/^Known pipelines: report\. Register it/);
    if (state === "SW003") expect(error.hint).toMatch(/^Known pools: heavy\./);
  });
});

describe("register_pipeline refuses", () => {
  it.each<[name: string, settings: string, field: string]>([
    ["null", "'{}'", "pipeline"],
    ["''", "'{}'", "pipeline"],
    ["'Report'", "'{}'", "pipeline"],
    ["'r'", `'{"pool": "No Spaces"}'`, "pool"],
    ["'r'", `'{"pool": 5}'`, "pool"],
    ["'r'", `'{"pol": "heavy"}'`, "pol"],
    ["'r'", `'{"crash_limit": 0}'`, "crash_limit"],
    ["'r'", `'{"backoff_initial": "-1 second"}'`, "backoff_initial"],
    ["'r'", `'{"backoff_initial": "1 hour"}'`, "backoff_max"],
    ["'r'", `'{"backoff_max": "infinity"}'`, "backoff_max"],
    ["'r'", `'{"keep_failed": "-1 day"}'`, "keep_failed"],
    ["'r'", `'{"keep_completed": 14}'`, "keep_completed"],
    ["'r'", "null", "options"],
  ])("%s with %s", async (name, settings, field) => {
    await refused(`select stillwake.register_pipeline(${name}, ${settings})`, "SW001", field);
  });

  it("no repeated registration, which then writes nothing", async () => {
    const version = async () =>
      (await sql.query("select xmin from stillwake.pipelines where name = 'report'")).rows[0].xmin;
    const before = await version();
    await sql.query(`select stillwake.register_pipeline('report', '{"pool": "heavy", "max_attempts": 3}')`);
    expect(await version()).toBe(before);
    await sql.query(`select stillwake.register_pipeline('report', '{"max_attempts": 4}')`);
    expect(await version()).not.toBe(before);
  });
});

describe("control refuses", () => {
  const unknownId = "'00000000-0000-7000-8000-000000000000'";
  it.each([
    `stillwake.cancel(${unknownId})`,
    `stillwake.retry(${unknownId})`,
    `stillwake.pause(${unknownId})`,
    `stillwake.resume(${unknownId})`,
    "stillwake.cancel(null)",
  ])("%s", async (call) => {
    await refused(`select ${call}`, "SW004", "id");
  });

  it.each(["stillwake.pause_pool('gpu')", "stillwake.resume_pool(null)", "stillwake.claim('w', 'gpu', '{}')"])(
    "%s",
    async (call) => {
      await refused(`select ${call}`, "SW003", "pool");
    },
  );

  it.each(["retry", "pause", "resume"])("to %s a job whose state does not allow it", async (verb) => {
    const { rows } = await sql.query("select stillwake.enqueue('report') as id");
    if (verb === "retry") await refused(`select stillwake.retry('${rows[0].id}')`, "SW006", "id");
    await sql.query("select stillwake.cancel($1)", [rows[0].id]);
    if (verb !== "retry") await refused(`select stillwake.${verb}('${rows[0].id}')`, "SW006", "id");
  });
});

it("a rejected batch leaves neither a job nor a key behind", async () => {
  await refused(
    `select stillwake.enqueue_many('report', '[1, 2]', '{"idempotency_keys": ["fine", ""]}')`,
    "SW001",
    "idempotency_key",
  );
  const { rows } = await sql.query("select count(*)::int as keys from stillwake.idempotency_keys");
  expect(rows[0].keys).toBe(0);
});

async function refused(statement: string, state: string, field: string): Promise<pg.DatabaseError> {
  const error = await sql.query(statement).then(
    () => new Error("it was accepted"),
    (thrown) => thrown,
  );
  expect(error).toMatchObject({ code: state, detail: field, hint: expect.stringMatching(/\w.*\.$/) });
  expect(error.message).not.toMatch(/\.$/);
  return error;
}
