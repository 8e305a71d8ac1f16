// A separate Postgres server for tests that crash it, read its log or need another build. Its port survives
// restarts. It stops with the test or the file that started it.
import fs from "node:fs";
import path from "node:path";
import { inject } from "vitest";
import { migrate } from "../../../src/index.ts";
import { type EmbeddedPostgres, startPostgres } from "../../../src/postgres/index.ts";
import { waitFor } from "../../../src/testing/index.ts";
import { cleanUp } from "../cleanup.ts";
import { copyCluster, scratchDirectory } from "./cluster-files.ts";

export interface PostgresServer {
  url: string;
  port: number;
  log(): string;
  /** SIGQUIT is an immediate shutdown, with recovery at the next start. SIGINT is a fast, clean shutdown. */
  kill(signal: "SIGKILL" | "SIGQUIT" | "SIGINT"): Promise<void>;
  /** Returns the time (performance.now()) at which it accepted connections. */
  start(): Promise<number>;
}

/** `build`: a folder with bin/postgres, instead of the default one. */
export async function startPostgresServer(
  settings: Record<string, string | number> = {},
  build?: string,
): Promise<PostgresServer> {
  const home = scratchDirectory("own");
  const dir = path.join(home, "server");
  const cluster = build === undefined && inject("cluster");
  if (cluster) copyCluster(cluster, dir);
  const binaries = build ?? process.env.STILLWAKE_TEST_POSTGRES;
  const options = { dir, settings, ...(binaries && { binaries }) };
  let postgres: EmbeddedPostgres = await startPostgres(options);
  const { port, url } = postgres;
  cleanUp(async () => {
    await postgres.stop();
    fs.rmSync(home, { recursive: true, force: true });
  });
  if (!cluster) await migrate({ url });
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
  };
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
