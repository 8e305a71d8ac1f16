// stillwake doctor: what is wrong with the database and how to mend it.
import { examine, type Finding } from "../doctor.ts";
import { needUrl } from "./migrate.ts";

const marks: Record<Finding["level"], string> = { ok: "ok  ", warning: "warn", error: "BAD " };

export async function doctorCommand(options: {
  url: string | undefined;
  schema: string;
  json: boolean;
}): Promise<number> {
  const findings = await examine({ url: needUrl(options.url), schema: options.schema });
  if (options.json) console.log(JSON.stringify(findings, null, 2));
  else {
    for (const { level, check, found, remedy } of findings) {
      console.log(`${marks[level]}  ${check.padEnd(20)} ${found}${remedy ? `\n${" ".repeat(27)}→ ${remedy}` : ""}`);
    }
  }
  return findings.some(({ level }) => level === "error") ? 1 : 0;
}
