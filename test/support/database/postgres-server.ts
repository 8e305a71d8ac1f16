// A Postgres of a test's own, for tests that crash it, read its log or need another build of it. The port stays the same over its lives, as that of a real server does.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { migrate } from "../../../src/index.ts";
import { type EmbeddedPostgres, startPostgres } from "../../../src/postgres/index.ts";
import { waitFor } from "../../../src/testing/index.ts";

export interface OwnServer extends AsyncDisposable {
  url: string;
  port: number;
  log(): string;
  /** SIGQUIT is an immediate stop: no checkpoint, recovery at the next start. SIGINT is a fast stop in good order. */
  kill(signal: "SIGKILL" | "SIGQUIT" | "SIGINT"): Promise<void>;
  /** Answers the moment (performance.now()) at which it took connections. */
  start(): Promise<number>;
}

/** `build`: a folder with bin/postgres, instead of the one the tests run on. */
export async function ownServer(settings: Record<string, string | number> = {}, build?: string): Promise<OwnServer> {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-own-"));
  fs.chmodSync(dir, 0o755);
  const binaries = build ?? process.env.STILLWAKE_TEST_POSTGRES;
  const options = { dir, settings, ...(binaries && { binaries }) };
  let postgres: EmbeddedPostgres = await startPostgres(options);
  const { port, url } = postgres;
  await migrate({ url });
  return {
    url,
    port,
    log: () => fs.readFileSync(path.join(dir, "server.log"), "utf8"),
    async kill(signal) {
      process.kill(postgres.pid, signal);
      await waitFor(() => !isAlive(postgres.pid), { interval: 5, what: "Postgres to be gone" });
    },
    async start() {
      postgres = await startPostgres({ ...options, port });
      return performance.now();
    },
    async [Symbol.asyncDispose]() {
      await postgres.stop();
      fs.rmSync(dir, { recursive: true, force: true });
    },
  };
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
