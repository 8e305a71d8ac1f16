// Checks of the deploy files that the example systems share: stages of pipelines/Dockerfile, login.sql, deploy scripts.
import fs from "node:fs";
import path from "node:path";
import pg from "pg";
import { expect } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";

const PIPELINES = path.resolve(import.meta.dirname, "../../..");
export const DOCKERFILE = path.join(PIPELINES, "Dockerfile");
export const SHARED_DEPLOY = path.join(PIPELINES, "kit/deploy");

/** The text of one stage of the Dockerfile, from its FROM line to the next. */
export function stageOf(name: string): string {
  const stages = fs.readFileSync(DOCKERFILE, "utf8").split(/^(?=FROM )/m);
  const stage = stages.find((text) => new RegExp(`^FROM \\S+ AS ${name}\\n`).test(text));
  expect(stage, name).toBeDefined();
  return stage!;
}

/** The program and arguments that a container of this stage starts. */
export function commandOf(stage: string): string[] {
  return ["ENTRYPOINT", "CMD"].flatMap((key) => JSON.parse(new RegExp(`^${key} (.*)$`, "m").exec(stage)![1]!));
}

export function readLoginSql(system: string): string {
  const script = fs.readFileSync(path.join(SHARED_DEPLOY, "login.sql"), "utf8");
  // psql's own commands; pg knows none of them.
  return script.replaceAll(/^ *\\.*$/gm, "").replace(":'system'", `'${system}'`);
}

/**
 * Runs login.sql twice, checks the three logins, and passes `check` a function that lists the rights of a login on a table.
 * Everything is rolled back: roles belong to the whole Postgres server, which other tests use too.
 */
export async function checkLogins(
  system: string,
  migrate: (owner: pg.Pool) => Promise<unknown>,
  check: (rights: (login: string, table: string) => Promise<string[]>) => Promise<void>,
): Promise<void> {
  const { url } = await freshDatabase();
  const owner = new pg.Pool({ connectionString: url, max: 2 });
  await migrate(owner);
  const client = await owner.connect();
  try {
    await client.query("begin");
    await client.query(readLoginSql(system));
    await client.query(readLoginSql(system));
    const logins = ["code", "server", "worker"].map((role) => `${system}_${role}`);
    const { rows } = await client.query(
      `select rolname, rolcanlogin, rolpassword, rolsuper or rolcreaterole or rolcreatedb as privileged
       from pg_authid where rolname = any ($1) order by rolname`,
      [logins],
    );
    const expected = { rolcanlogin: true, rolpassword: null, privileged: false };
    expect(rows).toEqual(logins.map((rolname) => ({ rolname, ...expected })));
    await check(async (login, table) => {
      const { rows: granted } = await client.query(
        `select r.name from unnest(array['select', 'insert', 'update', 'delete']) r (name)
         where has_table_privilege($1, $2, r.name)`,
        [login, table],
      );
      return granted.map(({ name }) => name);
    });
  } finally {
    await client.query("rollback");
    client.release();
    await owner.end();
  }
}

/** The flags and environment variables that a deploy script reads and that its --help does not name. */
export function undocumented(script: string, help: string): string[] {
  const [, flags = ""] = /^read_flags "([^"]+)"/m.exec(script) ?? [];
  const variables = [
    ...script.matchAll(/\$\{([A-Z_]+):-/g),
    ...script.matchAll(/^ *(?:need|secret "\$\w+") \S+ ([A-Z_]+) /gm),
  ].map(([, name]) => name!);
  const names = [...flags.split(" ").map((flag) => `--${flag}`), "--dry-run", ...variables];
  expect(names.length).toBeGreaterThan(8);
  // POLL_SECONDS exists for the tests.
  return names.filter((name) => name !== "POLL_SECONDS" && !help.includes(name));
}
