// stillwake migrate: the database is brought up to date, or the SQL is printed.
import { checkUrl } from "../database.ts";
import { InvalidInput } from "../errors.ts";
import { migrate, printMigrations } from "../migrate.ts";

export async function migrateCommand(options: {
  url: string | undefined;
  schema: string;
  print: boolean;
}): Promise<number> {
  if (options.print) {
    process.stdout.write(printMigrations(options.schema));
    return 0;
  }
  const { schema, applied, functions } = await migrate({ url: needUrl(options.url), schema: options.schema });
  for (const name of applied) console.log(`applied ${name}`);
  if (functions) console.log("applied functions");
  console.log(`Schema "${schema}" is up to date.`);
  return 0;
}

export function needUrl(url: string | undefined): string {
  if (url) return checkUrl(url);
  throw new InvalidInput("No database is named", {
    field: "url",
    remedy: "Pass --url postgres://… or set DATABASE_URL",
  });
}
