// stillwake doctor: checks the database and prints what is wrong, with a remedy.
import type { Finding } from "../../db/doctor.ts";
import { escapeControls } from "../../text/escape.ts";
import { type Command, databaseFlags } from "../command.ts";

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
