// stillwake init: a folder becomes a project that runs. It writes what is not there and changes nothing that is.
import fs from "node:fs";
import path from "node:path";
import { InvalidInput } from "../../errors.ts";
import type { Call } from "../command.ts";
import { starter } from "../dev/starter.ts";
import { inLine } from "../output/escape.ts";

export async function initCommand({ words: [dir = "."], flags, screen }: Call): Promise<number> {
  const full = path.resolve(dir);
  const there = listed(full);
  // A repository without files is as good as empty.
  const kept = there.filter((name) => name !== ".git");
  if (kept.length > 0 && !flags.force) {
    throw new InvalidInput(`${inLine(full)} is not empty: it has ${inLine(kept.slice(0, 3).join(", "))}`, {
      field: "dir",
      remedy: "Name a new folder, or pass --force: what is there is kept",
    });
  }
  const files = Object.entries(starter(path.basename(full)));
  let made = 0;
  for (const [name, text] of files) {
    const file = path.join(full, name);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    try {
      fs.writeFileSync(file, text, { flag: "wx" });
      made += 1;
    } catch (error) {
      if ((error as { code?: string }).code !== "EEXIST") throw error;
      screen.say(`${name} is there already and was kept.`);
    }
  }
  const near = path.relative(process.cwd(), full);
  const where = near.startsWith("..") ? full : near;
  screen.print(`Made ${made} files in ${inLine(full)}. Next:\n`);
  if (where) screen.print(`  cd ${/^[\w./-]+$/.test(where) ? where : `'${inLine(where).replaceAll("'", "'\\''")}'`}`);
  screen.print("  npm install\n  npm start");
  return 0;
}

/** Empty for what does not exist yet. */
function listed(dir: string): string[] {
  try {
    return fs.readdirSync(dir);
  } catch (error) {
    const { code } = error as { code?: string };
    if (code === "ENOENT") return [];
    throw new InvalidInput(`${inLine(dir)} cannot become a project: ${code}`, {
      field: "dir",
      remedy: "Name a folder",
    });
  }
}
