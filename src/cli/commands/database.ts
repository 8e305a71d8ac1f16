// stillwake migrate applies the schema to the database, or prints the SQL; stillwake doctor checks the database and
// prints what is wrong, with a remedy.
import type { Finding } from "../../db/doctor.ts";
import { escapeControls } from "../../text/escape.ts";
import { type Command, databaseFlags } from "../command.ts";
import { withWaitNotice } from "../output/wait-notice.ts";

export const migrateCommand: Command = {
  name: "migrate",
  group: "Run",
  summary: "install or update the tables and functions in the database",
  usage: ["", "--print"],
  args: [0, 0],
  flags: {
    print: "print the SQL instead of applying it",
    realtime: "let Supabase Realtime read the feed, restricted to each tenant's rows",
    "realtime-claim": "<name> the JWT claim that names the tenant",
    ...databaseFlags,
    url: "<url> the database, as its owner (default: STILLWAKE_DATABASE_URL or DATABASE_URL)",
  },
  examples: [
    ["migrate --url postgres://owner@localhost/app", "as the owner of the database"],
    ["migrate --print > stillwake.sql", "to apply the SQL with another tool"],
  ],
  async run({ flags, config, screen }) {
    const [{ migrate, printMigrations }, { requireDatabaseUrl }] = await Promise.all([
      import("../../db/migrate.ts"),
      import("../connection.ts"),
    ]);
    const name = flags.schema ?? config.schema;
    const realtime = flags.realtime
      ? { ...(flags.realtimeClaim !== undefined && { claim: flags.realtimeClaim }) }
      : undefined;
    if (flags.print) {
      process.stdout.write(printMigrations(name, realtime));
      return 0;
    }
    const url = requireDatabaseUrl(flags.url ?? config.databaseUrl);
    const { schema, applied, functions } = await withWaitNotice(
      url,
      (line) => screen.printStderr(line),
      () => migrate({ url, schema: name, ...(realtime && { realtime }) }),
    );
    for (const migration of applied) screen.print(`applied ${migration}`);
    if (functions) screen.print("applied functions");
    if (realtime) screen.print("Supabase Realtime can read the feed.");
    screen.print(`Schema "${schema}" is up to date.`);
    return 0;
  },
};

const LABELS: Record<Finding["level"], string> = { ok: "ok  ", warning: "warn", error: "BAD " };

export const doctorCommand: Command = {
  name: "doctor",
  group: "Run",
  summary: "check the database and print problems with their remedies",
  usage: [""],
  args: [0, 0],
  flags: { ...databaseFlags, json: "print JSON" },
  examples: [
    ["doctor", "exits 1 on an error"],
    ["doctor --json", ""],
  ],
  async run({ flags, config, screen }) {
    const [{ runDoctor }, { databaseAddress }, { findDatabaseUrl }] = await Promise.all([
      import("../../db/doctor.ts"),
      import("../../db/calls/machines.ts"),
      import("../connection.ts"),
    ]);
    const url = findDatabaseUrl(flags, config, screen);
    const findings = await runDoctor({ url, schema: flags.schema ?? config.schema, address: databaseAddress(url) });
    if (flags.json) screen.json(findings);
    else {
      for (const { level, check, found, remedy } of findings) {
        screen.print(
          `${LABELS[level]}  ${check.padEnd(20)} ${escapeControls(found)}${remedy ? `\n${" ".repeat(27)}→ ${remedy}` : ""}`,
        );
      }
    }
    return findings.some(({ level }) => level === "error") ? 1 : 0;
  },
};
