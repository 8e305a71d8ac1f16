// Runs a system's server process: migration, HTTP server, orchestrator, graceful shutdown. On SIGTERM and SIGINT running
// requests finish first.
import http from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import pg from "pg";
import type { Orchestrator } from "stillwake/orchestrator";
import type { App } from "./app.ts";

export interface Program<Settings extends { databaseUrl: string }> {
  /** Printed for --help. */
  help: string;
  readSettings(): Settings;
  /** For --migrate, which needs no other setting. */
  readDatabaseUrl(): string;
  migrate(pool: pg.Pool): Promise<void>;
  serve(pool: pg.Pool, settings: Settings): Promise<void>;
}

/** `args`: of the command line, --help or --migrate. */
export async function runServer<Settings extends { databaseUrl: string }>(
  program: Program<Settings>,
  args: readonly string[],
): Promise<void> {
  if (args.includes("--help") || args.includes("-h")) process.stdout.write(program.help);
  else await main(program, args).catch(fail);
}

export interface ServeOptions {
  app: App;
  /** Stillwake's server for the live view. */
  live: { close(): Promise<void> };
  orchestrator: Orchestrator | undefined;
  host: string;
  port: number;
  base: string;
  /** For the line that prints the URL: "Extractions". */
  what: string;
  /** How long a client may take to send a request. Default 30 seconds. */
  requestTimeoutMs?: number;
  /** Awaited before the server accepts connections. */
  beforeListen(): Promise<unknown>;
}

/** Serves until a stop signal arrives. */
export async function listen({
  app,
  live,
  orchestrator,
  host,
  base,
  what,
  beforeListen,
  ...options
}: ServeOptions): Promise<void> {
  const server = http.createServer(
    { maxHeaderSize: 16 * 1024, requestTimeout: options.requestTimeoutMs ?? 30_000, headersTimeout: 10_000 },
    getRequestListener((request, env) => app.fetch(request, env), { overrideGlobalObjects: false }),
  );
  const stopped = stopSignal();
  let machines: Promise<void> | undefined;
  try {
    await beforeListen();
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(options.port, host, resolve);
    });
    const { port } = server.address() as AddressInfo;
    printLine(`${what} are served at http://${host.includes(":") ? `[${host}]` : host}:${port}${base}`);
    if (orchestrator) machines = startWithRetry(orchestrator);
    await stopped;
  } finally {
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeIdleConnections();
    const limit = setTimeout(() => server.closeAllConnections(), 5000);
    await live.close();
    await closed;
    clearTimeout(limit);
    await orchestrator?.stop();
    await machines;
  }
}

export function printLine(line: string): void {
  process.stdout.write(`${line.replaceAll(/\p{Cc}/gu, " ")}\n`);
}

async function main<Settings extends { databaseUrl: string }>(
  program: Program<Settings>,
  args: readonly string[],
): Promise<void> {
  const unknown = args.find((arg) => arg !== "--migrate");
  if (unknown !== undefined) throw new Error(`Unknown argument "${unknown}". See --help`);
  const settings = args.includes("--migrate") ? undefined : program.readSettings();
  const pool = new pg.Pool({
    connectionString: settings?.databaseUrl ?? program.readDatabaseUrl(),
    max: 10,
    idleTimeoutMillis: 5000,
    connectionTimeoutMillis: 10_000,
    query_timeout: 30_000,
  });
  // The pool replaces a connection that breaks while idle.
  pool.on("error", () => {});
  try {
    await program.migrate(pool);
    if (settings) await program.serve(pool, settings);
  } finally {
    await pool.end();
  }
}

/** Retries: the page is served even while the database is not available. */
async function startWithRetry(orchestrator: Orchestrator): Promise<void> {
  for (let waitMs = 1000; ; waitMs = Math.min(waitMs * 2, 60_000)) {
    try {
      await orchestrator.start();
      return;
    } catch (error) {
      if ((error as { code?: string }).code === "CLOSED") return;
      printLine(`Orchestrator not started: ${(error as Error).message}`);
    }
    await new Promise((resolve) => setTimeout(resolve, waitMs).unref());
  }
}

function stopSignal(): Promise<void> {
  return new Promise((resolve) => {
    let signals = 0;
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
      process.on(signal, () => {
        signals += 1;
        if (signals > 1) process.exit(1);
        resolve();
      });
    }
  });
}

function fail(error: Error): void {
  process.stderr.write(`${error.message.replaceAll(/\p{Cc}/gu, " ")}\n`);
  process.exitCode = 1;
}
