#!/usr/bin/env node
// stillwake <command>: finds the command, prints errors for people, exits 0, 1 (it failed) or 2 (it was called wrongly).
import { parseArgs } from "node:util";
import { readConfig } from "../config.ts";
import { InvalidInput, StillwakeError } from "../errors.ts";
import { dev } from "./dev.ts";
import { doctorCommand } from "./doctor.ts";
import { migrateCommand } from "./migrate.ts";

const usage = `stillwake: durable pipelines on Postgres

  stillwake dev                 start Postgres, migrate, and show the status page
  stillwake migrate             bring the tables and functions into the database, or up to date
  stillwake migrate --print     print the SQL instead, to apply it yourself
  stillwake doctor              check the database and say what is wrong and how to mend it

Options
  --url <url>                   the database (default: STILLWAKE_DATABASE_URL or DATABASE_URL)
  --schema <name>               the schema (default: STILLWAKE_SCHEMA or "stillwake")
  --json                        doctor: for programs
  --help, --version

Examples
  stillwake migrate --url postgres://owner@localhost/app
  stillwake migrate --print > stillwake.sql
  stillwake doctor --json
`;

const commands = ["dev", "migrate", "doctor"];

async function main(): Promise<number> {
  const { values, positionals } = readArguments();
  const [command, ...rest] = positionals;
  if (values.version) {
    const { version } = await import("../version.ts");
    console.log(version);
    return 0;
  }
  if (values.help || !command) {
    console.log(usage);
    return values.help ? 0 : 2;
  }
  if (rest.length > 0)
    throw new InvalidInput(`Unexpected "${rest[0]}" after ${command}`, { remedy: "See stillwake --help" });
  const config = readConfig();
  const url = values.url ?? config.databaseUrl;
  const schema = values.schema ?? config.schema;
  switch (command) {
    case "dev":
      await dev({ ...config, databaseUrl: url, schema });
      return 0;
    case "migrate":
      return migrateCommand({ url, schema, print: values.print ?? false });
    case "doctor":
      return doctorCommand({ url, schema, json: values.json ?? false });
    default:
      throw new InvalidInput(`Unknown command "${command}"`, {
        remedy: `Commands: ${commands.join(", ")}. See stillwake --help`,
      });
  }
}

function readArguments() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        url: { type: "string" },
        schema: { type: "string" },
        print: { type: "boolean" },
        json: { type: "boolean" },
        help: { type: "boolean", short: "h" },
        version: { type: "boolean", short: "v" },
      },
    });
  } catch (error) {
    throw new InvalidInput((error as Error).message, { remedy: "See stillwake --help" });
  }
}

/** Our errors and those of Postgres say what is wrong; of any other the stack is needed. */
function forPeople(error: unknown): unknown {
  const { code, message } = error as { code?: string; message?: string };
  return error instanceof StillwakeError || /^[0-9A-Z]{5}$/.test(code ?? "") ? `${code}: ${message}` : error;
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(forPeople(error));
  process.exitCode = error instanceof InvalidInput ? 2 : 1;
}
