// stillwake init: writes a starter project. Existing files are kept.
import fs from "node:fs";
import path from "node:path";
import { InvalidInput } from "../../errors.ts";
import { escapeLine } from "../../text/escape.ts";
import type { Command } from "../command.ts";

export const initCommand: Command = {
  name: "init",
  group: "Get started",
  summary: "write a starter project",
  usage: ["[dir]"],
  args: [0, 1],
  flags: { force: "also in a directory that is not empty; existing files are kept" },
  examples: [
    ["init my-pipelines", "then: cd my-pipelines && npm install && npm start"],
    ["init", "in the current directory, which must be empty"],
  ],
  async run({ args: [dir = "."], flags, screen }) {
    const { starterFiles } = await import("../dev/starter.ts");
    const full = path.resolve(dir);
    // A directory with nothing but .git counts as empty.
    const existing = listFiles(full).filter((name) => name !== ".git");
    if (existing.length > 0 && !flags.force) {
      throw new InvalidInput(
        `${escapeLine(full)} is not empty: it has ${escapeLine(existing.slice(0, 3).join(", "))}`,
        {
          field: "dir",
          remedy: "Name a new directory, or pass --force: existing files are kept",
        },
      );
    }
    let created = 0;
    for (const [name, text] of Object.entries(starterFiles(path.basename(full)))) {
      const file = path.join(full, name);
      fs.mkdirSync(path.dirname(file), { recursive: true });
      try {
        fs.writeFileSync(file, text, { flag: "wx" });
        created += 1;
      } catch (error) {
        if ((error as { code?: string }).code !== "EEXIST") throw error;
        screen.printStderr(`${name} exists and was kept.`);
      }
    }
    const relative = path.relative(process.cwd(), full);
    const target = relative.startsWith("..") ? full : relative;
    screen.print(`Created ${created} files in ${escapeLine(full)}. Next:\n`);
    if (target)
      screen.print(`  cd ${/^[\w./-]+$/.test(target) ? target : `'${escapeLine(target).replaceAll("'", "'\\''")}'`}`);
    screen.print("  npm install\n  npm start");
    return 0;
  },
};

/** Empty for a directory that does not exist. */
function listFiles(dir: string): string[] {
  try {
    return fs.readdirSync(dir);
  } catch (error) {
    const { code } = error as { code?: string };
    if (code === "ENOENT") return [];
    throw new InvalidInput(`${escapeLine(dir)} cannot be used for a project: ${code}`, {
      field: "dir",
      remedy: "Name a directory",
    });
  }
}
