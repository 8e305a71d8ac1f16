// stillwake doctor: what is wrong with the database and how to mend it.
import { examine, type Finding } from "../../db/doctor.ts";
import { databaseAddress } from "../../orchestrator/database-address.ts";
import type { Call } from "../command.ts";
import { inert } from "../output/escape.ts";
import { needUrl } from "./migrate.ts";

const marks: Record<Finding["level"], string> = { ok: "ok  ", warning: "warn", error: "BAD " };

export async function doctorCommand({ flags, config, screen }: Call): Promise<number> {
  const url = needUrl(flags.url ?? config.databaseUrl);
  const findings = await examine({
    url,
    schema: flags.schema ?? config.schema,
    address: databaseAddress(url),
  });
  if (flags.json) screen.json(findings);
  else {
    for (const { level, check, found, remedy } of findings) {
      screen.print(
        `${marks[level]}  ${check.padEnd(20)} ${inert(found)}${remedy ? `\n${" ".repeat(27)}→ ${remedy}` : ""}`,
      );
    }
  }
  return findings.some(({ level }) => level === "error") ? 1 : 0;
}
