// The server process (`node dist/server.js`): page, API, live view and orchestrator. It uses Stillwake's database, which its
// owner has migrated (`stillwake migrate`).
import { listen, printLine, runServer } from "@stillwake/kit/web/serve";
import type pg from "pg";
import { createOrchestrator, fly, type Orchestrator } from "stillwake/orchestrator";
import { createServer } from "stillwake/server";
import { openStore } from "stillwake/worker";
import { createApp, migrate } from "./app.ts";
import { extraction } from "./contract.ts";
import { readDatabaseUrl, readServerSettings, type ServerSettings } from "./server-settings.ts";

const HELP = `Serves the extraction of repositories: the page, its API under api/, and the live view under stillwake/.

  node dist/server.js             serve until SIGTERM or SIGINT
  node dist/server.js --migrate   migrate the tables as the owner of the database, and exit

STILLWAKE_DATABASE_URL     a login with the roles stillwake_app and extraction_api
STILLWAKE_STORE            where workers store reports: s3://…, or file:… on one machine
STILLWAKE_SECRET           signs the tokens of the live view: openssl rand -base64 32
STILLWAKE_SEAL_KEYS        seals credentials of GitLab and Bitbucket: k1: and openssl rand -base64 32; the same as the workers'
EXTRACTION_API_TOKEN       token that clients must send; without one the server listens on loopback only
EXTRACTION_ORGANIZATION    organization of all requests: a UUID
EXTRACTION_HOST, _PORT     127.0.0.1 and 4800
EXTRACTION_BASE            path it is mounted at: /
EXTRACTION_FLY_APP         Fly app whose machines the server starts when there is work
EXTRACTION_FLY_TOKEN       deploy token of that app; default FLY_API_TOKEN
EXTRACTION_FLY_IMAGE, _SIZE, _MEMORY_MB, _REGION   image and size of the machines: performance-8x, 65536, iad
EXTRACTION_WARM_MACHINES, EXTRACTION_MAX_MACHINES  3 stopped machines kept ready, 5 machines at most
`;

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
  if (!orchestrator) printLine("EXTRACTION_FLY_APP is not set: this server starts no machines");
  const { token, organization, sealKeys } = settings;
  const app = createApp({ pool, stillwake: live.stillwake, live: live.fetch, base, token, organization, sealKeys });
  await listen({
    what: "Extractions",
    ...{ app, live, orchestrator, host, port, base },
    // A pool without machines has no worker that would register the pipeline.
    beforeListen: () => live.stillwake.register(extraction),
  });
}

function openOrchestrator({ databaseUrl: url, fly: machines }: ServerSettings): Orchestrator | undefined {
  if (!machines) return undefined;
  const { app, token, image, size, memoryMb, region, warm, max } = machines;
  const provider = fly({ app, token, image, size, memoryMb, region });
  return createOrchestrator({
    url,
    // One job per machine: N extractions run on N machines.
    pools: { scan: { provider, slots: 1, warm, max, idleExit: "60s" } },
    onEvent: ({ level, message }) => printLine(`${level}: ${message}`),
  });
}
