// Starts PgBouncer in front of a test's Postgres, from the Debian package, which is installed if this user may install
// packages; otherwise the tests are skipped with a reason. STILLWAKE_TEST_PGBOUNCER is the path of another one.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { waitFor } from "../../../src/testing/index.ts";
import { install } from "../processes/debian.ts";

export interface Found {
  program: string;
  /** Such as 1.18. */
  version: number[];
}

/** The program, or the reason why it is not available. */
export function findPgBouncer(): Found | string {
  const { STILLWAKE_TEST_PGBOUNCER: given } = process.env;
  const program = given ?? "/usr/sbin/pgbouncer";
  if (!given && !fs.existsSync(program)) {
    if (process.getuid?.() !== 0) return "PgBouncer is not installed, and only root may install it";
    try {
      install("pgbouncer");
    } catch (error) {
      return `PgBouncer is not installed, and apt-get could not: ${(error as Error).message}`;
    }
  }
  const output = execFileSync(program, ["--version"], { encoding: "utf8" });
  const version = /PgBouncer (\d+)\.(\d+)/.exec(output);
  return version
    ? { program, version: version.slice(1).map(Number) }
    : `${program} does not say its version: ${output}`;
}

export interface PgBouncerOptions {
  program: string;
  /** The URL of the database behind it. */
  url: string;
  mode: "session" | "transaction" | "statement";
  /** Server connections per database. */
  size: number;
  settings?: Record<string, string | number>;
}

export interface PgBouncer extends AsyncDisposable {
  /** The URL of the same database through the pooler. */
  url: string;
  log(): string;
}

export async function startPgBouncer(options: PgBouncerOptions): Promise<PgBouncer> {
  const { program, mode, size, settings = {} } = options;
  const target = new URL(options.url);
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-pgbouncer-"));
  const port = await freePort();
  const log = path.join(dir, "log");
  const lines = {
    listen_addr: "127.0.0.1",
    listen_port: port,
    unix_socket_dir: "",
    logfile: log,
    // No authentication: every client gets the user below.
    auth_type: "any",
    pool_mode: mode,
    default_pool_size: size,
    max_client_conn: 500,
    ...settings,
  };
  const ini = path.join(dir, "pgbouncer.ini");
  fs.writeFileSync(
    ini,
    [
      "[databases]",
      `* = host=${target.hostname} port=${target.port} user=${target.username} password=${decodeURIComponent(target.password)}`,
      "[pgbouncer]",
      ...Object.entries(lines).map(([name, value]) => `${name} = ${value}`),
      "",
    ].join("\n"),
    { mode: 0o600 },
  );
  // It refuses to run as root.
  const as = process.getuid?.() === 0 ? nobody() : {};
  if (as.uid !== undefined) for (const file of [dir, ini]) fs.chownSync(file, as.uid, as.gid!);
  const child = spawn(program, [ini], { ...as, cwd: dir, stdio: "ignore" });
  const read = () => (fs.existsSync(log) ? fs.readFileSync(log, "utf8") : "");
  try {
    await waitFor(() => child.exitCode === null && /process up/.test(read()), { what: "PgBouncer to be up" });
  } catch (error) {
    throw new Error(`PgBouncer did not start: ${read()}`, { cause: error });
  }
  const url = new URL(options.url);
  url.hostname = "127.0.0.1";
  url.port = String(port);
  return {
    url: url.href,
    log: read,
    async [Symbol.asyncDispose]() {
      await stop(child);
      fs.rmSync(dir, { recursive: true, force: true });
    },
  };
}

function nobody(): { uid?: number; gid?: number } {
  const [, , uid, gid] = /^nobody:.*$/m.exec(fs.readFileSync("/etc/passwd", "utf8"))![0].split(":");
  return { uid: Number(uid), gid: Number(gid) };
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill("SIGQUIT");
  child.kill("SIGTERM");
  await exited;
}

async function freePort(): Promise<number> {
  const probe = net.createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as net.AddressInfo;
  probe.close();
  await once(probe, "close");
  return port;
}
