// stillwake/postgres: an embedded Postgres for development and tests, from npm packages.
export { type EmbeddedPostgres, type PostgresOptions, startPostgres } from "./server.ts";
