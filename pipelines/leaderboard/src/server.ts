// The server process (`node dist/server.js`): page, API and live view. Workers run elsewhere, see deploy/. It uses Stillwake's
// database, which its owner has migrated (`stillwake migrate`).
import { listen, printLine, runServer } from "@stillwake/kit/web/serve";
import type { WebSettings } from "@stillwake/kit/web/server-settings";
import type pg from "pg";
import { createServer } from "stillwake/server";
import { createApp, migrate } from "./app.ts";
import { commits, users } from "./contract.ts";
import { readDatabaseUrl, readServerSettings } from "./settings.ts";

const HELP = `Serves leaderboards of repositories: the page, its API under api/, and the live view under stillwake/.

  node dist/server.js             serve until SIGTERM or SIGINT
  node dist/server.js --migrate   migrate the tables as the owner of the database, and exit

STILLWAKE_DATABASE_URL     a login with the roles stillwake_app and leaderboard_api
STILLWAKE_SECRET           signs the tokens of the live view: openssl rand -base64 32
LEADERBOARD_API_TOKEN      token that clients must send; without one the server listens on loopback only
LEADERBOARD_HOST, _PORT    127.0.0.1 and 4801
LEADERBOARD_BASE           path it is mounted at: /
`;

await runServer(
  { help: HELP, readSettings: readServerSettings, readDatabaseUrl, migrate, serve },
  process.argv.slice(2),
);

async function serve(pool: pg.Pool, settings: WebSettings): Promise<void> {
  const { databaseUrl: url, directUrl, secret, host, port, base, token } = settings;
  const live = createServer({
    url,
    path: `${base.replace(/\/$/, "")}/stillwake`,
    ...(directUrl && { directUrl }),
    ...(secret && { secret }),
  });
  if (!secret) printLine("STILLWAKE_SECRET is not set: the live view is not available");
  const app = createApp({ pool, stillwake: live.stillwake, live: live.fetch, base, token });
  await listen({
    what: "Leaderboards",
    ...{ app, live, orchestrator: undefined, host, port, base },
    // Pools without workers have none that would register the pipelines.
    beforeListen: () => live.stillwake.register(commits, users),
  });
}
