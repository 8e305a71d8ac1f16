// The server process (`node dist/server.js`): page, API, live view and orchestrator. It uses Stillwake's database, which its
// owner has migrated (`stillwake migrate`).
import { listen, printLine, runServer } from "@stillwake/kit/web/serve";
import type pg from "pg";
import { createOrchestrator, fly, type Orchestrator } from "stillwake/orchestrator";
import { createServer } from "stillwake/server";
import { openStore } from "stillwake/worker";
import { createApp, migrate } from "./app.ts";
import { clip } from "./contract.ts";
import { readDatabaseUrl, readServerSettings, type ServerSettings } from "./settings.ts";
import { openSources } from "./stages/sources.ts";

const HELP = `Serves clips of videos: the page, its API under api/, and the live view under stillwake/.

  node dist/server.js             serve until SIGTERM or SIGINT
  node dist/server.js --migrate   migrate the tables as the owner of the database, and exit

STILLWAKE_DATABASE_URL     a login with the roles stillwake_app and clip_api
STILLWAKE_STORE            where workers store clips: s3://…, or file:… on one machine
STILLWAKE_SECRET           signs the tokens of the live view: openssl rand -base64 32
CLIP_SOURCES               where uploads are stored: s3://…, or file:… on one machine; the same as the workers'
CLIP_SOURCES_ACCESS_KEY_ID, _SECRET_ACCESS_KEY   for s3://
CLIP_API_TOKEN             token that clients must send; without one the server listens on loopback only
CLIP_HOST, _PORT           127.0.0.1 and 4802
CLIP_BASE                  path it is mounted at: /
CLIP_SOURCE_MB             largest upload: 2048
CLIP_CLIP_SECONDS          longest clip: 600
MAX_ATTEMPTS               attempts of a clip: 3
MAX_CONCURRENCY            clips at a time per machine: 2
CLIP_FLY_APP               Fly app whose machines the server starts when there is work
CLIP_FLY_TOKEN             deploy token of that app; default FLY_API_TOKEN
CLIP_FLY_IMAGE, _SIZE, _MEMORY_MB, _REGION   image and size of the machines: performance-2x, 4096, iad
CLIP_WARM_MACHINES, CLIP_MAX_MACHINES        1 stopped machine kept ready, 5 machines at most
`;

/** For an upload of 2 GB over a slow line. */
const UPLOAD_MS = 3600_000;

await runServer(
  { help: HELP, readSettings: readServerSettings, readDatabaseUrl, migrate, serve },
  process.argv.slice(2),
);

async function serve(pool: pg.Pool, settings: ServerSettings): Promise<void> {
  const { databaseUrl: url, directUrl, secret, store, storeCredentials, host, port, base } = settings;
  const orchestrator = openOrchestrator(settings);
  const live = createServer({
    url,
    path: `${base.replace(/\/$/, "")}/stillwake`,
    store: openStore(store, storeCredentials),
    ...(directUrl && { directUrl }),
    ...(secret && { secret }),
    ...(orchestrator && { onPoke: () => orchestrator.poke() }),
  });
  if (!secret) printLine("STILLWAKE_SECRET is not set: the live view is not available");
  if (!orchestrator) printLine("CLIP_FLY_APP is not set: this server starts no machines");
  const { token, limits, maxAttempts } = settings;
  const sources = openSources(settings.sources);
  const app = createApp({
    pool,
    stillwake: live.stillwake,
    live: live.fetch,
    base,
    token,
    sources,
    limits,
    maxAttempts,
  });
  await listen({
    what: "Clips",
    ...{ app, live, orchestrator, host, port, base },
    requestTimeoutMs: UPLOAD_MS,
    // A pool without machines has no worker that would register the pipeline.
    beforeListen: () => live.stillwake.register(clip),
  });
}

function openOrchestrator({ databaseUrl: url, fly: machines }: ServerSettings): Orchestrator | undefined {
  if (!machines) return undefined;
  const { app, token, image, size, memoryMb, region, warm, max, slots } = machines;
  const provider = fly({ app, token, image, size, memoryMb, region });
  return createOrchestrator({
    url,
    pools: { clip: { provider, slots, warm, max, idleExit: "60s" } },
    onEvent: ({ level, message }) => printLine(`${level}: ${message}`),
  });
}
