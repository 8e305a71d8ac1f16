#!/usr/bin/env node
// stillwake <command>: finds the command, prints errors for people, exits 0, 1 (it failed) or 2 (it was called wrongly).
import { readConfig } from "../config.ts";
import { InvalidInput, StillwakeError } from "../errors.ts";
import { dev } from "./dev.ts";
import { doctorCommand } from "./doctor.ts";
import { readFlags } from "./flags.ts";
import { migrateCommand } from "./migrate.ts";
import { watchdogCommand } from "./watchdog.ts";

const usage = `stillwake: durable pipelines on Postgres

  stillwake dev                 start Postgres, migrate, and show the status page
  stillwake worker              run the jobs of a pool
  stillwake migrate             bring the tables and functions into the database, or up to date
  stillwake migrate --print     print the SQL instead, to apply it yourself
  stillwake doctor              check the database and say what is wrong and how to mend it
  stillwake watchdog            recover, expire, prepare partitions and prune, once; from cron, every minute
  stillwake webhooks            send the webhooks that are due, once; from cron, where no worker stays up

Options
  --url <url>                   the database (default: STILLWAKE_DATABASE_URL or DATABASE_URL)
  --schema <name>               the schema (default: STILLWAKE_SCHEMA or "stillwake")
  --json                        doctor, watchdog, webhooks: for programs
  --help, --version

Options of the worker (or keys of stillwake.config.ts)
  --pipelines <path>            a module or a directory of modules that export implement(…); may be given again
  --pool <name>                 whose jobs (default: "default")
  --slots <n>                   jobs at once (default: one per processor)
  --idle-exit <time>            end after so long without a job, such as 60s
  --drain                       work until nothing is left, then end
  --once                        do one job, then end
  --drain-limit <time>          how long SIGTERM waits for jobs (default: 25s); a second signal hurries
  --lease <time>                how long a claim lasts without a beat (default: 15s)
  --grace <time>                from being told to stop to being killed (default: 5s)
  --cancel-grace <time>         the same for a cancelled job (default: 500ms, never more than the grace)
  --direct-url <url>            past the pooler (default: STILLWAKE_DIRECT_URL, or the database itself)
  --store <url>                 artifacts: file:<dir> or s3://<bucket>/<prefix>?endpoint=<url> (default: STILLWAKE_STORE)
  --scratch <dir>               where attempts have their directories
  --name <name>                 how it is called in the database and in logs
  --metrics-port <port>         /metrics, /health and POST /wake on 127.0.0.1; --metrics-host to open them to others
  --log-level <level>           trace, debug, info (default), warn, error
  --config <file>               instead of ./stillwake.config.{ts,mts,js,mjs}

Examples
  stillwake migrate --url postgres://owner@localhost/app
  stillwake migrate --print > stillwake.sql
  stillwake doctor --json
  * * * * * DATABASE_URL=postgres://app@localhost/app stillwake watchdog
  stillwake worker --pipelines ./pipelines --pool scan --slots 4 --idle-exit 60s
`;

const commands = ["dev", "worker", "migrate", "doctor", "watchdog", "webhooks"];

async function main(): Promise<number> {
  const { flags: values, command, rest } = readFlags();
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
    case "watchdog":
      return watchdogCommand({ url, schema, json: values.json ?? false });
    case "webhooks": {
      const { webhooksCommand } = await import("./webhooks.ts");
      return webhooksCommand({ url, schema, json: values.json ?? false, config: values.config });
    }
    case "worker": {
      // Its libraries are loaded only here.
      const { workerCommand } = await import("./worker.ts");
      return workerCommand(values);
    }
    default:
      throw new InvalidInput(`Unknown command "${command}"`, {
        remedy: `Commands: ${commands.join(", ")}. See stillwake --help`,
      });
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
