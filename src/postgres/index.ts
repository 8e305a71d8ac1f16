// stillwake/postgres: a real Postgres for development and tests, from npm packages alone.
export { type EmbeddedPostgres, type PostgresOptions, startPostgres } from "./server.ts";
