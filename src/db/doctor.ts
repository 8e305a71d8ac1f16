// `stillwake doctor`: checks a database for installation, durability, connections, hints, and overdue work.

import type pg from "pg";
import { fromDatabase, StillwakeError } from "../errors.ts";
import { clientFor } from "./hosts.ts";
import { isPooled } from "./listener.ts";
import { COMMITS_WAIT_REMEDY, readReplication, whyCommitsWait } from "./replication.ts";
import { NEWEST_MIGRATION, schemaName } from "./schema-check.ts";
import { explainUnclaimed, type UnclaimedPool } from "./unclaimed-work.ts";

export interface Finding {
  check: string;
  level: "ok" | "warning" | "error";
  found: string;
  remedy?: string;
}

type QueryRow = (text: string, values?: unknown[]) => Promise<Record<string, string | null>>;

export interface DoctorOptions {
  url: string;
  schema?: string;
  /** The database's address as the orchestrator sees it; null or absent for a local one. */
  address?: string | null;
}

export async function runDoctor(options: DoctorOptions): Promise<Finding[]> {
  const schema = schemaName(options.schema);
  const { Client, connectionString } = clientFor(options.url);
  const client = new Client({
    connectionString,
    application_name: "stillwake doctor",
    connectionTimeoutMillis: 5000,
    query_timeout: 10_000,
  });
  client.on("error", () => {});
  try {
    await client.connect();
  } catch (error) {
    const { host, port, database } = client;
    return [
      {
        check: "connection",
        level: "error",
        found: `${host}:${port}/${database}: ${(error as Error).message || (error as { code?: string }).code}`,
        remedy: remedyForConnection(error),
      },
    ];
  }
  const queryRow: QueryRow = async (text, values) => (await client.query(text, values)).rows[0] ?? {};
  try {
    const findings: Finding[] = [
      { check: "connection", level: "ok", found: `${client.host}:${client.port}/${client.database} as ${client.user}` },
    ];
    for (const check of [
      checkVersion,
      checkFsync,
      checkSynchronousCommit,
      checkReplication,
      checkLostClients,
      checkWritable,
      checkClock,
      checkConnections,
      checkPooler,
    ])
      findings.push(await check(queryRow, client));
    const installed = await ifAllowed("schema", () => checkSchemaState(queryRow, schema));
    findings.push(installed);
    if (installed.level !== "ok") return findings;
    findings.push(
      await checkRoles(queryRow, schema),
      await checkTenantIsolation(queryRow, schema),
      await checkOldTransactions(queryRow),
    );
    findings.push(await ifAllowed("upkeep", () => checkPartitions(queryRow, schema)));
    findings.push(await ifAllowed("leases", () => checkExpiredLeases(queryRow, schema)));
    findings.push(await ifAllowed("schedules", () => checkSchedules(queryRow, schema)));
    findings.push(await ifAllowed("fleet", () => checkFleet(queryRow, schema, options.address ?? null)));
    findings.push(await ifAllowed("pools", () => checkUnclaimedWork(queryRow, schema)));
    return findings;
  } finally {
    await client.end();
  }
}

/** A check that only the owner may run is reported as a warning. */
async function ifAllowed(check: string, run: () => Promise<Finding>): Promise<Finding> {
  try {
    return await run();
  } catch (error) {
    if ((error as { code?: string }).code !== "42501") throw error;
    return {
      check,
      level: "warning",
      found: (error as Error).message,
      remedy: "Run the doctor as the owner: the user that runs migrations.",
    };
  }
}

function remedyForConnection(error: unknown): string {
  const explained = fromDatabase(error);
  return explained instanceof StillwakeError && explained.remedy
    ? `${explained.remedy}.`
    : "Start Postgres, or correct host, port, user and password in the URL.";
}

async function checkVersion(queryRow: QueryRow): Promise<Finding> {
  const { number, text } = await queryRow(
    "select current_setting('server_version_num') as number, current_setting('server_version') as text",
  );
  if (Number(number) >= 150_000) return { check: "version", level: "ok", found: `Postgres ${text}` };
  return { check: "version", level: "error", found: `Postgres ${text}`, remedy: "Upgrade to Postgres 15 or later." };
}

async function checkFsync(queryRow: QueryRow): Promise<Finding> {
  const { fsync, pages } = await queryRow(
    "select current_setting('fsync') as fsync, current_setting('full_page_writes') as pages",
  );
  if (fsync === "on" && pages === "on") return { check: "fsync", level: "ok", found: "on" };
  return {
    check: "fsync",
    level: "error",
    found: `fsync ${fsync}, full_page_writes ${pages}: a crash of the machine loses or corrupts accepted jobs`,
    remedy: "Set both to on and restart Postgres.",
  };
}

async function checkSynchronousCommit(queryRow: QueryRow): Promise<Finding> {
  const { commit, standbys } = await queryRow(
    "select current_setting('synchronous_commit') as commit, current_setting('synchronous_standby_names') as standbys",
  );
  if (commit === "off")
    return {
      check: "synchronous_commit",
      level: "warning",
      found: "off: a crash loses the last acknowledged commits",
      remedy: "alter role <user> set synchronous_commit = on.",
    };
  return {
    check: "synchronous_commit",
    level: "ok",
    found: `${commit}${standbys ? `, standbys ${standbys}` : ", no synchronous standby: a failover loses the replication lag"}`,
  };
}

async function checkReplication(_queryRow: QueryRow, client: pg.Client): Promise<Finding> {
  const check = "replication";
  const replication = await readReplication(async (text) => (await client.query(text)).rows);
  const { names, standbys, asynchronous, lagBytes } = replication;
  const why = whyCommitsWait(replication);
  if (why) return { check, level: "error", found: why, remedy: `${COMMITS_WAIT_REMEDY}.` };
  if (names) return { check, level: "ok", found: `synchronous: ${names}` };
  if (standbys === null) return { check, level: "ok", found: "no synchronous standby; this user may not see others" };
  if (!asynchronous) return { check, level: "ok", found: "no standby" };
  return {
    check,
    level: "warning",
    found: `asynchronous: a failover to ${asynchronous} loses what was committed and not sent yet, ${lagBytes} bytes of WAL now`,
    remedy: `Set synchronous_standby_names to '${asynchronous}', or accept that jobs, steps and ends of jobs can be lost.`,
  };
}

/** Without it a session whose worker or network is gone holds its locks until the statement ends. */
async function checkLostClients(queryRow: QueryRow): Promise<Finding> {
  const check = "client_connection_check_interval";
  const { interval } = await queryRow("select current_setting('client_connection_check_interval') as interval");
  if (interval !== "0") return { check, level: "ok", found: interval! };
  return {
    check,
    level: "warning",
    found: "0: a statement of a process that is gone, and the locks it waits with, stay until it ends",
    remedy: "alter system set client_connection_check_interval = '5s', then select pg_reload_conf().",
  };
}

async function checkWritable(queryRow: QueryRow): Promise<Finding> {
  const { standby, only } = await queryRow(
    "select pg_is_in_recovery()::text as standby, current_setting('default_transaction_read_only') as only",
  );
  if (standby === "false" && only === "off")
    return { check: "writable", level: "ok", found: "a primary that accepts writes" };
  return {
    check: "writable",
    level: "error",
    found: standby === "true" ? "a standby" : "default_transaction_read_only is on",
    remedy: "Connect to the primary; Stillwake does not work on a replica.",
  };
}

async function checkClock(queryRow: QueryRow): Promise<Finding> {
  const before = Date.now();
  const { ms } = await queryRow("select (extract(epoch from clock_timestamp()) * 1000)::bigint::text as ms");
  const skewMs = Math.round(Number(ms) - (before + Date.now()) / 2);
  const found = `this machine is ${Math.abs(skewMs)} ms ${skewMs >= 0 ? "behind" : "ahead of"} the database`;
  if (Math.abs(skewMs) < 5000) return { check: "clock", level: "ok", found };
  return {
    check: "clock",
    level: "warning",
    found: `${found}; leases are not affected, only displayed times`,
    remedy: "Synchronize the clock (NTP).",
  };
}

async function checkConnections(queryRow: QueryRow): Promise<Finding> {
  const { used, max } = await queryRow(
    `select (select count(*) from pg_stat_activity where backend_type = 'client backend')::text as used,
      current_setting('max_connections') as max`,
  );
  const found = `${used} of ${max} in use`;
  if (Number(used) < Number(max) * 0.8) return { check: "connections", level: "ok", found };
  return {
    check: "connections",
    level: "warning",
    found,
    remedy: "Lower `connections` per process, put a pooler in front, or raise max_connections.",
  };
}

/** Behind a pooler in transaction mode LISTEN is accepted but delivers nothing. */
async function checkPooler(_queryRow: QueryRow, client: pg.Client): Promise<Finding> {
  if (!(await isPooled(client))) return { check: "pooler", level: "ok", found: "a direct connection" };
  return {
    check: "pooler",
    level: "warning",
    found: "a pooler: statements work, hints (LISTEN) do not arrive and workers poll instead",
    remedy: "Give workers a direct URL in addition to the pooled one.",
  };
}

async function checkSchemaState(queryRow: QueryRow, schema: string): Promise<Finding> {
  const { found } = await queryRow("select to_regprocedure($1)::text as found", [`${schema}.schema_state()`]);
  if (!found)
    return {
      check: "schema",
      level: "error",
      found: `"${schema}" does not exist`,
      remedy: "Run `stillwake migrate`, or name the schema with --schema.",
    };
  const { newest, breaking } = await queryRow(`select newest::text, breaking::text from ${schema}.schema_state()`);
  if (Number(breaking) > NEWEST_MIGRATION)
    return {
      check: "schema",
      level: "error",
      found: `breaking migration ${breaking}, this version knows ${NEWEST_MIGRATION}`,
      remedy: "Upgrade the stillwake package.",
    };
  if (Number(newest) < NEWEST_MIGRATION)
    return {
      check: "schema",
      level: "error",
      found: `migration ${newest}, this version needs ${NEWEST_MIGRATION}`,
      remedy: "Run `stillwake migrate`.",
    };
  return { check: "schema", level: "ok", found: `"${schema}" at migration ${newest}` };
}

async function checkRoles(queryRow: QueryRow, schema: string): Promise<Finding> {
  const { missing } = await queryRow(
    "select string_agg(r, ', ') as missing from unnest($1::text[]) r where to_regrole(r) is null",
    [["app", "worker", "reader", "tenant"].map((role) => `${schema}_${role}`)],
  );
  if (!missing) return { check: "roles", level: "ok", found: `${schema}_app, _worker, _reader and _tenant` };
  return {
    check: "roles",
    level: "warning",
    found: `missing: ${missing}; only the owner can use Stillwake`,
    remedy: "Run `stillwake migrate` as a user with CREATEROLE, or create them and migrate again.",
  };
}

/** Row-level security applies to the tenant role, and this user may switch to it. */
async function checkTenantIsolation(queryRow: QueryRow, schema: string): Promise<Finding> {
  const check = "tenant isolation";
  const role = `${schema}_tenant`;
  const { bypasses, open, may } = await queryRow(
    `select (select (rolsuper or rolbypassrls)::text from pg_roles where rolname = $1) as bypasses,
      (select string_agg(c.relname, ', ' order by 1) from pg_class c
        where c.relnamespace = to_regnamespace($2) and c.relkind in ('r', 'p') and not c.relrowsecurity and not c.relispartition
        and has_any_column_privilege(to_regrole($1), c.oid, 'select')) as open,
      case when to_regrole($1) is null then 'false'
        when current_setting('server_version_num')::integer < 160000 then pg_has_role(to_regrole($1), 'member')::text
        else pg_has_role(to_regrole($1), 'set')::text end as may`,
    [role, schema],
  );
  if (bypasses === "true" || open)
    return {
      check,
      level: "error",
      found: open ? `row-level security is off: ${open}` : `${role} bypasses row-level security`,
      remedy: open
        ? `alter table ${schema}.<name> enable row level security.`
        : `alter role ${role} nosuperuser nobypassrls.`,
    };
  if (may === "true") return { check, level: "ok", found: `this user may read as ${role}` };
  return {
    check,
    level: "warning",
    found: `this user may not read as ${role}: a server that connects as this user rejects tenant tokens`,
    remedy: `Connect as the owner or a member of ${schema}_app, or: grant ${role} to <user>.`,
  };
}

async function checkPartitions(queryRow: QueryRow, schema: string): Promise<Finding> {
  const { ahead } = await queryRow(
    `select count(*)::text as ahead from ${schema}.partitions()
      where parent = 'feed' and week > (${schema}.now() at time zone 'UTC')::date`,
  );
  if (Number(ahead) > 0)
    return {
      check: "upkeep",
      level: "ok",
      found: `partitions ready for ${ahead} more week${ahead === "1" ? "" : "s"}`,
    };
  return {
    check: "upkeep",
    level: "warning",
    found: "no partition for the coming week",
    remedy: `Start a worker, which creates them, or call select * from ${schema}.watchdog(). If a worker runs, its log has
      the cause: housekeeping.failed.`,
  };
}

async function checkOldTransactions(queryRow: QueryRow): Promise<Finding> {
  const { minutes, pid } = await queryRow(
    `select floor(extract(epoch from clock_timestamp() - xact_start) / 60)::text as minutes, pid::text from pg_stat_activity
    where backend_xmin is not null or backend_xid is not null order by xact_start limit 1`,
  );
  if (Number(minutes ?? 0) < 10) return { check: "old transactions", level: "ok", found: "none older than 10 minutes" };
  return {
    check: "old transactions",
    level: "warning",
    found: `process ${pid} has had a transaction open for ${minutes} minutes: dead rows cannot be vacuumed and claims slow down`,
    remedy: `Terminate it: select pg_terminate_backend(${pid}).`,
  };
}

async function checkExpiredLeases(queryRow: QueryRow, schema: string): Promise<Finding> {
  const { late } = await queryRow(
    `select count(*)::text as late from ${schema}.leases where until < ${schema}.now() - interval '1 minute'`,
  );
  if (late === "0") return { check: "leases", level: "ok", found: "none to recover" };
  return {
    check: "leases",
    level: "warning",
    found: `${late} expired more than a minute ago and were not recovered`,
    remedy: `Start a worker of that pool, or call select * from ${schema}.watchdog().`,
  };
}

async function checkSchedules(queryRow: QueryRow, schema: string): Promise<Finding> {
  const { late, failing, all } = await queryRow(
    `select string_agg(name, ', ' order by name)
      filter (where due_at is not null and next_at < ${schema}.now() - interval '2 minutes') as late,
      string_agg(format('%s (%s)', name, last_error), ', ' order by name) filter (where last_error is not null) as failing,
        count(*)::text as all
    from ${schema}.schedules`,
  );
  if (failing)
    return {
      check: "schedules",
      level: "warning",
      found: `cannot enqueue: ${failing}`,
      remedy: "Fix the cause named in the error; each is retried every minute.",
    };
  if (!late) return { check: "schedules", level: "ok", found: `${all}, none is late` };
  return {
    check: "schedules",
    level: "warning",
    found: `late by more than two minutes: ${late}`,
    remedy: `Start a worker of their pool, or call select ${schema}.watchdog() once a minute.`,
  };
}

/** Reads the table: stillwake.fleet() would insert the row and store the address. */
async function checkFleet(queryRow: QueryRow, schema: string, address: string | null): Promise<Finding> {
  const { id, copied, lives, providerErrors } = await queryRow(
    `select f.id, case when f.cluster <> ${schema}.cluster_id() then 'of cluster ' || f.cluster
        when f.database <> (select d.oid::bigint from pg_database d where d.datname = current_database())
          then 'of this cluster with oid ' || f.database
        when coalesce($1, 'local') <> all (f.addresses) then 'at ' || array_to_string(f.addresses, ', ') end as copied,
      (select count(*) from ${schema}.machine_lives l where l.ended_at is null)::text as lives,
      (select string_agg(format('%s: %s', p.name, p.provider_error ->> 'message'), '; ' order by p.name)
        from ${schema}.pools p where p.provider_error is not null) as "providerErrors"
    from (select 1) one left join ${schema}.fleet f on true`,
    [address],
  );
  const check = "fleet";
  if (!id) return { check, level: "ok", found: "no orchestrator uses this database" };
  if (copied)
    return {
      check,
      level: "warning",
      found: `this database looks like a copy: its machines belong to the database ${copied}. No machine is started`,
      remedy:
        "Run `stillwake fleet adopt`; or, if it is the same database at a new address, `stillwake fleet adopt --same`.",
    };
  if (providerErrors)
    return {
      check,
      level: "warning",
      found: providerErrors,
      remedy: "Fix the cause named above; starts are retried after a pause.",
    };
  return { check, level: "ok", found: `${id}, ${lives === "1" ? "1 machine is" : `${lives} machines are`} up` };
}

async function checkUnclaimedWork(queryRow: QueryRow, schema: string): Promise<Finding> {
  // A minute is longer than a sleeping worker or machine needs to start.
  const { waiting } = await queryRow(
    `select json_agg(w order by w.pool)::text as waiting from (
      select d.pool, p.machines is not null as machines, p.paused_at is not null as paused,
        p.resume_at is not null as "budgetPause",
        p.pause_reason as reason, p.provider_error ->> 'message' as "providerError", p.provider_error ->> 'remedy' as remedy,
        p.wasted_starts as "wastedStarts", d.oldest < ${schema}.now() - interval '1 minute' as overdue
      from ${schema}.demand() d join ${schema}.pools p on p.name = d.pool
      where d.claimable > 0 and not exists (select from ${schema}.machines() m where m.pool = d.pool)) w`,
  );
  const check = "pools";
  const pools = JSON.parse(waiting ?? "[]") as UnclaimedPool[];
  const blocked = pools.flatMap((pool) => explainUnclaimed(pool) ?? []);
  if (blocked.length > 0)
    return {
      check,
      level: "warning",
      found: `jobs are waiting and no worker claims them: ${blocked.map(({ found }) => found).join("; ")}`,
      remedy: [...new Set(blocked.map(({ remedy }) => remedy))].join(" "),
    };
  const paused = pools.filter((pool) => pool.paused).map(({ pool }) => pool);
  if (paused.length > 0)
    return { check, level: "ok", found: `jobs are waiting in paused pools only: ${paused.join(", ")}` };
  const soon = pools.map(({ pool }) => pool);
  if (soon.length > 0)
    return {
      check,
      level: "ok",
      found: `jobs have been waiting for less than a minute, no worker yet: ${soon.join(", ")}`,
    };
  return {
    check,
    level: "ok",
    found: "every pool with waiting jobs has a worker; which pipelines it runs is not checked",
  };
}
