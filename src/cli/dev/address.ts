// Where a running `stillwake dev` is: a file beside its data, so that commands in the same folder find it whatever port it has got.
import fs from "node:fs";
import path from "node:path";

/** With the address of its database, for psql. Returns what takes it away again, unless another has written its own since. */
export function writeDevAddress(dir: string, url: string, database: string): () => Promise<void> {
  const file = path.resolve(dir, "dev.json");
  fs.mkdirSync(path.dirname(file), { recursive: true });
  // Whoever reads it sees the one before or all of this one.
  const whole = `${file}.${process.pid}`;
  // The address of an embedded Postgres has its password in it.
  fs.writeFileSync(whole, `${JSON.stringify({ pid: process.pid, url, database })}\n`, { mode: 0o600 });
  fs.renameSync(whole, file);
  return async () => {
    if (read(file)?.pid === process.pid) fs.rmSync(file, { force: true });
  };
}

/** It may be of one that was killed: whether somebody is there has to be asked, unless `database` is known to be its own and up. */
export function readDevAddress(dir: string, database?: string): string | undefined {
  const told = read(path.resolve(dir, "dev.json"));
  if (database !== undefined && told?.database !== database) return undefined;
  const url = told?.url;
  // A folder of strangers must not send commands to strangers.
  return typeof url === "string" && /^http:\/\/(127\.0\.0\.1|localhost|\[::1\]):\d+$/.test(url) ? url : undefined;
}

function read(file: string): { pid?: unknown; url?: unknown; database?: unknown } | undefined {
  try {
    return JSON.parse(fs.readFileSync(file, "utf8")) ?? undefined;
  } catch {
    return undefined;
  }
}
