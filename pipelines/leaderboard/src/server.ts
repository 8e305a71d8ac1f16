// The server as a process: `node dist/server.js`. The page and its API, and the server that follows jobs. Work is done by those that the clock or an orchestrator starts:
// see deploy/. The database is Stillwake's, migrated by its owner (`stillwake migrate`) before.
import { listen, runServer, say } from "@stillwake/kit/web/serve";
import type { WebSettings } from "@stillwake/kit/web/server-settings";
import type pg from "pg";
import { createServer } from "stillwake/server";
import { createApp } from "./app.ts";
import { commits, users } from "./contract.ts";
import { readDatabaseUrl, readServerSettings } from "./server-settings.ts";
import { migrate } from "./tables.ts";

const HELP = `Serves leaderboards of repositories: the page, its API under api/, and the live view under stillwake/.

  node dist/server.js             serves until it is told to stop
  node dist/server.js --migrate   brings the tables to this version, as the owner of the database, and ends

STILLWAKE_DATABASE_URL     a login with the roles stillwake_app and leaderboard_api
STILLWAKE_SECRET           signs what the live view is opened with: openssl rand -base64 32
LEADERBOARD_API_TOKEN      whoever comes in needs it; without one it listens on this machine alone
LEADERBOARD_HOST, _PORT    127.0.0.1 and 4801
LEADERBOARD_BASE           the path it is mounted at: /
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
  if (!secret) say("STILLWAKE_SECRET is not set: nobody can follow a reading live");
  const app = createApp({ pool, stillwake: live.stillwake, live: live.fetch, base, token });
  await listen({
    what: "Leaderboards",
    ...{ app, live, orchestrator: undefined, host, port, base },
    // Pools that the clock drains have no worker yet that would make their pipelines known.
    first: () => live.stillwake.register(commits, users),
  });
}
