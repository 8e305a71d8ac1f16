// node scripts/postgres.mjs <dir>: starts the Postgres kept in a directory, until Ctrl-C. Failed tests leave theirs.
import { once } from "node:events";
import { pathToFileURL } from "node:url";
import { ensure, inRoot } from "./ensure.mjs";

const dir = process.argv[2];
if (!dir || dir.startsWith("-")) {
  console.error("Name a directory: node scripts/postgres.mjs <dir>");
  process.exit(1);
}
await ensure();
const { startPostgres } = await import(pathToFileURL(inRoot("dist/postgres/index.js")).href);
const postgres = await startPostgres({ dir });
console.log(`Postgres ${postgres.version} is at ${postgres.url}\nPress Ctrl-C to stop it.`);
const idle = setInterval(() => {}, 60_000);
await Promise.race([once(process, "SIGINT"), once(process, "SIGTERM")]);
clearInterval(idle);
await postgres.stop();
