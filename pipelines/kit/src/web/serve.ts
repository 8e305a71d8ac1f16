// The server of a system as a process: its tables, its address, the one who starts machines, and how it all ends. SIGTERM and SIGINT let requests under way finish.
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
  /** For --migrate, which needs nothing else. */
  readDatabaseUrl(): string;
  migrate(pool: pg.Pool): Promise<void>;
  /** Until it is told to stop. */
  serve(pool: pg.Pool, settings: Settings): Promise<void>;
}

/** `words`: of the command line, --help or --migrate. */
export async function runServer<Settings extends { databaseUrl: string }>(
  program: Program<Settings>,
  words: readonly string[],
): Promise<void> {
  if (words.includes("--help") || words.includes("-h")) process.stdout.write(program.help);
  else await main(program, words).catch(fail);
}

export interface Serving {
  app: App;
  /** The server that follows jobs; closed with the rest. */
  live: { close(): Promise<void> };
  orchestrator: Orchestrator | undefined;
  host: string;
  port: number;
  base: string;
  /** What is served, for the line that says where: "Extractions". */
  what: string;
  /** Done before anybody is let in. */
  first(): Promise<unknown>;
}

/** Serves until it is told to stop. */
export async function listen({ app, live, orchestrator, host, base, what, first, ...at }: Serving): Promise<void> {
  const server = http.createServer(
    { maxHeaderSize: 16 * 1024, requestTimeout: 30_000, headersTimeout: 10_000 },
    getRequestListener((request, env) => app.fetch(request, env), { overrideGlobalObjects: false }),
  );
  const told = stopSignal();
  let machines: Promise<void> | undefined;
  try {
    await first();
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(at.port, host, resolve);
    });
    const { port } = server.address() as AddressInfo;
    say(`${what} are served at http://${host.includes(":") ? `[${host}]` : host}:${port}${base}`);
    if (orchestrator) machines = startSoon(orchestrator);
    await told;
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

export function say(line: string): void {
  process.stdout.write(`${line.replaceAll(/\p{Cc}/gu, " ")}\n`);
}

async function main<Settings extends { databaseUrl: string }>(
  program: Program<Settings>,
  words: readonly string[],
): Promise<void> {
  const unknown = words.find((word) => word !== "--migrate");
  if (unknown !== undefined) throw new Error(`"${unknown}" is not known: see --help`);
  const settings = words.includes("--migrate") ? undefined : program.readSettings();
  const pool = new pg.Pool({
    connectionString: settings?.databaseUrl ?? program.readDatabaseUrl(),
    max: 10,
    idleTimeoutMillis: 5000,
    connectionTimeoutMillis: 10_000,
    query_timeout: 30_000,
  });
  // A connection that breaks while nobody uses it is replaced by the next one who needs one.
  pool.on("error", () => {});
  try {
    await program.migrate(pool);
    if (settings) await program.serve(pool, settings);
  } finally {
    await pool.end();
  }
}

/** The page is served whatever becomes of it: a database that is away comes back. */
async function startSoon(orchestrator: Orchestrator): Promise<void> {
  for (let waitMs = 1000; ; waitMs = Math.min(waitMs * 2, 60_000)) {
    try {
      await orchestrator.start();
      return;
    } catch (error) {
      if ((error as { code?: string }).code === "CLOSED") return;
      say(`No machines are started from here: ${(error as Error).message}`);
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
