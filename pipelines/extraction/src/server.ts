// The server as a process: `node dist/server.js`. The page and its API, the server that follows jobs, and the one who starts machines, together; SIGTERM and SIGINT let
// requests under way finish. The database is Stillwake's, migrated by its owner (`stillwake migrate`) before.
import http from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import pg from "pg";
import { createOrchestrator, fly, type Orchestrator } from "stillwake/orchestrator";
import { createServer } from "stillwake/server";
import { openStore } from "stillwake/worker";
import { createApp } from "./app.ts";
import { extraction } from "./contract.ts";
import { readDatabaseUrl, readServerSettings, type ServerSettings } from "./server-settings.ts";
import { migrate } from "./tables.ts";

const HELP = `Serves the extraction of repositories: the page, its API under api/, and the live view under stillwake/.

  node dist/server.js             serves until it is told to stop
  node dist/server.js --migrate   brings the tables to this version, as the owner of the database, and ends

STILLWAKE_DATABASE_URL     a login with the roles stillwake_app and extraction_api
STILLWAKE_STORE            where workers keep reports: s3://…, or file:… on one machine
STILLWAKE_SECRET           signs what the live view is opened with: openssl rand -base64 32
STILLWAKE_SEAL_KEYS        seals credentials of GitLab and Bitbucket: k1: and openssl rand -base64 32; workers have the same
EXTRACTION_API_TOKEN       whoever comes in needs it; without one it listens on this machine alone
EXTRACTION_ORGANIZATION    whose everything is that comes in: a UUID
EXTRACTION_HOST, _PORT     127.0.0.1 and 4800
EXTRACTION_BASE            the path it is mounted at: /
EXTRACTION_FLY_APP         starts machines of this app when there is work
EXTRACTION_FLY_TOKEN       a deploy token of that app; FLY_API_TOKEN without one
EXTRACTION_FLY_IMAGE, _SIZE, _MEMORY_MB, _REGION   what machines are: performance-8x, 65536, iad
EXTRACTION_WARM_MACHINES, EXTRACTION_MAX_MACHINES  3 made beforehand and stopped, 5 at once
`;

const words = process.argv.slice(2);
if (words.includes("--help") || words.includes("-h")) process.stdout.write(HELP);
else await main(words).catch(fail);

async function main(given: string[]): Promise<void> {
  const unknown = given.find((word) => word !== "--migrate");
  if (unknown !== undefined) throw new Error(`"${unknown}" is not known: see --help`);
  const settings = given.includes("--migrate") ? undefined : readServerSettings();
  const pool = new pg.Pool({
    connectionString: settings?.databaseUrl ?? readDatabaseUrl(),
    max: 10,
    idleTimeoutMillis: 5000,
    connectionTimeoutMillis: 10_000,
    query_timeout: 30_000,
  });
  // A connection that breaks while nobody uses it is replaced by the next one who needs one.
  pool.on("error", () => {});
  try {
    await migrate(pool);
    if (settings) await serve(pool, settings);
  } finally {
    await pool.end();
  }
}

async function serve(pool: pg.Pool, settings: ServerSettings): Promise<void> {
  const { databaseUrl: url, directUrl, secret, store, storeCredentials, host, base } = settings;
  const orchestrator = orchestratorOf(settings);
  const live = createServer({
    url,
    path: `${base.replace(/\/$/, "")}/stillwake`,
    store: openStore(store, storeCredentials),
    ...(directUrl && { directUrl }),
    ...(secret && { secret }),
    ...(orchestrator && { onPoke: () => orchestrator.poke() }),
  });
  if (!secret) say("STILLWAKE_SECRET is not set: nobody can follow an extraction live");
  if (!orchestrator) say("EXTRACTION_FLY_APP is not set: no machines are started from here");
  const { token, organization, sealKeys } = settings;
  const app = createApp({ pool, stillwake: live.stillwake, live: live.fetch, base, token, organization, sealKeys });
  const server = http.createServer(
    { maxHeaderSize: 16 * 1024, requestTimeout: 30_000, headersTimeout: 10_000 },
    getRequestListener((request, env) => app.fetch(request, env), { overrideGlobalObjects: false }),
  );
  const told = stopSignal();
  let machines: Promise<void> | undefined;
  try {
    // A pool at zero has no worker that would make its pipeline known.
    await live.stillwake.register(extraction);
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(settings.port, host, resolve);
    });
    const { port } = server.address() as AddressInfo;
    say(`Extractions are served at http://${host.includes(":") ? `[${host}]` : host}:${port}${base}`);
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

function orchestratorOf({ databaseUrl: url, fly: machines }: ServerSettings): Orchestrator | undefined {
  if (!machines) return undefined;
  const { app, token, image, size, memoryMb, region, warm, max } = machines;
  const provider = fly({ app, token, image, size, memoryMb, region });
  return createOrchestrator({
    url,
    // One job on a machine: N extractions have N machines.
    pools: { scan: { provider, slots: 1, warm, max, idleExit: "60s" } },
    onEvent: ({ level, message }) => say(`${level}: ${message}`),
  });
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

function say(line: string): void {
  process.stdout.write(`${line.replaceAll(/\p{Cc}/gu, " ")}\n`);
}

function fail(error: Error): void {
  process.stderr.write(`${error.message.replaceAll(/\p{Cc}/gu, " ")}\n`);
  process.exitCode = 1;
}
