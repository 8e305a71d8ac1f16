// The server as a process: `node dist/server.js`. The page and its API, the server that follows jobs, and the one who starts machines, together. The database is
// Stillwake's, migrated by its owner (`stillwake migrate`) before.
import { listen, runServer, say } from "@stillwake/kit/web/serve";
import type pg from "pg";
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

await runServer(
  { help: HELP, readSettings: readServerSettings, readDatabaseUrl, migrate, serve },
  process.argv.slice(2),
);

async function serve(pool: pg.Pool, settings: ServerSettings): Promise<void> {
  const { databaseUrl: url, directUrl, secret, store, storeCredentials, host, port, base } = settings;
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
  await listen({
    what: "Extractions",
    ...{ app, live, orchestrator, host, port, base },
    // A pool at zero has no worker that would make its pipeline known.
    first: () => live.stillwake.register(extraction),
  });
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
