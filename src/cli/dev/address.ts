// The address file of a running `stillwake dev`, beside its data: commands in the same directory find its port there.
import fs from "node:fs";
import path from "node:path";

/** Includes the database URL, for psql. Returns a function that removes the file, unless another process wrote it. */
export function writeDevAddress(dir: string, url: string, database: string): () => Promise<void> {
  const file = path.resolve(dir, "dev.json");
  fs.mkdirSync(path.dirname(file), { recursive: true });
  // Renamed into place: a reader never sees half a file.
  const temporary = `${file}.${process.pid}`;
  // The URL of the embedded Postgres contains its password.
  fs.writeFileSync(temporary, `${JSON.stringify({ pid: process.pid, url, database })}\n`, { mode: 0o600 });
  fs.renameSync(temporary, file);
  return async () => {
    if (readAddressFile(file)?.pid === process.pid) fs.rmSync(file, { force: true });
  };
}

/** The file may be left over from a killed process: the caller checks that the server responds or passes `database`. */
export function readDevAddress(dir: string, database?: string): string | undefined {
  const address = readAddressFile(path.resolve(dir, "dev.json"));
  if (database !== undefined && address?.database !== database) return undefined;
  const url = address?.url;
  // Loopback only: a file in an untrusted directory must not redirect commands to another host.
  return typeof url === "string" && /^http:\/\/(127\.0\.0\.1|localhost|\[::1\]):\d+$/.test(url) ? url : undefined;
}

/** The Postgres of the `stillwake dev` that runs in this directory: loopback only, like its server. */
export function readDevDatabase(dir: string): string | undefined {
  const { pid, database } = readAddressFile(path.resolve(dir, "dev.json")) ?? {};
  if (typeof database !== "string" || !URL.canParse(database) || !isRunning(pid)) return undefined;
  const { protocol, hostname, password } = new URL(database);
  // The password of a database that is not its own is not in the file.
  const isOwn = /^postgres(ql)?:$/.test(protocol) && /^(127\.0\.0\.1|localhost)$/.test(hostname) && password !== "***";
  return isOwn ? database : undefined;
}

function isRunning(pid: unknown): boolean {
  try {
    return typeof pid === "number" && process.kill(pid, 0);
  } catch (error) {
    return (error as { code?: string }).code === "EPERM";
  }
}

function readAddressFile(file: string): { pid?: unknown; url?: unknown; database?: unknown } | undefined {
  try {
    return JSON.parse(fs.readFileSync(file, "utf8")) ?? undefined;
  } catch {
    return undefined;
  }
}
