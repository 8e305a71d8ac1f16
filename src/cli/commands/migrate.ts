// stillwake migrate: the database is brought up to date, or the SQL is printed.
import { checkUrl } from "../../db/database.ts";
import { migrate, printMigrations } from "../../db/migrate.ts";
import { InvalidInput } from "../../errors.ts";
import type { Call } from "../command.ts";
import { sayingWhere } from "../output/waiting.ts";

export async function migrateCommand({ flags, config, screen }: Call): Promise<number> {
  const name = flags.schema ?? config.schema;
  const realtime = flags.realtime
    ? { ...(flags.realtimeClaim !== undefined && { claim: flags.realtimeClaim }) }
    : undefined;
  if (flags.print) {
    process.stdout.write(printMigrations(name, realtime));
    return 0;
  }
  const url = needUrl(flags.url ?? config.databaseUrl);
  const { schema, applied, functions } = await sayingWhere(
    url,
    (line) => screen.say(line),
    () => migrate({ url, schema: name, ...(realtime && { realtime }) }),
  );
  for (const one of applied) screen.print(`applied ${one}`);
  if (functions) screen.print("applied functions");
  if (realtime) screen.print("Realtime shows tenants their feed.");
  screen.print(`Schema "${schema}" is up to date.`);
  return 0;
}

export function needUrl(url: string | undefined): string {
  if (url) return checkUrl(url);
  throw new InvalidInput("No database is named", {
    field: "url",
    remedy: "Pass --url postgres://… or set DATABASE_URL",
  });
}
