// The findings of the doctor in databases with one fault each.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { type Finding, runDoctor } from "../../src/db/doctor.ts";
import { migrate } from "../../src/index.ts";
import { findBinaries } from "../../src/postgres/binaries.ts";
import { locateCluster, serverEnvironment } from "../../src/postgres/cluster.ts";
import { startPostgres } from "../../src/postgres/index.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";

const database = await freshDatabase();
const sql = await connect(database.url);

describe("the doctor", () => {
  it("finds nothing wrong in a healthy database", async () => {
    const findings = await runDoctor({ url: database.url });
    expect(findings.filter(({ level }) => level !== "ok")).toEqual([]);
    expect(new Set(findings.map(({ check }) => check)).size).toBe(findings.length);
  });

  it.each<[setting: string, check: string, level: Finding["level"], found: RegExp]>([
    ["synchronous_commit = off", "synchronous_commit", "warning", /^off: a crash loses the last acknowledged commits/],
    [
      "client_connection_check_interval = 0",
      "client_connection_check_interval",
      "warning",
      /^0: a statement of a process that is gone/,
    ],
    ["default_transaction_read_only = on", "writable", "error", /^default_transaction_read_only is on$/],
  ])("reports %s", async (setting, check, level, found) => {
    await sql.query(`alter database ${database.name} set ${setting}`);
    const finding = await find(check);
    await sql.query("set default_transaction_read_only = off");
    await sql.query(`alter database ${database.name} reset ${setting.split(" ")[0]}`);
    expect(finding).toMatchObject({ level, found: expect.stringMatching(found), remedy: expect.any(String) });
  });

  it("reports that the schema is behind, ahead, or missing", async () => {
    await sql.query("insert into stillwake.migrations (id, name, breaking) values (9999, 'later', false)");
    expect(await find("schema")).toMatchObject({ level: "ok", found: '"stillwake" at migration 9999' });
    await sql.query("update stillwake.migrations set breaking = true where id = 9999");
    expect(await find("schema")).toMatchObject({
      level: "error",
      found: expect.stringMatching(/^breaking migration 9999/),
      remedy: expect.stringMatching(/Upgrade/),
    });
    await sql.query("create table kept as table stillwake.migrations; delete from stillwake.migrations");
    expect(await find("schema")).toMatchObject({
      level: "error",
      found: expect.stringMatching(/^migration 0, this version needs/),
      remedy: expect.stringMatching(/stillwake migrate/),
    });
    await sql.query("insert into stillwake.migrations select * from kept where id <> 9999");
    expect(await find("schema", { schema: "elsewhere" })).toMatchObject({
      level: "error",
      found: '"elsewhere" does not exist',
    });
  });

  it("reports missing roles", async () => {
    await migrate({ url: database.url, schema: "roleless" });
    for (const role of ["app", "worker", "reader", "tenant"])
      await sql.query(`drop owned by roleless_${role}; drop role roleless_${role}`);
    expect(await find("roles", { schema: "roleless" })).toMatchObject({
      level: "warning",
      found:
        "missing: roleless_app, roleless_worker, roleless_reader, roleless_tenant; only the owner can use Stillwake",
    });
    expect(await find("tenant isolation", { schema: "roleless" })).toMatchObject({ level: "warning" });
    // A DBA creates them, and the next migrate grants their rights.
    for (const role of ["app", "worker", "reader", "tenant"]) await sql.query(`create role roleless_${role} nologin`);
    expect(await migrate({ url: database.url, schema: "roleless" })).toMatchObject({ functions: true });
    expect(await migrate({ url: database.url, schema: "roleless" })).toMatchObject({ functions: false });
    for (const check of ["roles", "tenant isolation"])
      expect(await find(check, { schema: "roleless" })).toMatchObject({ level: "ok" });
  });

  it("reports a table without row-level security", async () => {
    await sql.query("alter table stillwake.feed disable row level security");
    expect(await find("tenant isolation")).toMatchObject({ level: "error", found: "row-level security is off: feed" });
    await sql.query("alter table stillwake.feed enable row level security");
    await sql.query("alter role roleless_tenant bypassrls");
    expect(await find("tenant isolation", { schema: "roleless" })).toMatchObject({
      level: "error",
      found: "roleless_tenant bypasses row-level security",
    });
    for (const role of ["app", "worker", "reader", "tenant"])
      await sql.query(`drop owned by roleless_${role}; drop role roleless_${role}`);
  });

  it("reports leases that were not recovered, and weeks without partitions", async () => {
    await sql.query("select stillwake.register_pipeline('report'); select stillwake.enqueue('report')");
    await sql.query("select stillwake.claim('w', 'default', '{report}')");
    await travel(sql, "30d");
    expect(await find("leases")).toMatchObject({
      level: "warning",
      found: "1 expired more than a minute ago and were not recovered",
    });
    expect(await find("upkeep")).toMatchObject({
      level: "warning",
      remedy: expect.stringMatching(/stillwake\.watchdog\(\)/),
    });
    await sql.query("select stillwake.watchdog()");
    await travel(sql, "16s");
    await sql.query("select stillwake.watchdog()");
    expect(await find("leases")).toMatchObject({ level: "ok" });
    expect(await find("upkeep")).toMatchObject({ level: "ok" });
  });

  it("reports checks that it may not run", async () => {
    const login = `stillwake_test_doctor_${process.pid}`;
    await sql.query(`create role ${login} login password 'x'; grant stillwake_app to ${login}`);
    const url = new URL(database.url);
    url.username = login;
    url.password = "x";
    const asApp = await runDoctor({ url: url.href });
    await sql.query(`revoke stillwake_app from ${login}`);
    const asNobody = await runDoctor({ url: url.href });
    await sql.query(`drop role ${login}`);
    expect(asApp.find(({ check }) => check === "schema")).toMatchObject({ level: "ok" });
    expect(asApp.filter(({ level }) => level === "error")).toEqual([]);
    expect(asApp.find(({ check }) => check === "leases")).toMatchObject({
      level: "warning",
      found: expect.stringMatching(/^permission denied/),
      remedy: expect.stringMatching(/owner/),
    });
    expect(asNobody.find(({ check }) => check === "schema")).toMatchObject({
      level: "warning",
      found: expect.stringMatching(/^permission denied/),
    });
  });

  it("reports a pooler between it and the server", async () => {
    const { hostname, port } = new URL(database.url);
    const pooler = net.createServer((client) => {
      const server = net.connect(Number(port), hostname);
      for (const socket of [client, server]) socket.on("error", () => {});
      client.pipe(server);
      server.on("data", (data) => {
        // BackendKeyData: a pooler sends its own process number.
        const key = data.indexOf(Buffer.from([0x4b, 0, 0, 0, 12]));
        if (key >= 0) data.writeInt32BE(1, key + 5);
        client.write(data);
      });
      server.on("end", () => client.end());
    });
    await once(pooler.listen(0, "127.0.0.1"), "listening");
    const url = new URL(database.url);
    url.port = String((pooler.address() as net.AddressInfo).port);
    expect(await find("pooler", { url: url.href })).toMatchObject({
      level: "warning",
      found: expect.stringMatching(/^a pooler: statements work, hints \(LISTEN\) do not/),
    });
    pooler.close();
  });

  it("reports why jobs are not claimed", async () => {
    await sql.query("select stillwake.cancel(id) from stillwake.live_jobs");
    expect(await find("pools")).toMatchObject({
      level: "ok",
      found: "every pool with waiting jobs has a worker; which pipelines it runs is not checked",
    });
    await sql.query(
      'select stillwake.register_pipeline(\'alone\', \'{"pool": "alone"}\'), stillwake.set_machines(\'dark\', \'{"provider": "memory", "max": 1}\')',
    );
    await sql.query("select stillwake.register_pipeline('dark', '{\"pool\": \"dark\"}')");
    await sql.query("select stillwake.enqueue('alone'), stillwake.enqueue('dark')");
    expect(await find("pools")).toMatchObject({
      level: "ok",
      found: "jobs have been waiting for less than a minute, no worker yet: alone, dark",
    });
    await travel(sql, "2m");
    expect(await find("pools")).toMatchObject({
      level: "warning",
      found: "jobs are waiting and no worker claims them: alone (no worker serves it); dark (no machine was started)",
      remedy: expect.stringMatching(/stillwake worker --pool.*STILLWAKE_POKE_URL.*POST \/v1\/watchdog/),
    });
    await sql.query("select stillwake.pause_pool('alone', 'a holiday', 'somebody')");
    const dark = async (change: string) => {
      await sql.query(`update stillwake.pools set ${change} where name = 'dark'`);
      const { level, found, remedy } = (await find("pools"))!;
      expect(level).toBe("warning");
      return `${found} ${remedy}`;
    };
    expect(await dark("wasted_starts = 3")).toMatch(
      /dark \(the last 3 machines ended without doing a job\) .*stillwake resume --pool/,
    );
    expect(
      await dark(`provider_error = '{"code": "PROVIDER_AUTH", "message": "refused", "remedy": "Make a new token"}'`),
    ).toMatch(/dark \(no machine can be started: refused\) Make a new token\.$/);
    const spent = "paused_at = now(), resume_at = now() + interval '1 day', pause_reason = 'the budget is used up'";
    expect(await dark(spent)).toMatch(/dark \(the budget is used up\) Raise it with `stillwake budget`/);
    await sql.query("update stillwake.pools set resume_at = null where name = 'dark'");
    expect(await find("pools")).toMatchObject({
      level: "ok",
      found: "jobs are waiting in paused pools only: alone, dark",
    });
  });

  it("recognizes a standby, and a server without fsync", async () => {
    const dir = temporaryDirectory("doctor");
    fs.chmodSync(dir, 0o755);
    const { STILLWAKE_TEST_POSTGRES } = process.env;
    const primary = await startPostgres({ dir, ...(STILLWAKE_TEST_POSTGRES && { binaries: STILLWAKE_TEST_POSTGRES }) });
    await primary.stop();

    // Our launcher refuses both, so the server is started by hand.
    const cluster = locateCluster(dir);
    fs.writeFileSync(path.join(cluster.data, "standby.signal"), "");
    const settings = { port: primary.port, fsync: "off", listen_addresses: "127.0.0.1", unix_socket_directories: "" };
    const args = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
    const { postgres } = findBinaries(cluster.identity, STILLWAKE_TEST_POSTGRES);
    const standby = spawn(postgres, ["-D", cluster.data, ...args], {
      ...cluster.identity,
      env: serverEnvironment(),
      cwd: cluster.data,
      stdio: "ignore",
    });
    try {
      const findings = await waitFor(async () => {
        const found = await runDoctor({ url: primary.url });
        return found[0]!.level === "ok" && found;
      });
      expect(findings.find(({ check }) => check === "fsync")).toMatchObject({
        level: "error",
        found: expect.stringMatching(/^fsync off, full_page_writes on: /),
      });
      expect(findings.find(({ check }) => check === "writable")).toMatchObject({
        level: "error",
        found: "a standby",
        remedy: expect.stringMatching(/primary/),
      });
    } finally {
      standby.kill("SIGINT");
      await once(standby, "exit");
    }
  });
});

async function find(check: string, options: { url?: string; schema?: string } = {}): Promise<Finding | undefined> {
  return (await runDoctor({ url: database.url, ...options })).find((finding) => finding.check === check);
}
